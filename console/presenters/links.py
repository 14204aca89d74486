"""View models of a cluster link: the row in a list, the tiles and the flow picture of its overview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from console.models.fields import readable
from console.presenters import numbers
from console.presenters.badges import Badge, Family
from console.presenters.notes import ErrorNote, error_note
from console.presenters.numbers import Moment, moment
from console.presenters.states import MIRROR_LOOKS, link_look, needs_attention, severity
from linkengine.domain.plans import GapFiller
from linkengine.domain.states import MirrorState

if TYPE_CHECKING:
    from console.models import ClusterLink
    from console.queries.links import LinkSummary
    from console.queries.mirrorpages import LinkFigures

REPORT_OVERDUE = timedelta(seconds=15)  # copy workers report twice a second; a rebalance takes a few seconds at worst
NAMED_STATES = 3
MODES = {"DESTINATION": "One-way", "SOURCE": "Source side", "BIDIRECTIONAL": "Bidirectional"}


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
    look: Badge
    mirrors: int
    notable: Sequence[tuple[Badge, int]]  # mirror states with counts: the worst NAMED_STATES
    troubled: int  # mirrors with an error whose state needs no attention
    attention: int
    problems: Sequence[str]  # problems that the state does not show
    unhealthy: bool  # not active, lag unknown or tasks failing, so not known to be healthy
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
    look: Badge
    sentence: str


def link_url(link: ClusterLink) -> str:
    """Return the URL of a link's page. Link names and cluster IDs need no quoting."""
    return f"/links/{link.destination.cluster_id}/{link.name}/"


GAP_FILLERS = {
    GapFiller.MARKERS: "Transaction markers, many offsets per request (WriteTxnMarkers).",
    GapFiller.TRANSACTIONS: "Empty transactions, one offset each, because the destination rejects markers from the link's "
    "principal. Long ranges of compacted records take longer, and mirror topics are not protected from other producers.",
}


def mode_label(link: ClusterLink) -> str:
    """Return the mode of a link: "One-way", "Source-initiated", "Source side" or "Bidirectional"."""
    if link.mode == "DESTINATION" and link.connection_mode == "INBOUND":
        return "Source-initiated"
    return MODES.get(link.mode, link.mode)


def source_name(link: ClusterLink) -> str:
    """Return the name of the source cluster if the user may see that cluster, else its cluster ID."""
    return link.known_source.name if link.known_source else link.source_cluster_id or "other cluster"


