"""The common parts of the pages of a mirror topic: heading, tabs, actions and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop, ngettext

from console.actors import Actor
from console.errors import ConsoleError
from console.links import pairs
from console.links.health_queries import health_of_mirror
from console.links.pages import crumbs, link_head
from console.links.presenters import Tile, source_name
from console.links.queries import version_of
from console.mirrors import operation_queries
from console.mirrors.operation_presenters import VERBS, Verb
from console.mirrors.presenters import start_label
from console.mirrors.rules import allowed_now
from console.models import MirrorTopic
from console.models.links import LinkMode
from console.web import numbers
from console.web.badges import Badge, mirror_badge
from console.web.health_presenters import mirror_health_view
from console.web.numbers import Moment, moment
from console.web.polling import seen_token
from console.web.request_handling import Tab, actor_of, problem_of, reply, status_of
from linkengine.domain.states import BIDIRECTIONAL_ONLY, MirrorEvent, MirrorState

if TYPE_CHECKING:
    from console.links.queries import SourceTopicChoice
    from console.mirrors.queries import MirrorSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorHead:
    """The heading and the details of a mirror topic."""

    name: str
    cluster_id: str  # of the cluster that it is on
    link_name: str
    url: str
    badge: Badge
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
    start: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An operation: a button, or the reason why it is not possible."""

    verb: Verb
    allowed: bool
    reason: str
    primary: bool


def mirror_head(mirror: MirrorTopic, *, now: datetime) -> MirrorHead:
    """Create the heading of a mirror."""
    return MirrorHead(
        name=mirror.name,
        cluster_id=mirror.link.destination.cluster_id,
        link_name=mirror.link.name,
        url=mirror.get_absolute_url(),
        badge=mirror_badge(mirror.state, mirror.stop_reason),
        source_topic=mirror.source_topic,
        source=source_name(mirror.link),
        read_only=mirror.read_only,
        writable=mirror.state == MirrorState.STOPPED,
        deleting=mirror.deletion_requested_at is not None,
        auto_created=mirror.auto_created,
        since=moment(mirror.state_since, now=now),
        previous_state=mirror_badge(mirror.prior_state, mirror.stop_reason).label if mirror.prior_state else "",
        failed_attempts=mirror.retry_count,
        created=moment(mirror.created_at, now=now),
        created_by=mirror.created_by,
        start=start_label(mirror.start_spec),
    )


# (group, its tabs); a tab is (key, label, URL name). The address of a group is that of its first tab.
_GROUPS = (
    (gettext_noop("Overview"), (("overview", gettext_noop("Overview"), "pages:mirror"),)),
    (
        gettext_noop("Data"),
        (
            ("verification", gettext_noop("Verification"), "pages:mirror-verification"),
            ("filled-offsets", gettext_noop("Filled offsets"), "pages:mirror-filled-offsets"),
            ("lineage", gettext_noop("Lineage"), "pages:mirror-lineage"),
        ),
    ),
    (
        gettext_noop("Failover"),
        (
            ("gate", gettext_noop("Migration gate"), "pages:mirror-migration-gate"),
            ("reports", gettext_noop("Failover reports"), "pages:mirror-reports"),
            ("restores", gettext_noop("Restores"), "pages:mirror-restores"),
        ),
    ),
    (gettext_noop("Configs"), (("configs", gettext_noop("Configs"), "pages:mirror-configs"),)),
    (gettext_noop("History"), (("history", gettext_noop("History"), "pages:mirror-history"),)),
)


def mirror_context(mirror: MirrorTopic, *, by: Actor, now: datetime, tab: str = "") -> dict[str, object]:
    """Return the template context of all pages of a mirror: heading with health and actions, tabs and breadcrumbs.

    The parts of the mirror have to be read (``mirrors.queries.load_parts``). One query for a stopped mirror.
    """
    choices = action_choices(mirror, by=by)
    status, task_error = health_of_mirror(mirror, now=now)
    groups, tabs = _tabs(mirror, current=tab)
    return {
        "link": link_head(mirror.link, now=now),
        "environment_name": mirror.link.destination.environment.name,
        "crumbs": crumbs(mirror.link, last=mirror.name),
        "mirror": mirror_head(mirror, now=now),
        "tabs": groups,
        "subtabs": tabs,
        "choices": choices,
        "unavailable": [choice for choice in choices if not choice.allowed],
        "health": mirror_health_view(status, mirror.link, task_error=task_error),
        "seen": seen_token(version_of(mirror.link), now=now, steady=status.steady),
    }


def show_refusal(request: HttpRequest, mirror: MirrorTopic, error: ConsoleError) -> HttpResponse:
    """Show why an action on a mirror was not possible; raise the error again if it was denied."""
    if error.kind == "denied":
        raise error
    context = mirror_context(mirror, by=actor_of(request), now=timezone.now()) | {"problem": problem_of(error)}
    return reply(request, "mirrors/refused.html", context, status=status_of(error))


