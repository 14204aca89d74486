"""The display of operations on mirror topics, and view models of operations on several of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.urls import reverse

from console.web import numbers
from console.web.badges import Badge, Family, mirror_look
from console.web.errors import help_for
from console.web.numbers import Moment, exact, moment
from linkengine.domain.states import BIDIRECTIONAL_ONLY, MirrorEvent, MirrorState

if TYPE_CHECKING:
    from console.models import BulkOperation, BulkOperationTopic, ClusterLink, MirrorTopic


# --- labels, icons and confirmation texts -----------------------------------------------------------------------------
#
# Permissions are checked elsewhere.


_E = MirrorEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """An operation with the texts of its button and its confirmation."""

    event: MirrorEvent
    label: str  # of the button
    icon: str
    doing: str  # verb in the heading of the confirmation: "Promote orders?"
    explains: str
    done: str  # message after the request was accepted; {name} is the mirror topic
    danger: bool = False  # irreversible in each link mode
    loses_lag: bool = False  # records that are not copied yet are lost


_VERBS = (
    Verb(
        event=_E.PAUSE,
        label="Pause",
        icon="pause-circle-fill",
        doing="Pause",
        explains="Copying stops within a second. The topic remains readable and read-only. No data is lost as long as the "
        "source retains its records. You can resume it at any time.",
        done="{name} is paused.",
    ),
    Verb(
        event=_E.RESUME,
        label="Resume",
        icon="play-fill",
        doing="Resume",
        explains="Copying resumes where it stopped.",
        done="{name} is resumed.",
    ),
    Verb(
        event=_E.PROMOTE,
        label="Promote",
        icon="arrow-repeat",
        doing="Promote",
        explains="The link copies the last records, configs and partitions. When the lag is 0, the topic becomes writable. "
        "Stop the producers on the source first, or the lag may never reach 0. Until then, writes are rejected.",
        done="{name} is being promoted. It becomes writable when its lag is 0.",
    ),
    Verb(
        event=_E.FAILOVER,
        label="Fail over",
        icon="exclamation-triangle-fill",
        doing="Fail over",
        explains="Mirroring stops immediately, without contacting the source, and the topic becomes writable. Records that "
        "are not copied yet remain on the source only.",
        done="{name} is failing over. It becomes writable within seconds.",
        danger=True,
        loses_lag=True,
    ),
    Verb(
        event=_E.REVERSE_AND_START,
        label="Reverse and start",
        icon="arrow-left-right",
        doing="Reverse",
        explains="Both topics become read-only until they are in sync. Then they swap roles and mirroring starts in reverse.",
        done="{name} is being reversed.",
    ),
    Verb(
        event=_E.REVERSE_AND_PAUSE,
        label="Reverse and pause",
        icon="arrow-left-right",
        doing="Reverse",
        explains="Both topics become read-only until they are in sync. Then they swap roles and the new mirror is paused.",
        done="{name} is being reversed.",
    ),
    Verb(
        event=_E.RESTORE,
        label="Truncate and restore",
        icon="scissors",
        doing="Restore",
        explains="The topic becomes a mirror again. Its diverged records are exported to a file and deleted from the topic.",
        done="{name} is being restored.",
        danger=True,
    ),
    Verb(
        event=_E.RECOVER,
        label="Recover",
        icon="arrow-repeat",
        doing="Recover",
        explains="Mirroring is retried from where it stopped. Fix the cause of the failure first.",
        done="{name} is being recovered.",
    ),
    Verb(
        event=_E.DELETE,
        label="Delete",
        icon="trash",
        doing="Delete",
        explains="The topic and all its records are deleted on the destination cluster. The source topic is not changed.",
        done="{name} is being deleted.",
        danger=True,
    ),
)
VERBS: Mapping[MirrorEvent, Verb] = MappingProxyType({verb.event: verb for verb in _VERBS})


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkVerb:
    """An operation on several mirror topics. ``event`` is None for a verification, which changes no state."""

    name: str  # in forms and in ``BulkOperation.operation``
    event: MirrorEvent | None
    label: str
    icon: str
    doing: str
    explains: str
    danger: bool = False
    loses_lag: bool = False
    frequent: bool = False  # has a button of its own; the others are in a menu


def _bulk(verb: Verb) -> BulkVerb:
    return BulkVerb(
        name=verb.event,
        event=verb.event,
        label=verb.label,
        icon=verb.icon,
        doing=verb.doing,
        explains=verb.explains,
        danger=verb.danger,
        loses_lag=verb.loses_lag,
        frequent=verb.event in _FREQUENT,
    )


_FREQUENT = {_E.PAUSE, _E.RESUME, _E.PROMOTE, _E.FAILOVER}
_VERIFY = BulkVerb(
    name="verify",
    event=None,
    label="Verify",
    icon="check-circle-fill",
    doing="Verify",
    explains="Compares all records of each topic with its source in Spark, a few topics at a time. Mirroring continues. The "
    "page of each mirror topic shows the result.",
    frequent=True,
)
BULK_VERBS: Mapping[str, BulkVerb] = MappingProxyType({verb.name: verb for verb in (*map(_bulk, _VERBS), _VERIFY)})


def bulk_verbs(*, bidirectional: bool) -> list[BulkVerb]:
    """Return the operations on several mirror topics of a link, in the order of the buttons."""
    return [verb for verb in BULK_VERBS.values() if bidirectional or verb.event not in BIDIRECTIONAL_ONLY]


def explanation(verb: Verb, *, state: str, since: datetime) -> str:
    """Return what an operation does. A deletion also warns of records written to a topic that was stopped at ``since``."""
    if verb.event is not _E.DELETE or state != MirrorState.STOPPED:
        return verb.explains
    return (
        f"This topic is no longer mirrored. Applications may have written to it since {exact(since)}; these records exist "
        f"in no other topic. {verb.explains}"
    )


def needs_typed_name(event: MirrorEvent, *, bidirectional: bool) -> bool:
    """Return True if the user must type the topic name: for irreversible operations, and promotions on one-way links."""
    return VERBS[event].danger or (event is _E.PROMOTE and not bidirectional)


def reversibility(event: MirrorEvent, *, bidirectional: bool) -> str:
    """Return whether an operation is reversible, which depends on the link mode; "" if nothing needs to be said."""
    if event is _E.DELETE:
        return "This cannot be undone."
    if event not in {_E.PROMOTE, _E.FAILOVER}:
        return ""
    if bidirectional:
        return "The link is bidirectional: the source topic can become a mirror of this topic afterwards."
    return "This cannot be undone: a stopped topic cannot become a mirror again on this link."


# --- operations on several mirror topics ------------------------------------------------------------------------------


CREATE = "create"
TOPIC_LOOKS: Mapping[str, Badge] = MappingProxyType(
    {
        "WAITING": Badge(
            code="WAITING", label="Waiting", icon="hourglass-split", family=Family.BUSY, meaning="The operation has not begun."
        ),
        "ACCEPTED": Badge(
            code="ACCEPTED",
            label="Accepted",
            icon="check-circle-fill",
            family=Family.OK,
            meaning="The operation was requested. The state of the mirror topic shows its progress.",
        ),
        "FAILED": Badge(
            code="FAILED", label="Failed", icon="x-octagon-fill", family=Family.BAD, meaning="The operation was refused."
        ),
        "CANCELED": Badge(
            code="CANCELED", label="Canceled", icon="dash-circle", family=Family.DONE, meaning="Canceled before it began."
        ),
    }
)
RUNNING = Badge(
    code="RUNNING",
    label="In progress",
    icon="arrow-repeat",
    family=Family.BUSY,
    meaning="A worker carries out the operation topic by topic. You can leave this page.",
)
FINISHED = Badge(
    code="FINISHED",
    label="Finished",
    icon="check-circle-fill",
    family=Family.OK,
    meaning="The operation was accepted for all topics.",
)
WITH_FAILURES = Badge(
    code="FINISHED_WITH_FAILURES",
    label="Finished with failures",
    icon="exclamation-triangle-fill",
    family=Family.WARN,
    meaning="The operation failed for some topics. The other topics are not affected.",
    next_step="Read the reasons below, correct the causes, then retry the failed topics.",
)
CANCELED = Badge(
    code="CANCELED",
    label="Canceled",
    icon="dash-circle",
    family=Family.DONE,
    meaning="The topics that had not begun were canceled. The others are not affected.",
)
OPERATION_LOOKS = (RUNNING, FINISHED, WITH_FAILURES, CANCELED)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRow:
    """An operation with its progress. ``done`` counts the topics that are not waiting."""

    key: int
    url: str
    title: str
    look: Badge
    link_name: str
    link_url: str
    bulk_url: str  # of the form that performs an operation on several topics of the link
    by: str
    at: Moment | None
    finished: Moment | None
    canceled_by: str
    waiting: int
    accepted: int
    failed: int
    canceled: int
    done: int
    total: int
    running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """The result of an operation for a topic, with the current state of the mirror topic."""

    key: int
    name: str
    url: str  # "" if there is no such mirror topic, or it is not visible
    look: Badge
    state_look: Badge | None
    code: str
    message: str
    fix: str
    at: Moment | None


def operation_row(operation: BulkOperation, counts: Mapping[str, int], *, now: datetime) -> OperationRow:
    """Create the row of an operation; ``counts`` has the number of topics by status."""
    waiting, accepted, failed, canceled = (counts.get(name, 0) for name in TOPIC_LOOKS)
    total = waiting + accepted + failed + canceled
    return OperationRow(
        key=operation.pk,
        url=operation.get_absolute_url(),
        title=_title(operation.operation, total),
        look=_look(operation, waiting=waiting, failed=failed),
        link_name=operation.link.name,
        link_url=operation.link.get_absolute_url(),
        bulk_url=reverse("pages:link-bulk", args=operation.link.url_args),
        by=operation.requested_by,
        at=moment(operation.requested_at, now=now),
        finished=moment(operation.finished_at, now=now),
        canceled_by=operation.canceled_by,
        waiting=waiting,
        accepted=accepted,
        failed=failed,
        canceled=canceled,
        done=total - waiting,
        total=total,
        running=bool(waiting),
    )


def topic_row(topic: BulkOperationTopic, mirror: MirrorTopic | None, *, link: ClusterLink, now: datetime) -> TopicRow:
    """Create the row of a topic, whose mirror is on ``link``."""
    known = help_for(topic.error_code) if topic.error_code else None
    return TopicRow(
        key=topic.pk,
        name=topic.name,
        url=reverse("pages:mirror", args=(*link.url_args, mirror.name)) if mirror else "",
        look=TOPIC_LOOKS[topic.status],
        state_look=mirror_look(mirror.state, mirror.stop_reason) if mirror else None,
        code=topic.error_code,
        message=topic.message,
        fix=known.fix if known and known.meaning else "",
        at=moment(topic.done_at, now=now),
    )


def _title(operation: str, total: int) -> str:
    label = "Add" if operation == CREATE else BULK_VERBS[operation].label
    return f"{label} {numbers.plural(total, 'mirror topic')}"


def _look(operation: BulkOperation, *, waiting: int, failed: int) -> Badge:
    if waiting:
        return RUNNING
    if operation.canceled_by:
        return CANCELED
    return WITH_FAILURES if failed else FINISHED
