"""Beginning a drill: what it copies, what it leaves alone, when it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from console.access import visible_mirrors
from console.actions.drills import start_drill
from console.actions.mirrors import delete_mirror
from console.actors import Actor
from console.errors import ConflictError, DeniedError, InvalidInputError, NotFoundError
from console.models import AuditEvent, ClusterLink, LinkConfig, MirrorTopic
from console.queries.mirrorpages import link_figures
from linkengine.domain.states import LinkState, MirrorState
from tests.console.conftest import NOW, MakeMirror

Sent = list[tuple[str, dict[str, Any]]]


def test_scratch_copies_are_made_of_active_mirrors_and_shown_in_no_list(
    link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent
) -> None:
    make_mirror("orders"), make_mirror("paused", MirrorState.PAUSED)

    drill = start_drill(link=link, by=owner, now=NOW)

    copy = MirrorTopic.objects.get(drill=drill)
    assert (copy.name, copy.source_topic, copy.state) == (f"orders.clusterlink-drill-{drill.pk}", "orders", "PENDING_SETUP")
    assert copy.start_spec == "latest"
    assert set(visible_mirrors(owner).values_list("name", flat=True)) == {"orders", "paused"}
    assert sum(one.mirrors for one in link_figures(link=link).states.values()) == 2
    assert AuditEvent.objects.get(action="StartFailoverDrill").detail["topics"] == ["orders"]


def test_one_drill_at_a_time(link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    start_drill(link=link, by=owner, now=NOW)
    with pytest.raises(ConflictError, match="under way"):
        start_drill(link=link, by=owner, now=NOW)


def test_unknown_names_are_named(link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent) -> None:
    with pytest.raises(NotFoundError, match="bills"):
        start_drill(link=link, names=["orders", "bills"], by=owner, now=NOW)
    assert not link.drills.exists()


def test_there_must_be_something_to_rehearse(link: ClusterLink, owner: Actor, sent: Sent) -> None:
    with pytest.raises(ConflictError, match="no active mirror"):
        start_drill(link=link, by=owner, now=NOW)


def test_a_drill_is_bounded(link: ClusterLink, make_mirror: MakeMirror, owner: Actor, sent: Sent) -> None:
    for number in range(21):
        make_mirror(f"topic-{number}", partitions=1)
    with pytest.raises(InvalidInputError, match="20"):
        start_drill(link=link, by=owner, now=NOW)


def test_a_start_that_means_nothing_is_refused(link: ClusterLink, mirror: MirrorTopic, owner: Actor) -> None:
    with pytest.raises(InvalidInputError):
        start_drill(link=link, start_spec="yesterday", by=owner, now=NOW)


def test_a_link_in_trouble_rehearses_nothing(link: ClusterLink, mirror: MirrorTopic, owner: Actor) -> None:
    ClusterLink.objects.update(state=LinkState.UNAVAILABLE)
    with pytest.raises(ConflictError, match="unavailable"):
        start_drill(link=link, by=owner, now=NOW)


def test_a_reader_may_not_rehearse(link: ClusterLink, mirror: MirrorTopic, colleague: Actor) -> None:
    with pytest.raises(DeniedError):
        start_drill(link=link, by=colleague, now=NOW)


def test_a_scratch_copy_can_be_deleted_although_a_filter_matches(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: Sent
) -> None:
    filters = '{"topicFilters": [{"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}]}'
    LinkConfig.objects.create(link=link, name="auto.create.mirror.topics.enable", value="true")
    LinkConfig.objects.create(link=link, name="auto.create.mirror.topics.filters", value=filters)
    drill = start_drill(link=link, by=owner, now=NOW)
    copy = MirrorTopic.objects.select_related("link__destination__environment").get(drill=drill)

    delete_mirror(mirror=copy, by=owner, now=NOW)

    copy.refresh_from_db()
    assert copy.deletion_requested_at == NOW
