"""What an owner knows of where the mirror was left, before it has read anything."""

from dataclasses import replace

import pytest

from linkengine.copyjob.asking import tail_query
from linkengine.domain.leases import Grant
from tests.linkengine.copyjob.partitions import partition


@pytest.mark.parametrize(
    ("reported", "clean", "known"),
    [((5, 900), True, 1_000), ((5, 900), False, None), (None, True, None)],
    ids=["left in good order", "left by dying", "left in another life, perhaps"],
)
def test_where_a_mirror_was_left_is_known_before_its_source_is_found(
    reported: tuple[int, int] | None, clean: bool, known: int | None
) -> None:
    one = partition()
    one.assignment = replace(one.assignment, source_seen=reported)
    one.granted(Grant(key=one.key, generation=9, clean=clean, valid_until=1.0, seen=(5, 1_000)))

    query = tail_query(one)

    assert (query.expected_end, query.left_end) == (None, known)
