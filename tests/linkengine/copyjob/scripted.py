"""A scripted source broker: a thread at the other end of a socket that returns its API versions and responds to Fetch."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable
from typing import Any

from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from linkengine.domain.addresses import ClusterAddress
from linkengine.kafka.connection import Connection, connect

Places = list[tuple[uuid.UUID, int]]
Scripted = dict[int, tuple[int, bytes]]  # by partition: its log end and its records
END = 10  # log end of all other partitions, which return no records
_Topic = FetchResponse.FetchableTopicResponse


class ScriptedBroker:
    """Serves a single connection until it is closed."""

    def __init__(self, *, fetch: int, refuses: int = 0, news: Callable[[Places], Scripted] = lambda _: {}) -> None:
        """Start a broker that supports Fetch up to version ``fetch``.

        ``refuses`` is the error of its ApiVersions response; ``news`` returns what it has for the requested partitions.
        """
        self.requested: list[Places] = []
        self._fetch, self._refuses, self._news = fetch, refuses, news
        self._server = socket.create_server(("127.0.0.1", 0))
        self._session: Places = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def connected(self, _: int = 0) -> Connection:
        host, port = self._server.getsockname()
        return connect(host, port, address=ClusterAddress(bootstrap_servers=f"{host}:{port}", security_protocol="PLAINTEXT"))

    def close(self) -> None:
        self._server.close()
        self._thread.join(10)

    def _serve(self) -> None:
        try:
            with self._server.accept()[0] as connection, connection.makefile("rb") as stream:
                while size := stream.read(4):
                    frame = size + stream.read(int.from_bytes(size, "big"))
                    response = self._response(int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big"), frame)
                    connection.sendall((len(response) + 4).to_bytes(4, "big") + frame[8:12] + response)
        except OSError:
            return  # closed by the test

    def _response(self, api_key: int, version: int, frame: bytes) -> bytes:
        if api_key == ApiVersionsRequest.API_KEY:
            return self._versions(version)
        return b"\0" + self._fetched(FetchRequest.decode(frame, version=version, header=True, framed=True), version)

    def _versions(self, version: int) -> bytes:
        """Return the supported versions, in version 0 if the requested version is not supported (KIP-511)."""
        spoken = {FetchRequest.API_KEY: self._fetch, ApiVersionsRequest.API_KEY: 2 if self._refuses else 3}
        keys = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=high) for key, high in spoken.items()]
        response = ApiVersionsResponse(version=0 if self._refuses else version, error_code=self._refuses, api_keys=keys)
        return bytes(response.encode())

    def _fetched(self, request: Any, version: int) -> bytes:
        """Return a Fetch response; later responses of a session leave out partitions without news (KIP-227)."""
        places = [(topic.topic_id, partition.partition) for topic in request.topics for partition in topic.partitions]
        self.requested.append(places)
        continues, alone = request.session_epoch > 0, request.session_epoch < 0
        self._session = self._session if continues or alone else places
        news = self._news(self._session if continues else places)
        shown = [place for place in self._session if place[1] in news] if continues else places
        topics = [_Topic(topic="", topic_id=topic, partitions=[_part(number, news)]) for topic, number in shown]
        session = 0 if alone else 7
        return bytes(
            FetchResponse(version=version, throttle_time_ms=0, error_code=0, session_id=session, responses=topics).encode()
        )


def _part(number: int, news: Scripted) -> Any:
    end, records = news.get(number, (END, None))
    return _Topic.PartitionData(
        partition_index=number, error_code=0, high_watermark=end, last_stable_offset=end, log_start_offset=0,
        aborted_transactions=None, preferred_read_replica=-1, records=records,
    )  # fmt: skip
