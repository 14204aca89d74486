import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.plans import (
    PRODUCER_ID_BASE,
    CopyPlan,
    PartitionAssignment,
    PartitionPhase,
    PartitionProgress,
    producer_id_for,
)

numbers = st.tuples(st.integers(0, (1 << 16) - 1), st.integers(0, (1 << 24) - 1), st.integers(0, (1 << 22) - 1))


@given(numbers, numbers)
def test_two_mirror_partitions_never_share_a_producer_id(first: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    assert (producer_id_for(*first) == producer_id_for(*other)) == (first == other)


@given(numbers)
def test_producer_ids_are_beyond_those_that_brokers_allocate_and_fit_into_64_bits(place: tuple[int, int, int]) -> None:
    assert PRODUCER_ID_BASE <= producer_id_for(*place) < 1 << 63


@pytest.mark.parametrize("place", [(1 << 16, 0, 0), (0, 1 << 24, 0), (0, 0, 1 << 22), (-1, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_a_number_too_large_for_a_producer_id_is_refused(place: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no producer id"):
        producer_id_for(*place)


def test_a_plan_prints_no_secret() -> None:
    address = ClusterAddress(bootstrap_servers="b:1", sasl_password="secret")
    assignment = PartitionAssignment(
        mirror_id="7",
        partition=3,
        source_topic="s",
        mirror_topic="m",
        source_topic_id="id",
        producer_id=producer_id_for(1, 7, 3),
    )
    plan = CopyPlan(
        link_id="1",
        revision=4,
        source=address,
        destination=address,
        assignments=(assignment,),
        signing_keys=("5ec0de",),
    )

    assert assignment.key == "7/3"
    assert "secret" not in repr(plan)
    assert "5ec0de" not in repr(plan)


def test_progress_without_a_measurement_has_unknown_values_instead_of_zero() -> None:
    progress = PartitionProgress(key="7/3", copy_run_id="s", phase=PartitionPhase.WAITING, observed_at_ms=1)

    assert progress.source_end is None
    assert progress.mirror_end is None
