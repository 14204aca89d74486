"""Texts of health, and what lists and tiles show of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.actors import ENGINE, Actor
from console.links.presenters import LinkRow, link_row, tiles, worst_first
from console.links.queries import list_links
from console.models import Cluster, ClusterLink, LinkTask, MirrorTopic
from console.web.health_presenters import HEALTH_BADGES, REASONS, health_view
from linkengine.domain.health import Health, HealthStatus, Reason
from tests.console.conftest import NOW, MakeActor, MakeMirror, Role
from tests.console.observed import link_figures


def row_of(by: Actor) -> LinkRow:
    (summary,) = list_links(by=by)
    return link_row(summary, now=NOW)


def health_of(by: Actor) -> Health:
    (summary,) = list_links(by=by)
    return summary.health.status.health


def report(mirror: MirrorTopic, *, seconds: float = 0) -> None:
    """Store reports of a copy worker that has seen both ends so many seconds ago."""
    now = timezone.now() - timedelta(seconds=seconds)
    mirror.partitions.update(observed_at=now, last_source_seen_at=now, caught_up_at=now, phase="COPYING")


def test_every_health_and_every_reason_has_a_text() -> None:
    assert set(HEALTH_BADGES) == set(Health)
    assert set(REASONS) == set(Reason)
    for reason in Reason:
        for partitions, age_ms in ((0, None), (1, 61_000), (7, 61_000)):
            status = HealthStatus(
                health=Health.DEGRADED, reason=reason, codes=("TIMEOUT_ERROR",), partitions=partitions, age_ms=age_ms
            )
            view = health_view(status)
            assert view.sentence.endswith("."), view.sentence
            assert not view.sentence[0].islower()


def test_health_that_needs_attention_has_a_next_step() -> None:
    quiet = {Reason.DELETING, Reason.SETTING_UP, Reason.STOPPING, Reason.REVERSING, Reason.STARTING, Reason.FIRST_COPY}
    quiet |= {Reason.STOPPED, Reason.COPYING, Reason.NO_LINKS, Reason.SOURCE_SIDE}
    for reason in set(Reason) - quiet:
        assert health_view(HealthStatus(health=Health.DEGRADED, reason=reason)).next_step, reason


@pytest.mark.parametrize(
    ("trouble", "health"),
    [
        ({"engine_error": "Spark is away."}, Health.DEGRADED),
        ({"state": "FAILED"}, Health.NOT_COPYING),
        ({"state": "UNAVAILABLE"}, Health.NOT_COPYING),
        ({"state": "PAUSED"}, Health.PAUSED),
        ({"deletion_requested_at": NOW}, Health.CHANGING),
    ],
)
def test_link_row_shows_the_health_that_its_state_does_not_show(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, trouble: dict[str, Any], health: Health
) -> None:
    report(mirror)
    assert health_of(owner) is Health.HEALTHY

    ClusterLink.objects.filter(pk=link.pk).update(**trouble)

    assert row_of(owner).health.badge.code == health


def test_link_row_has_the_cause_and_the_number_of_mirrors(link: ClusterLink, mirror: MirrorTopic, owner: Actor) -> None:
    report(mirror, seconds=6)
    ClusterLink.objects.filter(pk=link.pk).update(engine_error="Copy engine unavailable: No Spark.")

    row = row_of(owner)

    assert row.health.sentence == "1 of 1 mirror topic: No copy worker can run. Copy engine unavailable: No Spark."
    assert (row.attention, [(badge.label, number) for badge, number in row.notable]) == (1, [("Not copying", 1)])


def test_tile_counts_mirrors_by_health(link: ClusterLink, make_mirror: MakeMirror, owner: Actor) -> None:
    for name in ("orders", "payments"):
        report(make_mirror(name))
    tile = tiles(link_figures(link=link, by=ENGINE), list_links(by=owner)[0].health)[-1]
    assert (tile.value, tile.hint, tile.alarm) == ("0", "all healthy", False)

    link.mirrors.get(name="orders").transition_errors.create(code="RECORDS_DIFFER", message="x", since=NOW, last_seen_at=NOW)
    tile = tiles(link_figures(link=link, by=ENGINE), list_links(by=owner)[0].health)[-1]
    assert (tile.value, tile.hint, tile.alarm) == ("1", "of 2 mirror topics", True)


def test_failing_tasks_degrade_a_link_while_they_are_enabled(link: ClusterLink, mirror: MirrorTopic, owner: Actor) -> None:
    report(mirror)
    switch = link.configs.create(name="acl.sync.enable", value="true")
    LinkTask.objects.create(link=link, name="AclSync", error_count=9)
    assert health_of(owner) is Health.DEGRADED

    switch.delete()

    assert health_of(owner) is Health.HEALTHY


def test_failing_tasks_are_hidden_from_topic_roles(mirror: MirrorTopic, destination: Cluster, make_actor: MakeActor) -> None:
    report(mirror)
    LinkTask.objects.create(link=mirror.link, name="TopicConfigsSync", error_count=1)

    narrow = make_actor("narrow", Role.DEVELOPER_READ, cluster=destination, resource_type="Topic", resource_name="orders")

    assert health_of(narrow) is Health.HEALTHY


def test_worst_health_comes_first(link: ClusterLink, owner: Actor) -> None:
    for number, state in enumerate(("ACTIVE", "PAUSED", "FAILED")):
        link.pk, link.link_uuid, link.name = None, f"00000000-0000-0000-0000-{number:012}", f"{number}-{state}"
        link.state = state
        link.save(force_insert=True)

    names = [row.name for row in worst_first([link_row(summary, now=NOW) for summary in list_links(by=owner)])]

    assert names == ["2-FAILED", "1-PAUSED", "0-ACTIVE", "west-to-east"]


def test_number_of_links_does_not_change_the_number_of_queries(
    link: ClusterLink, owner: Actor, make_mirror: MakeMirror, django_assert_num_queries: Any
) -> None:
    for number in range(5):
        link.pk, link.link_uuid, link.name = None, f"00000000-0000-0000-0000-{number:012}", f"link-{number}"
        link.save(force_insert=True)
        make_mirror(f"topic-{number}", link=link)  # without mirrors the task has no work, and so no errors
        LinkTask.objects.create(link=link, name="TopicConfigsSync", error_count=1)
    list_links(by=owner)

    with django_assert_num_queries(5):
        assert sum(summary.failing_tasks for summary in list_links(by=owner)) == 5
