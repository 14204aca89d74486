"""Every list: search, sort order, filters, pages, files and empty states, as declared cases.

The file of a list without filters is what the other selections are compared with: which rows match, and in which order, is
computed from its cells.
"""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import StreamingHttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from time_machine import TimeMachineFixture

from console.mirrors import tab_pages
from console.models import (
    Account,
    ApiKey,
    ApprovalRequest,
    AuditEvent,
    BulkOperation,
    Cluster,
    ClusterLink,
    Drill,
    GapRange,
    GroupOffset,
    LinkSample,
    MirrorTopic,
    RestoreRun,
    RoleBinding,
    SourceTopic,
    StateTransition,
    StopReport,
    SyncedAcl,
    SyncedGroup,
    UserGroup,
)
from console.web.lists import PAGE_SIZE, csv_file
from console.web.numbers import exact
from linkengine.domain.health import Health
from linkengine.domain.states import LinkState, MirrorState
from tests.browser.page_data import EAST, WEST, PageData, make_link, make_mirror, make_user
from tests.browser.page_fixtures import OPERATION
from tests.console.pages.conftest import htmx

MANY = 2 * PAGE_SIZE + 7
FEW = PAGE_SIZE + 7  # two pages, where each selection is opened
Row = dict[str, str]  # of a file
SKIPPED = object()  # a text whose place depends on the collation of the database


def name_of(number: int) -> str:
    return f"zz{number * 37 % MANY:03}"  # not in the order of creation


def text(column: str) -> Callable[[Row], Any]:
    """Return the value of a text column, if all collations agree on its place."""
    return lambda row: row[column] if re.fullmatch("[A-Z]+|[a-z0-9]*", row[column]) else SKIPPED


def number(column: str) -> Callable[[Row], Any]:
    """Return the value of a column of numbers; an empty cell is unknown and the smallest."""
    return lambda row: float(row[column]) if row[column] else float("-inf")


def time(column: str) -> Callable[[Row], Any]:
    """Return the value of a column of times; an empty cell is the smallest."""
    return lambda row: datetime.fromisoformat(row[column]).timestamp() if row[column] else float("-inf")


