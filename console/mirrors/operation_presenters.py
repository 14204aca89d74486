"""The display of operations on mirror topics: labels, confirmation texts, and the progress of requests on several topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.urls import reverse
from django.utils.translation import gettext, gettext_noop, ngettext

from console.mirrors.operation_queries import ENDS, FAILURES, STATUSES, TopicOutcome, operation_status
from console.models.mirrors import STAYING
from console.web import numbers
from console.web.badges import Badge, Family, mirror_badge, row_url
from console.web.errors import help_for
from console.web.numbers import Moment, exact, moment
from linkengine.domain.states import BIDIRECTIONAL_ONLY, MirrorEvent, MirrorState

if TYPE_CHECKING:
    from console.models import BulkOperation, BulkOperationTopic, MirrorTopic

# --- labels, icons and confirmation texts -----------------------------------------------------------------------------
#
# Permissions are checked elsewhere.


_E = MirrorEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """An operation with the texts of its button and its confirmation, in English; pages show their translations."""

    event: MirrorEvent
    label: str  # of the button
    icon: str
    doing: str  # verb in the heading of the confirmation: "Promote orders?"
    explains: str
    done: str  # message after the request was accepted; %(name)s is the mirror topic
    danger: bool = False  # irreversible in each link mode
    loses_lag: bool = False  # records that are not copied yet are lost


_VERBS = (
    Verb(
        event=_E.PAUSE,
        label=gettext_noop("Pause"),
        icon="pause-circle-fill",
        doing=gettext_noop("Pause"),
        explains=gettext_noop(
            "Copying stops within a second. The topic remains readable and read-only. No data is lost as long as the "
            "source retains its records. You can resume it at any time."
        ),
        done=gettext_noop("%(name)s is paused."),
    ),
    Verb(
        event=_E.RESUME,
        label=gettext_noop("Resume"),
        icon="play-fill",
        doing=gettext_noop("Resume"),
        explains=gettext_noop("Copying resumes where it stopped."),
        done=gettext_noop("%(name)s is resumed."),
    ),
    Verb(
        event=_E.PROMOTE,
        label=gettext_noop("Promote"),
        icon="arrow-repeat",
        doing=gettext_noop("Promote"),
        explains=gettext_noop(
            "The link copies the last records, configs and partitions. When the lag is 0, the topic becomes writable. "
            "Stop the producers on the source first, or the lag may never reach 0. Until then, writes are rejected."
        ),
        done=gettext_noop("%(name)s is being promoted. It becomes writable when its lag is 0."),
    ),
    Verb(
        event=_E.FAILOVER,
        label=gettext_noop("Fail over"),
        icon="exclamation-triangle-fill",
        doing=gettext_noop("Fail over"),
        explains=gettext_noop(
            "Mirroring stops immediately, without contacting the source, and the topic becomes writable. Records that "
            "are not copied yet remain on the source only."
        ),
        done=gettext_noop("%(name)s is failing over. It becomes writable within seconds."),
        danger=True,
        loses_lag=True,
    ),
    Verb(
        event=_E.REVERSE_AND_START,
        label=gettext_noop("Reverse and start"),
        icon="arrow-left-right",
        doing=gettext_noop("Reverse"),
        explains=gettext_noop(
            "Both topics become read-only until they are in sync. Then they swap roles and mirroring starts in reverse."
        ),
        done=gettext_noop("%(name)s is being reversed."),
    ),
    Verb(
        event=_E.REVERSE_AND_PAUSE,
        label=gettext_noop("Reverse and pause"),
        icon="arrow-left-right",
        doing=gettext_noop("Reverse"),
        explains=gettext_noop(
            "Both topics become read-only until they are in sync. Then they swap roles and the new mirror is paused."
        ),
        done=gettext_noop("%(name)s is being reversed."),
    ),
    Verb(
        event=_E.RESTORE,
        label=gettext_noop("Truncate and restore"),
        icon="scissors",
        doing=gettext_noop("Restore"),
        explains=gettext_noop(
            "The topic becomes a mirror again. Its diverged records are exported to a file and deleted from the topic."
        ),
        done=gettext_noop("%(name)s is being restored."),
        danger=True,
    ),
    Verb(
        event=_E.RECOVER,
        label=gettext_noop("Recover"),
        icon="arrow-repeat",
        doing=gettext_noop("Recover"),
        explains=gettext_noop("Mirroring is retried from where it stopped. Fix the cause of the failure first."),
        done=gettext_noop("%(name)s is being recovered."),
    ),
    Verb(
        event=_E.DELETE,
        label=gettext_noop("Delete"),
        icon="trash",
        doing=gettext_noop("Delete"),
        explains=gettext_noop(
            "The topic and all its records are deleted on the destination cluster. The source topic is not changed."
        ),
        done=gettext_noop("%(name)s is being deleted."),
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
    label=gettext_noop("Verify"),
    icon="check-circle-fill",
    doing=gettext_noop("Verify"),
    explains=gettext_noop(
        "Compares all records of each topic with its source in Spark, a few topics at a time. Mirroring continues. The page of "
        "each mirror topic shows the result."
    ),
    frequent=True,
)
BULK_VERBS: Mapping[str, BulkVerb] = MappingProxyType({verb.name: verb for verb in (*map(_bulk, _VERBS), _VERIFY)})


def bulk_verbs(*, bidirectional: bool) -> list[BulkVerb]:
    """Return the operations on several mirror topics of a link, in the order of the buttons."""
    return [verb for verb in BULK_VERBS.values() if bidirectional or verb.event not in BIDIRECTIONAL_ONLY]


def explanation(verb: Verb, *, state: str, since: datetime) -> str:
    """Return what an operation does. A deletion also warns of records written to a topic that was stopped at ``since``."""
    if verb.event is not _E.DELETE or state != MirrorState.STOPPED:
        return gettext(verb.explains)
    warning = gettext(
        "This topic is no longer mirrored. Applications may have written to it since %(time)s; these records exist in no other "
        "topic."
    )
    return f"{warning % {'time': exact(since)}} {gettext(verb.explains)}"


def needs_typed_name(event: MirrorEvent, *, bidirectional: bool) -> bool:
    """Return True if the user must type the topic name: for irreversible operations, and promotions on one-way links."""
    return VERBS[event].danger or (event is _E.PROMOTE and not bidirectional)


def reversibility(event: MirrorEvent, *, bidirectional: bool) -> str:
    """Return whether an operation is reversible, which depends on the link mode; "" if nothing needs to be said."""
    if event is _E.DELETE:
        return gettext("This cannot be undone.")
    if event not in {_E.PROMOTE, _E.FAILOVER}:
        return ""
    if bidirectional:
        return gettext("The link is bidirectional: a source topic can become a mirror of the stopped topic afterwards.")
    return gettext("This cannot be undone: a stopped topic cannot become a mirror again on this link.")


# --- requests on several mirror topics --------------------------------------------------------------------------------


CREATE = "create"
REQUESTED = Badge(
    code="REQUESTED",
    label=gettext_noop("Requested"),
    icon="hourglass-split",
    family=Family.BUSY,
    meaning=gettext_noop("Accepted, and not at its end yet. The state of each mirror topic shows its progress."),
)
CHANGED = Badge(
    code="CHANGED",
    label=gettext_noop("Changed since"),
    icon="dash-circle",
    family=Family.DONE,
    meaning=gettext_noop(
        "Another operation has changed the mirror topic since, or it was deleted. Its state is not this operation's result."
    ),
)
LINK_DELETED = Badge(
    code="LINK_DELETED",
    label=gettext_noop("Link deleted since"),
    icon="dash-circle",
    family=Family.DONE,
    meaning=gettext_noop(
        "The operation was accepted. The cluster link and its mirror topics were deleted since: what followed is not known."
    ),
)
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
        "REQUESTED": REQUESTED,
        "ENDED": Badge(
            code="ENDED",
            label=gettext_noop("Done"),
            icon="check-circle-fill",
            family=Family.OK,
            meaning=gettext_noop("The operation has ended, and nothing has changed the mirror topic since."),
        ),
        "MIRROR_FAILED": Badge(
            code="MIRROR_FAILED",
            label=gettext_noop("Mirror topic failed"),
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning=gettext_noop("The operation was accepted, but the mirror topic has failed or could not be deleted."),
        ),
        "CHANGED": CHANGED,
        "LINK_DELETED": LINK_DELETED,
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
    meaning=gettext_noop(
        "The operation was refused for some topics, or their mirror topics have failed. The other topics are not affected."
    ),
    next_step=gettext_noop("Read the reasons below, correct the causes, then retry the failed topics."),
)
CANCELED = Badge(
    code="CANCELED",
    label=gettext_noop("Canceled"),
    icon="dash-circle",
    family=Family.DONE,
    meaning=gettext_noop("The topics that had not begun were canceled. The others are not affected."),
)
OPERATION_BADGES = (RUNNING, REQUESTED, FINISHED, WITH_FAILURES, CHANGED, LINK_DELETED, CANCELED)
_ENDED: Mapping[str, str] = MappingProxyType(
    {
        CREATE: gettext_noop("%(ended)s of %(total)s created"),
        MirrorEvent.PROMOTE: gettext_noop("%(ended)s of %(total)s stopped and writable"),
        MirrorEvent.FAILOVER: gettext_noop("%(ended)s of %(total)s stopped and writable"),
        MirrorEvent.REVERSE_AND_START: gettext_noop("%(ended)s of %(total)s reversed"),
        MirrorEvent.REVERSE_AND_PAUSE: gettext_noop("%(ended)s of %(total)s reversed"),
        MirrorEvent.RESTORE: gettext_noop("%(ended)s of %(total)s restored"),
        MirrorEvent.DELETE: gettext_noop("%(ended)s of %(total)s deleted"),
    }
)
if (
    _ENDED.keys() != ENDS.keys()
    or TOPIC_BADGES.keys() != set(TopicOutcome)
    or {b.code for b in OPERATION_BADGES} != STATUSES.keys()
):
    raise AssertionError("every operation with an end needs its words, every outcome and status its badge")
_BY_STATUS: Mapping[str, Badge] = MappingProxyType({badge.code: badge for badge in OPERATION_BADGES})
_FOLLOWING = (TopicOutcome.REQUESTED, TopicOutcome.ENDED, TopicOutcome.MIRROR_FAILED, TopicOutcome.CHANGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRow:
    """An operation with its progress. ``done`` counts the topics that are not waiting; ``ended`` is what followed, in words."""

    key: int
    url: str
    title: str
    badge: Badge
    link_name: str
    link_url: str  # "" if the link was deleted
    bulk_url: str  # of the form that performs an operation on several topics of the link; "" likewise
    by: str
    at: Moment | None
    finished: Moment | None
    canceled_by: str
    waiting: int
    failed: int
    canceled: int
    done: int
    total: int
    running: bool
    ended: str  # "" if the operation is complete when it is accepted, and if the rows of the mirrors are gone with the link
    outcomes: Sequence[tuple[str, str]]  # of its topics: (outcome, its label with the number of topics), failures first


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """The result of an operation for a topic, with the current state of the mirror topic."""

    key: int
    name: str
    url: str  # "" if there is no such mirror topic, or it is not visible
    badge: Badge
    state: Badge | None  # now
    code: str
    message: str
    fix: str
    done_at: datetime | None
    at: Moment | None


def operation_row(operation: BulkOperation, counts: Mapping[str, int], *, now: datetime) -> OperationRow:
    """Create the row of an operation; ``counts`` has the number of topics by outcome."""
    waiting, total, link = counts.get(TopicOutcome.WAITING, 0), sum(counts.values()), operation.link
    badge = _BY_STATUS[operation_status(operation, [name for name, number in counts.items() if number])]
    return OperationRow(
        key=operation.pk,
        url=operation.get_absolute_url(),
        title=_title(operation.operation, total),
        badge=badge,
        link_name=operation.link_name,
        link_url=link.get_absolute_url() if link else "",
        bulk_url=reverse("pages:link-bulk", args=link.url_args) if link else "",
        by=operation.requested_by,
        at=moment(operation.requested_at, now=now),
        finished=moment(operation.finished_at, now=now),
        canceled_by=operation.canceled_by,
        waiting=waiting,
        failed=counts.get(TopicOutcome.FAILED, 0),
        canceled=counts.get(TopicOutcome.CANCELED, 0),
        done=total - waiting,
        total=total,
        running=badge in (RUNNING, REQUESTED),
        ended=_ended_words(operation.operation, counts) if link else "",
        outcomes=[
            (name, f"{gettext(TOPIC_BADGES[name].label)} ({numbers.count(counts[name])})")
            for name in sorted(TOPIC_BADGES, key=lambda name: name not in FAILURES)
            if counts.get(name)
        ],
    )


def _ended_words(operation: str, counts: Mapping[str, int]) -> str:
    """Return how many of the accepted topics have reached the end of the operation, are FAILED, or were changed since."""
    total = sum(counts.get(name, 0) for name in _FOLLOWING)
    if operation not in _ENDED or not total:
        return ""
    ended = {"ended": numbers.count(counts.get(TopicOutcome.ENDED, 0)), "total": numbers.count(total)}
    words = [gettext(_ENDED[operation]) % ended]
    failed, changed = counts.get(TopicOutcome.MIRROR_FAILED, 0), counts.get(TopicOutcome.CHANGED, 0)
    if failed:
        words.append(gettext("%(count)s failed") % {"count": numbers.count(failed)})
    if changed:
        words.append(gettext("%(count)s changed since") % {"count": numbers.count(changed)})
    return " · ".join(words)


def topic_row(topic: BulkOperationTopic, mirror: MirrorTopic | None, *, now: datetime) -> TopicRow:
    """Create the row of a topic, which has its ``outcome`` (``with_outcome``), and of the mirror of its name."""
    outcome: str = topic.outcome  # type: ignore[attr-defined]
    code, message = topic.error_code, topic.message
    if mirror is not None and not code and outcome in (TopicOutcome.REQUESTED, TopicOutcome.MIRROR_FAILED):
        code, message = _reason(mirror)
    known = help_for(code) if code else None
    return TopicRow(
        key=topic.pk,
        name=topic.name,
        url=row_url("pages:mirror", *mirror.url_args) if mirror else "",
        badge=TOPIC_BADGES[outcome],
        state=mirror_badge(mirror.state, mirror.stop_reason) if mirror else None,
        code=code,
        message=message,
        fix=known.fix if known and known.meaning else "",
        done_at=topic.done_at,
        at=moment(topic.done_at, now=now),
    )


def _reason(mirror: MirrorTopic) -> tuple[str, str]:
    """Return code and message of the newest error that delays the mirror's transition, or of the mirror's own error."""
    delaying = [error for error in mirror.transition_errors.all() if error.code not in STAYING]
    newest = max(delaying, key=lambda error: error.last_seen_at, default=None)
    return (newest.code, newest.message) if newest else (mirror.error_code, mirror.error_message)


def _title(operation: str, total: int) -> str:
    label = gettext_noop("Add") if operation == CREATE else BULK_VERBS[operation].label
    text = ngettext("%(label)s %(count)s mirror topic", "%(label)s %(count)s mirror topics", total)
    return text % {"label": gettext(label), "count": numbers.count(total)}
