"""The lists of the console as declared cases: address, rows, empty state, sort keys, filters and searches of each list."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import Model
from django.utils import timezone

from console.models import (
    Account,
    ApiKey,
    ApprovalRequest,
    AuditEvent,
    BulkOperation,
    ClusterLink,
    GapRange,
    LinkSample,
    MirrorTopic,
    SourceTopic,
    StateTransition,
    StopReport,
    SyncedAcl,
    SyncedGroup,
    UserGroup,
)
from console.web.numbers import exact
from linkengine.domain.health import Health
from tests.browser.page_data import EAST, WEST
from tests.browser.page_fixtures import OPERATION
from tests.console.pages import list_rows
from tests.console.pages.list_pages import Row
from tests.console.pages.list_rows import Cells

SKIPPED = object()  # a text whose place depends on the collation of the database


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


def first_word(cells: list[str], *, column: int = 0) -> str:
    return cells[column].split()[0]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A list. ``named`` identifies a row of the file, and ``shown`` the row of the page with these cells."""

    address: str
    fill: Callable[..., list[Cells]]  # adds rows, by default ``MANY``; returns cells that the file must have
    models: Sequence[type[Model]]  # of its rows, in the order in which they are deleted
    nothing: str  # title of the empty state
    plural: str
    named: Callable[[Row], Any]
    sorts: Mapping[str, Callable[[Row], Any] | None]  # by key; None: the value is not in the file
    filters: Mapping[str, Callable[[Row], bool]]  # by query string
    shown: Callable[[list[str]], Any] = first_word
    search: Mapping[str, Callable[[Row], bool]] = field(default_factory=dict)  # by text
    unmatched: str = "q=nothing-has-this-name"
    denied: int = 404  # for a user without a role; 200: a page without rows


LINK = f"/links/{EAST}/west-to-east/"
MIRROR_SORTS: dict[str, Callable[[Row], Any] | None] = {"name": text("mirror_topic"), "lag": number("max_lag"), "age": None}
OF_EVENTS: dict[str, Any] = {
    "fill": list_rows.add_events,
    "models": (AuditEvent,),
    "plural": "events",
    "shown": partial(first_word, column=1),
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
    "fill": list_rows.add_reports,
    "models": (StopReport,),
    "nothing": "No failover reports yet",
    "plural": "reports",
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
        fill=list_rows.add_links,
        models=(MirrorTopic, ClusterLink),
        nothing="No cluster links yet",
        plural="links",
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
        fill=list_rows.add_mirrors,
        models=(MirrorTopic,),
        nothing="No mirror topics yet",
        plural="mirror topics",
        shown=partial(first_word, column=1),
        named=cell("mirror_topic"),
        sorts={**MIRROR_SORTS, "health": None, "rate": number("bytes_per_s"), "since": time("state_since")},
        filters={"state=PAUSED": has("state", "PAUSED"), "state=no-state": lambda row: True},
        search={"zz01": contains("zz01", "mirror_topic", "source_topic")},
    ),
    "source topics of a link": Case(
        address=f"{LINK}topics/",
        fill=list_rows.add_source_topics,
        models=(SourceTopic,),
        nothing="The source has no topics",
        plural="source topics",
        shown=partial(first_word, column=1),
        named=cell("source_topic"),
        sorts={"name": text("source_topic"), "standing": None},
        filters={"standing=NOT_MIRRORED": has("status", "NOT_MIRRORED"), "standing=MIRRORED": has("status", "MIRRORED")},
        search={"zz01": contains("zz01", "source_topic")},
    ),
    "topics": Case(
        address="/topics/",
        fill=list_rows.add_mirrors,
        models=(MirrorTopic,),
        nothing="No mirror topics yet",
        plural="mirror topics",
        named=cell("mirror_topic"),
        sorts={**MIRROR_SORTS, "state": text("state")},
        filters={"state=PAUSED": has("state", "PAUSED")},
        search={"zz01": contains("zz01", "mirror_topic", "source_topic")},
        denied=200,
    ),
    "topics of a cluster": Case(
        address=f"/clusters/{WEST}/topics/",
        fill=list_rows.add_topics,
        models=(SourceTopic,),
        nothing="No topics yet",
        plural="topics",
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
        fill=list_rows.add_groups,
        models=(SyncedGroup,),
        nothing="No groups yet|Consumer offset sync is off",
        plural="groups",
        named=cell("group"),
        sorts={"name": text("group"), "status": text("status"), "checked": time("looked_at")},
        filters={"status=WAITING": has("status", "WAITING")},
        search={"zz01": contains("zz01", "group")},
    ),
    "ACLs": Case(
        address=f"{LINK}acls/",
        fill=list_rows.add_acls,
        models=(SyncedAcl,),
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
        fill=list_rows.add_topics_at_risk,
        models=(MirrorTopic,),
        nothing="Nothing to fail over",
        plural="mirror topics",
        shown=partial(first_word, column=1),
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
        fill=list_rows.add_operations,
        models=(BulkOperation,),
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
        fill=list_rows.add_results,
        models=(),  # an operation has topics
        nothing="",
        plural="topics",
        named=cell("topic"),
        sorts={"name": text("topic"), "result": None, "time": time("done_at")},
        filters={"status=FAILED": has("result", "FAILED"), "status=CANCELED": has("result", "CANCELED")},
        search={"zz01": contains("zz01", "topic")},
    ),
    "filled offsets of a mirror topic": Case(
        address=f"{LINK}mirrors/flights/gaps/",
        fill=list_rows.add_gaps,
        models=(GapRange,),
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
        fill=list_rows.add_transitions,
        models=(StateTransition,),
        nothing="No state changes yet",
        plural="state changes",
        shown=partial(first_word, column=4),
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
        fill=list_rows.add_samples,
        models=(LinkSample,),
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
        fill=list_rows.add_users,
        models=(Account,),
        nothing="No users to show",
        plural="users",
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
        fill=list_rows.add_bindings,
        models=(),  # the user's own role is always listed
        nothing="",
        plural="role bindings",
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
        fill=list_rows.add_keys,
        models=(ApiKey,),
        nothing="No API keys yet",
        plural="API keys",
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
        fill=list_rows.add_user_groups,
        models=(UserGroup,),
        nothing="No groups",
        plural="groups",
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
        fill=list_rows.add_requests,
        models=(ApprovalRequest,),
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
