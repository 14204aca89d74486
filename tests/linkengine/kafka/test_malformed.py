"""Responses of real brokers, changed in every way: each decoder returns a value or raises MalformedResponseError, and soon.

The responses are recorded on a real cluster, each with its decoder. A test checks that every kind of response that the engine
decodes is recorded.
"""

from __future__ import annotations

import ast
import base64
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.metadata import MetadataResponse

import linkengine
from devcluster.kafka import KafkaCluster
from linkengine.batches.records import Record
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.clusterviews import GroupDescription
from linkengine.domain.configs import ConfigChange
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import Committed
from linkengine.jobs.exporting import OddWriter
from linkengine.kafka import (
    admin_acls,
    admin_groups,
    admin_topics,
    connection,
    offsets,
    preflight,
    producers,
    single_reads,
    view_groups,
    views,
)
from linkengine.kafka import transactions as kafka_transactions
from linkengine.kafka.cluster import Cluster, _read_metadata
from linkengine.kafka.connection import Connection, connect
from linkengine.kafka.protocol import INT32, MalformedResponseError
from linkengine.kafka.requests import (
    FetchLimits,
    FetchPosition,
    MarkerFill,
    decode_fetch,
    decode_log_ends,
    decode_markers,
    decode_produce,
    encode_fetch,
    encode_log_ends,
    encode_markers,
    encode_produce,
)
from linkengine.kafka.transactions import EmptyTransactions
from tests.effort import tries
from tests.linkengine.batches.batchlog import Rec, dense

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
SOON_S = 5.0  # CPU time
NUMBERS = [
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xfe\xff\xff\x0f",
    b"\xff\xff\xff\xf6",
    b"\xff\xfa",
    b"\x80\0",
]
PACKAGE = Path(linkengine.__file__).parent


@dataclass(frozen=True, slots=True)
class Recorded:
    """A response and its decoder; ``decode`` gets the whole frame without its size."""

    kind: str
    frame: bytes
    decode: Callable[[bytes], object]


class Recorder:
    """Records every response that ``Connection.request`` receives."""

    def __init__(self) -> None:
        self.found: dict[str, Recorded] = {}

    def install(self, patch: pytest.MonkeyPatch) -> None:
        request, exchange, frames = Connection.request, Connection._exchange, []

        def exchanged(own: Connection, frame: bytes, **options: Any) -> bytes:
            frames.append(exchange(own, frame, **options))
            return frames[-1]

        def requested(own: Connection, sent: Any, **options: Any) -> Any:
            response = request(own, sent, **options)
            correlation = own._correlation
            self.found.setdefault(
                options["response"].__name__,
                Recorded(options["response"].__name__, frames[-1], _decoder(sent, options, correlation)),
            )
            return response

        patch.setattr(Connection, "_exchange", exchanged)
        patch.setattr(Connection, "request", requested)


def _decoder(sent: Any, options: dict[str, Any], correlation: int) -> Callable[[bytes], object]:
    def decode(frame: bytes) -> object:
        stub = Connection.__new__(Connection)
        stub.host, stub.port, stub._correlation, stub.round_trip_s = "broker", 9092, correlation - 1, None
        stub._exchange = lambda *_, **__: frame  # type: ignore[method-assign]
        return stub.request(sent, **options)

    return decode


@pytest.fixture(scope="module")
def recorded(source_cluster: KafkaCluster) -> dict[str, Recorded]:
    """Record a response to each request that the engine sends."""
    admin = address_from_properties(source_cluster.client_properties("admin"))
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        recorder.install(patch)
        _send_every_request(source_cluster, admin)
    own = {entry.kind: entry for entry in _own_decoders(admin)}
    return recorder.found | own


TOPIC = "malformed"


