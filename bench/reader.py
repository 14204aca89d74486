"""A consumer of a topic on a single-broker cluster that reads in a fetch session (KIP-227), as the Java client does.

The client of the other figures names every partition in every request. With a thousand partitions, that alone kept the
destination's broker and the machine busy, whatever was measured. The broker still checks all partitions of a session for each
request, so only a part of many partitions may be read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from bench.measure import end_offsets
from devcluster.kafka import KafkaCluster
from linkengine.batches.records import decode_records
from linkengine.batches.view import iter_batches
from linkengine.domain.client_properties import address_from_properties
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.protocol import INT32
from linkengine.kafka.requests import (
    FETCH_API_KEY,
    FETCH_BY_ID,
    NEW_SESSION,
    FetchedPartition,
    FetchLimits,
    FetchPosition,
    FetchResponse,
    SessionStep,
    decode_fetch,
    encode_fetch,
)

WAIT_MS = 50
LIMITS = FetchLimits(max_bytes=8 << 20, max_wait_ms=WAIT_MS)
PARTITION_BYTES = 1 << 20
TIMEOUT_S = 30.0
POLL_S = 0.05


class SessionReader:
    """A consumer of partitions, from their beginning by default."""

    def __init__(
        self,
        cluster: KafkaCluster,
        topic: str,
        *,
        partitions: int,
        timeout_s: float,
        every: int = 1,
        properties: Mapping[str, str] | None = None,
        starts: Mapping[int, int] | None = None,
    ) -> None:
        """Wait at most ``timeout_s`` until the topic exists (MirrorMaker creates it late), and connect.

        ``every``: 1 to read all partitions, 10 for a tenth of them. ``properties``: of another way to the cluster.
        ``starts``: the partitions to read of a topic that exists, each from an offset on.
        """
        if starts is None:
            _wait_for(cluster, topic, partitions=partitions, timeout_s=timeout_s)
        self._session = Cluster(address_from_properties(properties or cluster.client_properties("admin")))
        view = self._session.topics([topic])[topic]
        self._topic_id = view.topic_id
        chosen = [number for number in view.partitions if (number % every == 0 if starts is None else number in starts)]
        self._epochs = {number: view.partitions[number].epoch for number in chosen}
        self._offsets = {**dict.fromkeys(chosen, 0), **(starts or {})}
        self._changed = list(self._epochs)
        self._connection: Connection = self._session.open(next(iter(view.partitions.values())).broker)
        self._connection.sock.settimeout(TIMEOUT_S)
        self._version = self._connection.version_for(FETCH_API_KEY, highest=FETCH_BY_ID, lowest=FETCH_BY_ID)
        self._step = NEW_SESSION
        self._correlation = 0

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()
        self._session.close()

    def read(self) -> list[bytes]:
        """Return the values of the records that have arrived; empty after WAIT_MS without records."""
        return [value for fetched in self._fetch().partitions for value in self._values(fetched)]

    def skim(self) -> int:
        """Return the number of bytes that have arrived; only batch headers are parsed."""
        size = 0
        for fetched in self._fetch().partitions:
            for _, view in iter_batches(fetched.records):  # the last batch may be truncated, and is fetched again
                size += view.size
                self._offsets[fetched.partition] = view.next_offset
        return size

    def position(self, partition: int) -> int:
        """Return the offset that is read next."""
        return self._offsets[partition]

    def _fetch(self) -> FetchResponse:
        positions = [
            FetchPosition(number, self._epochs[number], self._offsets[number], PARTITION_BYTES) for number in self._changed
        ]
        self._correlation += 1
        frame = encode_fetch(
            {self._topic_id: positions} if positions else {},
            version=self._version, correlation_id=self._correlation, limits=LIMITS, step=self._step,
        )  # fmt: skip
        for part in frame:
            self._connection.sock.sendall(part)
        (size,) = INT32.unpack(self._receive(INT32.size))
        response = decode_fetch(self._receive(size)[INT32.size :], version=self._version)
        if response.error or not response.session:
            raise RuntimeError(f"The broker made no fetch session, or ended it: error {response.error}")
        self._step = SessionStep(response.session, self._step.epoch + 1)
        self._changed = [fetched.partition for fetched in response.partitions if len(fetched.records)]
        return response

    def _values(self, fetched: FetchedPartition) -> Iterator[bytes]:
        if fetched.error:
            raise RuntimeError(f"Partition {fetched.partition} cannot be read: error {fetched.error}")
        number = fetched.partition
        for at, view in iter_batches(fetched.records):
            if not view.is_control and view.next_offset > self._offsets[number]:
                records = decode_records(view, fetched.records[at : at + view.size])
                yield from (record.value or b"" for record in records if record.offset >= self._offsets[number])
            self._offsets[number] = max(self._offsets[number], view.next_offset)

    def _receive(self, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        got = 0
        while got < size:
            count = self._connection.sock.recv_into(data[got:])
            if not count:
                raise RuntimeError("The broker closed the connection.")
            got += count
        return data


def _wait_for(cluster: KafkaCluster, topic: str, *, partitions: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while len(end_offsets(cluster, topic, partitions=partitions)) < partitions:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} was not there with {partitions} partitions within {timeout_s:.0f} s")
        time.sleep(POLL_S)
