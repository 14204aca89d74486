"""View models of a cluster link: list row, tiles, flow picture, paired link, failover readiness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.urls import reverse
from django.utils.translation import gettext, gettext_noop, ngettext

from console.languages import translated
from console.links.form_presenters import BOTH, SEND, Direction, opposite
from console.models.fields import readable
from console.web import numbers
from console.web.badges import Badge, Family, link_badge
from console.web.errors import ErrorNote, error_note
from console.web.health_presenters import HEALTH_BADGES, HealthView, link_health_view, severity
from console.web.numbers import Moment, moment
from linkengine.domain.failover import Readiness, ReadyFact, ReadyState
from linkengine.domain.health import Health
from linkengine.domain.plans import GapFiller

if TYPE_CHECKING:
    from console.links.health_queries import LinkHealth
    from console.links.queries import LinkSummary
    from console.mirrors.queries import LinkFigures
    from console.models import ClusterLink


# --- list row, tiles and flow picture ---------------------------------------------------------------------------------


MODES = {
    "DESTINATION": gettext_noop("One-way"),
    "SOURCE": gettext_noop("Source side"),
    "BIDIRECTIONAL": gettext_noop("Bidirectional"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """A row of a list of links."""

    key: int
    environment: int  # primary key; the environment of the cluster that the link belongs to
    name: str
    url: str
    source: str
    destination: str
    mode: str
    is_one_way: bool
    badge: Badge  # of the API state
    mirrors: int
    health: HealthView
    notable: Sequence[tuple[Badge, int]]  # health of the mirrors with counts, worst first
    attention: int  # mirrors that need attention
    deleting: bool
    max_lag: str
    oldest_lag: str
    rate: str
    created: Moment | None
    note: ErrorNote | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A figure with its label."""

    label: str
    value: str
    hint: str = ""
    alarm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The flow picture of a link: two clusters and the rates between them. ``sentence`` is the text alternative."""

    source: str
    source_detail: str
    destination: str
    destination_detail: str
    topics: str
    byte_rate: str
    record_rate: str
    moves: bool
    badge: Badge
    sentence: str


GAP_FILLERS = {
    GapFiller.MARKERS: gettext_noop("Transaction markers, many offsets per request (WriteTxnMarkers)."),
    GapFiller.TRANSACTIONS: gettext_noop(
        "Empty transactions, one offset each, because the destination rejects markers from the link's "
        "principal. Long ranges of compacted records take longer, and mirror topics are not protected from other producers."
    ),
}


def mode_label(link: ClusterLink) -> str:
    """Return the mode of a link: "One-way", "Source-initiated", "Source side" or "Bidirectional"."""
    if link.mode == "DESTINATION" and link.connection_mode == "INBOUND":
        return gettext("Source-initiated")
    return gettext(MODES.get(link.mode, link.mode))


def is_one_way(link: ClusterLink) -> bool:
    """Return whether a link has the usual mode, which pages do not name."""
    return link.mode == "DESTINATION" and link.connection_mode != "INBOUND"


def source_name(link: ClusterLink) -> str:
    """Return the name of the source cluster if the user may see that cluster, else its cluster ID."""
    return link.known_source.name if link.known_source else link.source_cluster_id or gettext("other cluster")


def endpoints_of(link: ClusterLink) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return (name, servers) of source and destination. A link of mode SOURCE belongs to the source cluster."""
    remote = (source_name(link), source_servers(link))
    local = (link.destination.name, link.destination.bootstrap_servers)
    return (local, remote) if link.mode == "SOURCE" else (remote, local)


def source_servers(link: ClusterLink) -> str:
    """Return the bootstrap servers of the source: those of the link, else of the registered cluster, if the user may see it."""
    own = readable(link.properties).get("bootstrap.servers", "")
    return own or (link.known_source.bootstrap_servers if link.known_source else link.source_cluster_id)


def health_counts(health: LinkHealth) -> list[tuple[Badge, int]]:
    """Return (display, count) of the health of mirrors, worst first; only values that occur."""
    return [(HEALTH_BADGES[value], health.counts[value]) for value in Health if health.counts[value]]


