"""The common parts of the pages of a mirror topic: heading, actions, figures, verification and details."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from django.urls import reverse

from console.access import Permission, can, cluster_names
from console.actors import Actor
from console.links import pairs
from console.links import task_queries as group_queries
from console.links.group_presenters import clamped_row
from console.links.health_queries import health_of_mirror
from console.links.pages import link_head
from console.links.presenters import Tile, source_name
from console.mirrors import operation_queries
from console.mirrors import queries as mirror_queries
from console.mirrors.lineage import lineage_of
from console.mirrors.operation_presenters import VERBS, Verb
from console.mirrors.presenters import gap_groups, held_back, origin_rows, partition_row, start_label, steps
from console.mirrors.queries import followed_configs, list_reverts
from console.mirrors.reparenting import possible_links
from console.models import MirrorTopic, VerifyWatch
from console.verification import queries as verification_queries
from console.verification.failover_presenters import report_row
from console.verification.presenters import coverage_view, gate_view, run_view
from console.verification.rules import newest_run
from console.web import numbers
from console.web.badges import Badge, mirror_look
from console.web.configs import synced_config_rows
from console.web.errors import error_note, transition_notes
from console.web.health import mirror_health_view
from console.web.numbers import Moment, moment
from linkengine.domain.states import BIDIRECTIONAL_ONLY, GapReason, MirrorEvent, MirrorState

if TYPE_CHECKING:
    from console.links.queries import SourceTopicChoice
    from console.mirrors.queries import MirrorSummary

STEPS_SHOWN = 30
REPORTS_SHOWN = 5
CLAMPED_SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorHead:
    """The heading and the details of a mirror topic."""

    name: str
    cluster_id: str  # of the cluster that it is on
    link_name: str
    url: str
    look: Badge
    source_topic: str
    source: str
    read_only: bool
    writable: bool
    deleting: bool
    auto_created: bool
    since: Moment | None
    previous_state: str  # label of the previous state, "" if there is none
    failed_attempts: int  # consecutive failed attempts
    created: Moment | None
    created_by: str
    copied: str
    start: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An operation: a button, or the reason why it is not possible."""

    verb: Verb
    allowed: bool
    reason: str
    primary: bool


def mirror_head(mirror: MirrorTopic, *, now: datetime, copied: str = numbers.UNKNOWN) -> MirrorHead:
    """Create the heading of a mirror."""
    return MirrorHead(
        name=mirror.name,
        cluster_id=mirror.link.destination.cluster_id,
        link_name=mirror.link.name,
        url=mirror.get_absolute_url(),
        look=mirror_look(mirror.state, mirror.stop_reason),
        source_topic=mirror.source_topic,
        source=source_name(mirror.link),
        read_only=mirror.read_only,
        writable=mirror.state == MirrorState.STOPPED,
        deleting=mirror.deletion_requested_at is not None,
        auto_created=mirror.auto_created,
        since=moment(mirror.state_since, now=now),
        previous_state=mirror_look(mirror.prior_state, mirror.stop_reason).label if mirror.prior_state else "",
        failed_attempts=mirror.retry_count,
        created=moment(mirror.created_at, now=now),
        created_by=mirror.created_by,
        copied=copied,
        start=start_label(mirror.start_spec),
    )


