"""Producer epochs, sequences and lease generations decide which owner may write; arithmetic only."""

import pytest

from linkengine.copyjob.producer_state import LAST_EPOCH, FencedError, OwnProducerState, coordinator_epoch_for, epochs_above
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.producers import ProducerState


def state(epoch: int, last_sequence: int, generation: int) -> ProducerState:
    return ProducerState(epoch=epoch, last_sequence=last_sequence, coordinator_epoch=coordinator_epoch_for(generation))


def test_new_mirror_begins_at_epoch_and_sequence_zero() -> None:
    producer = OwnProducerState(1)
    producer.adopt(ProducerState(), generation=1, clean=True)

    assert [producer.append(5), producer.append(2)] == [(0, 0), (0, 5)]
    assert producer.marker_epoch() == 0


def test_clean_hand_over_keeps_the_epoch_even_for_markers() -> None:
    producer = OwnProducerState(1)
    producer.adopt(state(4, 99, 7), generation=8, clean=True)

    assert producer.append(1) == (4, 100)
    assert producer.marker_epoch() == 4
    assert producer.generation == 8


def test_owner_after_an_unclean_hand_over_raises_the_epoch_with_its_first_marker_only() -> None:
    producer = OwnProducerState(1)
    producer.adopt(state(4, 99, 7), generation=8, clean=False)

    assert producer.append(10) == (4, 100)  # data is protected by its sequence
    assert producer.must_raise
    assert producer.marker_epoch() == 5
    producer.marker_written(5)
    assert producer.append(3) == (5, 0)
    assert producer.marker_epoch() == 5


def test_lost_lease_state_takes_the_generation_from_the_broker_and_counts_as_unclean() -> None:
    producer = OwnProducerState(1)
    producer.adopt(state(4, 99, 70), generation=1, clean=True)

    assert producer.generation == 71
    assert producer.marker_epoch() == 5


def test_newer_owner_is_noticed_on_resume() -> None:
    for newer in (state(5, -1, 8), state(4, 99, 9)):
        producer = OwnProducerState(1)
        producer.adopt(state(4, 99, 7), generation=8, clean=True)

        with pytest.raises(FencedError):
            producer.readopt(newer)


def test_stopped_mirror_is_closed_to_every_owner() -> None:
    fence = ProducerState(epoch=5, last_sequence=-1, coordinator_epoch=coordinator_epoch_for(8, fence=True))
    producer = OwnProducerState(1)

    for generation in (1, 9, 100):  # whatever the lease's state is
        with pytest.raises(FencedError):
            producer.adopt(fence, generation=generation, clean=True)
    producer.adopt(state(4, 99, 7), generation=100, clean=True)
    with pytest.raises(FencedError):
        producer.readopt(fence)


def test_data_before_the_first_generation_means_that_lease_state_was_lost() -> None:
    producer = OwnProducerState(1)
    producer.adopt(ProducerState(epoch=0, last_sequence=41), generation=1, clean=True)

    assert producer.must_raise
    assert producer.memory_lost
    assert producer.generation == 2  # raised in the lease as well, which then counts the previous owner as crashed


def test_first_owner_after_a_seeded_head_has_not_lost_lease_state() -> None:
    producer = OwnProducerState(1)
    producer.adopt(ProducerState(epoch=0, last_sequence=41), generation=1, clean=True, empty=True)

    assert producer.must_raise
    assert not producer.memory_lost
    assert producer.generation == 1


def test_own_raise_without_a_response_is_recognised() -> None:
    producer = OwnProducerState(1)
    producer.adopt(state(4, 99, 7), generation=8, clean=False)
    producer.marker_epoch()

    producer.readopt(state(5, -1, 8))

    assert producer.append(1) == (5, 0)
    assert producer.marker_epoch() == 5


def test_raise_without_producer_state_fences_writers_with_epoch_zero() -> None:
    early, late = OwnProducerState(1), OwnProducerState(1)
    for producer in (early, late):
        producer.adopt(ProducerState(), generation=9, clean=producer is early)

    assert early.append(1) == (0, 0)
    assert late.marker_epoch() == 1

    late.readopt(state(1, -1, 9))  # its response was lost
    assert late.append(1) == (1, 0)


def test_raise_without_a_response_is_repeated_above_it_so_that_it_is_refused_late() -> None:
    producer = OwnProducerState(1)
    producer.adopt(state(4, 99, 7), generation=8, clean=False)
    lost = [producer.marker_epoch()]
    producer.readopt(state(4, 99, 7))
    lost.append(producer.marker_epoch())
    assert lost == [5, 6]

    producer.readopt(state(5, -1, 8))  # the first was written late, the second may still be

    assert producer.must_raise
    assert producer.marker_epoch() == 7
    producer.marker_written(7)
    assert producer.append(1) == (7, 0)


def test_fence_epoch_is_above_a_concurrent_raise_and_its_own_earlier_tries() -> None:
    known, owner = state(4, 99, 3), OwnProducerState(1)
    owner.adopt(known, generation=9, clean=False)
    raises = []
    for _ in range(3):  # the epochs below the fence suffice for three lost responses
        raises.append(owner.marker_epoch())
        owner.readopt(known)

    fences = [epochs_above(known, generation=10, fence=True, tries=tries) for tries in range(3)]

    assert max(raises) < fences[0][0] < fences[1][0] < fences[2][0]
    assert {coordinator for _, coordinator in fences} == {coordinator_epoch_for(10, fence=True)}


def test_sequences_wrap_as_brokers_expect() -> None:
    producer = OwnProducerState(1)
    producer.adopt(state(0, (1 << 31) - 1, 0), generation=1, clean=True)
    assert producer.append(1) == (0, 0)


def test_last_epoch_ends_in_an_error_not_in_an_overflow() -> None:
    producer = OwnProducerState(1)
    producer.adopt(state(LAST_EPOCH, 3, 7), generation=8, clean=False)

    with pytest.raises(LinkEngineError, match="producer epochs"):
        producer.marker_epoch()
