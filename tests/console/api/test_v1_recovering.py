"""Recovering a failed mirror below /api/v1, in every state."""

from typing import Any

import pytest

from console.models import AuditEvent, MirrorTopic
from console.policies import SAVABLE
from linkengine.domain.states import MirrorState, allowed_operations
from tests.console.api.cast import DESTINATION, Rest

pytestmark = pytest.mark.django_db
PATH = f"/api/v1/clusters/{DESTINATION}/links/from-source/mirrors/orders/recover"
S = MirrorState


@pytest.mark.parametrize("code", sorted(SAVABLE))
def test_a_failed_mirror_goes_on(owner: Rest, make_mirror: Any, code: str) -> None:
    make_mirror("orders", S.FAILED, error_code=code, error_message="no", stop_reason="")

    preview = owner.post(f"{PATH}?validate_only=true")
    assert (preview.status_code, preview.json()) == (200, {"mirror_topic_name": "orders", "mirror_status": "FAILED"})
    done = owner.post(PATH)

    assert (done.status_code, done.json()) == (200, {"mirror_topic_name": "orders", "mirror_status": "ACTIVE"})
    row = MirrorTopic.objects.get()
    assert (row.state, row.error_code, row.error_since) == (S.ACTIVE, "", None)
    assert AuditEvent.objects.filter(detail={"from": "FAILED", "to": "ACTIVE"}).count() == 1


def test_offsets_that_mean_something_else_cannot_be_recovered(owner: Rest, make_mirror: Any) -> None:
    make_mirror("orders", S.FAILED, error_code="SOURCE_TOPIC_ID_CHANGED")

    refused = owner.post(PATH)

    assert (refused.status_code, refused.json()["error_code"]) == (400, 40002)
    assert "delete it and create it again" in refused.json()["message"]


def test_a_mirror_topic_that_is_gone_cannot_be_recovered_and_the_reason_is_true(owner: Rest, make_mirror: Any) -> None:
    make_mirror("orders", S.FAILED, error_code="MIRROR_TOPIC_MISSING")

    refused = owner.post(PATH)

    assert refused.status_code == 400
    assert refused.json()["message"].startswith("The mirror topic 'orders' was deleted")


@pytest.mark.parametrize("state", sorted(set(S) - {S.FAILED, S.STOPPED}))
def test_what_has_not_failed_is_refused_with_what_is_possible(owner: Rest, make_mirror: Any, state: S) -> None:
    make_mirror("orders", state)

    refused = owner.post(PATH)

    allowed = ", ".join(allowed_operations(state))
    assert refused.status_code == 400
    assert refused.json()["message"] == f"Cannot recover a mirror topic in state {state}. Allowed now: {allowed}."


def test_who_may_only_look_recovers_nothing(reader: Rest, make_mirror: Any) -> None:
    make_mirror("orders", S.FAILED)

    assert codes(reader.post(PATH)) == (403, 40301)


def codes(answer: Any) -> tuple[int, int]:
    return answer.status_code, answer.json()["error_code"]
