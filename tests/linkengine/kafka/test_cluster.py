"""Metadata of several brokers, played by threads; a partitioned broker lists only itself."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from devcluster.ports import free_port
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.connection import Connection
from linkengine.kafka.offsets import newest_view
from linkengine.kafka.topicviews import Leader

TIMEOUT_S = 20.0
TOPIC = uuid.UUID(int=7)
SPOKEN = {MetadataRequest.API_KEY: 12, ApiVersionsRequest.API_KEY: 3}


class Speaker:
    """A broker that returns its own view of the cluster on any number of connections."""

    def __init__(self, node: int) -> None:
        self.node, self.epoch, self.named = node, 1, [self]
        self.requested, self.may_respond, self.left = threading.Event(), threading.Event(), threading.Event()
        self.may_respond.set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                others = self._server.accept()[0]
            except OSError:
                return  # closed by the test
            threading.Thread(target=self._serve, args=(others,), daemon=True).start()

    def _serve(self, others: socket.socket) -> None:
        with others, others.makefile("rb") as stream, ExitStack() as stack:
            stack.callback(self.left.set)
            try:
                while size := stream.read(4):
                    frame = stream.read(int.from_bytes(size, "big"))
                    self.requested.set()
                    self.may_respond.wait(TIMEOUT_S)
                    api_key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
                    response = self._metadata(version) if api_key == MetadataRequest.API_KEY else self._versions(version)
                    others.sendall((len(response) + 4).to_bytes(4, "big") + frame[4:8] + response)
            except OSError:
                return

    def _versions(self, version: int) -> bytes:
        keys = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=high) for key, high in SPOKEN.items()]
        return bytes(ApiVersionsResponse(version=version, error_code=0, api_keys=keys).encode())

    def _metadata(self, version: int) -> bytes:
        part = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
            partition_index=0, leader_id=self.node, leader_epoch=self.epoch, replica_nodes=[], isr_nodes=[], offline_replicas=[]
        )
        topic = MetadataResponse.MetadataResponseTopic(name="t", topic_id=TOPIC, partitions=[part])
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=broker.node, host="127.0.0.1", port=broker.port, rack=None)
            for broker in self.named
        ]
        response = MetadataResponse(version=version, brokers=brokers, cluster_id="c", controller_id=1, topics=[topic])
        return b"\0" + bytes(response.encode())


@pytest.fixture
def speaker() -> Iterator[Callable[[int], Speaker]]:
    made: list[Speaker] = []

    def make(node: int) -> Speaker:
        made.append(Speaker(node))
        return made[-1]

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def cluster() -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(*ports: int) -> Cluster:
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        made.append(Cluster(ClusterAddress(bootstrap_servers=servers, security_protocol="PLAINTEXT", cluster_id="c")))
        return made[-1]

    yield make
    for created in made:
        created.close()


def test_another_bootstrap_servers_newer_epoch_overrides_a_broker_that_was_cut_off(
    speaker: Callable[[int], Speaker], cluster: Callable[..., Cluster]
) -> None:
    alone, second, third = speaker(1), speaker(2), speaker(3)
    second.named = third.named = [second, third]
    second.epoch = third.epoch = 5

    survey = cluster(alone.port, second.port).survey(["t"])

    assert survey.is_final
    assert survey.topics["t"].partitions[0] in (Leader(broker=2, epoch=5), Leader(broker=3, epoch=5))


def test_a_survey_is_not_final_while_an_unlisted_bootstrap_server_is_silent(
    speaker: Callable[[int], Speaker], cluster: Callable[..., Cluster]
) -> None:
    alone = speaker(1)
    survey = cluster(alone.port, free_port()).survey(["t"])

    assert (survey.complete, survey.is_final) == (True, False)
    assert survey.topics["t"].partitions[0] == Leader(broker=1, epoch=1)


def test_a_connection_in_use_is_closed_after_its_response_when_the_cluster_is_closed(
    speaker: Callable[[int], Speaker], cluster: Callable[..., Cluster]
) -> None:
    broker = speaker(1)
    broker.may_respond.clear()
    requesting = cluster(broker.port)

    with ThreadPoolExecutor(1) as pool:
        response = pool.submit(requesting.topics, ["t"])
        assert broker.requested.wait(TIMEOUT_S)
        requesting.close()
        broker.may_respond.set()

    assert response.result()["t"].partitions[0] == Leader(broker=1, epoch=1)
    assert broker.left.wait(TIMEOUT_S)


@pytest.fixture
def frozen() -> Iterator[int]:
    """Yield the port of a frozen machine: its kernel accepts connections, and it never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("first", [False, True], ids=["asked last", "asked first"])
