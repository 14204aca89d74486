"""The combined metadata of several brokers."""

import pytest

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka import offsets
from linkengine.kafka.protocol import engine_code
from linkengine.kafka.topicviews import Leader, Survey, TopicMetadata, newest, topic_ids

ID, ANOTHER = b"0123456789abcdef", b"fedcba9876543210"
UNKNOWN = TopicMetadata(topic_id=bytes(16), partitions={}, error=3)


def view(topic_id: bytes, **epochs: int) -> TopicMetadata:
    """Return a topic whose partitions have these leader epochs, each with the broker of that number as leader."""
    partitions = {int(name[1:]): Leader(broker=epoch, epoch=epoch) for name, epoch in epochs.items()}
    return TopicMetadata(topic_id=topic_id, partitions=partitions)


def test_each_partition_has_the_leader_of_the_newest_epoch() -> None:
    found = newest([view(ID, p0=1, p1=5), UNKNOWN, view(ID, p0=2, p1=4), view(ID, p0=1, p1=4, p2=0)])

    assert found == view(ID, p0=2, p1=5, p2=0)


def test_a_topic_that_is_in_no_brokers_metadata_is_unknown() -> None:
    assert newest([UNKNOWN, UNKNOWN]) == UNKNOWN


REFUSED = TopicMetadata(topic_id=bytes(16), partitions={}, error=29)


@pytest.mark.parametrize("views", [[UNKNOWN, REFUSED], [REFUSED, UNKNOWN], [UNKNOWN, UNKNOWN, REFUSED]])
def test_topic_that_a_broker_refuses_to_describe_is_not_unknown(
    views: list[TopicMetadata], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror whose topic is missing is failed, and a stop would fence nothing."""
    combined = Survey(topics={"t": newest(views)}, complete=True, unlisted_brokers=set(), topic_ids={"t": topic_ids(views)})
    monkeypatch.setattr(offsets, "_survey", lambda *_: combined)

    assert newest(views) == REFUSED
    with pytest.raises(LinkEngineError) as raised:
        offsets.known_topic_ids(ClusterAddress(bootstrap_servers="127.0.0.1:1", security_protocol="PLAINTEXT"), "t")
    assert raised.value.code is ErrorCode.AUTHORIZATION_ERROR


def test_a_recreated_topic_is_not_combined_with_its_predecessor() -> None:
    """A stale broker still shows the old topic, with higher leader epochs."""
    old, new = view(ID, p0=9, p1=9), view(ANOTHER, p0=0)

    for views in ([old, new, new], [new, old, new], [new, new, old]):
        assert newest(views) == new


def test_no_majority_for_a_topic_id_is_a_retriable_error() -> None:
    old, new = view(ID, p0=9), view(ANOTHER, p0=0)

    for views in ([old, new], [new, UNKNOWN, old]):
        found = newest(views)
        assert found.partitions == {}
        assert engine_code(found.error) is ErrorCode.TIMEOUT_ERROR  # retried


@pytest.mark.parametrize("code", [9, 78])
def test_errors_of_a_leader_without_a_known_end_are_retriable(code: int) -> None:
    assert engine_code(code) is ErrorCode.TIMEOUT_ERROR
