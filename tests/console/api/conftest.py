"""Fixtures of the REST tests. Clients: an owner (environment admin), a reader (DeveloperRead), a stranger (no role)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.utils import timezone

from console.models import Cluster, ClusterLink, Environment, MirrorPartition, MirrorTopic, Organization, RoleBinding
from console.queue import dispatch
from linkengine.domain.states import MirrorState
from tests.console.api.actors import DESTINATION, NOW, SOURCE, Boundary, Rest, make_client, make_cluster
from tests.console.api.brokers import SmallCluster


def pytest_itemcollected(item: pytest.Item) -> None:
    """Set distinct ids for generated tests, since xdist runs only one of several tests with the same id.

    pytest 9.2 and schemathesis 4.32 give them equal ids.
    """
    label = getattr(item, "operation_label", None)
    if label is not None:
        item._id = replace(item._id, params=label)


@pytest.fixture
def cluster() -> SmallCluster:
    """A fake of the destination cluster."""
    return SmallCluster()


@pytest.fixture(autouse=True)
def boundary(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Boundary | None:
    """Replace ``console.queue.dispatch`` in all tests of this folder except those with the marker ``kafka``."""
    if request.node.get_closest_marker("kafka"):
        return None
    fake = Boundary()
    fake.response = request.getfixturevalue("cluster").response
    monkeypatch.setattr(dispatch, "send", fake.send)
    monkeypatch.setattr(dispatch, "call", fake.call)
    return fake


@pytest.fixture(autouse=True)
def no_rate(settings: Any) -> None:
    """Disable the rate limit and the login throttle, whether or not Redis is running; tests of these enable them."""
    settings.API_RATE_PER_S = settings.ATTEMPTS_AT_ONCE = 0


@pytest.fixture
def environment(db: None) -> Environment:
    organization = Organization.objects.create(name="Acme", created_at=NOW)
    return Environment.objects.create(organization=organization, name="Production", slug="production", created_at=NOW)


@pytest.fixture
def destination(environment: Environment) -> Cluster:
    return make_cluster(environment, name="Destination", cluster_id=DESTINATION)


@pytest.fixture
def source(environment: Environment) -> Cluster:
    return make_cluster(environment, name="Source", cluster_id=SOURCE)


@pytest.fixture
def link(destination: Cluster, source: Cluster) -> ClusterLink:
    return ClusterLink.objects.create(
        name="from-source",
        destination=destination,
        source=source,
        source_cluster_id=source.cluster_id,
        properties={
            "bootstrap.servers": "source.test:9093",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": 'PlainLoginModule required username="u" password="hidden";',
        },
        state_since=NOW,
        created_at=NOW,
        created_by="owner",
    )


MakeMirror = Callable[..., MirrorTopic]


@pytest.fixture
def make_mirror(link: ClusterLink) -> MakeMirror:
    """Create a mirror of the link; ``lags`` are (source end, mirror end) per partition, None for one without a report."""

    def make(name: str, state: MirrorState = MirrorState.ACTIVE, *, lags: Any = ((10, 10),), **fields: Any) -> MirrorTopic:
        values = {"stop_reason": "promote"} if state is MirrorState.PENDING_STOPPED else {}
        mirror = MirrorTopic.objects.create(
            link=fields.pop("link", link),
            name=name,
            source_topic=fields.pop("source_topic", name),
            state=state,
            state_since=NOW,
            num_partitions=len(lags),
            created_at=NOW,
            created_by="owner",
            **{**values, **fields},
        )
        for number, ends in enumerate(lags):
            if ends is not None:
                source_end, mirror_end = ends
                MirrorPartition.objects.create(
                    mirror=mirror,
                    partition=number,
                    source_end=source_end,
                    last_high_watermark=source_end,
                    last_source_seen_at=timezone.now(),
                    mirror_end=mirror_end,
                    last_source_fetch_offset=mirror_end,
                )
        return mirror

    return make


@pytest.fixture
def other_side(link: ClusterLink, source: Cluster, destination: Cluster) -> ClusterLink:
    """Make the link bidirectional and return the row of its other side, which copies from the destination."""
    link.mode = "BIDIRECTIONAL"
    link.save()
    ends = {"destination": source, "source": destination, "source_cluster_id": destination.cluster_id}
    dated = {"state_since": NOW, "created_at": NOW, "created_by": "owner", "properties": {}}
    return ClusterLink.objects.create(name=link.name, mode="BIDIRECTIONAL", **ends, **dated)


@pytest.fixture
def orders(make_mirror: MakeMirror) -> MirrorTopic:
    """A mirror with a lag in partition 0, no lag in partition 1, and an unknown lag in partition 2."""
    return make_mirror("orders", lags=((15, 10), (7, 7), None))


@pytest.fixture
def owner(environment: Environment) -> Rest:
    return make_client(environment, name="owner", role=RoleBinding.Role.ENVIRONMENT_ADMIN)


@pytest.fixture
def reader(environment: Environment) -> Rest:
    return make_client(environment, name="reader", role=RoleBinding.Role.DEVELOPER_READ)


@pytest.fixture
def stranger(db: None) -> Rest:
    return make_client(None, name="stranger", role="")


@pytest.fixture
def base(destination: Cluster) -> str:
    """The path of the destination cluster below /kafka/v3."""
    return f"/kafka/v3/clusters/{destination.cluster_id}"


@pytest.fixture
def topics(base: str) -> str:
    """The path of the destination's topics; it has one, named plain."""
    return f"{base}/topics"
