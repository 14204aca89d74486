"""The pair of shared clusters that copies run between."""

import pytest

from devcluster.kafka import KafkaCluster


@pytest.fixture
def clusters(source_cluster: KafkaCluster, destination_cluster: KafkaCluster) -> tuple[KafkaCluster, KafkaCluster]:
    """Source and destination."""
    return source_cluster, destination_cluster
