"""A cluster link as lists, tiles and the flow picture show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from console.presenters import numbers
from console.presenters.looks import Family, Look
from console.presenters.notes import ErrorNote, error_note
from console.presenters.numbers import Moment, moment
from console.presenters.states import MIRROR_LOOKS, link_look, needs_attention, severity
from linkengine.domain.plans import GapFiller
from linkengine.domain.states import MirrorState

if TYPE_CHECKING:
    from console.models import ClusterLink
    from console.queries.links import LinkSummary
    from console.queries.mirrorpages import LinkFigures

SILENCE = timedelta(seconds=15)  # copy workers report twice a second; a rebalance takes a few seconds at worst
NAMED_STATES = 3
MODES = {"DESTINATION": "One-way", "SOURCE": "Source's half", "BIDIRECTIONAL": "Bidirectional"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """One line of a links list."""

    key: int
    environment: int  # key of the one that the link's own cluster is in
    name: str
    url: str
    source: str
    destination: str
    mode: str
    look: Look
    mirrors: int
    notable: Sequence[tuple[Look, int]]  # the states worth naming: the worst, up to NAMED_STATES
    troubled: int  # mirrors with an error whose state sounds well
    attention: int
    doubts: Sequence[str]  # what the state does not tell, in words
    unclear: bool  # it does not work, is not heard from or its tasks fail: nobody can say that all is well
    max_lag: str
    oldest_lag: str
    rate: str
    created: Moment | None
    note: ErrorNote | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One figure with its name."""

    label: str
    value: str
    hint: str = ""
    alarm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The picture of a link: two ends and what moves between them. ``sentence`` says the same in words."""

    source: str
    source_detail: str
    destination: str
    destination_detail: str
    topics: str
    byte_rate: str
    record_rate: str
    moves: bool
    look: Look
    sentence: str


def link_url(link: ClusterLink) -> str:
    """Answer the link's page; names of links and ids of clusters need no quoting."""
    return f"/links/{link.destination.cluster_id}/{link.name}/"


GAP_FILLERS = {
    GapFiller.MARKERS: "Transaction markers, many offsets at once (WriteTxnMarkers).",
    GapFiller.TRANSACTIONS: "Empty transactions, one offset each, since the destination refuses markers from the link's "
    "user. Long runs of compacted records take their time, and mirror topics are not protected against other writers.",
}


def mode_words(link: ClusterLink) -> str:
    """Say what kind of link this is; of the plain kind, "One-way"."""
    if link.mode == "DESTINATION" and link.connection_mode == "INBOUND":
        return "Source-initiated"
    return MODES.get(link.mode, link.mode)


def source_name(link: ClusterLink) -> str:
    """Name the cluster that the row calls the source: as registered, if the reader may see that cluster, else by its id."""
    return link.known_source.name if link.known_source else link.source_cluster_id or "other cluster"


def ends_of(link: ClusterLink) -> tuple[tuple[str, str], tuple[str, str]]:
    """Answer (name, servers) of where topics come from and of where they go: a half of mode SOURCE belongs to the source."""
    far = (source_name(link), source_servers(link))
    near = (link.destination.name, link.destination.bootstrap_servers)
    return (near, far) if link.mode == "SOURCE" else (far, near)


def source_servers(link: ClusterLink) -> str:
    """Return the bootstrap servers of the source: the link's own, else those of a registered cluster that may be seen."""
    own: str = link.properties.get("bootstrap.servers", "")
    return own or (link.known_source.bootstrap_servers if link.known_source else link.source_cluster_id)


def state_counts(counts: Mapping[MirrorState, int]) -> list[tuple[Look, int]]:
    """Answer (look, number) of the states that occur, worst first."""
    found = [(MIRROR_LOOKS[state], number) for state, number in counts.items() if number]
    return sorted(found, key=lambda pair: (severity(pair[0]), pair[0].label))


def link_row(summary: LinkSummary, *, now: datetime) -> LinkRow:
    """Present one link of a list."""
    link = summary.link
    (source, _), (destination, _) = ends_of(link)
    counts = state_counts(summary.mirrors_by_state)
    return LinkRow(
        key=link.pk,
        environment=link.destination.environment_id,
        name=link.name,
        url=link_url(link),
        source=source,
        destination=destination,
        mode=mode_words(link),
        look=link_look(link.state),
        mirrors=sum(number for _, number in counts),
        notable=counts[:NAMED_STATES],
        troubled=_troubled(summary),
        attention=_attention(summary),
        doubts=_doubts(summary),
        unclear=_is_unclear(summary),
        max_lag=numbers.worst_lag(summary.max_lag, unknown=summary.unknown_lags),
        oldest_lag=numbers.lag_time(summary.oldest_lag_ms),
        rate=numbers.byte_rate(summary.bytes_per_s),
        created=moment(link.created_at, now=now),
        note=error_note(link.error_code, link.error_message, now=now, since=link.state_since),
    )


