"""Where a previous owner left the mirror, before the new owner has read anything."""

from dataclasses import replace

import pytest

from linkengine.copyjob.partition_state import log_end_query
from linkengine.copyjob.values import SourceOrigin
from linkengine.domain.workers import SEEN_TRUSTED_MS, Grant
from linkengine.kafka.topicviews import Leader
from tests.linkengine.copyjob.partitions import partition


@pytest.mark.parametrize(
    ("reported", "clean", "known"),
    [((5, 900), True, 1_000), ((5, 900), False, None), (None, True, None), ((5, 1_000), True, 1_000), ((5, 1_001), True, None)],
    ids=["clean release", "expired lease", "topics without a report", "reported", "Redis was restored from a backup"],
)
def test_end_left_by_the_previous_owner_is_known_before_the_source_is_located(
    reported: tuple[int, int] | None, clean: bool, known: int | None
) -> None:
    mirror_partition = partition()
    mirror_partition.assignment = replace(mirror_partition.assignment, source_seen=reported)
    mirror_partition.start_hold(Grant(key=mirror_partition.key, generation=9, clean=clean, valid_until=1.0, seen=(5, 1_000)))

    query = log_end_query(mirror_partition)

    assert (query.expected_end, query.previous_end) == (None, known)


@pytest.mark.parametrize(("rested_ms", "check_tail"), [(1_000, False), (SEEN_TRUSTED_MS, False), (SEEN_TRUSTED_MS + 1, True)])
def test_tail_is_checked_if_the_lease_was_released_longer_ago_than_vouched_ms(rested_ms: int, check_tail: bool) -> None:
    """A source restored from a snapshot since then has other records, perhaps under the same leader epoch."""
    mirror_partition = partition()
    mirror_partition.assignment = replace(mirror_partition.assignment, source_seen=(5, 900))
    mirror_partition.start_hold(
        Grant(key=mirror_partition.key, generation=9, clean=True, valid_until=1.0, seen=(5, 1_000), rested_ms=rested_ms)
    )
    mirror_partition.origin = SourceOrigin(leader=Leader(broker=1, epoch=5), topic=b"t")

    query = log_end_query(mirror_partition)

    assert (query.check_tail, query.previous_end) == (check_tail, 1_000)
