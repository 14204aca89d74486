"""REST API of the recovery of a failed mirror, in every state."""

from typing import Any

import pytest

from console.mirrors.rules import RECOVERABLE
from console.models import AuditEvent, MirrorTopic
from linkengine.domain.states import MirrorState, allowed_operations
from tests.console.api.actors import DESTINATION, Rest

pytestmark = pytest.mark.django_db
PATH = f"/api/v1/clusters/{DESTINATION}/links/from-source/mirrors/orders/recover"
S = MirrorState


@pytest.mark.parametrize("code", sorted(RECOVERABLE))
def test_a_failed_mirror_is_recovered(owner: Rest, make_mirror: Any, code: str) -> None:
    make_mirror("orders", S.FAILED, error_code=code, error_message="no", stop_reason="")

    preview = owner.post(f"{PATH}?validate_only=true")
    assert (preview.status_code, preview.json()) == (200, {"mirror_topic_name": "orders", "mirror_status": "FAILED"})
    done = owner.post(PATH)

    assert (done.status_code, done.json()) == (200, {"mirror_topic_name": "orders", "mirror_status": "ACTIVE"})
    row = MirrorTopic.objects.get()
    assert (row.state, row.error_code, row.error_since) == (S.ACTIVE, "", None)
    assert AuditEvent.objects.filter(detail={"from": "FAILED", "to": "ACTIVE"}).count() == 1


def test_recovery_is_refused_if_offsets_changed_their_meaning(owner: Rest, make_mirror: Any) -> None:
    make_mirror("orders", S.FAILED, error_code="SOURCE_TOPIC_ID_CHANGED")

    refused = owner.post(PATH)

    assert (refused.status_code, refused.json()["error_code"]) == (400, 40002)
    assert "delete it and create it again" in refused.json()["message"]


def test_recovery_of_a_missing_mirror_topic_is_refused_with_the_reason(owner: Rest, make_mirror: Any) -> None:
    make_mirror("orders", S.FAILED, error_code="MIRROR_TOPIC_MISSING")

    refused = owner.post(PATH)

    assert refused.status_code == 400
    assert refused.json()["message"].startswith("The mirror topic 'orders' was deleted")


@pytest.mark.parametrize("state", sorted(set(S) - {S.FAILED, S.STOPPED}))
def test_recovery_of_a_mirror_that_has_not_failed_names_the_allowed_operations(owner: Rest, make_mirror: Any, state: S) -> None:
    make_mirror("orders", state)

    refused = owner.post(PATH)

    allowed = ", ".join(allowed_operations(state))
    assert refused.status_code == 400
    assert refused.json()["message"] == f"Cannot recover a mirror topic in state {state}. Allowed now: {allowed}."


def test_a_reader_may_not_recover_mirrors(reader: Rest, make_mirror: Any) -> None:
    make_mirror("orders", S.FAILED)

    assert codes(reader.post(PATH)) == (403, 40301)


def codes(response: Any) -> tuple[int, int]:
    return response.status_code, response.json()["error_code"]