def test_newest_view_raises_for_an_unlisted_server_that_accepts_connections_silently(
    speaker: Callable[[int], Speaker], cluster: Callable[..., Cluster], frozen: int, first: bool
) -> None:
    """An old name refuses connections or leads nowhere. A frozen server may lead since the responding broker was cut off."""
    alone = speaker(1)
    session = cluster(frozen, alone.port) if first else cluster(alone.port, frozen)

    with pytest.raises(LinkEngineError, match=rf"127\.0\.0\.1:{frozen} of bootstrap\.servers accepts connections") as caught:
        newest_view(session, "t")
    assert caught.value.code is ErrorCode.TIMEOUT_ERROR


def test_newest_view_ignores_an_old_name_and_a_broker_dropped_by_the_majority(
    speaker: Callable[[int], Speaker], cluster: Callable[..., Cluster], frozen: int
) -> None:
    alone, first, second = speaker(1), speaker(1), speaker(2)
    first.named = second.named = [first, second]

    assert newest_view(cluster(alone.port, free_port()), "t").partitions[0] == Leader(broker=1, epoch=1)
    assert newest_view(cluster(first.port, second.port, frozen), "t").partitions[0].epoch == 1


def test_a_server_that_responds_again_is_not_reported_as_unresponsive(
    speaker: Callable[[int], Speaker], cluster: Callable[..., Cluster]
) -> None:
    alone, back = speaker(1), speaker(2)
    back.named = [alone, back]
    session = cluster(alone.port, back.port)
    session._unresponsive.add(("127.0.0.1", back.port))

    assert session.survey(["t"]).unresponsive_servers == ()


def test_a_single_broker_with_two_names_gives_a_complete_survey(
    speaker: Callable[[int], Speaker], cluster: Callable[..., Cluster]
) -> None:
    """Clients use a name other than the advertised name."""
    alone, alias = speaker(1), speaker(1)
    alias.named = [alone]
    survey = cluster(alias.port, alone.port).survey(["t"])

    assert survey.is_final


def test_a_down_broker_dropped_by_the_majority_is_not_queried(
    speaker: Callable[[int], Speaker], cluster: Callable[..., Cluster]
) -> None:
    first, second = speaker(1), speaker(2)
    first.named = second.named = [first, second]
    session = cluster(first.port, second.port, gone := free_port())
    survey = session.survey(["t"])

    assert survey.is_final
    assert not session._is_avoided(("127.0.0.1", gone))  # a query would have marked it


def test_a_request_to_any_broker_goes_last_to_a_broker_that_did_not_respond(
    speaker: Callable[[int], Speaker], cluster: Callable[..., Cluster]
) -> None:
    def build(connection: Connection) -> MetadataRequest:
        version = connection.version_for(MetadataRequest.API_KEY, highest=12)
        return MetadataRequest(version=version, topics=[], allow_auto_topic_creation=False)

    first, second = speaker(1), speaker(2)
    first.named = second.named = [first, second]
    session = cluster(first.port, second.port)
    assert session.call_any(build, response=MetadataResponse, read=lambda response: response.cluster_id) == "c"
    assert not second.requested.is_set()
    first.may_respond.clear()
    with pytest.raises(LinkEngineError):
        session.call(1, build, response=MetadataResponse, timeout_s=0.1)
    first.requested.clear()

    assert session.call_any(build, response=MetadataResponse, read=lambda response: response.cluster_id) == "c"

    assert second.requested.is_set()
    assert not first.requested.is_set()
    first.may_respond.set()


def test_metadata_without_a_requested_topic_is_malformed(
    speaker: Callable[[int], Speaker], cluster: Callable[..., Cluster]
) -> None:
    """For a missing topic a broker returns an error code, so the name was changed in transit."""
    session = cluster(speaker(1).port)

    with pytest.raises(LinkEngineError) as refused:
        session.survey(["another"])

    assert refused.value.code is ErrorCode.MALFORMED_RESPONSE_ERROR
    assert "t" in session.survey(["t"]).topics
