"""Stops of several mirrors: their rows equal, row by row, those of lists of one; which mirrors are stopped together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.forms.models import model_to_dict
from django.test.utils import CaptureQueriesContext

from console.actors import ENGINE
from console.mirrors.lineage import open_lineage
from console.models import (
    ClusterLink,
    EndedError,
    LineageRange,
    MirrorPartition,
    MirrorTopic,
    RestoreRun,
    StateTransition,
    StateTransitionError,
    StopReport,
)
from console.models.mirrors import RECORDS_LOST
from console.reconciling import plans
from console.reconciling.due_tasks import MANY, stopped_together
from console.reconciling.plans import fenced_ends, mirrored_ends, record_ends, with_known_ends
from console.reconciling.transition_errors import Failures
from console.redis import locks
from console.workflows import leases, stopping
from console.workflows.leases import Taken
from console.workflows.links import _send_due_tasks
from console.workflows.stopping import _mark, _record_ends, _stop, note_stopped
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorStopped, RefusedStep
from linkengine.domain.plans import GapFiller
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, MakeMirror

S = MirrorState
LATER = NOW + timedelta(seconds=7)
KINDS = 5
NOTHING_REFUSED = MirrorStopped(ends=())
REFUSED = MirrorStopped(
    ends=(), refused=(RefusedStep(name="retention.ms", value="99", code="POLICY_VIOLATION_ERROR", message="7 d at most."),)
)
TABLES: tuple[Any, ...] = (MirrorPartition, LineageRange, StateTransition, StateTransitionError, EndedError, StopReport)
pytestmark = pytest.mark.usefixtures("sent")


@pytest.fixture
def pairs(make_mirror: MakeMirror) -> list[tuple[MirrorTopic, MirrorTopic]]:
    """Pairs of mirrors that differ by their name only, a pair of each kind."""
    return [
        (_stopping(make_mirror, f"one-{kind}", kind), _stopping(make_mirror, f"many-{kind}", kind)) for kind in range(KINDS)
    ]


def _stopping(make_mirror: MakeMirror, name: str, kind: int) -> MirrorTopic:
    mirror = make_mirror(name, S.PENDING_STOPPED, stop_reason="failover", drained_at=NOW, error_code="X", error_since=NOW)
    open_lineage(mirror=mirror, starts={0: kind * 5}, now=NOW)  # kind 2: nothing copied; 3 and 4: starts after its end
    MirrorPartition.objects.filter(mirror=mirror).update(last_source_seen_at=NOW, error_code="TIMEOUT_ERROR", error_message="x")
    MirrorPartition.objects.filter(mirror=mirror, partition=1).update(
        last_source_end=25,
        last_high_watermark=25,
        last_source_seen_at=NOW if kind % 2 else None,
        mirror_end=None if kind == 1 else 10,
    )
    for number in range(kind):  # a failover after a promotion: the last request counts
        at = NOW - timedelta(seconds=number % 3)
        StateTransition.objects.create(
            mirror=mirror, from_state=S.ACTIVE, to_state=S.PENDING_STOPPED, event="failover", by=f"owner-{number}", at=at
        )
    for code in ("WAITING_FOR_LAG", RECORDS_LOST)[: kind % 3]:
        StateTransitionError.objects.create(mirror=mirror, code=code, message="why", since=NOW, last_seen_at=NOW)
    return mirror


def _written(mirror: MirrorTopic) -> dict[str, Any]:
    """Return all rows of a mirror, without ids and names."""
    hidden = {"id", "mirror", "name", "mirror_name", "topic", "source_topic", "origin_topic"}

    def shown(rows: Sequence[Any]) -> list[dict[str, Any]]:
        return [{key: value for key, value in model_to_dict(row).items() if key not in hidden} for row in rows]

    known = {table.__name__: shown(table.objects.filter(mirror=mirror).order_by("pk")) for table in TABLES}
    return {**known, "itself": shown([MirrorTopic.objects.get(pk=mirror.pk)])}


def test_rows_equal_those_of_single_stops(pairs: list[tuple[MirrorTopic, MirrorTopic]]) -> None:
    ends = {0: MirrorStopped(ends=((0, 10), (1, 12)), epochs=((0, 3), (1, 4))), 1: MirrorStopped(ends=((0, 10),))}
    for number, (single, _) in enumerate(pairs):
        record_ends([(single, ends[number % 2])])
    record_ends((many, ends[number % 2]) for number, (_, many) in enumerate(pairs))

    stopped = [REFUSED if number == 4 else NOTHING_REFUSED for number in range(KINDS)]
    for number, (single, _) in enumerate(pairs):
        note_stopped({single: stopped[number]}, now=LATER)
    note_stopped({many: stopped[number] for number, (_, many) in enumerate(pairs)}, now=LATER)

    assert set(MirrorTopic.objects.values_list("state", flat=True)) == {S.STOPPED}
    for single, many in pairs:
        assert _written(many) == _written(single)
    assert set(MirrorPartition.objects.filter(partition=0).values_list("stopped_end", flat=True)) == {10}
    assert set(MirrorPartition.objects.filter(partition=1).values_list("fence_epoch", flat=True)) == {4, None}
    assert StopReport.objects.count() == 2 * KINDS
    assert not MirrorPartition.objects.exclude(error_code="", error_message="").exists()


def test_foreign_record_below_the_fence_is_not_part_of_the_copy(make_mirror: MakeMirror) -> None:
    mirror = _stopping(make_mirror, "orders", 0)

    record_ends([(mirror, MirrorStopped(ends=((0, 12), (1, 10)), foreign=((0, 11),), epochs=((0, 3),)))])
    record_ends([(mirror, MirrorStopped(ends=((0, 12), (1, 10)), foreign=((0, 11),)))])  # a retry finds the fences recorded

    assert (mirrored_ends(mirror), fenced_ends(mirror)) == (((0, 11), (1, 10)), ((0, 12), (1, 10)))
    assert plans.verify_of(mirror).ends == ((0, 11), (1, 10))
    assert MirrorPartition.objects.get(mirror=mirror, partition=0).fence_epoch == 3
    (again,) = with_known_ends([(mirror, plans.stop_of(mirror, generation=2))])
    assert (again.fenced_ends, again.copied) == (((0, 12), (1, 10)), ((0, 11), (1, 10)))


def test_number_of_statements_does_not_grow_with_the_mirrors(make_mirror: MakeMirror) -> None:
    mirrors = [_stopping(make_mirror, f"many-{number}", 1) for number in range(40)]

    with CaptureQueriesContext(connection) as queries:
        record_ends((mirror, MirrorStopped(ends=((0, 10), (1, 10)))) for mirror in mirrors)
        note_stopped(dict.fromkeys(mirrors, NOTHING_REFUSED), now=LATER)

    assert len(queries) < len(mirrors)


def test_mirror_that_was_stopped_in_between_is_not_changed(make_mirror: MakeMirror, link: ClusterLink) -> None:
    mirrors = [_stopping(make_mirror, f"many-{number}", 0) for number in range(3)]
    note_stopped({MirrorTopic.objects.get(pk=mirrors[1].pk): None}, now=NOW)
    before = _written(mirrors[1])

    note_stopped(dict.fromkeys(mirrors, NOTHING_REFUSED), now=LATER)

    assert _written(mirrors[1]) == before
    assert StateTransition.objects.filter(to_state=S.STOPPED, by=ENGINE.name).count() == len(mirrors)
    assert StopReport.objects.filter(writable_at=LATER).count() == 2


def _unfenced(make_mirror: MakeMirror) -> list[MirrorTopic]:
    mirrors = [_stopping(make_mirror, f"many-{number}", 0) for number in range(MANY)]
    MirrorPartition.objects.update(stopped_end=None)
    return mirrors


def test_mirror_that_is_still_being_set_up_is_stopped_in_a_list_of_its_own(make_mirror: MakeMirror, link: ClusterLink) -> None:
    """Its set-up has to give way first."""
    mirrors = _unfenced(make_mirror)
    assert stopped_together(link.mirrors.all()) == {mirror.pk for mirror in mirrors}
    MirrorTopic.objects.filter(pk=mirrors[0].pk).update(prior_state=S.PENDING_SETUP)

    assert stopped_together(link.mirrors.all()) == frozenset()


def test_mirror_whose_topic_may_still_be_deleted_is_stopped_in_a_list_of_its_own(
    make_mirror: MakeMirror, link: ClusterLink
) -> None:
    """Its restore was interrupted after it had decided the deletion; then the mirror failed."""
    mirrors = [*_unfenced(make_mirror), _stopping(make_mirror, "decided", 0)]
    decided = mirrors[-1]
    MirrorTopic.objects.filter(pk=decided.pk).update(prior_state=S.FAILED)
    assert decided.pk in stopped_together(link.mirrors.all())
    run = RestoreRun.objects.create(mirror=decided, requested_by="owner", requested_at=NOW, deletion_decided_at=NOW)

    assert stopped_together(link.mirrors.all()) == {mirror.pk for mirror in mirrors[:-1]}

    RestoreRun.objects.filter(pk=run.pk).update(finished_at=NOW)
    assert decided.pk in stopped_together(link.mirrors.all())


def test_mirrors_with_transactions_as_gap_filler_are_stopped_in_lists_of_their_own(
    make_mirror: MakeMirror, link: ClusterLink
) -> None:
    """Each of their fences is a transaction; a marker would be refused, or belong to a producer that never wrote them."""
    _unfenced(make_mirror)
    ClusterLink.objects.update(gap_filler=GapFiller.TRANSACTIONS)

    assert stopped_together(MirrorTopic.objects.select_related("link")) == frozenset()


@pytest.mark.parametrize(
    "change",
    [{"fencing_at": LATER}, {"stop_reason": "promote"}, {"state": S.STOPPED}, {"deletion_requested_at": NOW}],
    ids=lambda change: next(iter(change)),
)
def test_row_that_changed_since_it_was_read_is_not_marked(make_mirror: MakeMirror, change: dict[str, Any]) -> None:
    first, *others = [_stopping(make_mirror, f"many-{number}", 0) for number in range(3)]
    MirrorTopic.objects.filter(pk=first.pk).update(**change)

    marked = _mark([first, *others])

    assert marked == others
    (mark,) = {mirror.fencing_at for mirror in marked}
    assert set(MirrorTopic.objects.filter(fencing_at=mark)) == set(others)
    assert _mark([first]) == []


def test_later_mark_replaces_the_mark_of_a_worker_that_crashed(make_mirror: MakeMirror) -> None:
    mirror = _stopping(make_mirror, "orders", 0)
    assert _mark([mirror]) == [mirror]
    suspended = MirrorTopic.objects.get()

    assert _mark([mirror]) == [mirror]
    assert suspended.fencing_at != mirror.fencing_at
    note_stopped({suspended: NOTHING_REFUSED}, now=LATER)
    assert MirrorTopic.objects.get().state == S.PENDING_STOPPED
    note_stopped({mirror: NOTHING_REFUSED}, now=LATER)
    assert MirrorTopic.objects.get().state == S.STOPPED


@pytest.mark.parametrize("marked_at", [None, LATER], ids=["of a later stop", "by another worker"])
def test_stop_that_another_worker_continued_is_not_stored(make_mirror: MakeMirror, marked_at: datetime | None) -> None:
    """The mirror is stopping again, after a restore, and is not fenced yet; or another worker is about to fence it."""
    mirror, other = _stopping(make_mirror, "orders", 0), _stopping(make_mirror, "others", 0)
    MirrorTopic.objects.filter(pk=mirror.pk).update(fencing_at=marked_at)
    mirror.fencing_at = NOW

    note_stopped({mirror: NOTHING_REFUSED, other: NOTHING_REFUSED}, now=LATER)

    assert MirrorTopic.objects.get(pk=mirror.pk).state == S.PENDING_STOPPED
    assert StopReport.objects.get().mirror == other


@pytest.mark.parametrize("change", [{"fencing_at": LATER}, {"state": S.ACTIVE, "fencing_at": None}], ids=["marked", "restored"])
def test_ends_of_a_stop_that_another_worker_continued_are_not_recorded(make_mirror: MakeMirror, change: dict[str, Any]) -> None:
    """This process was suspended after its last check; perhaps the mirror was stopped and restored since, and copies again."""
    mirror, other = _stopping(make_mirror, "orders", 0), _stopping(make_mirror, "others", 0)
    MirrorPartition.objects.update(stopped_end=None, fenced_end=None)
    assert _mark([mirror, other]) == [mirror, other]
    MirrorTopic.objects.filter(pk=mirror.pk).update(**change)
    fenced = MirrorStopped(ends=((0, 10), (1, 12)), epochs=((0, 3), (1, 3)))

    _record_ends({"orders": mirror, "others": other}, {"orders": fenced, "others": fenced})

    assert (fenced_ends(mirror), fenced_ends(other)) == ((), fenced.ends)
    assert not MirrorPartition.objects.filter(mirror=mirror).exclude(fence_epoch=None).exists()
    assert dict(MirrorTopic.objects.values_list("name", "restoring_configs")) == {"orders": False, "others": True}


@pytest.mark.parametrize("taken_over", [False, True], ids=["own", "taken over"])
def test_failure_of_a_stop_that_another_worker_continued_is_not_shown(
    make_mirror: MakeMirror, monkeypatch: pytest.MonkeyPatch, *, taken_over: bool
) -> None:
    mirror = make_mirror("orders", S.PENDING_STOPPED, stop_reason="failover", mirror_topic_id="id")
    assert _mark([mirror]) == [mirror]

    def fail(*_: Any, **__: Any) -> dict[str, LinkEngineError]:
        if taken_over:
            MirrorTopic.objects.filter(pk=mirror.pk).update(state=S.STOPPED)
        return {mirror.name: LinkEngineError(ErrorCode.TIMEOUT_ERROR, "No response.")}

    monkeypatch.setattr(jobs, "stop_mirrors", fail)

    _stop([mirror], {mirror.pk: Taken()})

    assert StateTransitionError.objects.exists() is not taken_over
    assert (MirrorTopic.objects.get().retry_at is None) is taken_over


def test_marked_mirrors_get_no_tasks_of_their_own_while_they_are_stopped_together(
    make_mirror: MakeMirror, link: ClusterLink, sent: list[tuple[str, dict[str, Any]]]
) -> None:
    mirrors = _unfenced(make_mirror)
    MirrorTopic.objects.filter(link=link).update(fencing_at=NOW)

    with locks.lock(stopping.stop_many_lock(link.pk)) as acquired:
        assert acquired
        _send_due_tasks(link, list(link.mirrors.all()), rows={}, failures=Failures(link=link.name))
        assert sent == []
    _send_due_tasks(link, list(link.mirrors.all()), rows={}, failures=Failures(link=link.name))

    assert {name for name, _ in sent} == {"advance_stop"}
    assert {arguments["mirror_id"] for _, arguments in sent} == {mirror.pk for mirror in mirrors}


def test_assignments_are_written_once_more_for_all_tasks_that_want_them_meanwhile(
    link: ClusterLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def write(link_id: int) -> None:
        written.append(link_id)
        if len(written) == 1:
            for _ in range(5):
                leases.publish_or_request_assignments(link_id)

    monkeypatch.setattr(leases, "publish_assignments", write)

    leases.publish_or_request_assignments(link.pk)

    assert written == [link.pk] * 2