def mirror_context(mirror: MirrorTopic, *, by: Actor, now: datetime) -> dict[str, object]:
    """Return the template context of the page of a mirror."""
    summary = mirror_queries.summarize(mirror, now=now)
    choices = action_choices(mirror, by=by)
    reads_records = can(by, Permission.READ_RECORDS, mirror=mirror)
    gaps = list(mirror.gaps.all())
    configs = synced_config_rows(followed_configs(mirror))
    return {
        "link": link_head(mirror.link, now=now),
        "environment_name": mirror.link.destination.environment.name,
        "mirror": mirror_head(mirror, now=now, copied=_copied(summary)),
        "choices": choices,
        "unavailable": [choice for choice in choices if not choice.allowed],
        "note": error_note(mirror.error_code, mirror.error_message, now=now, since=mirror.error_since),
        "transition_notes": transition_notes(mirror.transition_errors.all(), now=now),
        **_health(mirror, now=now),
        "held_back": held_back(mirror, summary.partitions, now=now),
        "tiles": mirror_tiles(summary),
        "partitions": [partition_row(row, now=now) for row in summary.partitions],
        "gaps": gap_groups(gaps),
        "has_dated_fillers": any(gap.reason != GapReason.HEAD for gap in gaps),  # fillers of the head are deleted again
        "lineage": origin_rows(lineage_of(mirror, by=by), names=cluster_names(by), now=now),
        "differing_configs": [row for row in configs if row.differs],
        "equal_configs": [row for row in configs if not row.differs],
        "reverts": [{"row": revert, "at": moment(revert.at, now=now)} for revert in list_reverts(mirror)],
        **_newest(mirror, now=now),
        **_clamped(mirror),
        "gate": gate_view(newest_run(mirror), now=now),
        "gate_on": mirror.link.config("migration.gate.enable") == "true",
        "restore_url": _restore_url(mirror),
        "parents": possible_links(mirror, by),
        "run": run_view(mirror.verify_runs.first(), now=now, reads_records=reads_records),
        "coverage": coverage_view(
            verification_queries.coverage(mirror=mirror),
            VerifyWatch.objects.filter(mirror=mirror).first(),
            enabled=verification_queries.is_continuous(link=mirror.link),
            watched=mirror.state in verification_queries.WATCHED,
            now=now,
            reads_records=reads_records,
            missing=verification_queries.missing_as_reported(mirror=mirror),
        ),
        "reads_records": reads_records,
        "may_verify": can(by, Permission.VERIFY, mirror=mirror),
        "may_operate": can(by, Permission.OPERATE_MIRROR, mirror=mirror),
        "may_edit": can(by, Permission.MANAGE_LINK, link=mirror.link),
        "edit_url": reverse("pages:link-edit", args=mirror.link.url_args),
    }


def _health(mirror: MirrorTopic, *, now: datetime) -> dict[str, object]:
    """Return the health of a mirror with its known cause, and the notes on errors of recurring tasks that name it."""
    verdict, errors = health_of_mirror(mirror, now=now)
    link = mirror.link
    return {
        "health": mirror_health_view(verdict, link, task_error=errors[0][1] if errors else ""),
        "tasks_url": reverse("pages:link-tasks", args=link.url_args) if errors else "",
        "task_notes": [error_note(code, message, now=now) for code, message in errors],
    }


def _newest(mirror: MirrorTopic, *, now: datetime) -> dict[str, object]:
    """Return the newest state transitions and failover reports, and whether there are older ones."""
    transitions = list(mirror.transitions.all()[: STEPS_SHOWN + 1])
    reports = verification_queries.list_reports(mirror=mirror, limit=REPORTS_SHOWN + 1)
    return {
        "steps": steps(transitions[:STEPS_SHOWN], now=now),
        "earlier_steps": len(transitions) > STEPS_SHOWN,
        "reports": [report_row(report, now=now) for report in reports[:REPORTS_SHOWN]],
        "earlier_stops": len(reports) > REPORTS_SHOWN,
    }


def _clamped(mirror: MirrorTopic) -> dict[str, object]:
    rows = group_queries.list_clamped(mirror=mirror, limit=CLAMPED_SHOWN)
    more = group_queries.count_clamped(mirror=mirror) - CLAMPED_SHOWN if len(rows) == CLAMPED_SHOWN else 0
    return {"clamped": [clamped_row(row) for row in rows], "more_clamped": more}