def link_row(summary: LinkSummary, *, now: datetime) -> LinkRow:
    """Create the row of a link."""
    link = summary.link
    (source, _), (destination, _) = endpoints_of(link)
    return LinkRow(
        key=link.pk,
        environment=link.destination.environment_id,
        name=link.name,
        url=link.get_absolute_url(),
        source=source,
        destination=destination,
        mode=mode_label(link),
        is_one_way=is_one_way(link),
        badge=link_badge(link.state),
        mirrors=summary.mirrors,
        health=link_health_view(summary.health, link),
        notable=health_counts(summary.health),
        attention=summary.health.attention,
        deleting=link.deletion_requested_at is not None,
        max_lag=numbers.worst_lag(summary.max_lag, unknown=summary.unknown_lags),
        oldest_lag=numbers.lag_time(summary.oldest_lag_ms),
        rate=numbers.byte_rate(summary.bytes_per_s),
        created=moment(link.created_at, now=now),
        note=error_note(link.error_code, link.error_message, now=now, since=link.state_since),
    )


def worst_first(rows: Sequence[LinkRow]) -> list[LinkRow]:
    """Sort links by health, number of mirrors that need attention, and name."""
    return sorted(rows, key=lambda row: (severity(row.health), -row.attention, row.name))


def tiles(figures: LinkFigures, health: LinkHealth) -> list[Tile]:
    """Return the five tiles of a link's overview. An unknown figure is a dash."""
    attention, mirrors = health.attention, figures.mirrors
    measured = figures.records_per_s is not None
    return [
        Tile(
            label=gettext("Mirror topics"),
            value=numbers.count(mirrors),
            hint=ngettext("%(count)s partition", "%(count)s partitions", figures.partitions)
            % {"count": numbers.count(figures.partitions)},
        ),
        Tile(
            label=gettext("Max lag"),
            value=numbers.worst_lag(figures.max_lag, unknown=figures.unknown_lags),
            hint=ngettext("%(count)s partition unknown", "%(count)s partitions unknown", figures.unknown_lags)
            % {"count": numbers.count(figures.unknown_lags)}
            if figures.unknown_lags
            else gettext("messages, max of all partitions"),
        ),
        Tile(
            label=gettext("RPO now"),
            value=numbers.lag_time(figures.oldest_lag_ms),
            hint=gettext("unknown") if figures.oldest_lag_ms is None else gettext("data loss window if you fail over now"),
        ),
        Tile(
            label=gettext("Throughput"),
            value=numbers.byte_rate(figures.bytes_per_s),
            hint=numbers.record_rate(figures.records_per_s) if measured else gettext("not measured yet"),
        ),
        Tile(
            label=gettext("Needs attention"),
            value=numbers.count(attention),
            hint=gettext("all healthy")
            if health.status.health is Health.HEALTHY
            else ngettext("of %(count)s mirror topic", "of %(count)s mirror topics", mirrors)
            % {"count": numbers.count(mirrors)},
            alarm=attention > 0,
        ),
    ]


def flow(link: ClusterLink, figures: LinkFigures | None, health: HealthView) -> Flow:
    """Create the flow picture with the current rates; without figures, of the two clusters only. It is green if healthy."""
    rate, records = (figures.bytes_per_s, figures.records_per_s) if figures else (None, None)
    topics = mirror_topics(figures.mirrors) if figures else gettext("Mirror topics")
    (source, source_detail), (destination, destination_detail) = endpoints_of(link)
    sentence = gettext("%(topics)s from %(source)s to %(destination)s at %(rate)s. Health: %(health)s.") % {
        "topics": topics,
        "source": source,
        "destination": destination,
        "rate": gettext("an unknown rate") if rate is None else numbers.byte_rate(rate),
        "health": gettext(health.badge.label).lower(),
    }
    return Flow(
        source=source,
        source_detail=source_detail,
        destination=destination,
        destination_detail=destination_detail,
        topics=topics,
        byte_rate=numbers.byte_rate(rate),
        record_rate=numbers.record_rate(records),
        moves=bool(rate) and health.badge.family in {Family.OK, Family.WARN, Family.BUSY},
        badge=health.badge,
        sentence=sentence,
    )


def mirror_topics(number: int) -> str:
    """Return a number of mirror topics in words."""
    return ngettext("%(count)s mirror topic", "%(count)s mirror topics", number) % {"count": numbers.count(number)}


# --- the paired link --------------------------------------------------------------------------------------------------
#
# Its page, or the values to create it with.


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSide:
    """The paired link. ``url`` is its page if it exists, ``create_url`` the form that creates it if it does not."""

    title: str
    sentence: str
    name: str
    cluster: str
    url: str = ""
    state: Badge | None = None
    values: Sequence[tuple[str, str]] = ()  # values for creating the paired link
    create_url: str = ""


