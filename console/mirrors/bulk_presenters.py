"""View models of operations on several mirror topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.urls import reverse
from django.utils.translation import gettext, gettext_noop, ngettext

from console.web import numbers
from console.web.badges import Badge, Family, mirror_badge
from console.web.errors import help_for
from console.web.numbers import Moment, moment

if TYPE_CHECKING:
    from console.models import BulkOperation, BulkOperationTopic, ClusterLink, MirrorTopic
from console.mirrors.operation_presenters import BULK_VERBS

# --- operations on several mirror topics ------------------------------------------------------------------------------


CREATE = "create"
TOPIC_BADGES: Mapping[str, Badge] = MappingProxyType(
    {
        "WAITING": Badge(
            code="WAITING",
            label=gettext_noop("Waiting"),
            icon="hourglass-split",
            family=Family.BUSY,
            meaning=gettext_noop("The operation has not begun."),
        ),
        "ACCEPTED": Badge(
            code="ACCEPTED",
            label=gettext_noop("Accepted"),
            icon="check-circle-fill",
            family=Family.OK,
            meaning=gettext_noop("The operation was requested. The state of the mirror topic shows its progress."),
        ),
        "FAILED": Badge(
            code="FAILED",
            label=gettext_noop("Failed"),
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning=gettext_noop("The operation was refused."),
        ),
        "CANCELED": Badge(
            code="CANCELED",
            label=gettext_noop("Canceled"),
            icon="dash-circle",
            family=Family.DONE,
            meaning=gettext_noop("Canceled before it began."),
        ),
    }
)
RUNNING = Badge(
    code="RUNNING",
    label=gettext_noop("In progress"),
    icon="arrow-repeat",
    family=Family.BUSY,
    meaning=gettext_noop("A worker carries out the operation topic by topic. You can leave this page."),
)
FINISHED = Badge(
    code="FINISHED",
    label=gettext_noop("Finished"),
    icon="check-circle-fill",
    family=Family.OK,
    meaning=gettext_noop("The operation was accepted for all topics."),
)
WITH_FAILURES = Badge(
    code="FINISHED_WITH_FAILURES",
    label=gettext_noop("Finished with failures"),
    icon="exclamation-triangle-fill",
    family=Family.WARN,
    meaning=gettext_noop("The operation failed for some topics. The other topics are not affected."),
    next_step=gettext_noop("Read the reasons below, correct the causes, then retry the failed topics."),
)
CANCELED = Badge(
    code="CANCELED",
    label=gettext_noop("Canceled"),
    icon="dash-circle",
    family=Family.DONE,
    meaning=gettext_noop("The topics that had not begun were canceled. The others are not affected."),
)
OPERATION_BADGES = (RUNNING, FINISHED, WITH_FAILURES, CANCELED)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRow:
    """An operation with its progress. ``done`` counts the topics that are not waiting."""

    key: int
    url: str
    title: str
    badge: Badge
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
    badge: Badge
    state_badge: Badge | None
    code: str
    message: str
    fix: str
    at: Moment | None


def operation_row(operation: BulkOperation, counts: Mapping[str, int], *, now: datetime) -> OperationRow:
    """Create the row of an operation; ``counts`` has the number of topics by status."""
    waiting, accepted, failed, canceled = (counts.get(name, 0) for name in TOPIC_BADGES)
    total = waiting + accepted + failed + canceled
    return OperationRow(
        key=operation.pk,
        url=operation.get_absolute_url(),
        title=_title(operation.operation, total),
        badge=_badge(operation, waiting=waiting, failed=failed),
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
        badge=TOPIC_BADGES[topic.status],
        state_badge=mirror_badge(mirror.state, mirror.stop_reason) if mirror else None,
        code=topic.error_code,
        message=topic.message,
        fix=known.fix if known and known.meaning else "",
        at=moment(topic.done_at, now=now),
    )


def _title(operation: str, total: int) -> str:
    label = gettext_noop("Add") if operation == CREATE else BULK_VERBS[operation].label
    text = ngettext("%(label)s %(count)s mirror topic", "%(label)s %(count)s mirror topics", total)
    return text % {"label": gettext(label), "count": numbers.count(total)}


def _badge(operation: BulkOperation, *, waiting: int, failed: int) -> Badge:
    if waiting:
        return RUNNING
    if operation.canceled_by:
        return CANCELED
    return WITH_FAILURES if failed else FINISHED