def _send_every_request(source: KafkaCluster, admin: ClusterAddress) -> None:
    client = AdminClient(source.client("admin"))
    kept = {"retention.ms": "-1"}  # the first record is of 1970
    client.create_topics([NewTopic(TOPIC, 2, 1, config=kept), NewTopic("doomed", 1, 1)])[TOPIC].result(30)
    preflight.broker_facts(admin)
    cluster = Cluster(admin)
    try:
        topic = _await_topic(cluster, TOPIC)
        place, broker = (TOPIC, 0), topic.partitions[0].broker
        _write_record(admin)
        _abort_transactions(source)
        _await_stable_offset(cluster, broker, place, offset=5)
        data = cluster.open(broker)
        single_reads.read_committed(data, topic=(TOPIC, topic.topic_id, 0), leader_epoch=-1, offset=0)
        data.close()
        offsets.list_offsets(cluster, broker, [place], timestamp=offsets.LATEST)
        offsets.log_ends(cluster, broker, {place: topic.partitions[0].epoch})
        offsets.delete_records(cluster, broker, {place: 0})
        producers.describe_producers(cluster, broker, {place: 1})
        admin_topics.is_compacted(cluster, broker, TOPIC)
        admin_topics.not_shown(cluster, {TOPIC: ConfigChange(values={"retention.ms": "1"}, deletions=())})
        producers.brokers_without_deny_write(cluster, TOPIC)
        transactions = EmptyTransactions(cluster, "malformed")
        transactions.write_marker(transactions.fence(), topic=TOPIC, partition=1, commit=True)
        producers.transactional_writers(admin, [TOPIC])
        admin_groups.commit(cluster, {"group": {place: Committed(offset=1, metadata="m")}})
        admin_groups.committed(cluster, ["group"])
        admin_groups.list_groups(cluster)
        _describe_members(source, cluster)
        view_groups.described(cluster, ["group", "no group"])
        kafka_transactions.choose_gap_filler(admin)
        views.reassignments(admin, TOPIC)
        anything: Any = None  # which the client's type hints leave out
        everything = AclBindingFilter(
            ResourceType.ANY, anything, ResourcePatternType.ANY, anything, anything, AclOperation.ANY, AclPermissionType.ANY
        )
        admin_acls.is_empty(admin, everything, what="Failed to list")
        doomed = _await_topic(cluster, "doomed")
        admin_topics.delete_by_id(admin, base64.urlsafe_b64encode(doomed.topic_id).decode().rstrip("="))
    finally:
        cluster.close()


def _describe_members(source: KafkaCluster, cluster: Cluster) -> None:
    with group_member(source, "classic") as classic, group_member(source, "consumer") as new:
        for group in (classic, new):  # one after the other: the first response of a kind is recorded
            view = view_groups.described(cluster, [group])[group]
            assert isinstance(view, GroupDescription)
            (member,) = view.members
            assert member.assigned == ((TOPIC, 0), (TOPIC, 1))


@contextmanager
def group_member(source: KafkaCluster, protocol: str) -> Iterator[str]:
    """Yield a group while a member of it, with this group protocol, has partitions."""
    group = f"malformed {protocol}"
    with closing(Consumer({**source.client("admin"), "group.id": group, "group.protocol": protocol})) as consumer:
        consumer.subscribe([TOPIC])
        deadline = time.monotonic() + 60
        while len(consumer.assignment()) < 2:
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        yield group