def _doubts(summary: LinkSummary) -> list[str]:
    """Say what makes a link other than its state sounds: the state is of the connection only."""
    doubts = {
        "being deleted": summary.link.deletion_requested_at is not None,
        "nothing is copied: no copy job runs": bool(summary.link.engine_error),
        f"{numbers.plural(summary.failing_tasks, 'task')} left something undone": summary.failing_tasks > 0,
    }
    return [words for words, holds in doubts.items() if holds]


def _is_unclear(summary: LinkSummary) -> bool:
    link = summary.link
    works = link_look(link.state).family is Family.OK and not link.engine_error
    return not works or summary.unknown_lags > 0 or summary.failing_tasks > 0


def worst_first(rows: Sequence[LinkRow]) -> list[LinkRow]:
    """Sort links: broken ones, then those with mirrors that need attention, then those nobody can call well, then by name."""
    return sorted(rows, key=lambda row: (severity(row.look), -row.attention, not row.unclear, row.name))


def _attention(summary: LinkSummary) -> int:
    """Count the same mirrors as ``attention_of``."""
    by_state = summary.mirrors_by_state.items()
    return _troubled(summary) + sum(number for state, number in by_state if needs_attention(MIRROR_LOOKS[state]))


def _troubled(summary: LinkSummary) -> int:
    errors = summary.errors_by_state.items()
    return sum(number for state, number in errors if not needs_attention(MIRROR_LOOKS[state]))


def attention_of(figures: LinkFigures) -> int:
    """Count the mirrors a person should look at: in trouble by their state, or with an error."""
    return sum(one.mirrors if needs_attention(MIRROR_LOOKS[state]) else one.troubled for state, one in figures.states.items())


def tiles(figures: LinkFigures, *, look: Look, troubled: bool) -> list[Tile]:
    """Answer the five figures of a link's overview. A figure nobody has measured yet is a dash.

    ``look`` is of the link's own state; ``troubled``: its tasks fail, or nothing can be copied.
    """
    attention, mirrors = attention_of(figures), _mirrors(figures)
    partitions = sum(one.partitions for one in figures.states.values())
    measured = figures.records_per_s is not None
    return [
        Tile(label="Mirror topics", value=numbers.count(mirrors), hint=numbers.plural(partitions, "partition")),
        Tile(
            label="Max lag",
            value=numbers.worst_lag(figures.max_lag, unknown=figures.unknown_lags),
            hint=f"{numbers.plural(figures.unknown_lags, 'partition')} unknown"
            if figures.unknown_lags
            else "messages, worst partition",
        ),
        Tile(
            label="RPO now",
            value=numbers.lag_time(figures.oldest_lag_ms),
            hint="not known" if figures.oldest_lag_ms is None else "a failover would go back this far",
        ),
        Tile(
            label="Throughput",
            value=numbers.byte_rate(figures.bytes_per_s),
            hint=numbers.record_rate(figures.records_per_s) if measured else "not measured yet",
        ),
        Tile(
            label="Needs attention",
            value=numbers.count(attention),
            hint="all is well" if _is_well(figures, look) and not troubled else "mirror topics",
            alarm=attention > 0,
        ),
    ]


def _is_well(figures: LinkFigures, look: Look) -> bool:
    """Tell whether nothing needs attention, as far as everything is known."""
    known = _mirrors(figures) > 0 and not figures.unknown_lags
    return known and not attention_of(figures) and look.family is Family.OK


def _mirrors(figures: LinkFigures) -> int:
    return sum(one.mirrors for one in figures.states.values())


def flow(link: ClusterLink, figures: LinkFigures | None) -> Flow:
    """Present what moves from source to destination right now; without figures, the two ends."""
    rate, records = (figures.bytes_per_s, figures.records_per_s) if figures else (None, None)
    topics = numbers.plural(_mirrors(figures), "mirror topic") if figures else "Mirror topics"
    look, ((source, source_detail), (destination, destination_detail)) = link_look(link.state), ends_of(link)
    rate_words = f"{numbers.byte_rate(rate)}" if rate is not None else "a rate that is not known yet"
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
        sentence=f"{topics} from {source} to {destination} at {rate_words}. The link is {look.label.lower()}.",
    )


def silence(figures: LinkFigures, *, now: datetime) -> Moment | None:
    """Answer when the copy tasks were last heard, if that is too long ago; None while all is well or nothing is to be heard."""
    if figures.expected_since is None:
        return None
    last = max(figures.heard_at or figures.expected_since, figures.expected_since)
    return moment(last, now=now) if now - last > SILENCE else None