def _restore_url(mirror: MirrorTopic) -> str:
    """Return the URL that makes the former source of a stopped mirror its mirror; "" if that is not possible."""
    if mirror.state != MirrorState.STOPPED or mirror.link.mode != "BIDIRECTIONAL":
        return ""
    other = pairs.other_side(mirror.link)
    if other is None or not pairs.have_common_part(mirror, pairs.counterpart(mirror, other=other)):
        return ""
    return reverse("pages:mirror-operation", args=(*other.url_args, mirror.source_topic, MirrorEvent.RESTORE))


def action_choices(mirror: MirrorTopic, *, by: Actor) -> list[Choice]:
    """Return the operations on a mirror; those of bidirectional links only for such links."""
    bidirectional = mirror.link.mode == "BIDIRECTIONAL"
    operations = operation_queries.allowed(mirror, by)
    return [
        Choice(
            verb=VERBS[operation.event],
            allowed=operation.allowed,
            reason=operation.reason.split(" Allowed now:")[0],  # the buttons show what is allowed on this kind of link
            primary=operation.event in {MirrorEvent.RESUME, MirrorEvent.RECOVER},
        )
        for operation in operations
        if bidirectional or operation.event not in BIDIRECTIONAL_ONLY
    ]


def mirror_tiles(summary: MirrorSummary) -> list[Tile]:
    """Return the tiles of a mirror."""
    lags = [row.lag for row in summary.partitions]
    behind = sum(1 for lag in lags if lag)
    total = sum(lag for lag in lags if lag is not None) if lags and None not in lags else None
    return [
        Tile(
            label="Max lag",
            value=numbers.count(summary.max_lag),
            hint=f"messages · {numbers.plural(behind, 'partition')} behind" if behind else "messages, max of all partitions",
        ),
        Tile(
            label="Total lag",
            value=numbers.count(total),
            hint=f"messages, {_bytes_words(summary.lag_bytes)}",
        ),
        Tile(
            label="Time lag",
            value=numbers.lag_time(summary.lag_ms),
            hint="unknown" if summary.lag_ms is None else "data loss window if you fail over now",
        ),
        Tile(
            label="Throughput",
            value=numbers.byte_rate(summary.bytes_per_s),
            hint="not measured" if summary.records_per_s is None else numbers.record_rate(summary.records_per_s),
        ),
    ]


def _bytes_words(lag_bytes: int | None) -> str:
    if lag_bytes is None:
        return "bytes unknown"
    return f"about {numbers.size(lag_bytes)}" if lag_bytes else "0 B"


def choice_rows(choices: Sequence[SourceTopicChoice], *, chosen: Sequence[str] = ()) -> list[dict[str, object]]:
    """Return the options of the source topic list. The note has partitions and retention, or why a topic is not available.

    Chosen topics that are not among the choices come last, so that a search does not remove them from the selection.
    """
    known, picked = {choice.name for choice in choices}, set(chosen)
    missing = [{"name": name, "available": True, "selected": True, "note": "chosen"} for name in chosen if name not in known]
    return [
        {
            "name": choice.name,
            "selected": choice.available and choice.name in picked,
            "available": choice.available,
            "note": f"{numbers.plural(choice.partitions, 'partition')}, {numbers.retention(choice.retention_ms)} retention"
            if choice.available
            else choice.reason,
        }
        for choice in choices
    ] + missing


def choices_summary(choices: Sequence[SourceTopicChoice]) -> str:
    """Return how many topics can be mirrored and how many cannot."""
    available = sum(1 for choice in choices if choice.available)
    rest = len(choices) - available
    text = f"{numbers.plural(available, 'topic')} can be mirrored."
    return f"{text} {rest} cannot; see the list for the reasons." if rest else text


def _copied(summary: MirrorSummary) -> str:
    total = sum(row.bytes_copied for row in summary.partitions)
    records = sum(row.records_copied for row in summary.partitions)
    return f"{numbers.count(records)} records, {numbers.size(total)}"
