"""The verdict on an offset, for what both sides have there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from linkengine.domain.record_views import GapEntry, Presence, RecordVerdict, judge
from linkengine.domain.states import GapReason

P, V, R = Presence, RecordVerdict, GapReason
MARKERS, HEAD, LOST = (GapEntry(reason=reason, exact=True) for reason in (R.TRANSACTION_MARKER, R.HEAD, R.LOST))
COARSE = GapEntry(reason=R.ABORTED, exact=False)

VERDICTS = [
    # source, mirror, verdict, reason
    (P.RECORD, P.RECORD, V.EQUAL, None),
    (P.RECORD, P.TRANSACTION_MARKER, V.DIFFERENT, None),
    (P.RECORD, P.ABORTED, V.DIFFERENT, None),
    (P.RECORD, P.NO_RECORD, V.DIFFERENT, None),
    (P.RECORD, P.BEYOND_END, V.NOT_COPIED, None),
    (P.RECORD, P.BEFORE_START, V.NOT_COMPARABLE, None),
    (P.RECORD, P.UNCOMMITTED, V.UNKNOWN, None),
    (P.RECORD, P.UNREADABLE, V.UNKNOWN, None),
    (P.UNREADABLE, P.RECORD, V.UNKNOWN, None),
    (P.TRANSACTION_MARKER, P.RECORD, V.DIFFERENT, None),
    (P.ABORTED, P.RECORD, V.DIFFERENT, None),
    (P.NO_RECORD, P.RECORD, V.DIFFERENT, None),
    (P.UNCOMMITTED, P.RECORD, V.DIFFERENT, None),
    (P.BEYOND_END, P.RECORD, V.DIFFERENT, None),
    (P.BEFORE_START, P.RECORD, V.NOT_COMPARABLE, None),
    (P.TRANSACTION_MARKER, P.TRANSACTION_MARKER, V.FILLER, R.TRANSACTION_MARKER),
    (P.ABORTED, P.TRANSACTION_MARKER, V.FILLER, R.ABORTED),
    (P.NO_RECORD, P.TRANSACTION_MARKER, V.FILLER, R.COMPACTED),
    (P.NO_RECORD, P.ABORTED, V.FILLER, R.COMPACTED),
    (P.BEFORE_START, P.TRANSACTION_MARKER, V.FILLER, None),
    (P.BEYOND_END, P.TRANSACTION_MARKER, V.DIFFERENT, None),
    (P.UNCOMMITTED, P.TRANSACTION_MARKER, V.DIFFERENT, None),
    (P.UNCOMMITTED, P.BEYOND_END, V.NOT_COPIED, None),
    (P.BEFORE_START, P.BEYOND_END, V.NOT_COPIED, None),
    (P.BEYOND_END, P.BEYOND_END, V.NO_RECORD, None),
    (P.NO_RECORD, P.NO_RECORD, V.NO_RECORD, None),
]


@pytest.mark.parametrize(("source", "mirror", "verdict", "reason"), VERDICTS)
def test_verdict_follows_what_both_sides_have(
    source: Presence, mirror: Presence, verdict: RecordVerdict, reason: GapReason | None
) -> None:
    found = judge(source=source, mirror=mirror)

    assert (found.verdict, found.reason) == (verdict, reason)
    assert found.text.endswith(".")


@pytest.mark.parametrize(("source", "mirror"), list(product(Presence, Presence)))
def test_only_two_records_are_called_equal(source: Presence, mirror: Presence) -> None:
    found = judge(source=source, mirror=mirror)

    assert (found.verdict is V.EQUAL) == (source is mirror is P.RECORD)


def test_two_records_with_a_difference_differ() -> None:
    found = judge(source=P.RECORD, mirror=P.RECORD, differing=["value", "timestamp"])

    assert (found.verdict, found.text) == (V.DIFFERENT, "The records differ in: value, timestamp.")


@pytest.mark.parametrize(
    ("source", "ledger", "reason"),
    [
        (P.BEFORE_START, [LOST], R.LOST),
        (P.BEFORE_START, [MARKERS], R.TRANSACTION_MARKER),
        (P.BEFORE_START, [COARSE], R.ABORTED),
        (P.TRANSACTION_MARKER, [COARSE], R.TRANSACTION_MARKER),  # a row that also covers records says less than the source
        (P.NO_RECORD, [MARKERS], R.TRANSACTION_MARKER),  # compaction may remove the marker later
        (P.NO_RECORD, [MARKERS, LOST], R.LOST),  # a loss is never hidden
        (P.BEFORE_START, [], None),
    ],
)
def test_reason_of_a_filler_is_that_of_the_gap_ledger(
    source: Presence, ledger: Sequence[GapEntry], reason: GapReason | None
) -> None:
    found = judge(source=source, mirror=P.TRANSACTION_MARKER, ledger=ledger)

    assert (found.verdict, found.reason) == (V.FILLER, reason)
    assert ("unknown" in found.text) == (reason is None)


def test_ledger_does_not_hide_a_record_that_the_mirror_lacks() -> None:
    assert judge(source=P.RECORD, mirror=P.TRANSACTION_MARKER, ledger=[MARKERS]).verdict is V.DIFFERENT


def test_offset_below_the_start_of_the_mirror_has_the_reason_of_the_ledger() -> None:
    found = judge(source=P.RECORD, mirror=P.BEFORE_START, ledger=[HEAD])

    assert (found.verdict, found.reason) == (V.NOT_COMPARABLE, R.HEAD)


@pytest.mark.parametrize(("source", "mirror"), [(P.RECORD, P.NO_RECORD), (P.NO_RECORD, P.RECORD)])
def test_record_that_compaction_removed_on_one_side_is_no_difference(source: Presence, mirror: Presence) -> None:
    assert judge(source=source, mirror=mirror, was_compacted=True).verdict is V.NOT_COMPARABLE


def test_offset_behind_the_end_of_a_stopped_mirror_is_not_compared() -> None:
    found = judge(source=P.RECORD, mirror=P.RECORD, differing=["value"], after_stop=True)

    assert found.verdict is V.NOT_COMPARABLE
