"""A cluster link as lists, tiles and the flow picture show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from console.presenters import numbers
from console.presenters.looks import Family, Look
from console.presenters.mirrors import is_copying, newest_observation
from console.presenters.notes import ErrorNote, error_note
from console.presenters.numbers import Moment, moment
from console.presenters.states import MIRROR_LOOKS, link_look, needs_attention, severity
from linkengine.domain.states import MirrorState

if TYPE_CHECKING:
    from console.models import ClusterLink
    from console.queries.links import LinkSummary
    from console.queries.mirrors import MirrorSummary

SILENCE = timedelta(seconds=15)  # copy tasks report twice a second; a slice change takes a few seconds at worst
NAMED_STATES = 3
MODES = {"DESTINATION": "One-way", "SOURCE": "One-way, source side", "BIDIRECTIONAL": "Bidirectional"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """One line of a links list."""

    key: int
    name: str
    url: str
    source: str
    destination: str
    mode: str
    look: Look
    mirrors: int
    notable: Sequence[tuple[Look, int]]  # the states worth naming: the worst, up to NAMED_STATES
    attention: int
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


def source_name(link: ClusterLink) -> str:
    """Name the source: as registered, else by its id."""
    return link.source.name if link.source else link.source_cluster_id or "other cluster"


def source_servers(link: ClusterLink) -> str:
    """Answer the bootstrap servers of the source: the link's own, else the registered cluster's."""
    own: str = link.properties.get("bootstrap.servers", "")
    return own or (link.source.bootstrap_servers if link.source else link.source_cluster_id)


def state_counts(counts: Mapping[MirrorState, int]) -> list[tuple[Look, int]]:
    """Answer (look, number) of the states that occur, worst first."""
    found = [(MIRROR_LOOKS[state], number) for state, number in counts.items() if number]
    return sorted(found, key=lambda pair: (severity(pair[0]), pair[0].label))


def link_row(summary: LinkSummary, *, now: datetime) -> LinkRow:
    """Present one link of a list."""
    link = summary.link
    counts = state_counts(summary.mirrors_by_state)
    return LinkRow(
        key=link.pk,
        name=link.name,
        url=link_url(link),
        source=source_name(link),
        destination=link.destination.name,
        mode=MODES.get(link.mode, link.mode),
        look=link_look(link.state),
        mirrors=sum(number for _, number in counts),
        notable=counts[:NAMED_STATES],
        attention=sum(number for look, number in counts if needs_attention(look)),
        max_lag=numbers.count(summary.max_lag),
        oldest_lag=numbers.lag_time(summary.oldest_lag_ms),
        rate=numbers.byte_rate(summary.bytes_per_s),
        created=moment(link.created_at, now=now),
        note=error_note(link.error_code, link.error_message, now=now, since=link.state_since),
    )


def worst_first(rows: Sequence[LinkRow]) -> list[LinkRow]:
    """Sort links: broken ones, then those with mirrors that need attention, then by name."""
    return sorted(rows, key=lambda row: (severity(row.look), -row.attention, row.name))


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _max(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def attention_of(mirrors: Sequence[MirrorSummary]) -> list[MirrorSummary]:
    """Answer the mirrors a person should look at."""
    return [one for one in mirrors if needs_attention(MIRROR_LOOKS[MirrorState(one.mirror.state)]) or one.errors]


def tiles(mirrors: Sequence[MirrorSummary]) -> list[Tile]:
    """Answer the five figures of a link's overview. A figure nobody has measured yet is a dash."""
    troubled = len(attention_of(mirrors))
    unknown = sum(1 for one in mirrors if is_copying(one.mirror) and one.max_lag is None)
    records = _sum([one.records_per_s for one in mirrors])
    return [
        Tile(label="Mirror topics", value=numbers.count(len(mirrors)), hint=_partitions(mirrors)),
        Tile(
            label="Max lag",
            value=numbers.count(_max([one.max_lag for one in mirrors])),
            hint=f"messages · unknown for {unknown}" if unknown else "messages, worst partition",
        ),
        Tile(label="Oldest lag", value=numbers.lag_time(_max([one.lag_ms for one in mirrors])), hint="since caught up"),
        Tile(
            label="Throughput",
            value=numbers.byte_rate(_sum([one.bytes_per_s for one in mirrors])),
            hint=numbers.record_rate(records) if records is not None else "not measured yet",
        ),
        Tile(
            label="Needs attention",
            value=numbers.count(troubled),
            hint="mirror topics" if troubled else "all is well",
            alarm=troubled > 0,
        ),
    ]


def _partitions(mirrors: Sequence[MirrorSummary]) -> str:
    return numbers.plural(sum(one.mirror.num_partitions for one in mirrors), "partition")


def flow(link: ClusterLink, mirrors: Sequence[MirrorSummary]) -> Flow:
    """Present what moves from source to destination right now."""
    rate = _sum([one.bytes_per_s for one in mirrors])
    records = _sum([one.records_per_s for one in mirrors])
    topics = numbers.plural(len(mirrors), "mirror topic")
    look, source = link_look(link.state), source_name(link)
    rate_words = f"{numbers.byte_rate(rate)}" if rate is not None else "a rate that is not known yet"
    return Flow(
        source=source,
        source_detail=source_servers(link),
        destination=link.destination.name,
        destination_detail=link.destination.bootstrap_servers,
        topics=topics,
        byte_rate=numbers.byte_rate(rate),
        record_rate=numbers.record_rate(records),
        moves=look.family is Family.OK and bool(rate),
        look=look,
        sentence=f"{topics} from {source} to {link.destination.name} at {rate_words}. The link is {look.label.lower()}.",
    )


def silence(mirrors: Sequence[MirrorSummary], *, now: datetime) -> Moment | None:
    """Answer when the copy tasks were last heard, if that is too long ago; None while all is well or nothing is to be heard."""
    expected = [one for one in mirrors if is_copying(one.mirror)]
    heard = newest_observation(row for one in expected for row in one.partitions)
    last = heard or max((one.mirror.state_since for one in expected), default=None)
    return moment(last, now=now) if last and now - last > SILENCE else None