def endpoints_of(link: ClusterLink) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return (name, servers) of source and destination. A link of mode SOURCE belongs to the source cluster."""
    remote = (source_name(link), source_servers(link))
    local = (link.destination.name, link.destination.bootstrap_servers)
    return (local, remote) if link.mode == "SOURCE" else (remote, local)


def source_servers(link: ClusterLink) -> str:
    """Return the bootstrap servers of the source: those of the link, else of the registered cluster, if the user may see it."""
    own = readable(link.properties).get("bootstrap.servers", "")
    return own or (link.known_source.bootstrap_servers if link.known_source else link.source_cluster_id)


def state_counts(counts: Mapping[MirrorState, int]) -> list[tuple[Badge, int]]:
    """Return (display, count) of the mirror states that occur, worst first."""
    pairs = [(MIRROR_LOOKS[state], number) for state, number in counts.items() if number]
    return sorted(pairs, key=lambda pair: (severity(pair[0]), pair[0].label))


def link_row(summary: LinkSummary, *, now: datetime) -> LinkRow:
    """Create the row of a link."""
    link = summary.link
    (source, _), (destination, _) = endpoints_of(link)
    counts = state_counts(summary.mirrors_by_state)
    return LinkRow(
        key=link.pk,
        environment=link.destination.environment_id,
        name=link.name,
        url=link_url(link),
        source=source,
        destination=destination,
        mode=mode_label(link),
        look=link_look(link.state),
        mirrors=sum(number for _, number in counts),
        notable=counts[:NAMED_STATES],
        troubled=_troubled(summary),
        attention=_attention(summary),
        problems=_problems(summary),
        unhealthy=_is_unhealthy(summary),
        max_lag=numbers.worst_lag(summary.max_lag, unknown=summary.unknown_lags),
        oldest_lag=numbers.lag_time(summary.oldest_lag_ms),
        rate=numbers.byte_rate(summary.bytes_per_s),
        created=moment(link.created_at, now=now),
        note=error_note(link.error_code, link.error_message, now=now, since=link.state_since),
    )


def _problems(summary: LinkSummary) -> list[str]:
    """Return problems that the state does not show: the state describes the connection only."""
    problems = {
        "being deleted": summary.link.deletion_requested_at is not None,
        "not copying: no copy job can run": bool(summary.link.engine_error),
        f"{numbers.plural(summary.failing_tasks, 'task')} failing": summary.failing_tasks > 0,
    }
    return [text for text, applies in problems.items() if applies]


def _is_unhealthy(summary: LinkSummary) -> bool:
    link = summary.link
    active = link_look(link.state).family is Family.OK and not link.engine_error
    return not active or summary.unknown_lags > 0 or summary.failing_tasks > 0


def worst_first(rows: Sequence[LinkRow]) -> list[LinkRow]:
    """Sort links by severity of the state, mirrors that need attention, ``unhealthy`` and name."""
    return sorted(rows, key=lambda row: (severity(row.look), -row.attention, not row.unhealthy, row.name))


def _attention(summary: LinkSummary) -> int:
    """Count the mirrors that need attention, as ``attention_of`` does."""
    by_state = summary.mirrors_by_state.items()
    return _troubled(summary) + sum(number for state, number in by_state if needs_attention(MIRROR_LOOKS[state]))


def _troubled(summary: LinkSummary) -> int:
    errors = summary.errors_by_state.items()
    return sum(number for state, number in errors if not needs_attention(MIRROR_LOOKS[state]))


def attention_of(figures: LinkFigures) -> int:
    """Count the mirrors that need attention: by their state, or because they have an error."""
    return sum(
        count.mirrors if needs_attention(MIRROR_LOOKS[state]) else count.troubled for state, count in figures.states.items()
    )


def tiles(figures: LinkFigures, *, look: Badge, troubled: bool) -> list[Tile]:
    """Return the five tiles of a link's overview. An unknown figure is a dash.

    ``look`` is the display of the link's state; ``troubled``: its tasks fail, or no copy job can run.
    """
    attention, mirrors = attention_of(figures), _mirrors(figures)
    partitions = sum(count.partitions for count in figures.states.values())
    measured = figures.records_per_s is not None
    return [
        Tile(label="Mirror topics", value=numbers.count(mirrors), hint=numbers.plural(partitions, "partition")),
        Tile(
            label="Max lag",
            value=numbers.worst_lag(figures.max_lag, unknown=figures.unknown_lags),
            hint=f"{numbers.plural(figures.unknown_lags, 'partition')} unknown"
            if figures.unknown_lags
            else "messages, max of all partitions",
        ),
        Tile(
            label="RPO now",
            value=numbers.lag_time(figures.oldest_lag_ms),
            hint="unknown" if figures.oldest_lag_ms is None else "data loss window if you fail over now",
        ),
        Tile(
            label="Throughput",
            value=numbers.byte_rate(figures.bytes_per_s),
            hint=numbers.record_rate(figures.records_per_s) if measured else "not measured yet",
        ),
        Tile(
            label="Needs attention",
            value=numbers.count(attention),
            hint="all healthy" if _is_healthy(figures, look) and not troubled else "mirror topics",
            alarm=attention > 0,
        ),
    ]


def _is_healthy(figures: LinkFigures, look: Badge) -> bool:
    """Return True if nothing needs attention and all lags are known."""
    known = _mirrors(figures) > 0 and not figures.unknown_lags
    return known and not attention_of(figures) and look.family is Family.OK


def _mirrors(figures: LinkFigures) -> int:
    return sum(count.mirrors for count in figures.states.values())


def flow(link: ClusterLink, figures: LinkFigures | None) -> Flow:
    """Create the flow picture with the current rates; without figures, of the two clusters only."""
    rate, records = (figures.bytes_per_s, figures.records_per_s) if figures else (None, None)
    topics = numbers.plural(_mirrors(figures), "mirror topic") if figures else "Mirror topics"
    look, ((source, source_detail), (destination, destination_detail)) = link_look(link.state), endpoints_of(link)
    rate_text = f"{numbers.byte_rate(rate)}" if rate is not None else "an unknown rate"
    return Flow(
        source=source,
        source_detail=source_detail,
        destination=destination,
        destination_detail=destination_detail,
        topics=topics,
        byte_rate=numbers.byte_rate(rate),
        record_rate=numbers.record_rate(records),
        moves=look.family is Family.OK and bool(rate),
        look=look,
        sentence=f"{topics} from {source} to {destination} at {rate_text}. The link is {look.label.lower()}.",
    )


def overdue_report(figures: LinkFigures, *, now: datetime) -> Moment | None:
    """Return the time of the last report of the copy workers if it is overdue; None if it is not, or if none is expected."""
    if figures.expected_since is None:
        return None
    last = max(figures.heard_at or figures.expected_since, figures.expected_since)
    return moment(last, now=now) if now - last > REPORT_OVERDUE else None
