"""When lists and tiles show a link as healthy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.actors import ENGINE, Actor
from console.models import Cluster, ClusterLink, LinkTask
from console.presenters.links import link_row, tiles
from console.presenters.states import link_look
from console.queries.links import list_links
from console.queries.mirrorpages import link_figures
from tests.console.conftest import NOW, MakeActor, MakeMirror, Role


def is_unhealthy(owner: Actor) -> bool:
    (summary,) = list_links(by=owner)
    return link_row(summary, now=NOW).unhealthy


def hint(link: ClusterLink, *, troubled: bool = False) -> str:
    return tiles(link_figures(link=link, by=ENGINE), look=link_look(link.state), troubled=troubled)[-1].hint


@pytest.mark.parametrize("trouble", [{"engine_error": "Spark is away."}, {"state": "FAILED"}, {"state": "UNAVAILABLE"}])
def test_link_with_engine_error_or_failed_state_is_unhealthy(link: ClusterLink, owner: Actor, trouble: dict[str, Any]) -> None:
    assert not is_unhealthy(owner)

    ClusterLink.objects.filter(pk=link.pk).update(**trouble)

    assert is_unhealthy(owner)


def test_link_with_unknown_lag_is_unhealthy(link: ClusterLink, make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = make_mirror()
    mirror.partitions.update(last_source_seen_at=timezone.now(), source_end=10, mirror_end=10)
    assert (is_unhealthy(owner), hint(link)) == (False, "all healthy")

    mirror.partitions.update(last_source_seen_at=timezone.now() - timedelta(hours=8))

    assert (is_unhealthy(owner), hint(link)) == (True, "mirror topics")


def test_link_with_failing_tasks_is_unhealthy(link: ClusterLink, make_mirror: MakeMirror, owner: Actor) -> None:
    make_mirror().partitions.update(last_source_seen_at=timezone.now(), source_end=10, mirror_end=10)
    switch = link.configs.create(name="acl.sync.enable", value="true")
    LinkTask.objects.create(link=link, name="AclSync", error_count=9)

    assert (is_unhealthy(owner), hint(link, troubled=True)) == (True, "mirror topics")

    switch.delete()  # errors of a task that is turned off are not shown
    assert (is_unhealthy(owner), hint(link)) == (False, "all healthy")


def test_failing_tasks_are_hidden_from_topic_roles(
    link: ClusterLink, make_mirror: MakeMirror, destination: Cluster, make_actor: MakeActor
) -> None:
    make_mirror().partitions.update(last_source_seen_at=timezone.now(), source_end=10, mirror_end=10)
    LinkTask.objects.create(link=link, name="TopicConfigsSync", error_count=1)

    narrow = make_actor("narrow", Role.DEVELOPER_READ, cluster=destination, resource_type="Topic", resource_name="orders")

    assert not is_unhealthy(narrow)


def test_number_of_links_does_not_change_the_number_of_queries(
    link: ClusterLink, owner: Actor, django_assert_num_queries: Any
) -> None:
    for number in range(5):
        link.pk, link.link_uuid, link.name = None, f"00000000-0000-0000-0000-{number:012}", f"link-{number}"
        link.save(force_insert=True)
        LinkTask.objects.create(link=link, name="TopicConfigsSync", error_count=1)
    list_links(by=owner)

    with django_assert_num_queries(5):
        assert sum(summary.failing_tasks for summary in list_links(by=owner)) == 5


def test_link_row_shows_problems_that_the_state_does_not_show(link: ClusterLink, make_mirror: MakeMirror, owner: Actor) -> None:
    """The state describes the connection only: it is ACTIVE even if nothing is copied or records differ."""
    mirror = make_mirror()
    mirror.transition_errors.create(code="RECORDS_DIFFER", message="x", since=NOW, last_seen_at=NOW)
    ClusterLink.objects.filter(pk=link.pk).update(engine_error="Spark is away.", deletion_requested_at=NOW)
    link.configs.create(name="acl.sync.enable", value="true")
    LinkTask.objects.create(link=link, name="AclSync", error_count=9)

    (summary,) = list_links(by=owner)
    row = link_row(summary, now=NOW)

    assert row.problems == ["being deleted", "not copying: no copy job can run", "1 task failing"]
    assert (row.look.label, row.troubled, row.attention) == ("Active", 1, 1)
