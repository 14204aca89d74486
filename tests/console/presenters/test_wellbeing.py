"""Whether lists and tiles say that all is well."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.actors import ENGINE, Actor
from console.models import ClusterLink
from console.presenters.links import link_row, tiles
from console.presenters.states import link_look
from console.queries.links import list_links
from console.queries.mirrorpages import link_figures
from tests.console.conftest import NOW, MakeMirror


def is_unclear(owner: Actor) -> bool:
    (summary,) = list_links(by=owner)
    return link_row(summary, now=NOW).unclear


def hint(link: ClusterLink) -> str:
    return tiles(link_figures(link=link, by=ENGINE), look=link_look(link.state))[-1].hint


@pytest.mark.parametrize("trouble", [{"engine_error": "Spark is away."}, {"state": "FAILED"}, {"state": "UNAVAILABLE"}])
def test_a_link_that_copies_nothing_is_not_well(link: ClusterLink, owner: Actor, trouble: dict[str, Any]) -> None:
    assert not is_unclear(owner)

    ClusterLink.objects.filter(pk=link.pk).update(**trouble)

    assert is_unclear(owner)


def test_nor_is_one_that_nobody_has_heard_of(link: ClusterLink, make_mirror: MakeMirror, owner: Actor) -> None:
    mirror = make_mirror()
    mirror.partitions.update(last_source_seen_at=timezone.now(), source_end=10, mirror_end=10)
    assert (is_unclear(owner), hint(link)) == (False, "all is well")

    mirror.partitions.update(last_source_seen_at=timezone.now() - timedelta(hours=8))

    assert (is_unclear(owner), hint(link)) == (True, "mirror topics")
