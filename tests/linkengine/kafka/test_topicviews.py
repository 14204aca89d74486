"""What the views of several brokers are worth together."""

import pytest

from linkengine.domain.errors import ErrorCode
from linkengine.kafka.codes import engine_code
from linkengine.kafka.topicviews import Leader, TopicView, newest

ID, ANOTHER = b"0123456789abcdef", b"fedcba9876543210"
UNKNOWN = TopicView(topic_id=bytes(16), partitions={}, error=3)


def view(topic_id: bytes, **epochs: int) -> TopicView:
    """A topic whose partitions have these leader epochs, each with the leader of that number."""
    partitions = {int(name[1:]): Leader(broker=epoch, epoch=epoch) for name, epoch in epochs.items()}
    return TopicView(topic_id=topic_id, partitions=partitions)


def test_each_partition_has_the_leader_of_the_newest_epoch() -> None:
    found = newest([view(ID, p0=1, p1=5), UNKNOWN, view(ID, p0=2, p1=4), view(ID, p0=1, p1=4, p2=0)])

    assert found == view(ID, p0=2, p1=5, p2=0)


def test_nobody_knows_it() -> None:
    assert newest([UNKNOWN, UNKNOWN]) == UNKNOWN


def test_a_topic_that_was_created_again_is_not_mixed_with_the_one_before() -> None:
    """A broker that lags behind shows the old one still, with epochs that had grown."""
    old, new = view(ID, p0=9, p1=9), view(ANOTHER, p0=0)

    for views in ([old, new, new], [new, old, new], [new, new, old]):
        assert newest(views) == new


def test_where_as_many_brokers_show_one_topic_as_another_nobody_can_tell() -> None:
    old, new = view(ID, p0=9), view(ANOTHER, p0=0)

    for views in ([old, new], [new, UNKNOWN, old]):
        found = newest(views)
        assert found.partitions == {}
        assert engine_code(found.error) is ErrorCode.TIMEOUT_ERROR  # asked again


@pytest.mark.parametrize("code", [9, 78])
def test_a_leader_that_does_not_know_its_end_yet_is_asked_again(code: int) -> None:
    assert engine_code(code) is ErrorCode.TIMEOUT_ERROR
