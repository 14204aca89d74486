"""How the engine reaches the shared clusters: as the link's principal, as an administrator, and as an ordinary client."""

import pytest

from devcluster.kafka import KafkaCluster
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.kafka.admin import ClusterAdmin


@pytest.fixture
def source(source_cluster: KafkaCluster) -> ClusterAddress:
    """The source cluster as the link sees it."""
    return address_from_properties(source_cluster.client_properties("link"))


@pytest.fixture
def destination(destination_cluster: KafkaCluster) -> ClusterAddress:
    """The destination cluster as the link sees it."""
    return address_from_properties(destination_cluster.client_properties("link"))


@pytest.fixture
def destination_as_app(destination_cluster: KafkaCluster) -> ClusterAddress:
    """The destination cluster as an ordinary client sees it."""
    return address_from_properties(destination_cluster.client_properties("app"))


@pytest.fixture
def there(source: ClusterAddress) -> ClusterAdmin:
    """Administration of the source."""
    return ClusterAdmin(source)


@pytest.fixture
def here(destination: ClusterAddress) -> ClusterAdmin:
    """Administration of the destination."""
    return ClusterAdmin(destination)
