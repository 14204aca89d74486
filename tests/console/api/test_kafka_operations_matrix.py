"""Every operation in every state over REST: what is legal moves the mirror, the rest is refused in its row, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from console.api.kafka.words import MIRROR_STATUS
from console.models import Cluster, ClusterLink, MirrorTopic, StateTransition
from linkengine.domain.states import TRANSITIONS, MirrorEvent, MirrorState, allowed_operations
from tests.console.api.cast import NOW, Rest

pytestmark = pytest.mark.django_db
S, E = MirrorState, MirrorEvent
VERBS = {
    E.PAUSE: "pause",
    E.RESUME: "resume",
    E.PROMOTE: "promote",
    E.FAILOVER: "failover",
    E.REVERSE_AND_START: "reverse-and-start-mirror",
    E.REVERSE_AND_PAUSE: "reverse-and-pause-mirror",
    E.RESTORE: "truncate-and-restore",
}


@pytest.fixture
def both(link: ClusterLink, destination: Cluster, source: Cluster) -> ClusterLink:
    """A bidirectional link; its destination's side."""
    link.mode = "BIDIRECTIONAL"
    link.save()
    ClusterLink.objects.create(
        name=link.name,
        mode="BIDIRECTIONAL",
        destination=source,
        source=destination,
        source_cluster_id=destination.cluster_id,
        properties=destination.properties,
        state_since=NOW,
        created_at=NOW,
        created_by="owner",
    )
    return link


@pytest.mark.parametrize("event", list(VERBS), ids=str)
@pytest.mark.parametrize("state", list(S), ids=str)
def test_a_verb_does_what_the_table_says(
    owner: Rest, base: str, both: ClusterLink, make_mirror: Any, state: S, event: E
) -> None:
    mirrors = f"{base}/links/{both.name}/mirrors"
    row = make_mirror("orders", state)
    target = TRANSITIONS[state].get(event)

    answer = owner.post(f"{mirrors}:{VERBS[event]}", {"mirror_topic_names": ["orders"]})

    assert answer.status_code == 200
    (told,) = answer.json()["data"]
    shown = owner.get(f"{mirrors}/orders").json()["mirror_status"]
    now = MirrorTopic.objects.get(pk=row.pk).state
    if target is not None:
        assert (told["error_code"], told["error_message"]) == (None, None)
        assert (now, shown) == (target, MIRROR_STATUS[target])
        return
    assert told["error_code"] == 400
    assert told["error_message"] == reason(state, event)
    assert (now, shown) == (state, MIRROR_STATUS[state])
    assert not StateTransition.objects.exists()


def reason(state: S, event: E) -> str:
    if state is S.STOPPED:
        return "Topic 'orders' has already stopped its mirror from 'from-source'."
    return f"Cannot {event} a mirror topic in state {state}. Allowed now: {', '.join(allowed_operations(state))}."


@pytest.mark.parametrize("state", list(S), ids=str)
def test_a_topic_is_deleted_where_the_table_says(owner: Rest, base: str, link: ClusterLink, make_mirror: Any, state: S) -> None:
    make_mirror("orders", state)

    answer = owner.delete(f"{base}/topics/orders")

    asked = MirrorTopic.objects.exclude(deletion_requested_at=None).exists()
    if E.DELETE in TRANSITIONS[state]:
        assert (answer.status_code, asked) == (204, True)
        return
    assert (answer.status_code, answer.json()["error_code"], asked) == (400, 40002, False)
    assert answer.json()["message"] == reason(state, E.DELETE)