def _tabs(mirror: MirrorTopic, *, current: str) -> tuple[list[Tab], list[Tab]]:
    """Return the groups of tabs, and the tabs of the current group if it has several."""
    groups, shown = [], []
    for label, keys in _GROUPS:
        tabs = [
            Tab(label=gettext(name), url=reverse(page, args=mirror.url_args), current=key == current)
            for key, name, page in keys
        ]
        is_current = any(tab.current for tab in tabs)
        groups.append(Tab(label=gettext(label), url=tabs[0].url, current=is_current))
        if is_current and len(tabs) > 1:
            shown = tabs
    return groups, shown


def restore_url(mirror: MirrorTopic) -> str:
    """Return the URL that makes the former source of a stopped mirror its mirror; "" if that is not possible. One query."""
    if mirror.state != MirrorState.STOPPED or mirror.link.mode != LinkMode.BIDIRECTIONAL:
        return ""
    other = pairs.side_with_common_part(mirror)
    if other is None:
        return ""
    return reverse("pages:mirror-operation", args=(*other.url_args, mirror.source_topic, MirrorEvent.RESTORE))


def action_choices(mirror: MirrorTopic, *, by: Actor) -> list[Choice]:
    """Return the operations on a mirror; those of bidirectional links only for such links."""
    bidirectional = mirror.link.mode == LinkMode.BIDIRECTIONAL
    operations, shown = operation_queries.allowed(mirror, by), allowed_now(mirror)
    return [
        Choice(
            verb=VERBS[operation.event],
            allowed=operation.allowed,
            reason=operation.reason.removesuffix(f" {shown}"),  # the buttons show what is allowed on this kind of link
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
            label=gettext("Max lag"),
            value=numbers.count(summary.max_lag),
            hint=ngettext("messages · %(count)s partition behind", "messages · %(count)s partitions behind", behind)
            % {"count": numbers.count(behind)}
            if behind
            else gettext("messages, max of all partitions"),
        ),
        Tile(
            label=gettext("Total lag"),
            value=numbers.count(total),
            hint=_lag_hint(summary.lag_bytes),
        ),
        Tile(
            label=gettext("Time lag"),
            value=numbers.lag_time(summary.lag_ms),
            hint=gettext("unknown") if summary.lag_ms is None else gettext("data loss window if you fail over now"),
        ),
        Tile(
            label=gettext("Throughput"),
            value=numbers.byte_rate(summary.bytes_per_s),
            hint=gettext("not measured") if summary.records_per_s is None else numbers.record_rate(summary.records_per_s),
        ),
    ]


def _lag_hint(lag_bytes: int | None) -> str:
    if lag_bytes is None:
        return gettext("messages, bytes unknown")
    text = gettext("messages, about %(size)s") if lag_bytes else gettext("messages, %(size)s")
    return text % {"size": numbers.size(lag_bytes)}


def choice_rows(choices: Sequence[SourceTopicChoice], *, chosen: Sequence[str] = ()) -> list[dict[str, object]]:
    """Return the options of the source topic list. The note has partitions and retention, or why a topic is not available.

    Chosen topics that are not among the choices come last, so that a search does not remove them from the selection.
    """
    known, picked = {choice.name for choice in choices}, set(chosen)
    missing = [
        {"name": name, "available": True, "selected": True, "note": gettext("chosen")} for name in chosen if name not in known
    ]
    return [
        {
            "name": choice.name,
            "selected": choice.available and choice.name in picked,
            "available": choice.available,
            "note": _topic_note(choice) if choice.available else choice.reason,
        }
        for choice in choices
    ] + missing


def _topic_note(choice: SourceTopicChoice) -> str:
    text = ngettext(
        "%(count)s partition, %(retention)s retention", "%(count)s partitions, %(retention)s retention", choice.partitions
    )
    return text % {"count": numbers.count(choice.partitions), "retention": numbers.retention(choice.retention_ms)}


def choices_summary(choices: Sequence[SourceTopicChoice]) -> str:
    """Return how many topics can be mirrored and how many cannot."""
    available = sum(1 for choice in choices if choice.available)
    rest = len(choices) - available
    text = ngettext("%(count)s topic can be mirrored.", "%(count)s topics can be mirrored.", available)
    text %= {"count": numbers.count(available)}
    unavailable = gettext("%(count)s cannot; see the list for the reasons.") % {"count": rest}
    return f"{text} {unavailable}" if rest else text


def copied_words(summary: MirrorSummary) -> str:
    total = sum(row.bytes_copied for row in summary.partitions)
    records = sum(row.records_copied for row in summary.partitions)
    return gettext("%(count)s records, %(size)s") % {"count": numbers.count(records), "size": numbers.size(total)}
