"""Round trips to real brokers, nearby and through a proxy that delays everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from devcluster.distance import Distance
from devcluster.kafka import KafkaCluster
from devcluster.ports import free_port
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.views import measure_distances

pytestmark = pytest.mark.kafka


def test_a_near_broker_has_a_short_round_trip_and_no_limit(source: ClusterAddress) -> None:
    (found,) = measure_distances(source)

    assert found.round_trip_ms is not None
    assert not found.is_long
    assert (found.send_buffer_bytes, found.limited_by, found.error) == (None, "", "")


def test_a_distant_broker_is_measured_with_its_send_buffer(tmp_path: Path) -> None:
    cluster = KafkaCluster("distant", directory=tmp_path / "distant").behind_proxy()
    with cluster, Distance(cluster.routes, delay_ms=100):
        (found,) = measure_distances(address_from_properties(cluster.proxied_properties("link")))

    assert found.round_trip_ms is not None
    assert 200 <= found.round_trip_ms < 400
    assert found.send_buffer_bytes == 102_400
    assert found.limited_by == "socket.send.buffer.bytes"
    assert found.bytes_per_s is not None
    assert 256_000 < found.bytes_per_s <= 512_000


def test_a_broker_that_cannot_be_reached_has_the_reason(source: ClusterAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = free_port()
    monkeypatch.setattr(Cluster, "endpoint", lambda _cluster, _broker: ("127.0.0.1", closed))

    (found,) = measure_distances(source)

    assert found.round_trip_ms is None
    assert "accepts no connection" in found.error