def _abort_transactions(source: KafkaCluster) -> None:
    """Append two aborted transactions to partition 0."""
    for number in range(2):
        producer = Producer({**source.client("admin"), "transactional.id": f"malformed {number}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(TOPIC, b"aborted", partition=0)
        producer.flush(30)
        producer.abort_transaction(30)


def _await_stable_offset(cluster: Cluster, broker: int, place: tuple[str, int], *, offset: int) -> None:
    """Wait until the transactions are decided: their markers are written after the producer has its response."""
    deadline = time.monotonic() + 60
    while offsets.list_offsets(cluster, broker, [place], timestamp=offsets.LATEST, read_committed=True)[place] != (0, offset):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _await_topic(cluster: Cluster, name: str) -> Any:
    deadline = time.monotonic() + 60
    while True:
        view = cluster.topics([name])[name]
        if not view.error and all(leader.broker >= 0 for leader in view.partitions.values()):
            return view
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _write_record(admin: ClusterAddress) -> None:
    writer = OddWriter(admin, TOPIC)
    writer.append(0, Record(offset=0, timestamp=1, key=b"k", value=b"v", headers=[("h", b"v")]))
    writer.close()


def _own_decoders(admin: ClusterAddress) -> Iterator[Recorded]:
    """Yield the requests and responses that the data path encodes and decodes itself, over a connection of its own."""
    cluster = Cluster(admin)
    view = cluster.topics([TOPIC])[TOPIC]
    leader, topic_id = view.partitions[0], view.topic_id
    batch, number = dense(0, [Rec()] * 2).encode(), 1
    fetches = {topic_id: [FetchPosition(0, leader.epoch, 1, 1 << 20)]}  # offset 0, of 1970, is in a segment of its own
    fill = MarkerFill(topic=TOPIC, partition=0, producer_id=1 << 61, producer_epoch=0, coordinator_epoch=1, count=2)
    requests: tuple[tuple[str, Callable[[memoryview], Any], Sequence[bytes | bytearray | memoryview]], ...] = (
        ("decode_produce", lambda body: decode_produce(body, version=13),
         encode_produce({topic_id: [(0, batch), (1, batch)]}, version=13, correlation_id=number, timeout_ms=9000)),
        ("decode_markers", decode_markers, encode_markers([fill], correlation_id=number)),
        ("decode_log_ends", decode_log_ends, encode_log_ends([(TOPIC, 0, leader.epoch)], correlation_id=number)),
        ("decode_fetch", lambda body: decode_fetch(body, version=13),
         encode_fetch(fetches, version=13, correlation_id=number, limits=FetchLimits(max_bytes=1 << 20, max_wait_ms=100))),
    )  # fmt: skip
    data = cluster.open(leader.broker)
    for name, decode, request in requests:
        frame = data._exchange(b"".join(bytes(part) for part in request), deadline=time.monotonic() + 20, most_bytes=1 << 20)
        if name == "decode_fetch":
            assert len(decode(memoryview(frame)[INT32.size :]).partitions[0].aborted) == 2
        yield Recorded(name, frame, partial(_decode_frame, decode))
    data.close()
    cluster.close()


def _decode_frame(decode: Callable[[memoryview], object], frame: bytes) -> object:
    return decode(memoryview(frame)[INT32.size :])


def decoded_responses() -> set[str]:
    """Return the responses of kafka-python's protocol layer that any module decodes, and the engine's own response classes."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafka.protocol"):
                found |= {alias.name for alias in node.names if alias.name.endswith("Response")}
            if isinstance(node, ast.ClassDef) and node.name.endswith("Response"):
                found.add(node.name)
    return found


def own_decoders() -> set[str]:
    return {
        node.name
        for path in PACKAGE.joinpath("kafka").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("decode_")
    }


def test_a_response_of_every_decoded_kind_is_recorded(recorded: dict[str, Recorded]) -> None:
    assert set(recorded) == decoded_responses() | own_decoders()


def test_every_request_has_a_read_function() -> None:
    """Reads of a decoded response outside of ``read`` are not guarded: a part of it may be null, or missing."""
    unguarded = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and any(keyword.arg == "response" for keyword in node.keywords)
        and not any(keyword.arg == "read" for keyword in node.keywords)
    ]
    assert unguarded == []


def test_each_unchanged_recorded_response_is_decoded(recorded: dict[str, Recorded]) -> None:
    for recording in recorded.values():
        recording.decode(recording.frame)


def changed(frame: bytes, data: st.DataObject) -> bytes:
    """Return the frame with flipped bits, odd numbers written over others, a cut or an insertion."""
    mutable = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(mutable) - 1)))
        way = data.draw(st.sampled_from(["flip", "byte", "number", "cut", "insert"]))
        if way == "flip" and mutable:
            mutable[at] ^= 1 << data.draw(st.integers(0, 7))
        elif way == "byte":
            mutable[at : at + 1] = bytes([data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))])
        elif way == "number":
            number = data.draw(st.sampled_from(NUMBERS))
            mutable[at : at + len(number)] = number
        elif way == "cut":
            del mutable[at:]
        else:
            mutable[at:at] = data.draw(st.binary(max_size=6))
    return bytes(mutable)


@settings(max_examples=tries(750), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_changed_response_is_decoded_or_raises_LinkEngineError(recorded: dict[str, Recorded], data: st.DataObject) -> None:
    recording = recorded[data.draw(st.sampled_from(sorted(recorded)))]
    frame = changed(recording.frame, data)

    began = time.thread_time()
    refusal = refusal_of(recording, frame)

    assert refusal is None or refusal.message.endswith("."), refusal.message
    if isinstance(refusal, MalformedResponseError):
        assert refusal.code is ErrorCode.MALFORMED_RESPONSE_ERROR
        assert "cannot be read. A device on the network path changes it" in refusal.message
    assert time.thread_time() - began < SOON_S


def refusal_of(recording: Recorded, frame: bytes) -> LinkEngineError | None:
    """Return the error of a decoder, if any. A code other than MALFORMED_RESPONSE_ERROR is an error code in the response."""
    try:
        recording.decode(frame)
    except LinkEngineError as error:
        return error
    return None


def test_every_shortened_response_is_decoded_or_refused(recorded: dict[str, Recorded]) -> None:
    for recording in recorded.values():
        for length in range(len(recording.frame)):
            with suppress(LinkEngineError):
                recording.decode(recording.frame[:length])


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x80" * 200_000])
def test_announced_lengths_are_not_allocated_before_their_bytes_arrive(recorded: dict[str, Recorded], count: bytes) -> None:
    for recording in recorded.values():
        for at in range(4, min(len(recording.frame), 80)):
            tracemalloc.start()
            began = time.thread_time()
            with suppress(LinkEngineError):
                recording.decode(recording.frame[:at] + count + recording.frame[at + 4 :])
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 40 << 20, (recording.kind, at)
            assert time.thread_time() - began < SOON_S, (recording.kind, at)


def test_a_response_to_another_request_is_refused_and_names_the_broker(recorded: dict[str, Recorded]) -> None:
    recording = recorded["MetadataResponse"]

    with pytest.raises(MalformedResponseError, match="Broker broker:9092 sent a response to Metadata that cannot be read"):
        recording.decode(b"\0\0\0\x7f" + recording.frame[4:])


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@given(data=st.data())
@settings(deadline=None)
def test_a_changed_sasl_exchange_raises_only_LinkEngineError(mechanism: str, data: st.DataObject) -> None:
    address = ClusterAddress(
        bootstrap_servers="broker:9092", security_protocol="SASL_SSL", sasl_mechanism=mechanism,
        sasl_username="user", sasl_password="password",
    )  # fmt: skip
    client = get_sasl_mechanism(mechanism)(sasl_plain_username="user", sasl_plain_password="p", sasl_mechanism=mechanism)
    first = client._scram_client.nonce if mechanism != "PLAIN" else b""
    honest = b"r=" + first + b"abc,s=" + base64.b64encode(b"salt") + b",i=4096"
    challenge = changed(honest, data) if data.draw(st.booleans()) else data.draw(st.binary(max_size=40))

    class Stub:
        peer = "broker:9092"

        def request(self, *_: object, **__: object) -> tuple[int, bytes, int]:
            return 0, challenge, 0

    with suppress(LinkEngineError):
        for _ in range(connection.MOST_SASL_STEPS):
            if client.is_done():
                break
            connection._sasl_step(Stub(), client, address=address)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "broker",
    [
        MetadataResponse.MetadataResponseBroker(node_id=1, host="", port=1, rack=None),
        MetadataResponse.MetadataResponseBroker(node_id=1, host="a", port=0, rack=None),
        MetadataResponse.MetadataResponseBroker(node_id=1, host="a", port=70_000, rack=None),
    ],
    ids=["no host", "port 0", "port 70000"],
)
def test_metadata_without_a_valid_broker_address_is_refused(broker: Any) -> None:
    response = MetadataResponse(version=12, throttle_time_ms=0, brokers=[broker], cluster_id="c", controller_id=1, topics=[])

    with pytest.raises(ValueError, match="a broker with"):
        _read_metadata(response, names=())


def test_an_oversized_handshake_response_is_refused_before_it_is_read() -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def response() -> None:
        with server.accept()[0] as others:
            others.recv(1000)
            others.sendall(INT32.pack(connection.MAX_HANDSHAKE_RESPONSE + 1) + bytes(100))
            with suppress(ConnectionError):
                others.recv(1)

    thread = threading.Thread(target=response)
    thread.start()
    host, port = server.getsockname()
    with pytest.raises(LinkEngineError, match="1048577 bytes is not a response of a Kafka broker"):
        connect(host, port, address=ClusterAddress(bootstrap_servers=f"{host}:{port}"))
    thread.join(10)
    server.close()