def other_side(link: ClusterLink, other: ClusterLink | None, *, may_see: bool, may_create: bool) -> OtherSide:
    """Create the view of the paired link ``other``, or of the missing one. ``may_create``: on the other cluster."""
    cluster = link.known_source.name if link.known_source else gettext("cluster %(id)s") % {"id": link.source_cluster_id}
    direction = opposite(link.mode)
    if other is not None:
        return OtherSide(
            title=gettext("Paired link"),
            sentence=gettext(_PURPOSE[direction.key]),
            name=other.name,
            cluster=cluster,
            url=other.get_absolute_url() if may_see else "",
            state=link_badge(other.state),
        )
    advice = (
        gettext("Create it on %(cluster)s with these values:")
        if may_create
        else gettext("Create it on %(cluster)s with these values, or ask an administrator of that cluster:")
    )
    return OtherSide(
        title=gettext("Next step: create the paired link"),
        sentence=f"{gettext(_MISSING[direction.key])} {advice % {'cluster': cluster}}",
        name=link.name,
        cluster=cluster,
        values=_values(link, direction),
        create_url=_create_url(link, direction) if may_create else "",
    )


_PURPOSE = {
    SEND.key: gettext_noop("The source side of this connection. Mirror topics are added here, on the destination side."),
    BOTH.key: gettext_noop(
        "It has the mirror topics of that cluster. Topics can be reversed and restored between the two links."
    ),
    "accept": gettext_noop("The destination side of this connection. Mirror topics are added and managed there."),
}
_MISSING = {
    SEND.key: gettext_noop("The source side of this link does not exist yet. Nothing is copied without it."),
    BOTH.key: gettext_noop(
        "Topics can already be mirrored to this cluster. To reverse or restore them, create the paired link."
    ),
    "accept": gettext_noop("The destination side of this link does not exist yet. Mirror topics are added there."),
}


def _values(link: ClusterLink, direction: Direction) -> list[tuple[str, str]]:
    there = [(gettext("link name"), link.name), (direction.remote_field, link.destination.cluster_id)]
    return [*there, ("link.mode", direction.mode), ("connection.mode", _connection_mode(link, direction))]


def _connection_mode(link: ClusterLink, direction: Direction) -> str:
    """Return the connection mode of the paired link. At least one of two bidirectional links must open connections."""
    return "OUTBOUND" if direction is BOTH or link.connection_mode == "INBOUND" else direction.connection_mode


def _create_url(link: ClusterLink, direction: Direction) -> str:
    known = {"direction": direction.key, "destination": link.source_cluster_id, "source": link.destination.cluster_id}
    return reverse("pages:new-link", query=known | {"name": link.name})


# --- failover readiness -----------------------------------------------------------------------------------------------


READY_BADGES: Mapping[ReadyState, Badge] = MappingProxyType(
    {
        ReadyState.READY: Badge(
            code="READY",
            label=gettext_noop("Ready"),
            icon="check-circle-fill",
            family=Family.OK,
            meaning=gettext_noop("All facts allow a failover."),
        ),
        ReadyState.UNKNOWN: Badge(
            code="UNKNOWN",
            label=gettext_noop("Unknown"),
            icon="question-circle",
            family=Family.WARN,
            meaning=gettext_noop("A fact is unknown or too old."),
        ),
        ReadyState.NOT_READY: Badge(
            code="NOT_READY",
            label=gettext_noop("Not ready"),
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning=gettext_noop("A failover now would have a problem."),
        ),
    }
)
_ADVICE: Mapping[ReadyFact, str] = MappingProxyType(
    {
        ReadyFact.HEALTH: gettext_noop("See the reason for the health on the link's overview."),
        ReadyFact.DRILL: gettext_noop("Run a failover drill of all mirror topics."),
        ReadyFact.VERIFICATION: gettext_noop("Verify all mirror topics, and examine records that differ."),
        ReadyFact.RIGHTS: gettext_noop(
            "Grant the permissions that the errors of the link, its tasks and its mirror topics name."
        ),
        ReadyFact.GROUPS: gettext_noop("See the errors of consumer offset sync on the Tasks and Groups tabs."),
        ReadyFact.RETENTION: gettext_noop("Reduce the lag, and set retention.ms on the source topics to a longer time."),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessView:
    """The readiness of a link; ``gaps`` are the next steps for facts that are not ready."""

    badge: Badge
    sentence: str
    gaps: Sequence[str]


def readiness_view(found: Readiness) -> ReadinessView:
    """Return the view of a readiness."""
    gaps = [gettext(_ADVICE[fact.fact]) for fact in found.facts if fact.state is not ReadyState.READY]
    return ReadinessView(badge=READY_BADGES[found.state], sentence=translated(found.sentence), gaps=gaps)
