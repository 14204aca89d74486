"""The canary of the migration gate: what an ordinary consumer reads from a mirror, compared with the source."""

from __future__ import annotations

from contextlib import closing
from functools import partial

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.gates import CanaryRead
from linkengine.jobs.record_sizes import StoredBatches, check_responses
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.canary import CheckedTopic, read_canaries, write_canaries
from linkengine.kafka.committed import ReadRefusedError
from linkengine.sync.topics import missing_mirror

LARGEST = 128 << 20  # decompressed bytes of a response; messages of 100 MB are read


def read_canary(
    *, source: ClusterAddress, destination: ClusterAddress, source_topic: str, mirror_topic: str, compacted: bool
) -> list[CanaryRead]:
    """Compare the newest record of every partition; raise LinkEngineError if a cluster or a topic cannot be read at all."""
    mirror = ClusterAdmin(destination).find(mirror_topic)
    if mirror is None:
        raise missing_mirror(mirror_topic)
    with (
        closing(StoredBatches(source, source_topic)) as source_batches,
        closing(StoredBatches(destination, mirror_topic)) as mirror_batches,
    ):
        return read_canaries(
            source=CheckedTopic(source, source_topic, partial(_check, source_batches)),
            mirror=CheckedTopic(destination, mirror_topic, partial(_check, mirror_batches)),
            partitions=range(mirror.partitions),
            compacted=compacted,
        )


def _check(stored: StoredBatches, partition: int, start: int, end: int) -> None:
    """Raise ReadRefusedError if the consumer would hold too much memory: it decompresses all batches of a response at once."""
    try:
        offset = check_responses(stored, partition, start=start, end=end, most=LARGEST)
    except LinkEngineError as error:
        raise ReadRefusedError(f"the size of its newest records cannot be measured: {error.message}") from error
    if offset is not None:
        raise ReadRefusedError(
            f"the batch at offset {offset}, with those fetched together with it, has more than {LARGEST:,} bytes decompressed, "
            "which is too large to be read"
        )


def try_writing(destination: ClusterAddress, topic: str) -> list[CanaryRead]:
    """Write a record to every partition of a scratch topic and read it back; partitions that deny writes have a problem."""
    admin = ClusterAdmin(destination)
    found = admin.find(topic)
    if found is None:
        raise missing_mirror(topic)
    if admin.has_authorizer() and admin.denies_writes(topic):  # DENY would not stop a super user's test write
        return [CanaryRead(partition=0, offset=None, problem="producers are still denied by an ACL")]
    return write_canaries(destination, topic, partitions=found.partitions)
