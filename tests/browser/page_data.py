"""The data of the page tests: an environment, three clusters, links in each state, and a mirror topic in every state.

The rows are created directly, as the engine would write them. No Kafka cluster is involved.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from console.models import (
    Cluster,
    ClusterLink,
    Environment,
    LinkConfig,
    MirrorPartition,
    MirrorTopic,
    Organization,
    RoleBinding,
    SourceTopic,
    StateTransition,
)
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import properties_of
from linkengine.domain.states import LinkState, MirrorState
from tests.browser.page_fixtures import furnish

SECRET = "a-secret-that-no-page-may-show"
WEST, EAST, SOUTH = "ZGVtby1zb3VyY2UtY2x1cw", "ZGVtby1kZXN0LWNsdXN0ZQ", "ZGVtby1zb3V0aC1jbHVzdA"
PASSWORD = "correct horse battery"

# name, state, lag of partition 0, bytes per second
MIRRORS = (
    ("flights", MirrorState.ACTIVE, 0, 3_302_400.0),
    ("planes", MirrorState.ACTIVE, 118, 18_120.0),
    ("weather", MirrorState.PENDING_STOPPED, 2_340, 512_000.0),
    ("airports", MirrorState.PAUSED, 12_044, None),
    ("bookings", MirrorState.SOURCE_UNAVAILABLE, 99_120, 0.0),
    ("crews", MirrorState.LINK_FAILED, 5_012, 0.0),
    ("delays", MirrorState.FAILED, 88, None),
    ("gates", MirrorState.STOPPED, 0, None),
    ("hubs", MirrorState.PENDING_SETUP, None, None),
    ("invoices", MirrorState.PENDING_SYNCHRONIZE, 340, 2_048.0),
    ("journeys", MirrorState.PENDING_MIRROR, 0, None),
    ("kiosks", MirrorState.PENDING_SETUP_FOR_RESTORE, 0, None),
    ("lounges", MirrorState.PENDING_RESTORE_MIRROR, 0, None),
)


@dataclass
class PageData:
    """The objects of the page data."""

    now: datetime
    organization: Organization
    environment: Environment
    west: Cluster
    east: Cluster
    link: ClusterLink
    admin: User
    reader: User
    stranger: User
    mirrors: dict[str, MirrorTopic] = field(default_factory=dict)

    @property
    def link_url(self) -> str:
        return f"/links/{EAST}/{self.link.name}/"

    def mirror_url(self, name: str, tab: str = "") -> str:
        return f"{self.link_url}mirrors/{name}/" + (f"{tab}/" if tab else "")


@transaction.atomic
def make_page_data(now: datetime | None = None) -> PageData:
    """Create the page data with three users: admin (all permissions), reader, and stranger (no role)."""
    now = now or timezone.now()
    organization = Organization.objects.create(name="Skyways", created_at=now - timedelta(days=90))
    environment = Environment.objects.create(organization=organization, name="Production", slug="production", created_at=now)
    west = make_cluster(environment, "us-west", WEST, now)
    east = make_cluster(environment, "us-east", EAST, now)
    link = make_link(west, east, "west-to-east", now)
    page_data = PageData(
        now=now,
        organization=organization,
        environment=environment,
        west=west,
        east=east,
        link=link,
        admin=make_person("amelia", RoleBinding.Role.ORGANIZATION_ADMIN, organization, now),
        reader=make_person("bessie", RoleBinding.Role.DEVELOPER_READ, organization, now),
        stranger=make_user("charles"),
    )
    for name, state, lag, rate in MIRRORS:
        page_data.mirrors[name] = make_mirror(link, name, state, lag=lag, rate=rate, now=now)
    _hold_back(page_data.mirrors["journeys"], now)
    _add_other_links(page_data)
    furnish(page_data)
    return page_data


def make_cluster(environment: Environment, name: str, cluster_id: str, now: datetime) -> Cluster:
    servers = f"{name}.kafka.example:9092"
    return Cluster.objects.create(
        environment=environment,
        name=name,
        cluster_id=cluster_id,
        bootstrap_servers=servers,
        properties=connection(servers),
        kafka_version="4.3.1",
        brokers=3,
        probed_at=now - timedelta(seconds=8),
        created_at=now - timedelta(days=60),
    )


def connection(servers: str) -> dict[str, str]:
    return properties_of(
        ClusterAddress(
            bootstrap_servers=servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="link",
            sasl_password=SECRET,
        )
    )


def make_link(source: Cluster, destination: Cluster, name: str, now: datetime, **changes: object) -> ClusterLink:
    values: dict[str, object] = {
        "properties": connection(source.bootstrap_servers),
        "state": LinkState.ACTIVE,
        "state_since": now - timedelta(hours=3),
        "topics_at": now - timedelta(seconds=40),
        "created_at": now - timedelta(days=12),
        "created_by": "amelia",
        "probed_at": now - timedelta(seconds=3),
    }
    return ClusterLink.objects.create(
        name=name, destination=destination, source=source, source_cluster_id=source.cluster_id, **(values | changes)
    )


def make_person(name: str, role: str, organization: Organization, now: datetime) -> User:
    user = make_user(name)
    RoleBinding.objects.create(user=user, role=role, organization=organization, granted_at=now, granted_by="system")
    return user


def make_user(name: str) -> User:
    return User.objects.create(username=name, password=_password_hash())


@lru_cache
def _password_hash() -> str:
    """Hash the password once, because hashing is slow."""
    return make_password(PASSWORD)


def make_mirror(
    link: ClusterLink, name: str, state: MirrorState, *, lag: int | None = 0, rate: float | None = None, now: datetime
) -> MirrorTopic:
    partitions = 0 if state is MirrorState.PENDING_SETUP else 3
    mirror = MirrorTopic.objects.create(
        link=link,
        name=f"{link.prefix}{name}",
        source_topic=name,
        state=state,
        state_since=now - timedelta(minutes=14),
        stop_reason="promote" if state is MirrorState.PENDING_STOPPED else "",
        num_partitions=partitions,
        source_configs={"cleanup.policy": "delete", "retention.ms": "604800000"} if partitions else {},
        created_at=now - timedelta(days=2),
        created_by="amelia",
    )
    MirrorPartition.objects.bulk_create(
        _partition(mirror, number, (lag or 0) // (number + 1), rate, now) for number in range(partitions)
    )
    StateTransition.objects.create(
        mirror=mirror, from_state="", to_state="PENDING_SETUP", event="create", by="amelia", at=now - timedelta(days=2)
    )
    if partitions:
        StateTransition.objects.create(
            mirror=mirror, from_state="PENDING_SETUP", to_state=state, event="setup-done", by="engine", at=now
        )
    return mirror


def _partition(mirror: MirrorTopic, number: int, lag: int, rate: float | None, now: datetime) -> MirrorPartition:
    end = 1_204_551 + 1_117 * number
    return MirrorPartition(
        mirror=mirror,
        partition=number,
        source_start=1_000 * number,
        source_end=end,
        last_high_watermark=end,
        last_source_seen_at=now,
        mirror_start=1_000 * number,
        mirror_end=end - lag,
        last_source_fetch_offset=end - lag - 1,
        caught_up_at=now - timedelta(seconds=lag // 8),
        bytes_per_s=rate / 3 if rate is not None else None,
        records_per_s=rate / 300 if rate is not None else None,
        bytes_copied=end * 91,
        records_copied=end - 12,
        phase="COPYING" if rate else "",
        observed_at=now,
    )


def _hold_back(mirror: MirrorTopic, now: datetime) -> None:
    """Simulate an open transaction on the source with acknowledged records of other producers behind it."""
    waiting = {"last_high_watermark": F("source_end") + 48_731, "caught_up_at": now - timedelta(minutes=4)}
    mirror.partitions.filter(partition=1).update(**waiting)


def _add_other_links(page_data: PageData) -> None:
    now = page_data.now
    south = make_cluster(page_data.environment, "eu-south", SOUTH, now)
    Cluster.objects.filter(pk=south.pk).update(
        error_code="BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR", error_message="eu-south.kafka.example:9092 refuses connections."
    )
    make_link(
        south,
        page_data.east,
        "south-archive",
        now,
        prefix="south.",
        state=LinkState.FAILED,
        error_code="AUTHENTICATION_ERROR",
        error_message="The source refused user 'link': wrong user name or password.",
        topics_at=None,
    )
    make_link(page_data.east, page_data.west, "east-to-west", now, state=LinkState.PAUSED)
    LinkConfig.objects.create(link=page_data.link, name="consumer.offset.sync.enable", value="false")
    for name, partitions, internal in (("flights", 3, False), ("fares", 6, False), ("fleet", 1, False), ("__state", 50, True)):
        SourceTopic.objects.create(
            link=page_data.link, name=name, partitions=partitions, internal=internal, retention_ms=604_800_000, seen_at=now
        )
        SourceTopic.objects.create(cluster=page_data.west, name=name, partitions=partitions, internal=internal, seen_at=now)
