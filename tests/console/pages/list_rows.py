"""Rows for the lists of the console. Each function adds rows and returns cells that the file of the list must have."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.contrib.auth.models import User

from console.models import (
    Account,
    ApiKey,
    ApprovalRequest,
    AuditEvent,
    BulkOperation,
    Drill,
    GapRange,
    GroupOffset,
    LinkSample,
    MirrorTopic,
    RestoreRun,
    RoleBinding,
    SourceTopic,
    StopReport,
    SyncedAcl,
    SyncedGroup,
    UserGroup,
)
from console.web.lists import PAGE_SIZE
from linkengine.domain.states import LinkState, MirrorState
from tests.browser.page_data import PageData, make_link, make_mirror, make_user
from tests.browser.page_fixtures import OPERATION

MANY = 2 * PAGE_SIZE + 7
Cells = dict[str, object]


def name_of(number: int) -> str:
    return f"zz{number * 37 % MANY:03}"  # not in the order of creation


def each_row(add: Callable[[PageData, int], Cells]) -> Callable[..., list[Cells]]:
    """Return a function that adds ``count`` rows and returns the cells of those whose cells are known."""
    return lambda page_data, count=MANY: [cells for number in range(count) if (cells := add(page_data, number))]


@each_row
def add_links(page_data: PageData, number: int) -> Cells:
    state = LinkState.PAUSED if number % 3 else LinkState.ACTIVE
    source, destination = (page_data.west, page_data.east) if number % 2 else (page_data.east, page_data.west)
    make_link(source, destination, name_of(number), page_data.now, state=state)
    return {"link": name_of(number), "state": state, "source": source.name, "max_lag": "", "mirror_topics": "0"}


@each_row
def add_mirrors(page_data: PageData, number: int) -> Cells:
    state, lag = MirrorState.PAUSED if number % 3 else MirrorState.ACTIVE, number * 31 % 1000
    mirror = make_mirror(page_data.link, name_of(number), state, lag=lag, rate=3.0 * number, now=page_data.now)
    MirrorTopic.objects.filter(pk=mirror.pk).update(state_since=page_data.now - timedelta(minutes=number))
    return {"mirror_topic": name_of(number), "state": state, "partitions": "3"}


def add_topics_at_risk(page_data: PageData, count: int = MANY) -> list[Cells]:
    add_mirrors(page_data, count)
    make_mirror(page_data.link, "zzstopped", MirrorState.STOPPED, now=page_data.now)
    lags = {name_of(number): number * 31 % 1000 for number in range(count)}
    return [  # of three partitions
        {"mirror_topic": name, "records_at_risk": lag + lag // 2 + lag // 3, "groups_to_be_clamped": "[]"}
        for name, lag in lags.items()
    ]


@each_row
def add_source_topics(page_data: PageData, number: int) -> Cells:
    SourceTopic.objects.create(link=page_data.link, name=name_of(number), partitions=1, seen_at=page_data.now)
    return {"source_topic": name_of(number), "status": "NOT_MIRRORED", "mirror_topic": ""}


@each_row
def add_topics(page_data: PageData, number: int) -> Cells:
    partitions, retention_ms, is_mirror = number % 9 + 1, number * 1000 if number % 4 else None, number % 5 == 0
    SourceTopic.objects.create(
        cluster=page_data.west,
        name=name_of(number),
        partitions=partitions,
        retention_ms=retention_ms,
        is_mirror=is_mirror,
        seen_at=page_data.now,
    )
    return {
        "topic": name_of(number),
        "partitions": partitions,
        "retention_ms": "" if retention_ms is None else retention_ms,
        "is_mirror": "true" if is_mirror else "false",
    }


@each_row
def add_groups(page_data: PageData, number: int) -> Cells:
    status = "SYNCED" if number % 3 else "WAITING"
    group = SyncedGroup.objects.create(
        link=page_data.link,
        name=name_of(number),
        destination_name=name_of(number),
        status=status,
        looked_at=page_data.now - timedelta(minutes=number) if number % 4 else None,
        listed_at=page_data.now,
    )
    at = {"source_offset": number, "destination_offset": None, "target": number, "outcome": "SYNCED"}
    GroupOffset.objects.create(group=group, mirror=page_data.mirrors["flights"], partition=0, **at)
    return {"group": name_of(number), "status": status, "source_offset": number, "destination_offset": ""}


@each_row
def add_acls(page_data: PageData, number: int) -> Cells:
    SyncedAcl.objects.create(
        link=page_data.link,
        resource_type="GROUP" if number % 2 else "TOPIC",
        resource_name=name_of(number),
        pattern_type="LITERAL",
        principal=f"zz{number % 7}",
        host="*",
        operation="READ",
        permission="DENY" if number % 3 else "ALLOW",
        status="FAILED" if number % 4 else "CREATED",
        since=page_data.now - timedelta(minutes=number),
    )
    return {"resource_name": name_of(number), "principal": f"zz{number % 7}"}


@each_row
def add_events(page_data: PageData, number: int) -> Cells:
    path = f"cluster/{page_data.east.cluster_id}/link/{page_data.link.name}/mirror/topic"
    AuditEvent.objects.create(
        at=page_data.now - timedelta(days=1, seconds=number),
        actor=name_of(number),
        action="PauseMirrorTopic" if number % 2 else "ResumeMirrorTopic",
        resource=path,
        result="DENIED" if number % 3 else "SUCCESS",
        detail={"number": number},
    )
    return {"actor": name_of(number), "resource": path, "detail": f'{{"number": {number}}}'}


@each_row
def add_reports(page_data: PageData, number: int) -> Cells:
    at = page_data.now - timedelta(days=9, minutes=number)
    not_copied = number * 31 % 100 if number % 4 else None
    StopReport.objects.create(
        mirror=make_mirror(page_data.link, name_of(number), MirrorState.STOPPED, now=page_data.now),
        reason="failover" if number % 3 else "promote",
        requested_by=f"zz{number % 7}",
        requested_at=at,
        writable_at=at,
        records_not_copied=not_copied,
        rpo_ms=number * 17 % 100 if number % 5 else None,
        rto_ms=number * 11 % 100,
    )
    return {"mirror_topic": name_of(number), "records_not_copied": "" if not_copied is None else not_copied}


@each_row
def add_operations(page_data: PageData, number: int) -> Cells:
    operation = BulkOperation.objects.create(
        link=page_data.link,
        operation="pause" if number % 2 else "resume",
        requested_by=name_of(number),
        requested_at=page_data.now - timedelta(minutes=number + 1),
        canceled_by="amelia" if number % 5 == 0 else "",
    )
    for topic in range(number % 3 + 1):
        failed = number % 2 and topic
        operation.topics.create(
            name=f"topic{topic}", status="WAITING" if number % 3 == 0 else "FAILED" if failed else "ACCEPTED"
        )
    return {"requested_by": name_of(number), "topics": number % 3 + 1, "failed": number % 2 * (number % 3)}


@each_row
def add_results(page_data: PageData, number: int) -> Cells:
    status = ("WAITING", "ACCEPTED", "FAILED", "CANCELED")[number % 4]
    refusal: Cells = {"error_code": "CONFLICT", "message": f"Refused {number}."} if status == "FAILED" else {}
    done_at = None if status == "WAITING" else page_data.now - timedelta(minutes=number * 31 % MANY)
    operation = BulkOperation.objects.get(pk=OPERATION)
    operation.topics.create(name=name_of(number), status=status, done_at=done_at, **refusal)
    return {"topic": name_of(number), "result": status, "state": "", "error_code": "", "message": "", **refusal}


@each_row
def add_gaps(page_data: PageData, number: int) -> Cells:
    start, filled = 100_000 + 10 * number, number % 10 + 1
    GapRange.objects.create(
        mirror=page_data.mirrors["flights"],
        partition=number % 3,
        start=start,
        end=start + 10,
        filled=filled,
        reason="COMPACTED" if number % 2 else "ABORTED",
        noted_at=page_data.now - timedelta(minutes=number * 31 % MANY),
    )
    return {"start": start, "offsets": filled}


def add_transitions(page_data: PageData, count: int = MANY) -> list[Cells]:
    page_data.mirrors["flights"].transitions.all().delete()  # the last one has the time of the scene, and was not stored last
    return _add_changes(page_data, count)


@each_row
def _add_changes(page_data: PageData, number: int) -> Cells:
    states = ("PAUSED", "ACTIVE", "resume") if number % 3 else ("ACTIVE", "PAUSED", "pause")
    facts = dict(zip(("from_state", "to_state", "event"), states, strict=True))
    row: Cells = {**facts, "by": name_of(number), "detail": "" if number % 4 else f"reason-{number:03}"}
    page_data.mirrors["flights"].transitions.create(at=page_data.now - timedelta(minutes=MANY - number), **row)
    return row


def add_samples(page_data: PageData, count: int = MANY) -> list[Cells]:
    LinkSample.objects.all().delete()  # the oldest of the page data leave the range while a test runs
    return _add_measured(page_data, count)


@each_row
def _add_measured(page_data: PageData, number: int) -> Cells:
    lag, lag_ms = (1000 + number, number) if number % 3 else (None, None)
    at = page_data.now - timedelta(seconds=20 * number + 5)
    LinkSample.objects.create(link=page_data.link, at=at, lag=lag, lag_ms=lag_ms, bytes_per_s=number)
    return {} if lag is None else {"lag": lag, "lag_ms": lag_ms, "unknown": 0}


@each_row
def add_users(page_data: PageData, number: int) -> Cells:
    user = User.objects.create(
        username=name_of(number),
        is_active=bool(number % 3),
        last_login=page_data.now - timedelta(minutes=number) if number % 4 else None,
    )
    kind = Account.Kind.SERVICE if number % 2 else Account.Kind.PERSON
    Account.objects.create(
        user=user, kind=kind, organization=page_data.organization, created_at=page_data.now, created_by="amelia"
    )
    status = "Active" if number % 3 else "Deactivated"
    return {"user": name_of(number), "kind": "Service account" if number % 2 else "User", "status": status}


@each_row
def add_bindings(page_data: PageData, number: int) -> Cells:
    role = "Operator" if number % 2 else "Auditor"
    RoleBinding.objects.create(
        user=make_user(name_of(number)),
        role=role,
        cluster=page_data.east if number % 3 else page_data.west,
        granted_at=page_data.now - timedelta(minutes=number),
        granted_by="amelia",
        expires_at=page_data.now + timedelta(hours=number - 50.5) if number % 4 else None,
    )
    return {"principal": name_of(number), "role": role}


@each_row
def add_keys(page_data: PageData, number: int) -> Cells:
    ApiKey.objects.create(
        key=name_of(number),
        secret_hash="0",
        user=page_data.admin,
        description=f"zz{number % 7}",
        created_at=page_data.now - timedelta(minutes=number + 1),
        last_used_at=page_data.now - timedelta(seconds=number) if number % 3 else None,
        expires_at=page_data.now + timedelta(hours=number - 50.5) if number % 4 else None,
    )
    return {"key": name_of(number), "owner": "amelia", "limited_to_role": ""}


@each_row
def add_user_groups(page_data: PageData, number: int) -> Cells:
    external, has_member = f"idp{number:03}" if number % 2 else "", number % 3 == 0
    group = UserGroup.objects.create(
        organization=page_data.organization,
        name=name_of(number),
        external_name=external,
        created_at=page_data.now,
        created_by="amelia",
    )
    if has_member:
        group.memberships.create(user=page_data.reader, added_at=page_data.now, added_by="amelia")
    return {"group": name_of(number), "identity_provider_group": external, "members": int(has_member)}


@each_row
def add_requests(page_data: PageData, number: int) -> Cells:
    requester, _ = User.objects.get_or_create(username="zzrequester")
    ApprovalRequest.objects.create(
        link=page_data.link,
        operation="failover" if number % 2 else "promote",
        topics=[],
        reason=name_of(number),
        user=requester,
        requested_at=page_data.now - timedelta(minutes=number + 1),
        expires_at=page_data.now + timedelta(hours=number - 50.5),
        status="REJECTED" if number % 3 == 0 else "REQUESTED",
    )
    return {"reason": name_of(number), "mirror_topics": "all"}


def add_drills(page_data: PageData, count: int) -> None:
    for number in range(count):
        at = page_data.now - timedelta(days=number + 1)
        Drill.objects.create(
            link=page_data.link,
            status="PASSED",
            status_since=at,
            start_spec="latest",
            requested_by=f"<{number}>",
            requested_at=at,
        )


def add_restores(page_data: PageData, count: int) -> None:
    for number in range(count):
        at = page_data.now - timedelta(days=number + 1)
        RestoreRun.objects.create(
            mirror=page_data.mirrors["lounges"], requested_by=f"<{number}>", requested_at=at, exported_at=at
        )
