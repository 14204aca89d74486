"""Every list and every confirmation of several topics: more rows need no more queries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.access.approvals import APPROVABLE
from console.mirrors.operation_presenters import BULK_VERBS
from console.models import (
    Account,
    ApiKey,
    ApprovalRequest,
    AuditEvent,
    BulkOperation,
    BulkOperationTopic,
    ClampedOffset,
    Cluster,
    ClusterLink,
    ConfigRevert,
    Drill,
    Environment,
    GapRange,
    GateRun,
    GroupMember,
    GroupOffset,
    LineageRange,
    LinkConfig,
    LinkTask,
    MirrorTopic,
    Namespace,
    RestoreRun,
    RoleBinding,
    SourceTopic,
    StateTransition,
    StateTransitionError,
    StopReport,
    SyncedAcl,
    SyncedGroup,
    UserGroup,
    VerifiedRange,
)
from linkengine.domain.linktasks import TaskName
from linkengine.domain.states import MirrorState
from tests.browser.addresses import TABS
from tests.browser.page_data import EAST, WEST, PageData, make_cluster, make_link, make_mirror
from tests.browser.page_fixtures import GROUP, OPERATION, REPORTED_OPERATION
from tests.console.pages.conftest import Queue
from tests.console.pages.list_pages import queries, read
from tests.console.pages.list_rows import add_drills, add_restores

LINK = f"/links/{EAST}/west-to-east/"
MOST = 10
ROWS = 8  # the shortest page of a list has ten rows
LISTS = (
    "/environments/",
    "/environments/?tab=links",
    "/environments/production/",
    "/links/",
    LINK,
    f"{LINK}?sort=-lag",
    f"{LINK}?sort=health&state=ACTIVE",
    f"{LINK}topics/",
    f"{LINK}tasks/",
    f"{LINK}groups/",
    f"{LINK}acls/",
    f"{LINK}activity/",
    f"{LINK}stops/",
    f"{LINK}drills/",
    f"{LINK}failover/",
    f"{LINK}failover/?sort=-risk&state=ACTIVE",
    f"{LINK}readiness/",
    f"{LINK}delete/",
    f"{LINK}mirrors/new/",
    f"{LINK}mirrors/flights/",
    *(f"{LINK}mirrors/flights/{tab}/" for tab in TABS),
    f"/clusters/{WEST}/",
    f"/clusters/{WEST}/topics/",
    f"/clusters/{EAST}/namespaces/",
    "/topics/",
    "/search/?q=more",
    "/failover-reports/",
    f"/failover-reports/operations/{REPORTED_OPERATION}/",
    "/operations/",
    f"/operations/{OPERATION}/",
    "/access/",
    "/access/users/",
    "/access/groups/",
    f"/access/groups/{GROUP}/",
    "/access/approvals/",
    "/access/api-keys/",
    "/audit/",
)


def test_more_rows_need_no_more_queries(page_data: PageData, admin: Client) -> None:
    _add(page_data, 1)
    few = {address: _queries(admin, address) for address in LISTS}
    _add(page_data, ROWS)

    many = {address: _queries(admin, address) for address in LISTS}

    assert {address: (few[address], count) for address, count in many.items() if count > min(few[address], MOST)} == {}


@pytest.mark.parametrize("address", ["drills/", "mirrors/lounges/"])
def test_more_drills_and_restores_need_no_more_queries(admin: Client, page_data: PageData, address: str) -> None:
    address = f"{page_data.link_url}{address}"
    add_restores(page_data, 2)
    read(admin, address)
    few = queries(admin, address)
    add_drills(page_data, 25)
    add_restores(page_data, 25)

    assert queries(admin, address) <= few + 1


def _queries(client: Client, address: str) -> int:
    client.get(address)
    with CaptureQueriesContext(connection) as queries:
        response = client.get(address)
    assert response.status_code == 200
    return len(queries)


def _add(page_data: PageData, count: int) -> None:
    """Add rows of all kinds, fewer than fill a page: a list with a single page needs no query for their number."""
    names = [f"more-{count}-{number}" for number in range(count)]
    for name in names:
        _add_topic(page_data, name)
        _add_people(page_data, name)
        _add_reports(page_data, name)
    flights = page_data.mirrors["flights"]
    common = {"mirror": flights, "partition": 0}
    for number in range(count):
        at, start = page_data.now - timedelta(days=number + count), 10_000 * count + 10 * number
        span = {"start": start, "end": start + 5}
        GapRange.objects.create(**common, **span, filled=5, reason="COMPACTED", noted_at=at)
        VerifiedRange.objects.create(**common, **span, first_verified_at=at, verified_at=at)
        LineageRange.objects.create(
            **common, **span, cluster_id=EAST, topic="flights", origin_cluster_id=WEST, origin_topic=f"former-{start}",
            link_name="former", link_uuid=page_data.link.link_uuid, opened_at=at, closed_at=at,
        )  # fmt: skip
        ConfigRevert.objects.create(mirror=flights, name="retention.ms", found="1", restored="2", at=at)
        RestoreRun.objects.get_or_create(
            mirror=flights, requested_by="amelia", requested_at=page_data.now, exported_at=page_data.now
        )


def _add_topic(page_data: PageData, name: str) -> None:
    now, link = page_data.now, page_data.link
    cluster = make_cluster(page_data.environment, name, name, now)
    other = make_link(cluster, page_data.east, name, now)
    make_mirror(other, f"{name}-there", MirrorState.ACTIVE, rate=10.0, now=now)
    make_link(page_data.east, cluster, name, now)
    mirror = make_mirror(link, name, MirrorState.ACTIVE, rate=10.0, now=now)
    failing = {"error_count": 1, "errors": [{"code": "AUTHORIZATION_ERROR", "message": f"{name}: No right."}]}
    LinkTask.objects.create(link=other, name=TaskName.TOPIC_CONFIGS, **failing)
    LinkTask.objects.get_or_create(link=link, name=TaskName.TOPIC_CONFIGS, defaults=failing)
    StateTransitionError.objects.create(mirror=mirror, code="TIMEOUT_ERROR", message="Away.", since=now, last_seen_at=now)
    StateTransition.objects.create(mirror=page_data.mirrors["flights"], to_state="ACTIVE", event="resume", by="amelia", at=now)
    for place in ({"link": link}, {"cluster": page_data.west}):
        SourceTopic.objects.create(**place, name=name, partitions=1, seen_at=now)
    Namespace.objects.create(
        prefix=name, reserved=True, cluster=page_data.east, link=other, created_at=now, created_by="amelia"
    )
    group = SyncedGroup.objects.create(link=link, name=name, destination_name=name, status="SYNCED", listed_at=now)
    GroupOffset.objects.create(group=group, mirror=mirror, partition=0, source_offset=1, target=1, outcome="EQUAL")
    rule = {"resource_type": "TOPIC", "pattern_type": "LITERAL", "principal": "User:a", "host": "*", "operation": "READ"}
    SyncedAcl.objects.create(link=link, resource_name=name, permission="ALLOW", status="CREATED", since=now, **rule)


def _add_people(page_data: PageData, name: str) -> None:
    now = page_data.now
    user = User.objects.create(username=name)
    Account.objects.create(user=user, organization=page_data.organization, created_at=now, created_by="amelia")
    group = UserGroup.objects.create(organization=page_data.organization, name=name, created_at=now, created_by="amelia")
    for members in (group, UserGroup.objects.get(pk=GROUP)):
        GroupMember.objects.create(group=members, user=user, added_at=now, added_by="amelia")
    granted = {"role": "DeveloperRead", "granted_at": now, "granted_by": "amelia"}
    RoleBinding.objects.create(user=user, organization=page_data.organization, **granted)
    RoleBinding.objects.create(group=group, cluster=page_data.east, **granted)
    for owner in (user, page_data.admin):
        ApiKey.objects.create(key=f"{owner.pk}-{name}"[:32], secret_hash="0", user=owner, created_at=now)
    environment = Environment.objects.create(organization=page_data.organization, name=name, slug=name, created_at=now)
    RoleBinding.objects.create(user=user, environment=environment, **granted)
    ApprovalRequest.objects.create(
        link=page_data.link, operation="failover", topics=[name], reason="an exercise", user=user, requested_at=now,
        expires_at=now + timedelta(hours=1),
    )  # fmt: skip


def _add_reports(page_data: PageData, name: str) -> None:
    now, path = page_data.now, f"cluster/{EAST}/link/{page_data.link.name}/mirror/{name}"
    AuditEvent.objects.create(at=now, actor=name, action="PauseMirrorTopic", resource=path, result="SUCCESS")
    mirror = make_mirror(page_data.link, f"{name}-stopped", MirrorState.STOPPED, now=now)
    stop = {"reason": "failover", "requested_by": "amelia", "requested_at": now, "writable_at": now, "rto_ms": 1}
    report = StopReport.objects.create(mirror=mirror, operation_number=REPORTED_OPERATION, **stop)
    clamped = {"stopping_since": now, "at": now, "source_offset": 9, "before": 9, "after": 8, "partition": 0}
    for topic in (mirror, page_data.mirrors["flights"]):
        ClampedOffset.objects.create(mirror=topic, report=report, group=f"{name}-{topic.name}", **clamped)
    requested = {"requested_by": "amelia", "requested_at": now}
    Drill.objects.create(link=page_data.link, status="PASSED", status_since=now, start_spec="latest", **requested)
    operation = BulkOperation.objects.create(link=page_data.link, operation="pause", user=page_data.admin, **requested)
    for place in (operation, BulkOperation.objects.get(pk=OPERATION)):
        BulkOperationTopic.objects.create(operation=place, name=name, status="ACCEPTED", done_at=now)


# --- confirmations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("approvals", [False, True], ids=["", "with an approval"])
@pytest.mark.parametrize("operation", [*BULK_VERBS, "review of a failover"])
def test_confirmation_of_more_topics_needs_no_more_queries(
    page_data: PageData, admin: Client, queue: Queue, operation: str, approvals: bool
) -> None:
    """Each topic has what an operation can depend on: gate runs, gaps, groups, mirrors elsewhere, a row on the other side."""
    queue.response = {}
    _make_pair(page_data, approvals=APPROVABLE if approvals else [])
    _add_for_operations(page_data, operation, 4)
    few = _queries_of_confirmation(admin, operation)
    _add_for_operations(page_data, operation, 20)

    many = _queries_of_confirmation(admin, operation)

    assert many <= few
    assert many <= MOST


def _queries_of_confirmation(client: Client, operation: str) -> int:
    address, values = f"{LINK}bulk/", {"operation": operation, "all": "1", "q": "chosen-"}
    if operation not in BULK_VERBS:
        address, values = f"{LINK}failover/", {"all": "1", "q": "chosen-"}
    with CaptureQueriesContext(connection) as queries:
        response = client.post(address, values)
    assert response.status_code == 200
    assert response.context["refusals"].rows == []  # no rule has ended the checks early
    return len(queries)


def _make_pair(page_data: PageData, *, approvals: Sequence[str]) -> None:
    """Make the link bidirectional, with all that the operations on its topics can depend on."""
    now, link = page_data.now, page_data.link
    ClusterLink.objects.filter(pk=link.pk).update(mode="BIDIRECTIONAL")
    make_link(page_data.east, page_data.west, link.name, now, mode="BIDIRECTIONAL")
    Cluster.objects.update(has_authorizer=True)
    Environment.objects.update(approval_operations=list(approvals))
    filters = {"topicFilters": [{"name": "chosen-", "patternType": "PREFIXED", "filterType": "INCLUDE"}]}
    for name, value in (
        ("migration.gate.enable", "true"),
        ("consumer.offset.sync.enable", "true"),
        ("auto.create.mirror.topics.enable", "true"),
        ("auto.create.mirror.topics.filters", json.dumps(filters)),
    ):
        LinkConfig.objects.update_or_create(link=link, name=name, defaults={"value": value})
    for operation in approvals:
        ApprovalRequest.objects.create(
            link=link, operation=operation, topics=[], reason="an exercise", user=page_data.admin, requested_at=now,
            status="APPROVED", decided_by=page_data.reader, decided_at=now, expires_at=now + timedelta(hours=1),
        )  # fmt: skip


def _add_for_operations(page_data: PageData, operation: str, count: int) -> None:
    """Add mirror topics in the states from which the operation is possible."""
    now, link, back = page_data.now, page_data.link, ClusterLink.objects.get(mode="BIDIRECTIONAL", destination=page_data.west)
    further = make_link(page_data.east, Cluster.objects.get(name="eu-south"), f"further-{count}", now)
    group = SyncedGroup.objects.create(link=link, name=f"of-{count}", destination_name="x", status="SYNCED", listed_at=now)
    states = {
        "resume": [MirrorState.PAUSED],
        "recover": [MirrorState.FAILED],
        "truncate-and-restore": [MirrorState.STOPPED],
        "delete": [MirrorState.ACTIVE, MirrorState.STOPPED],
    }.get(operation, [MirrorState.ACTIVE])
    for number in range(count):
        name = f"chosen-{count}-{number}"
        mirror = make_mirror(link, name, states[number % len(states)], now=now)
        MirrorTopic.objects.filter(pk=mirror.pk).update(read_only=True, holds_copy=True, reversal="reverse-and-start")
        make_mirror(back, name, MirrorState.STOPPED, now=now)
        make_mirror(further, name, MirrorState.ACTIVE, now=now)
        asked = {"requested_by": "amelia", "requested_at": now, "finished_at": now}
        GateRun.objects.create(mirror=mirror, status="GREEN", **asked)
        for reason in ("HEAD", "TRANSACTION_MARKER"):
            GapRange.objects.create(mirror=mirror, partition=1, start=0, end=1, filled=1, reason=reason, noted_at=now)
        GroupOffset.objects.create(group=group, mirror=mirror, partition=0, source_offset=9**9, target=1, outcome="EQUAL")
        StateTransitionError.objects.create(mirror=mirror, code="TIMEOUT_ERROR", message="Away.", since=now, last_seen_at=now)
