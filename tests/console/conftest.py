"""Fixtures of the console's tests: clusters, a link and mirrors; an owner, a colleague and a stranger; engine and queue.

No worker runs here: ``engine`` returns what a worker would (the end-to-end tests use a real worker), and ``sent`` records what
would be queued after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, transaction
from django.utils import timezone

from console.actors import Actor
from console.links import health_queries
from console.mirrors import progress
from console.models import (
    Cluster,
    ClusterLink,
    Environment,
    LinkConfig,
    MirrorPartition,
    MirrorTopic,
    Organization,
    RoleBinding,
)
from console.queue import dispatch
from console.redis import rate_limit
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.states import MirrorState

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
SOURCE_PROPERTIES = {
    "bootstrap.servers": "source.test:9092",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": 'PlainLoginModule required username="link" password="secret-of-the-link";',
}
Role = RoleBinding.Role


MakeActor = Callable[..., Actor]
MakeMirror = Callable[..., MirrorTopic]


@pytest.fixture(autouse=True)
def no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget that Redis was not available in another test."""
    monkeypatch.setattr(rate_limit.RedisOutage, "until_s", 0.0)
    monkeypatch.setattr(progress.Outage, "until_s", 0.0)


@pytest.fixture(autouse=True)
def unshared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the state of links anew at each request, since tests change rows directly."""
    monkeypatch.setattr(health_queries, "LONGEST_SHARED_S", 0.0)


@dataclass
class Engine:
    """Stands in for the worker: returns ``responses`` by task name; an exception is raised."""

    responses: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def call(self, task_name: str, *, timeout_s: float, **kwargs: Any) -> Any:
        assert timeout_s > 0
        self.calls.append((task_name, kwargs))
        response = self.responses.get(task_name)
        if isinstance(response, Exception):
            raise response
        return response

    def refuses(self, task_name: str, error: Exception | LinkEngineError) -> None:
        self.responses[task_name] = error


@pytest.fixture(autouse=True)
def connection_kept() -> Iterator[None]:
    """Leave the connection open after requests made within a test's transaction, as Django's own test client does."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A worker whose checks all succeed."""
    probe = {"cluster_id": "source-id", "brokers": 1, "kafka_version": "4.3", "authorizer": True}
    content = Engine(responses={"check_link": probe, "check_mirror": {}, "probe_address": probe, "find_reversal_risks": {}})
    monkeypatch.setattr(dispatch, "call", content.call)
    return content


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The tasks that were queued, in order, with their keywords; the same within and outside of a transaction."""
    queued: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(dispatch, "send", lambda task_name, **kwargs: queued.append((task_name, kwargs)))
    return queued


@pytest.fixture
def organization(db: None) -> Organization:
    return Organization.objects.create(name="Acme", created_at=NOW)


@pytest.fixture
def environment(organization: Organization) -> Environment:
    return Environment.objects.create(organization=organization, name="Production", slug="production", created_at=NOW)


@pytest.fixture
def destination(environment: Environment) -> Cluster:
    return _cluster(environment, "Destination", "destination-id", {"bootstrap.servers": "destination.test:9092"})


@pytest.fixture
def source(environment: Environment) -> Cluster:
    return _cluster(environment, "Source", "source-id", SOURCE_PROPERTIES)


@pytest.fixture
def link(destination: Cluster, source: Cluster) -> ClusterLink:
    return ClusterLink.objects.create(
        name="west-to-east",
        destination=destination,
        source=source,
        source_cluster_id=source.cluster_id,
        properties=dict(SOURCE_PROPERTIES),
        state_since=NOW,
        created_at=NOW,
        created_by="owner",
    )


@pytest.fixture
def back(link: ClusterLink, destination: Cluster, source: Cluster) -> ClusterLink:
    """Make the link bidirectional and return the row of its other side."""
    link.mode = "BIDIRECTIONAL"
    link.save()
    return ClusterLink.objects.create(
        name=link.name,
        mode="BIDIRECTIONAL",
        destination=source,
        source=destination,
        source_cluster_id=destination.cluster_id,
        properties=dict(destination.properties),
        state_since=NOW,
        created_at=NOW,
        created_by="owner",
    )


@pytest.fixture
def make_mirror(link: ClusterLink) -> MakeMirror:
    """Create a mirror of the link with ``partitions`` partitions, all caught up at offset 10, as measured now."""

    def make(
        name: str = "orders", state: MirrorState = MirrorState.ACTIVE, *, partitions: int = 2, **fields: Any
    ) -> MirrorTopic:
        if state is MirrorState.PENDING_STOPPED:
            fields.setdefault("stop_reason", "promote")
        row = {"link": link, "source_topic": name, "num_partitions": partitions, "source_topic_id": "topic-id", **fields}
        mirror = MirrorTopic.objects.create(name=name, state=state, state_since=NOW, created_at=NOW, created_by="owner", **row)
        for number in range(partitions):
            ends = {"source_end": 10, "last_high_watermark": 10, "mirror_end": 10}
            MirrorPartition.objects.create(mirror=mirror, partition=number, last_source_seen_at=timezone.now(), **ends)
        return mirror

    return make


@pytest.fixture
def mirror(make_mirror: MakeMirror) -> MirrorTopic:
    return make_mirror()


@pytest.fixture
def make_actor(db: None) -> MakeActor:
    """Create a user; ``role`` is granted at the places named by keyword."""

    def make(name: str, role: str = "", **place: Any) -> Actor:
        user, _ = User.objects.get_or_create(username=name)
        if role:
            RoleBinding.objects.create(user=user, role=role, granted_at=NOW, granted_by="test", **place)
        return Actor(name=name, user=user, request_id="request-1", client_address="192.0.2.1")

    return make


@pytest.fixture
def owner(make_actor: MakeActor, environment: Environment) -> Actor:
    """May do everything in the environment."""
    return make_actor("owner", Role.ENVIRONMENT_ADMIN, environment=environment)


@pytest.fixture
def colleague(make_actor: MakeActor, destination: Cluster) -> Actor:
    """May see the destination cluster."""
    return make_actor("colleague", Role.DEVELOPER_READ, cluster=destination)


@pytest.fixture
def stranger(make_actor: MakeActor) -> Actor:
    """May do nothing."""
    return make_actor("stranger")


def choose_all(link: ClusterLink) -> None:
    """Enable auto-create for all topics."""
    filters = '{"topicFilters": [{"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}]}'
    for name, value in (("enable", "true"), ("filters", filters)):
        LinkConfig.objects.create(link=link, name=f"auto.create.mirror.topics.{name}", value=value)


def _cluster(environment: Environment, name: str, cluster_id: str, properties: dict[str, str]) -> Cluster:
    servers = properties["bootstrap.servers"]
    with transaction.atomic():
        return Cluster.objects.create(
            environment=environment,
            name=name,
            cluster_id=cluster_id,
            bootstrap_servers=servers,
            properties=properties,
            created_at=NOW,
        )
