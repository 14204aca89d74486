"""View models of verification: only compared offsets are shown as verified."""

from __future__ import annotations

import pytest

from console.models import VerifyRun
from console.verification.presenters import coverage_view, run_view
from console.verification.queries import PartitionCoverage
from linkengine.domain.ranges import OffsetRange
from tests.console.conftest import NOW


def part(start: int | None, end: int | None, *, verified: int | None) -> PartitionCoverage:
    return PartitionCoverage(
        partition=0, start=start, end=end, verified_to=start, verified=verified, differences=0, verified_at=None
    )


ALL, SOME, NOTHING, UNKNOWN = (
    part(0, 9, verified=9),
    part(0, 9, verified=4),
    part(9, 9, verified=0),
    part(None, 9, verified=None),
)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([ALL, NOTHING], "All offsets that source and mirror have in common are verified."),
        ([ALL, SOME], "5 offsets of the mirror are not verified."),
        ([part(0, 9, verified=8)], "1 offset of the mirror is not verified."),
        ([NOTHING, NOTHING], "Nothing to verify: "),
        ([], "Verified offsets are not known yet."),
        ([ALL, UNKNOWN], "Verified offsets are not known yet."),
    ],
    ids=["all", "some", "one", "nothing", "no partition", "unknown"],
)
def test_coverage_summary_counts_unverified_offsets(parts: list[PartitionCoverage], words: str) -> None:
    assert coverage_view(parts, None, enabled=True, now=NOW).sentence.startswith(words)


def test_coverage_reports_source_offsets_below_the_mirror_start() -> None:
    assert not coverage_view([ALL], None, enabled=True, now=NOW).missing
    missing = coverage_view([ALL], None, enabled=True, now=NOW, missing={3: OffsetRange(4, 9)}).missing
    assert missing == "5 offsets that the source still holds are no longer on the mirror (partition 3: [4, 9))."


def test_verified_percentage_of_an_empty_range_is_none() -> None:
    shares = [row.share for row in coverage_view([ALL, SOME, NOTHING], None, enabled=True, now=NOW).rows]
    assert shares == [100, 44, None]


@pytest.mark.parametrize(("not_copied", "shown"), [(None, ""), (0, ""), (1, "1 offset"), (1200, "1,200 offsets")])
def test_run_shows_offsets_not_copied(not_copied: int | None, shown: str) -> None:
    view = run_view(VerifyRun(status="EQUAL", records_compared=1, not_copied=not_copied), now=NOW, reads_records=True)
    assert view is not None
    assert view.not_copied == shown


@pytest.mark.parametrize(("records", "label"), [(7, "Equal"), (0, "Nothing to compare"), (None, "Nothing to compare")])
def test_run_without_compared_records_is_not_equal(records: int | None, label: str) -> None:
    view = run_view(VerifyRun(status="EQUAL", records_compared=records), now=NOW, reads_records=True)
    assert view is not None
    assert view.badge.label == label
