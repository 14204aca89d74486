"""A writer of prepared batches: for the rate at which a broker accepts them, and for unusual source logs.

Produce requests are pipelined as in the copy loop, five in flight, each with a batch of every partition.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.readahead import AheadReader
from devcluster.kafka import KafkaCluster
from linkengine.batches.patch import next_sequence, patch_for_append
from linkengine.batches.records import Record, encode_records
from linkengine.batches.view import HEADER, iter_batches
from linkengine.domain.client_properties import address_from_properties
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.protocol import INT32
from linkengine.kafka.requests import PRODUCE_API_KEY, PRODUCE_BY_ID, decode_produce, encode_produce
from linkengine.kafka.single_reads import read_batches

IN_FLIGHT = 5
TIMEOUT_MS = 30_000
READ_BYTES = 16 << 20
BARE_BYTES = 1_500_000_000  # as much as these workloads copy
PRODUCER_ID = 1 << 61  # of no other producer


class BareWriter:
    """A writer to all partitions of a topic, or of several, of a single-broker cluster."""

    def __init__(self, cluster: KafkaCluster, topic: str, *others: str) -> None:
        self._session = Cluster(address_from_properties(cluster.client_properties("admin")))
        views = self._session.topics([topic, *others])
        self._ids = {name: view.topic_id for name, view in views.items()}
        view = views[topic]
        leader = next(iter(view.partitions.values()))
        self._topic, self._topic_id = topic, view.topic_id
        self._epochs = {number: partition.epoch for number, partition in view.partitions.items()}
        self._connection = self._session.open(leader.broker)
        self._version = self._connection.version_for(PRODUCE_API_KEY, highest=PRODUCE_BY_ID, lowest=PRODUCE_BY_ID)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()
        self._session.close()

    def read(self, partition: int, *, most_bytes: int) -> list[bytearray]:
        """Return the partition's first batches, patched to be appended anywhere as those of a single producer."""
        batches: list[bytearray] = []
        offset = size = sequence = 0
        while size < most_bytes:
            place = (self._topic, self._topic_id, partition)
            error, found = read_batches(
                self._connection, topic=place, leader_epoch=self._epochs[partition], offset=offset, max_bytes=READ_BYTES
            )
            views = list(iter_batches(found))
            if error or not views:
                break
            for at, view in views:
                batch = bytearray(found[at : at + view.size])
                patch_for_append(batch, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence)
                sequence, offset, size = next_sequence(sequence, view.record_count), view.next_offset, size + len(batch)
                batches.append(batch)
        return batches

    def write(self, batches: Sequence[Sequence[bytes | bytearray]], *, after: Callable[[int], None] = lambda _: None) -> float:
        """Append the batches of each partition, in the order of partitions; return the seconds it took.

        ``after`` is called with the bytes of each request before it is sent, and may wait.
        """
        began = time.monotonic()
        waiting: deque[int] = deque()
        self._connection.sock.settimeout(TIMEOUT_MS / 1000)
        for number, round_ in enumerate(_rounds(batches)):
            after(sum(len(batch) for _, batch in round_))
            self._send({self._topic_id: round_}, number)
            waiting.append(number)
            if len(waiting) == IN_FLIGHT:
                self._receive_response(waiting.popleft())
        while waiting:
            self._receive_response(waiting.popleft())
        return time.monotonic() - began

    def append(self, batches: Mapping[str, Sequence[tuple[int, bytes | bytearray]]], *, number: int) -> None:
        """Append (partition, batch) by topic with a single request, and wait for its response; ``number`` identifies it."""
        self._connection.sock.settimeout(TIMEOUT_MS / 1000)
        self._send({self._ids[topic]: entries for topic, entries in batches.items()}, number)
        self._receive_response(number)

    def _send(self, batches: Mapping[bytes, Sequence[tuple[int, bytes | bytearray]]], number: int) -> None:
        for part in encode_produce(batches, version=self._version, correlation_id=number, timeout_ms=TIMEOUT_MS):
            self._connection.sock.sendall(part)

    def _receive_response(self, number: int) -> None:
        (size,) = INT32.unpack(self._receive(INT32.size))
        body = self._receive(size)
        _, responses = decode_produce(memoryview(body)[INT32.size :], version=self._version)
        errors = {response.error for response in responses if response.error}
        if errors or INT32.unpack(body[: INT32.size])[0] != number:
            raise RuntimeError(f"The broker refused prepared batches: errors {errors}")

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._connection.sock.recv(size - len(data))
            if not part:
                raise RuntimeError("The broker closed the connection.")
            data += part
        return bytes(data)


def measure_bare(source: KafkaCluster, destination: KafkaCluster, topic: str, *, partitions: int) -> tuple[int, float]:
    """Send the source's batches to the destination's empty topic; return (records, seconds)."""
    reader, writer = BareWriter(source, topic), BareWriter(destination, topic)
    try:
        batches = [reader.read(number, most_bytes=BARE_BYTES // partitions) for number in range(partitions)]
        records = sum(HEADER.unpack_from(batch)[-1] for own in batches for batch in own)
        return records, writer.write(batches)
    finally:
        reader.close()
        writer.close()


def measure_pair(source: KafkaCluster, destination: KafkaCluster, topic: str, *, partitions: int) -> tuple[int, float]:
    """Do the same as ``measure_bare``, but send a request only after as many bytes were read from the source and discarded.

    This is the upper limit of any copy between these two clusters on this machine, because each copy has to read and write.
    """
    reader, writer = BareWriter(source, topic), BareWriter(destination, topic)
    try:
        batches = [reader.read(number, most_bytes=BARE_BYTES // partitions) for number in range(partitions)]
        records = sum(HEADER.unpack_from(batch)[-1] for own in batches for batch in own)
        with AheadReader(source, topic, partitions=partitions) as ahead:
            return records, writer.write(batches, after=ahead.use)
    finally:
        reader.close()
        writer.close()


def single_batches(payloads: Sequence[bytes]) -> list[bytes]:
    """Return a batch per payload, each with a single record."""
    now_ms = time.time_ns() // 1_000_000
    return [
        bytes(encode_records([Record(0, now_ms + number, None, payload, [])], codec=0))
        for number, payload in enumerate(payloads)
    ]


def _rounds(batches: Sequence[Sequence[bytes | bytearray]]) -> Iterator[list[tuple[int, bytes | bytearray]]]:
    for index in range(max(map(len, batches))):
        yield [(partition, own[index]) for partition, own in enumerate(batches) if index < len(own)]
