"""Every operation in every state over REST: legal ones change the state, the others are refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from console.api.kafka_schemas import MIRROR_STATUS
from console.models import Cluster, ClusterLink, MirrorTopic, StateTransition
from linkengine.domain.states import TRANSITIONS, MirrorEvent, MirrorState, allowed_operations
from tests.console.api.actors import NOW, Rest

pytestmark = pytest.mark.django_db
S = MirrorState
E = MirrorEvent
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
    """The destination side of a bidirectional link with both sides."""
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


@pytest.mark.parametrize("state", list(S), ids=str)
def test_each_verb_follows_the_transition_table(owner: Rest, base: str, both: ClusterLink, make_mirror: Any, state: S) -> None:
    mirrors = f"{base}/links/{both.name}/mirrors"
    for event, verb in VERBS.items():
        row, target = make_mirror(f"to-{verb}", state), TRANSITIONS[state].get(event)

        response = owner.post(f"{mirrors}:{verb}", {"mirror_topic_names": [row.name]})

        assert response.status_code == 200
        (result,) = response.json()["data"]
        shown = owner.get(f"{mirrors}/{row.name}").json()["mirror_status"]
        now = MirrorTopic.objects.get(pk=row.pk).state
        if target is not None:
            assert (result["error_code"], result["error_message"]) == (None, None)
            assert (now, shown) == (target, MIRROR_STATUS[target])
            continue
        assert result["error_code"] == 400
        assert result["error_message"] == reason(state, event, row.name)
        assert (now, shown) == (state, MIRROR_STATUS[state])
        assert not StateTransition.objects.filter(mirror=row).exists()


def reason(state: S, event: E, topic: str = "orders") -> str:
    if state is S.STOPPED:
        return f"Topic '{topic}' has already stopped its mirror from 'from-source'. Only RESTORE and DELETE are possible."
    return f"Cannot {event} a mirror topic in state {state}. Allowed now: {', '.join(allowed_operations(state))}."


@pytest.mark.parametrize("state", list(S), ids=str)
def test_deleting_a_topic_follows_the_transition_table(
    owner: Rest, base: str, link: ClusterLink, make_mirror: Any, state: S
) -> None:
    make_mirror("orders", state)

    response = owner.delete(f"{base}/topics/orders")

    requested = MirrorTopic.objects.exclude(deletion_requested_at=None).exists()
    if E.DELETE in TRANSITIONS[state]:
        assert (response.status_code, requested) == (204, True)
        return
    assert (response.status_code, response.json()["error_code"], requested) == (400, 40002, False)
    assert response.json()["message"] == reason(state, E.DELETE)
