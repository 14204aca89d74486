"""A scene for pages: one environment, three clusters, links in each state and a link with a mirror topic in every state.

Rows are made directly, as the engine would leave them; no Kafka runs behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.utils import timezone

from console.models import (
    ApiKey,
    AuditEvent,
    ClampedOffset,
    Cluster,
    ClusterLink,
    Drill,
    Environment,
    GapRange,
    GroupOffset,
    LinkConfig,
    LinkSample,
    MirrorPartition,
    MirrorSample,
    MirrorTopic,
    Namespace,
    Organization,
    RoleBinding,
    SourceTopic,
    StateTransition,
    StateTransitionError,
    StopReport,
    SyncedAcl,
    SyncedGroup,
    VerifyRun,
)
from linkengine.domain.acls import AclStatus
from linkengine.domain.addresses import ClusterAddress, properties_of
from linkengine.domain.groups import GroupStatus
from linkengine.domain.states import LinkState, MirrorState

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
class Scene:
    """What was made, by name."""

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

    def mirror_url(self, name: str) -> str:
        return f"{self.link_url}mirrors/{name}/"


def make_scene(now: datetime | None = None) -> Scene:
    """Make everything; the only people are admin (may do all here), reader and stranger."""
    now = now or timezone.now()
    organization = Organization.objects.create(name="Skyways", created_at=now - timedelta(days=90))
    environment = Environment.objects.create(organization=organization, name="Production", slug="production", created_at=now)
    west = make_cluster(environment, "us-west", WEST, now)
    east = make_cluster(environment, "us-east", EAST, now)
    link = make_link(west, east, "west-to-east", now)
    scene = Scene(
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
        scene.mirrors[name] = make_mirror(link, name, state, lag=lag, rate=rate, now=now)
    _add_troubles(scene)
    _add_other_links(scene)
    _add_history(scene)
    _add_samples(scene)
    _add_namespaces(scene)
    return scene


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
    """Hash the password once: it is slow on purpose."""
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


def _add_troubles(scene: Scene) -> None:
    now, mirrors = scene.now, scene.mirrors
    StateTransitionError.objects.create(
        mirror=mirrors["weather"],
        code="AUTHENTICATION_ERROR",
        message="Failed to describe the configs of weather: the source refused user 'link'.",
        since=now - timedelta(minutes=4),
        last_seen_at=now - timedelta(seconds=9),
        count=7,
    )
    MirrorTopic.objects.filter(pk=mirrors["delays"].pk).update(
        error_code="SOURCE_TOPIC_MAY_BE_DELETED",
        error_message="The source has had no topic delays for 5 minutes.",
        error_since=now - timedelta(minutes=14),
    )
    GapRange.objects.bulk_create(
        GapRange(mirror=mirrors["flights"], partition=p, start=s, end=e, filled=e - s, reason=r, noted_at=now)
        for p, s, e, r in (
            (0, 0, 1_000, "HEAD"),
            (0, 40_120, 40_121, "TRANSACTION_MARKER"),
            (1, 55_000, 55_200, "ABORTED"),
            (1, 55_200, 55_201, "TRANSACTION_MARKER"),
            (2, 300, 317, "LOST"),
        )
    )
    _add_groups_and_acls(scene)
    StopReport.objects.create(
        mirror=mirrors["gates"],
        reason="failover",
        requested_by="amelia",
        requested_at=now - timedelta(hours=2, seconds=2),
        writable_at=now - timedelta(hours=2),
        records_not_copied=412,
        source_seen_at=now - timedelta(hours=2, seconds=40),
        rpo_ms=41_300,
        rto_ms=2_140,
        partitions=[
            {"partition": 0, "mirrored_end": 40_000, "source_end": 40_412, "not_copied": 412},
            {"partition": 1, "mirrored_end": 39_120, "source_end": 39_120, "not_copied": 0},
        ],
    )
    _add_drill(scene)
    VerifyRun.objects.create(
        mirror=mirrors["planes"],
        status="DIFFERENT",
        requested_by="amelia",
        requested_at=now - timedelta(minutes=9),
        records_compared=6_644,
        differences=1,
        bytes_compared=812_112,
        duration_ms=4_310,
        first_differences=[
            {"partition": 1, "offset": 812, "kind": "value", "source_value": "N14228,1999", "mirror_value": "N14228,1998"}
        ],
    )
    VerifyRun.objects.create(
        mirror=mirrors["flights"],
        status="EQUAL",
        requested_by="amelia",
        requested_at=now - timedelta(minutes=9),
        records_compared=336_776,
        differences=0,
        bytes_compared=41_812_112,
        duration_ms=14_310,
    )


def _add_drill(scene: Scene) -> None:
    topics = ["flights", "bookings-of-the-last-seven-years-by-airport-and-airline"]
    good = {"scratch_topic_name": "x", "rto_ms": 2_140, "rpo_ms": 310, "records_not_copied": 0, "note": "", "problem": ""}
    bad = {"writable": False, "problem": "Nothing was compared in partition 0: what the source holds there is not in the copy."}
    report = [
        good | {"mirror_topic_name": one, "records_compared": 9_120, "differences": 0, "writable": True} for one in topics
    ]
    clamped = [{"partition": 1, "source_offset": 1_300, "offset_after": 1_000}]
    row = {"partitions": 3, "clamped": 1, "offsets_set_back": 300, "unknown": 1, "clamped_offsets": clamped}
    Drill.objects.create(
        link=scene.link,
        status="FAILED",
        status_since=scene.now,
        start_spec="latest",
        requested_by="amelia",
        requested_at=scene.now - timedelta(minutes=20),
        finished_at=scene.now,
        topics=topics,
        rto_ms=2_140,
        report=[report[0], report[1] | bad | {"records_compared": 0}],
        groups=[
            row | {"group": name, "mirror_topic_name": topic}
            for name, topic in zip(("app-billing", "app"), topics, strict=True)
        ],
    )


def _add_groups_and_acls(scene: Scene) -> None:
    now, link = scene.now, scene.link
    for status in GroupStatus:
        SyncedGroup.objects.create(
            link=link, name=f"app-{status.lower()}", destination_name=f"app-{status.lower()}", status=status, listed_at=now
        )
    group = SyncedGroup.objects.get(name="app-in_use")
    at = {"source_offset": 120, "destination_offset": 118, "target": 120, "outcome": "IN_USE"}
    GroupOffset.objects.create(group=group, mirror=scene.mirrors["flights"], partition=0, **at)
    stop = {"stopping_since": now - timedelta(hours=2), "at": now, "source_offset": 40_300, "before": 39_000, "after": 40_000}
    ClampedOffset.objects.create(mirror=scene.mirrors["gates"], group="app-gates", partition=0, **stop)
    for status in AclStatus:
        SyncedAcl.objects.create(
            link=link,
            resource_type="TOPIC",
            resource_name=f"topic-{status.lower()}",
            pattern_type="PREFIXED",
            principal="User:app",
            host="*",
            operation="READ",
            permission="ALLOW",
            status=status,
            is_conflict=status is AclStatus.ALREADY_THERE,
            since=now,
        )


def _add_other_links(scene: Scene) -> None:
    now = scene.now
    south = make_cluster(scene.environment, "eu-south", SOUTH, now)
    Cluster.objects.filter(pk=south.pk).update(
        error_code="BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR", error_message="eu-south.kafka.example:9092 refuses connections."
    )
    make_link(
        south,
        scene.east,
        "south-archive",
        now,
        prefix="south.",
        state=LinkState.FAILED,
        error_code="AUTHENTICATION_ERROR",
        error_message="The source refused user 'link': wrong user name or password.",
        topics_at=None,
    )
    make_link(scene.east, scene.west, "east-to-west", now, state=LinkState.PAUSED)
    LinkConfig.objects.create(link=scene.link, name="consumer.offset.sync.enable", value="false")
    for name, partitions, internal in (("flights", 3, False), ("fares", 6, False), ("fleet", 1, False), ("__state", 50, True)):
        SourceTopic.objects.create(
            link=scene.link, name=name, partitions=partitions, internal=internal, retention_ms=604_800_000, seen_at=now
        )
        SourceTopic.objects.create(cluster=scene.west, name=name, partitions=partitions, internal=internal, seen_at=now)


def _add_samples(scene: Scene) -> None:
    """An hour of figures with a hole in it."""
    samples = [_sample(scene.now, number) for number in range(120)]
    LinkSample.objects.bulk_create(LinkSample(link=scene.link, **one) for one in samples)
    MirrorSample.objects.bulk_create(MirrorSample(mirror=scene.mirrors["flights"], **one) for one in samples)


def _sample(now: datetime, number: int) -> dict[str, Any]:
    unknown = 60 < number < 72
    return {
        "at": now - timedelta(seconds=30 * (119 - number)),
        "lag": None if unknown else (number * 37) % 900,
        "lag_ms": None if unknown else (number * 37) % 900 * 11,
        "bytes_per_s": 3_302_400.0 + 40_000 * ((number * 7) % 13),
    }


def _add_namespaces(scene: Scene) -> None:
    dated = {"cluster": scene.east, "created_at": scene.now, "created_by": "amelia"}
    Namespace.objects.create(prefix="fl", reserved=True, guarded=True, link=scene.link, leader_prefix="fl", **dated)
    Namespace.objects.create(prefix="bo", reserved=True, guarded=None, link=scene.link, leader_prefix="bo", **dated)
    Namespace.objects.create(prefix="orders.", reserved=True, guarded=False, guard_problem="It has no authorizer.", **dated)
    Namespace.objects.create(prefix="free.", **dated)


def _add_history(scene: Scene) -> None:
    path = f"cluster/{EAST}/link/{scene.link.name}"
    rows = (
        ("amelia", "CreateClusterLink", path, "SUCCESS"),
        ("amelia", "CreateMirrorTopic", f"{path}/mirror/flights", "SUCCESS"),
        ("bessie", "OPERATE_MIRROR", f"{path}/mirror/flights", "DENIED"),
        ("amelia", "CreateClusterLink", f"cluster/{EAST}/link/other", "FAILURE"),
    )
    for minutes, (actor, action, resource, result) in enumerate(rows):
        AuditEvent.objects.create(
            at=scene.now - timedelta(minutes=minutes),
            actor=actor,
            action=action,
            resource=resource,
            result=result,
            detail={"reason": "an example"},
            request_id="0123456789abcdef",
            client_address="192.0.2.7",
        )
    ApiKey.objects.create(
        key="ABCDEFGHIJKLMNOP", secret_hash="0" * 64, user=scene.admin, description="terraform", created_at=scene.now
    )
