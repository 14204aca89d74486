"""Methods of the QuerySets select the rows that their names say."""

from __future__ import annotations

from collections.abc import Iterable

from console.models import ClusterLink, Drill, MirrorTopic
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, MakeMirror


def names(mirrors: Iterable[MirrorTopic]) -> set[str]:
    return {mirror.name for mirror in mirrors}


def test_scratch_copies_of_drills_are_not_listed(link: ClusterLink, make_mirror: MakeMirror) -> None:
    dates = {"status_since": NOW, "requested_at": NOW}
    drill = Drill.objects.create(link=link, start_spec="latest", requested_by="owner", **dates)
    make_mirror("orders")
    make_mirror("scratch", drill=drill)

    assert names(MirrorTopic.objects.listed()) == {"orders"}
    assert names(link.mirrors.listed()) == {"orders"}
    assert names(MirrorTopic.objects.all()) == {"orders", "scratch"}


def test_all_mirrors_but_stopped_ones_are_unstopped(link: ClusterLink, make_mirror: MakeMirror) -> None:
    for state in MirrorState:
        make_mirror(f"in-{state}", state)

    found = names(MirrorTopic.objects.unstopped())

    assert found == {f"in-{state}" for state in MirrorState if state is not MirrorState.STOPPED}
    assert names(link.mirrors.unstopped()) == found