def expiry(row: Row) -> float:
    """Return when something expires; what does not expire is the last."""
    return time("expires_at")(row) if row["expires_at"] else float("inf")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A list. ``named`` identifies a row of the file, and ``shown`` the row of the page with these cells."""

    address: str
    fill: Callable[..., Sequence[Mapping[str, object]]]  # adds rows, by default ``MANY``; returns cells that the file must have
    empty: Callable[[PageData], object]  # deletes all rows
    nothing: str  # title of the empty state
    plural: str
    shown: Callable[[list[str]], Any]
    named: Callable[[Row], Any]
    sorts: Mapping[str, Callable[[Row], Any] | None]  # by key; None: the value is not in the file
    filters: Mapping[str, Callable[[Row], bool]]  # by query string
    search: Mapping[str, Callable[[Row], bool]] = field(default_factory=dict)  # by text
    unmatched: str = "q=nothing-has-this-name"
    denied: int = 404  # for a user without a role; 200: a page without rows


@pytest.fixture
def page_data(page_data: PageData, time_machine: TimeMachineFixture) -> PageData:
    """The page data with a stopped clock: what a list shows and sorts by depends on ages, and a test reads it many times."""
    time_machine.move_to(page_data.now, tick=False)
    return page_data


def fill_links(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    rows = list[dict[str, object]]()
    for number in range(count):
        state = LinkState.PAUSED if number % 3 else LinkState.ACTIVE
        source, destination = (page_data.west, page_data.east) if number % 2 else (page_data.east, page_data.west)
        make_link(source, destination, name_of(number), page_data.now, state=state)
        rows.append({"link": name_of(number), "state": state, "source": source.name, "max_lag": "", "mirror_topics": "0"})
    return rows


def fill_mirrors(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    rows = list[dict[str, object]]()
    for number in range(count):
        state, lag = MirrorState.PAUSED if number % 3 else MirrorState.ACTIVE, number * 31 % 1000
        mirror = make_mirror(page_data.link, name_of(number), state, lag=lag, rate=3.0 * number, now=page_data.now)
        MirrorTopic.objects.filter(pk=mirror.pk).update(state_since=page_data.now - timedelta(minutes=number))
        rows.append({"mirror_topic": name_of(number), "state": state, "partitions": "3"})
    return rows


def fill_topics_at_risk(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    fill_mirrors(page_data, count)
    make_mirror(page_data.link, "zzstopped", MirrorState.STOPPED, now=page_data.now)
    lags = {name_of(number): number * 31 % 1000 for number in range(count)}
    return [  # of three partitions
        {"mirror_topic": name, "records_at_risk": lag + lag // 2 + lag // 3, "groups_to_be_clamped": "[]"}
        for name, lag in lags.items()
    ]


def fill_source_topics(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    SourceTopic.objects.bulk_create(
        SourceTopic(link=page_data.link, name=name_of(number), partitions=1, seen_at=page_data.now) for number in range(count)
    )
    return [{"source_topic": name_of(number), "status": "NOT_MIRRORED", "mirror_topic": ""} for number in range(count)]


def fill_topics(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    SourceTopic.objects.bulk_create(
        SourceTopic(
            cluster=page_data.west,
            name=name_of(number),
            partitions=number % 9 + 1,
            retention_ms=number * 1000 if number % 4 else None,
            is_mirror=number % 5 == 0,
            seen_at=page_data.now,
        )
        for number in range(count)
    )
    return [
        {
            "topic": name_of(number),
            "partitions": number % 9 + 1,
            "retention_ms": number * 1000 if number % 4 else "",
            "is_mirror": "true" if number % 5 == 0 else "false",
        }
        for number in range(count)
    ]


def fill_groups(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    rows = list[dict[str, object]]()
    for number in range(count):
        status = "SYNCED" if number % 3 else "WAITING"
        looked_at = page_data.now - timedelta(minutes=number) if number % 4 else None
        group = SyncedGroup.objects.create(
            link=page_data.link,
            name=name_of(number),
            destination_name=name_of(number),
            status=status,
            looked_at=looked_at,
            listed_at=page_data.now,
        )
        at = {"source_offset": number, "destination_offset": None, "target": number, "outcome": "SYNCED"}
        GroupOffset.objects.create(group=group, mirror=page_data.mirrors["flights"], partition=0, **at)
        rows.append({"group": name_of(number), "status": status, "source_offset": number, "destination_offset": ""})
    return rows


def fill_acls(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    SyncedAcl.objects.bulk_create(
        SyncedAcl(
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
        for number in range(count)
    )
    return [{"resource_name": name_of(number), "principal": f"zz{number % 7}"} for number in range(count)]


def fill_events(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    path = f"cluster/{page_data.east.cluster_id}/link/{page_data.link.name}/mirror/topic"
    AuditEvent.objects.bulk_create(
        AuditEvent(
            at=page_data.now - timedelta(days=1, seconds=number),
            actor=name_of(number),
            action="PauseMirrorTopic" if number % 2 else "ResumeMirrorTopic",
            resource=path,
            result="DENIED" if number % 3 else "SUCCESS",
            detail={"number": number},
        )
        for number in range(count)
    )
    return [{"actor": name_of(number), "resource": path, "detail": f'{{"number": {number}}}'} for number in range(count)]


def fill_reports(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    rows = list[dict[str, object]]()
    for number in range(count):
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
        rows.append({"mirror_topic": name_of(number), "records_not_copied": "" if not_copied is None else not_copied})
    return rows


def fill_operations(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    rows = list[dict[str, object]]()
    for number in range(count):
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
        rows.append({"requested_by": name_of(number), "topics": number % 3 + 1, "failed": number % 2 * (number % 3)})
    return rows


def fill_results(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    operation, rows = BulkOperation.objects.get(pk=OPERATION), list[dict[str, object]]()
    for number in range(count):
        status = ("WAITING", "ACCEPTED", "FAILED", "CANCELED")[number % 4]
        refusal = {"error_code": "CONFLICT", "message": f"Refused {number}."} if status == "FAILED" else {}
        done_at = None if status == "WAITING" else page_data.now - timedelta(minutes=number * 31 % MANY)
        operation.topics.create(name=name_of(number), status=status, done_at=done_at, **refusal)
        rows.append({"topic": name_of(number), "result": status, "state": "", "error_code": "", "message": "", **refusal})
    return rows


def fill_gaps(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    GapRange.objects.bulk_create(
        GapRange(
            mirror=page_data.mirrors["flights"],
            partition=number % 3,
            start=100_000 + 10 * number,
            end=100_010 + 10 * number,
            filled=number % 10 + 1,
            reason="COMPACTED" if number % 2 else "ABORTED",
            noted_at=page_data.now - timedelta(minutes=number * 31 % MANY),
        )
        for number in range(count)
    )
    return [{"start": 100_000 + 10 * number, "offsets": number % 10 + 1} for number in range(count)]


def fill_transitions(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    page_data.mirrors["flights"].transitions.all().delete()  # the last one has the time of the scene, and was not stored last
    rows = list[dict[str, object]]()
    for number in range(count):
        states = ("PAUSED", "ACTIVE", "resume") if number % 3 else ("ACTIVE", "PAUSED", "pause")
        detail = "" if number % 4 else f"reason-{number:03}"
        facts = dict(zip(("from_state", "to_state", "event"), states, strict=True))
        row: dict[str, object] = {**facts, "by": name_of(number), "detail": detail}
        page_data.mirrors["flights"].transitions.create(at=page_data.now - timedelta(minutes=MANY - number), **row)
        rows.append(row)
    return rows


def fill_samples(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    LinkSample.objects.all().delete()  # the oldest of the page data leave the range while a test runs
    LinkSample.objects.bulk_create(
        LinkSample(
            link=page_data.link,
            at=page_data.now - timedelta(seconds=20 * number + 5),
            lag=1000 + number if number % 3 else None,
            lag_ms=number if number % 3 else None,
            bytes_per_s=number,
        )
        for number in range(count)
    )
    return [{"lag": 1000 + number, "lag_ms": number, "unknown": 0} for number in range(count) if number % 3]


def fill_users(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    rows = list[dict[str, object]]()
    for number in range(count):
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
        rows.append({"user": name_of(number), "kind": "Service account" if number % 2 else "User", "status": status})
    return rows


def fill_bindings(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    for number in range(count):
        RoleBinding.objects.create(
            user=make_user(name_of(number)),
            role="Operator" if number % 2 else "Auditor",
            cluster=page_data.east if number % 3 else page_data.west,
            granted_at=page_data.now - timedelta(minutes=number),
            granted_by="amelia",
            expires_at=page_data.now + timedelta(hours=number - 50.5) if number % 4 else None,
        )
    return [{"principal": name_of(number), "role": "Operator" if number % 2 else "Auditor"} for number in range(count)]


def fill_keys(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    ApiKey.objects.bulk_create(
        ApiKey(
            key=name_of(number),
            secret_hash="0",
            user=page_data.admin,
            description=f"zz{number % 7}",
            created_at=page_data.now - timedelta(minutes=number + 1),
            last_used_at=page_data.now - timedelta(seconds=number) if number % 3 else None,
            expires_at=page_data.now + timedelta(hours=number - 50.5) if number % 4 else None,
        )
        for number in range(count)
    )
    return [{"key": name_of(number), "owner": "amelia", "limited_to_role": ""} for number in range(count)]


def fill_user_groups(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    rows = list[dict[str, object]]()
    for number in range(count):
        external = f"idp{number:03}" if number % 2 else ""
        group = UserGroup.objects.create(
            organization=page_data.organization,
            name=name_of(number),
            external_name=external,
            created_at=page_data.now,
            created_by="amelia",
        )
        if number % 3 == 0:
            group.memberships.create(user=page_data.reader, added_at=page_data.now, added_by="amelia")
        rows.append({"group": name_of(number), "identity_provider_group": external, "members": int(number % 3 == 0)})
    return rows


def fill_requests(page_data: PageData, count: int = MANY) -> list[dict[str, object]]:
    requester = make_user("zzrequester")
    ApprovalRequest.objects.bulk_create(
        ApprovalRequest(
            link=page_data.link,
            operation="failover" if number % 2 else "promote",
            topics=[],
            reason=name_of(number),
            user=requester,
            requested_at=page_data.now - timedelta(minutes=number + 1),
            expires_at=page_data.now + timedelta(hours=number - 50.5),
            status="REJECTED" if number % 3 == 0 else "REQUESTED",
        )
        for number in range(count)
    )
    return [{"reason": name_of(number), "mirror_topics": "all"} for number in range(count)]


def first_word(column: int) -> Callable[[list[str]], str]:
    return lambda cells: cells[column].split()[0]


def cell(column: str) -> Callable[[Row], str]:
    return lambda row: row[column]


def has(column: str, value: str) -> Callable[[Row], bool]:
    return lambda row: row[column] == value


def contains(value: str, *columns: str) -> Callable[[Row], bool]:
    return lambda row: any(value in row[column].lower() for column in columns)


def is_over(row: Row) -> bool:
    return bool(row["expires_at"]) and datetime.fromisoformat(row["expires_at"]) <= timezone.now()


def ended(row: Row) -> tuple[bool, bool] | None:
    """Return whether an operation was canceled and whether a topic failed; None while topics are waiting."""
    return (bool(row["canceled_by"]), row["failed"] != "0") if row["done"] == row["topics"] else None


LINK = f"/links/{EAST}/west-to-east/"
MIRROR_SORTS: dict[str, Callable[[Row], Any] | None] = {"name": text("mirror_topic"), "lag": number("max_lag"), "age": None}
OF_EVENTS: dict[str, Any] = {
    "fill": fill_events,
    "empty": lambda page_data: AuditEvent.objects.all().delete(),
    "plural": "events",
    "shown": first_word(1),
    "named": cell("actor"),
    "sorts": {
        "at": time("at"),
        "actor": text("actor"),
        "action": None,
        "resource": None,
        "result": text("result"),
    },
    "filters": {
        "action=PauseMirrorTopic": has("action", "PauseMirrorTopic"),
        "result=DENIED": has("result", "DENIED"),
        "result=DENIED&action=PauseMirrorTopic": lambda row: (row["result"], row["action"]) == ("DENIED", "PauseMirrorTopic"),
        "from=2000-01-01T00:00&to=2001-01-01T00:00": lambda row: False,
    },
    "search": {"zz01": contains("zz01", "actor"), "mirror/TOPIC": contains("mirror/topic", "resource")},
    "denied": 403,
}
OF_REPORTS: dict[str, Any] = {
    "fill": fill_reports,
    "empty": lambda page_data: StopReport.objects.all().delete(),
    "nothing": "No failover reports yet",
    "plural": "reports",
    "shown": first_word(0),
    "named": cell("mirror_topic"),
    "filters": {"operation=promote": has("operation", "promote"), "from=2000-01-01T00:00": lambda row: True},
}
REPORT_SORTS = {
    "name": text("mirror_topic"),
    "operation": text("operation"),
    "writable": time("writable_at"),
    "not-copied": number("records_not_copied"),
    "rpo": number("rpo_ms"),
    "rto": number("rto_ms"),
    "by": text("requested_by"),
}
CASES = {
    "cluster links": Case(
        address="/links/",
        fill=fill_links,
        empty=lambda page_data: (MirrorTopic.objects.all().delete(), ClusterLink.objects.all().delete()),
        nothing="No cluster links yet",
        plural="links",
        shown=first_word(0),
        named=cell("link"),
        sorts={
            "name": text("link"),
            "direction": None,
            "health": lambda row: list(Health).index(Health(row["health"])),
            "mirrors": number("mirror_topics"),
            "lag": number("max_lag"),
            "age": number("lag_ms"),
            "rate": number("bytes_per_s"),
        },
        filters={"state=PAUSED": has("state", "PAUSED"), "health=EMPTY": has("health", "EMPTY")},
        search={"zz01": contains("zz01", "link"), "us-WEST": contains("us-west", "source", "destination")},
        denied=200,
    ),
    "mirror topics of a link": Case(
        address=LINK,
        fill=fill_mirrors,
        empty=lambda page_data: MirrorTopic.objects.all().delete(),
        nothing="No mirror topics yet",
        plural="mirror topics",
        shown=first_word(1),
        named=cell("mirror_topic"),
        sorts={**MIRROR_SORTS, "health": None, "rate": number("bytes_per_s"), "since": time("state_since")},
        filters={"state=PAUSED": has("state", "PAUSED"), "state=no-state": lambda row: True},
        search={"zz01": contains("zz01", "mirror_topic", "source_topic")},
    ),
    "source topics of a link": Case(
        address=f"{LINK}topics/",
        fill=fill_source_topics,
        empty=lambda page_data: SourceTopic.objects.all().delete(),
        nothing="The source has no topics",
        plural="source topics",
        shown=first_word(1),
        named=cell("source_topic"),
        sorts={"name": text("source_topic"), "standing": None},
        filters={"standing=NOT_MIRRORED": has("status", "NOT_MIRRORED"), "standing=MIRRORED": has("status", "MIRRORED")},
        search={"zz01": contains("zz01", "source_topic")},
    ),
    "topics": Case(
        address="/topics/",
        fill=fill_mirrors,
        empty=lambda page_data: MirrorTopic.objects.all().delete(),
        nothing="No mirror topics yet",
        plural="mirror topics",
        shown=first_word(0),
        named=cell("mirror_topic"),
        sorts={**MIRROR_SORTS, "state": text("state")},
        filters={"state=PAUSED": has("state", "PAUSED")},
        search={"zz01": contains("zz01", "mirror_topic", "source_topic")},
        denied=200,
    ),
    "topics of a cluster": Case(
        address=f"/clusters/{WEST}/topics/",
        fill=fill_topics,
        empty=lambda page_data: SourceTopic.objects.all().delete(),
        nothing="No topics yet",
        plural="topics",
        shown=first_word(0),
        named=cell("topic"),
        sorts={
            "name": text("topic"),
            "mirroring": text("is_mirror"),
            "partitions": number("partitions"),
            "retention": number("retention_ms"),
        },
        filters={"mirroring=mirror": has("is_mirror", "true"), "mirroring=other": has("is_mirror", "false")},
        search={"zz01": contains("zz01", "topic")},
    ),
    "consumer groups": Case(
        address=f"{LINK}groups/",
        fill=fill_groups,
        empty=lambda page_data: SyncedGroup.objects.all().delete(),
        nothing="No groups yet|Consumer offset sync is off",
        plural="groups",
        shown=first_word(0),
        named=cell("group"),
        sorts={"name": text("group"), "status": text("status"), "checked": time("looked_at")},
        filters={"status=WAITING": has("status", "WAITING")},
        search={"zz01": contains("zz01", "group")},
    ),
    "ACLs": Case(
        address=f"{LINK}acls/",
        fill=fill_acls,
        empty=lambda page_data: SyncedAcl.objects.all().delete(),
        nothing="No ACLs yet|ACL sync is off",
        plural="ACLs",
        shown=lambda cells: cells[0].removesuffix("*").split()[1],
        named=cell("resource_name"),
        sorts={
            "resource": text("resource_type"),
            "principal": text("principal"),
            "access": text("permission"),
            "status": text("status"),
            "since": time("since"),
        },
        filters={
            "status=FAILED": has("status", "FAILED"),
            "status=conflicts": has("is_conflict", "true"),
            "permission=DENY": has("permission", "DENY"),
        },
        search={"zz01": contains("zz01", "resource_name"), "ZZ3": contains("zz3", "principal")},
    ),
    "audit log": Case(address="/audit/", nothing="No events yet", **OF_EVENTS),
    "activity of a link": Case(address=f"{LINK}activity/", nothing="No activity yet", **OF_EVENTS | {"denied": 404}),
    "failover reports of a link": Case(
        address=f"{LINK}stops/",
        sorts=REPORT_SORTS,
        search={"zz01": contains("zz01", "mirror_topic"), "ZZ3": contains("zz3", "mirror_topic", "requested_by")},
        **OF_REPORTS,
    ),
    "failover reports": Case(
        address="/failover-reports/",
        sorts={**REPORT_SORTS, "link": None},
        search={"zz01": contains("zz01", "mirror_topic"), "to-EAST": contains("to-east", "link")},
        denied=200,
        **OF_REPORTS,
    ),
    "topics of the Fail over tab": Case(
        address=f"{LINK}failover/",
        fill=fill_topics_at_risk,
        empty=lambda page_data: MirrorTopic.objects.all().delete(),
        nothing="Nothing to fail over",
        plural="mirror topics",
        shown=first_word(1),
        named=cell("mirror_topic"),
        sorts={
            "name": text("mirror_topic"),
            "health": lambda row: list(Health).index(Health(row["health"])),
            "risk": number("records_at_risk"),
            "age": number("lag_ms"),
        },
        filters={"state=PAUSED": has("state", "PAUSED"), "state=STOPPED": lambda row: True},
        search={"zz01": contains("zz01", "mirror_topic", "source_topic")},
    ),
    "operations": Case(
        address="/operations/",
        fill=fill_operations,
        empty=lambda page_data: BulkOperation.objects.all().delete(),
        nothing="No operations",
        plural="operations",
        shown=lambda cells: cells[5].split(" by ")[1],
        named=cell("requested_by"),
        sorts={
            "requested": time("requested_at"),
            "operation": text("operation"),
            "link": None,
            "done": number("done"),
            "failed": number("failed"),
        },
        filters={
            "operation=resume": has("operation", "resume"),
            "status=RUNNING": lambda row: row["done"] != row["topics"],
            "status=FINISHED": lambda row: ended(row) == (False, False),
            "status=FINISHED_WITH_FAILURES": lambda row: ended(row) == (False, True),
            "status=CANCELED": lambda row: (ended(row) or (False,))[0],
        },
        search={"zz01": contains("zz01", "requested_by")},
        denied=200,
    ),
    "results of an operation": Case(
        address=f"/operations/{OPERATION}/",
        fill=fill_results,
        empty=lambda page_data: None,  # an operation has topics
        nothing="",
        plural="topics",
        shown=first_word(0),
        named=cell("topic"),
        sorts={"name": text("topic"), "result": None, "time": time("done_at")},
        filters={"status=FAILED": has("result", "FAILED"), "status=CANCELED": has("result", "CANCELED")},
        search={"zz01": contains("zz01", "topic")},
    ),
    "filled offsets of a mirror topic": Case(
        address=f"{LINK}mirrors/flights/gaps/",
        fill=fill_gaps,
        empty=lambda page_data: GapRange.objects.all().delete(),
        nothing="No filled offsets",
        plural="ranges",
        shown=lambda cells: (cells[0], cells[1].replace(",", "")),
        named=lambda row: (row["partition"], row["start"]),
        sorts={
            "partition": number("partition"),
            "start": number("start"),
            "end": number("end"),
            "filled": number("offsets"),
            "reason": text("reason"),
            "noted": time("noted_at"),
        },
        filters={"reason=COMPACTED": has("reason", "COMPACTED")},
        search={
            "100009": lambda row: int(row["start"]) <= 100_009 < int(row["end"]),
            "100010": lambda row: int(row["start"]) <= 100_010 < int(row["end"]),
        },
    ),
    "history of a mirror topic": Case(
        address=f"{LINK}mirrors/flights/history/",
        fill=fill_transitions,
        empty=lambda page_data: StateTransition.objects.all().delete(),
        nothing="No state changes yet",
        plural="state changes",
        shown=first_word(4),
        named=cell("by"),
        sorts={
            "at": time("at"),
            "state": text("to_state"),
            "previous": text("from_state"),
            "event": text("event"),
            "by": text("by"),
        },
        filters={
            "state=PAUSED": has("to_state", "PAUSED"),
            "from=2000-01-01T00:00&to=2001-01-01T00:00": lambda row: False,
        },
        search={
            "zz01": contains("zz01", "by"),
            "REASON-05": contains("reason-05", "detail"),
            "pause": contains("pause", "event"),
        },
    ),
    "samples of a link": Case(
        address=f"{LINK}history/samples/",
        fill=fill_samples,
        empty=lambda page_data: LinkSample.objects.all().delete(),
        nothing="No samples",
        plural="samples",
        shown=lambda cells: cells[0],
        named=lambda row: exact(datetime.fromisoformat(row["at"])),
        sorts={
            "at": time("at"),
            "interval": number("seconds"),
            "lag": number("lag"),
            "age": number("lag_ms"),
            "rate": number("bytes_per_s"),
        },
        filters={"known=no": lambda row: row["unknown"] != "0", "known=yes": has("unknown", "0")},
        unmatched="from=946684800&to=946688400&known=no",
    ),
    "users": Case(
        address="/access/users/",
        fill=fill_users,
        empty=lambda page_data: Account.objects.all().delete(),
        nothing="No users to show",
        plural="users",
        shown=first_word(0),
        named=cell("user"),
        sorts={"name": text("user"), "kind": None, "organization": None, "signed-in": time("last_sign_in")},
        filters={
            "kind=service": has("kind", "Service account"),
            "kind=person": has("kind", "User"),
            "status=active": has("status", "Active"),
            "status=deactivated": has("status", "Deactivated"),
            "status=invited": lambda row: row["status"].startswith("Invit"),
        },
        search={"zz01": contains("zz01", "user")},
        denied=200,
    ),
    "role bindings": Case(
        address="/access/",
        fill=fill_bindings,
        empty=lambda page_data: None,  # the user's own role is always listed
        nothing="",
        plural="role bindings",
        shown=first_word(0),
        named=cell("principal"),
        sorts={
            "principal": text("principal"),
            "role": None,
            "scope": None,
            "resource": None,
            "granted": time("granted_at"),
            "expires": expiry,
        },
        filters={
            "role=Auditor": has("role", "Auditor"),
            "kind=group": has("kind", "group"),
            "in-force=no": is_over,
            "in-force=yes": lambda row: not is_over(row),
        },
        search={"zz01": contains("zz01", "principal"), "US-east": contains("us-east", "scope")},
        denied=200,
    ),
    "API keys": Case(
        address="/access/api-keys/",
        fill=fill_keys,
        empty=lambda page_data: ApiKey.objects.all().delete(),
        nothing="No API keys yet",
        plural="API keys",
        shown=first_word(0),
        named=cell("key"),
        sorts={
            "key": text("key"),
            "description": text("description"),
            "owner": text("owner"),
            "created": time("created_at"),
            "used": time("last_used_at"),
            "expires": expiry,
        },
        filters={
            "in-force=no": is_over,
            "in-force=yes": lambda row: not is_over(row),
            "used=no": has("last_used_at", ""),
            "used=yes": lambda row: bool(row["last_used_at"]),
        },
        search={"zz01": contains("zz01", "key"), "TERRA": contains("terra", "description")},
        denied=200,
    ),
    "groups": Case(
        address="/access/groups/",
        fill=fill_user_groups,
        empty=lambda page_data: UserGroup.objects.all().delete(),
        nothing="No groups",
        plural="groups",
        shown=first_word(0),
        named=cell("group"),
        sorts={
            "name": text("group"),
            "organization": None,
            "external": text("identity_provider_group"),
            "members": number("members"),
            "roles": number("roles"),
        },
        filters={
            "origin=provider": lambda row: bool(row["identity_provider_group"]),
            "origin=manual": has("identity_provider_group", ""),
        },
        search={"zz01": contains("zz01", "group"), "IDP01": contains("idp01", "identity_provider_group")},
        denied=200,
    ),
    "approval requests": Case(
        address="/access/approvals/",
        fill=fill_requests,
        empty=lambda page_data: ApprovalRequest.objects.all().delete(),
        nothing="No approval requests",
        plural="approval requests",
        shown=lambda cells: re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", cells[3])[0],  # type: ignore[index]
        named=lambda row: exact(datetime.fromisoformat(row["requested_at"])),
        sorts={
            "operation": text("operation"),
            "link": None,
            "requested": time("requested_at"),
            "expires": time("expires_at"),
        },
        filters={
            "status=REQUESTED": has("status", "Waiting"),
            "status=REJECTED": has("status", "Rejected"),
            "status=EXPIRED": has("status", "Expired"),
        },
        search={"zz01": contains("zz01", "reason"), "ZZrequester": contains("zzrequester", "requested_by")},
        denied=200,
    ),
}
every_list = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


class Table(HTMLParser):
    """Reads the cells of the rows of the list, with whitespace normalized, and the headings with aria-sort."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page = page
        self.rows: list[list[str]] = []
        self.sorted: list[str] = []
        self._depth = 0  # of tables, within that of the list
        self._in_body = False
        self.feed(page)
        self.rows = [[" ".join(text.split()) for text in row] for row in self.rows]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "table" and (self._depth or "sorts" in (found.get("class") or "").split()):
            self._depth += 1
        if self._depth != 1:
            return
        self._in_body = self._in_body or tag == "tbody"
        if tag == "th" and found.get("aria-sort"):
            self.sorted.append(found["aria-sort"] or "")
        if self._in_body and tag == "tr" and found.get("class") != "follows":
            self.rows.append([])
        if self._in_body and tag == "tr" and found.get("class") == "follows":
            self._in_body = False  # a note below the row
        if self._in_body and tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table" and self._depth:
            self._depth -= 1
        if self._depth == 1 and tag == "tr" and self.rows:
            self._in_body = True

    def handle_data(self, data: str) -> None:
        if self._depth and self._in_body and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def read(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return response.content.decode()


def walk(client: Client, address: str, *, most: int = 21) -> list[str]:
    """Open a page and the following pages by their Next links: all of them, or the first ``most``."""
    pages = [read(client, address)]
    while len(pages) < most and (found := re.search(r'href="([^"]+)">Next<', pages[-1])):
        assert len(pages) < 20, "Next does not end"
        pages.append(read(client, html.unescape(found[1])))
    return pages


def with_query(address: str, query: str) -> str:
    return f"{address}?{query}" if query else address


def file_of(client: Client, address: str, page: str = "") -> list[Row]:
    """Download the file to which the page links; of a page without rows, that of its URL."""
    found = re.search(r'id="list-csv" href="([^"]+)"', page or read(client, address))
    joint = "&" if "?" in address else "?"
    response: Any = client.get(html.unescape(found[1]) if found else f"{address}{joint}format=csv")
    assert (response.status_code, response["Content-Type"], response.streaming) == (200, "text/csv; charset=utf-8", True)
    assert re.fullmatch(r'attachment; filename="[\w.-]+\.csv"', response["Content-Disposition"])
    return list(csv.DictReader(io.StringIO(response.getvalue().decode())))


def list_and_file(client: Client, case: Case, query: str) -> tuple[list[Table], list[Row]]:
    """Return the tables of all pages of a selection, and the rows of the file to which the first page links."""
    address = with_query(case.address, query)
    pages = walk(client, address)
    return [Table(page) for page in pages], file_of(client, address, pages[0])


def shown_in(case: Case, tables: Sequence[Table]) -> list[Any]:
    return [case.shown(cells) for table in tables for cells in table.rows]


def names(case: Case, rows: Sequence[Row]) -> list[Any]:
    """Return the rows of a file as the page lists them: several rows of a group are shown as one."""
    return (
        list(dict.fromkeys(case.named(row) for row in rows)) if case.plural == "groups" else [case.named(row) for row in rows]
    )


@every_list
def test_file_has_all_rows_in_the_order_of_the_pages(admin: Client, page_data: PageData, case: Case) -> None:
    expected = case.fill(page_data)

    tables, rows = list_and_file(admin, case, "")

    assert names(case, rows) == shown_in(case, tables)
    cells = [{key: str(value) for key, value in row.items()}.items() for row in expected]
    missing = [wanted for wanted in cells if not any(wanted <= row.items() for row in rows)]
    assert len(cells) >= MANY * 2 // 3
    assert missing == []


@every_list
def test_list_is_sorted_by_each_column_both_ways(admin: Client, page_data: PageData, case: Case) -> None:
    case.fill(page_data, FEW)
    page = read(admin, case.address)
    everything = sorted(map(repr, names(case, file_of(admin, case.address, page))))
    offered = set(re.findall(r'id="sort-\d+" href="[^"]*[?;]sort=-?([\w-]+)', page))
    assert offered == set(case.sorts)

    for key, value_of in case.sorts.items():
        for sort, direction in ((key, "ascending"), (f"-{key}", "descending")):
            tables, rows = list_and_file(admin, case, f"sort={sort}")
            assert tables[0].sorted == [direction]
            assert names(case, rows) == shown_in(case, tables), sort
            assert sorted(map(repr, names(case, rows))) == everything
            if value_of is not None:
                values = [value for value in map(value_of, rows) if value is not SKIPPED]
                assert values == sorted(values, reverse=direction == "descending"), sort
                assert values, sort


@every_list
def test_search_and_filters_select_the_matching_rows(admin: Client, page_data: PageData, case: Case) -> None:
    case.fill(page_data, FEW)
    everything = file_of(admin, case.address)

    for query, matches in {**{f"q={text}": found for text, found in case.search.items()}, **case.filters}.items():
        tables, rows = list_and_file(admin, case, query)
        assert names(case, rows) == names(case, [row for row in everything if matches(row)]), query
        assert names(case, rows) == shown_in(case, tables), query


@every_list
def test_pages_have_each_row_once_and_keep_the_selection(admin: Client, page_data: PageData, case: Case) -> None:
    case.fill(page_data)

    pages = walk(admin, case.address)
    total = len(names(case, file_of(admin, case.address, pages[0])))
    full, rest = divmod(total, PAGE_SIZE)
    assert [len(Table(page).rows) for page in pages] == [*[PAGE_SIZE] * full, rest]
    assert f"1 to {PAGE_SIZE} of {total}" in pages[0]
    assert f"{full * PAGE_SIZE + 1} to {total} of {total}" in pages[-1]
    key = list(case.sorts)[-1]  # not the default
    _, second = walk(admin, with_query(case.address, f"sort=-{key}"), most=2)
    assert Table(second).sorted == ["descending"]
    assert f'<input type="hidden" name="sort" value="-{key}">' in second


@every_list
def test_empty_list_says_what_to_do_and_an_unmatched_filter_how_to_clear_it(
    admin: Client, page_data: PageData, case: Case
) -> None:
    page = read(admin, with_query(case.address, case.unmatched))

    assert f"No matching {case.plural}" in page
    clear = re.search(r'id="clear-filter" href="([^"]+)">Clear filter<', page)
    assert clear is not None
    assert html.unescape(clear[1]).partition("?")[0] == case.address
    assert Table(read(admin, html.unescape(clear[1]))).rows
    assert file_of(admin, with_query(case.address, case.unmatched)) == []

    case.empty(page_data)
    page = read(admin, case.address)
    assert re.search(f"<h[12][^>]*>({case.nothing})</h[12]>", page) or not case.nothing
    assert "No matching" not in page
    assert "Clear filter" not in page


@every_list
def test_list_and_its_file_require_the_same_permission(page_data: PageData, stranger: Client, case: Case) -> None:
    case.fill(page_data, FEW)
    address = with_query(case.address, "format=csv")

    assert (stranger.get(case.address).status_code, stranger.get(address).status_code) == (case.denied, case.denied)
    if case.denied == 200:
        assert file_of(stranger, case.address) == []
        assert Table(read(stranger, case.address)).rows == []
    assert (Client().get(case.address).status_code, Client().get(address).status_code) == (302, 302)


@every_list
def test_more_rows_need_no_more_queries(admin: Client, page_data: PageData, case: Case) -> None:
    first, second = case.address, with_query(case.address, "format=csv")
    admin.get(first)
    few, few_of_file = queries(admin, first), queries(admin, second)
    case.fill(page_data, FEW)

    assert queries(admin, first) <= few + 1  # the number of rows, which a list with a single page shows
    assert queries(admin, second) == few_of_file


def queries(client: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as requested:
        client.get(address).getvalue()
    return len(requested)


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_file_has_no_formulas(admin: Client, page_data: PageData, start: str) -> None:
    AuditEvent.objects.filter(actor="bessie").update(actor=f"{start}HYPERLINK(0)")

    (row,) = file_of(admin, "/audit/?result=DENIED")

    assert row["actor"] == f"'{start}HYPERLINK(0)"
    assert row["action"] == "OPERATE_MIRROR"


def test_cells_are_machine_readable(admin: Client, page_data: PageData) -> None:
    rows = {row["mirror_topic"]: row for row in file_of(admin, page_data.link_url)}

    assert len(rows) == len(page_data.mirrors)
    assert (rows["bookings"]["state"], rows["bookings"]["max_lag"]) == ("SOURCE_UNAVAILABLE", "99120")
    assert (rows["hubs"]["max_lag"], rows["hubs"]["bytes_per_s"], rows["hubs"]["partitions"]) == ("", "", "")
    since = page_data.mirrors["bookings"].state_since
    assert rows["bookings"]["state_since"] == since.isoformat(timespec="milliseconds")
    assert since.utcoffset() == timedelta(0)


def test_unknown_lag_of_a_link_is_empty_and_not_zero(admin: Client, page_data: PageData) -> None:
    make_mirror(
        make_link(page_data.west, page_data.east, "zzhalf", page_data.now), "a", MirrorState.ACTIVE, lag=0, now=page_data.now
    )
    make_mirror(ClusterLink.objects.get(name="zzhalf"), "b", MirrorState.PENDING_SETUP, lag=None, now=page_data.now)

    rows = {row["link"]: row for row in file_of(admin, "/links/")}

    assert (rows["zzhalf"]["max_lag"], rows["zzhalf"]["unknown_lags"]) == ("", "1")


def test_file_is_sent_in_parts() -> None:
    read_rows = []

    def rows() -> Any:
        for number in range(10_000):
            read_rows.append(number)
            yield (number,)

    response: Any = csv_file("numbers", ["number"], rows())
    first = next(iter(response))

    assert isinstance(response, StreamingHttpResponse)
    assert first.startswith(b"number\r\n0\r\n1\r\n")
    assert len(read_rows) < 1_000


def test_error_before_the_first_part_is_an_error_page() -> None:
    with pytest.raises(ZeroDivisionError):
        csv_file("numbers", ["number"], ((1 / 0,) for _ in range(3)))


def test_json_of_failover_reports_has_all_that_match(admin: Client, page_data: PageData) -> None:
    fill_reports(page_data)

    whole = admin.get(f"{page_data.link_url}stops/?page=2&format=json").json()
    matching = admin.get(f"{page_data.link_url}stops/?format=json&operation=promote&sort=name").json()
    everywhere = admin.get("/failover-reports/?format=json").json()

    assert (whole["stops"], len(whole["data"])) == (MANY + 1, MANY + 1)
    assert whole["data"][0]["mirror_topic_name"] == "gates"
    assert matching["stops"] == len(range(0, MANY, 3))
    assert {row["reason"] for row in matching["data"]} == {"promote"}
    topics = [row["mirror_topic_name"] for row in matching["data"]]
    assert topics == sorted(topics)
    assert everywhere["stops"] == whole["stops"]


def test_file_of_a_cluster_with_many_topics_has_their_mirrors(
    admin: Client, page_data: PageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"/clusters/{WEST}/topics/"
    SourceTopic.objects.create(cluster=Cluster.objects.get(cluster_id=WEST), name="zzz", partitions=1, seen_at=page_data.now)
    few = file_of(admin, address)
    monkeypatch.setattr("console.clusters.queries.MOST_NAMES", 1)

    assert file_of(admin, address) == few
    assert {row["source_for"] for row in few if row["topic"] == "flights"} == {f"{EAST}/flights"}


# --- time range and options of the audit log --------------------------------------------------------------------------


TIMED = {  # list: column of its file with the time that a range selects
    "audit log": "at",
    "activity of a link": "at",
    "failover reports of a link": "writable_at",
    "failover reports": "writable_at",
    "operations": "requested_at",
    "history of a mirror topic": "at",
}


@pytest.mark.parametrize("name", TIMED)
def test_time_range_selects_the_rows_from_its_start_until_before_its_end(admin: Client, page_data: PageData, name: str) -> None:
    case, column = CASES[name], TIMED[name]
    case.fill(page_data)
    everything = file_of(admin, case.address)
    times = sorted(datetime.fromisoformat(row[column]) for row in everything)
    start, end = (times[len(times) * part // 4].replace(second=0, microsecond=0) for part in (1, 3))
    end = max(end, start + timedelta(minutes=1))
    within = [row for row in everything if start <= datetime.fromisoformat(row[column]) < end]
    assert 0 < len(within) < len(everything)

    query = f"from={start:%Y-%m-%dT%H:%M}&to={end:%Y-%m-%dT%H:%M}"
    tables, rows = list_and_file(admin, case, query)

    assert names(case, rows) == names(case, within) == shown_in(case, tables)
    assert f'name="from" value="{start:%Y-%m-%dT%H:%M}"' in tables[0].page
    assert f'name="to" value="{end:%Y-%m-%dT%H:%M}"' in tables[0].page


def test_all_lists_with_a_time_range_are_tested(admin: Client, page_data: PageData) -> None:
    with_range = {name for name, case in CASES.items() if 'type="datetime-local"' in read(admin, case.address)}

    assert with_range == {*TIMED, "samples of a link"}  # the range of the samples is that of the charts


def test_history_of_a_mirror_takes_a_time_range(admin: Client, page_data: PageData) -> None:
    """The changes are one minute apart; the range has the second and the third of the newest."""
    fill_transitions(page_data)
    newest = list(page_data.mirrors["flights"].transitions.all()[:4])
    times = [step.at.replace(second=0, microsecond=0) for step in newest]
    address = f"{page_data.mirror_url('flights', 'history')}?from={times[2]:%Y-%m-%dT%H:%M}&to={times[0]:%Y-%m-%dT%H:%M}"

    assert [row["by"] for row in file_of(admin, address)] == [step.by for step in newest[1:3]]
    assert "2 state changes" in read(admin, address)


def test_action_filter_offers_actions_of_all_events(admin: Client, page_data: PageData) -> None:
    AuditEvent.objects.create(
        at=page_data.now - timedelta(days=400),
        actor="amelia",
        action="LongAgo",
        resource="organization/Skyways",
        result="SUCCESS",
    )

    assert '<option value="LongAgo">' in read(admin, "/audit/?action=PauseMirrorTopic")


@pytest.mark.parametrize("number", ["999", "0", "-1", "x", "9" * 5_000])
def test_invalid_page_number_shows_an_existing_page(admin: Client, page_data: PageData, number: str) -> None:
    fill_events(page_data)

    assert "of 111</span>" in read(admin, f"/audit/?page={number}")


@pytest.mark.parametrize("query", ["sort=no-column", "sort=--at", "sort=", "result=NONE", "from=x", "format=pdf"])
def test_invalid_selection_is_ignored(admin: Client, page_data: PageData, query: str) -> None:
    chosen, usual = (Table(read(admin, address)).rows for address in (f"/audit/?{query}", "/audit/"))

    assert [cells[1:] for cells in chosen] == [cells[1:] for cells in usual]  # without relative times


# --- drills and restores, which are no tables, and the newest rows on the page of a mirror ----------------------------


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


@pytest.mark.parametrize("address", ["drills/", "mirrors/lounges/"])
def test_more_drills_and_restores_need_no_more_queries(admin: Client, page_data: PageData, address: str) -> None:
    address = f"{page_data.link_url}{address}"
    add_restores(page_data, 2)
    read(admin, address)
    few = queries(admin, address)
    add_drills(page_data, 25)
    add_restores(page_data, 25)

    assert queries(admin, address) <= few + 1


def test_each_drill_is_on_exactly_one_page(admin: Client, page_data: PageData) -> None:
    add_drills(page_data, 25)

    pages = walk(admin, f"{page_data.link_url}drills/")

    assert [page.count('<section class="panel" aria-labelledby="drill-') - 1 for page in pages] == [10, 10, 6]
    assert re.findall(r"by &lt;(\d+)&gt;", "".join(pages)) == [str(number) for number in range(25)]
    assert "11 to 20 of 26" in pages[1]


def test_poll_returns_the_same_page_of_drills(admin: Client, page_data: PageData) -> None:
    add_drills(page_data, 25)

    part = admin.get(f"{page_data.link_url}drills/?page=3&seen=1:1", **htmx("live")).content.decode()

    assert re.findall(r"by &lt;(\d+)&gt;", part) == ["19", "20", "21", "22", "23", "24"]
    assert "seen" not in "".join(re.findall(r'href="([^"]+)">Previous<', part))


def test_each_restore_is_on_exactly_one_page(admin: Client, page_data: PageData) -> None:
    add_restores(page_data, 25)

    pages = walk(admin, page_data.mirror_url("lounges", "restores"))

    assert [page.count("no diverged records to export") for page in pages] == [10, 10, 5]
    assert re.findall(r"by &lt;(\d+)&gt;:", "".join(pages)) == [str(number) for number in range(25)]
    assert 'restores=2#restores">Next<' in pages[0]


def test_tab_of_a_mirror_refers_to_older_failover_reports(admin: Client, page_data: PageData) -> None:
    note, tab = "View all failover reports of the link", page_data.mirror_url("gates", "failover-reports")
    report = StopReport.objects.get(mirror=page_data.mirrors["gates"])
    for number in range(tab_pages.REPORTS_SHOWN - 1):
        report.pk, report.writable_at = None, page_data.now - timedelta(days=number + 1)
        report.save()
    assert note not in read(admin, tab)

    report.pk = None
    report.save()

    text = read(admin, tab)
    assert note in text
    assert text.count("<summary>Offsets by partition") == tab_pages.REPORTS_SHOWN
