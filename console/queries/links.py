"""Queries for cluster links: a single link, lists with totals, effective configs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from console.access import Permission, can, check_permission, visible_links, visible_mirrors
from console.actors import Actor
from console.errors import NotFoundError
from console.mirrors import progress
from console.mirrors.progress import CurrentMirror
from console.models import ClusterLink, Environment, LinkTask
from console.models.fields import readable
from console.queries.figures import Figures, figures_of
from console.queries.health import NOT_JUDGED, LinkHealth, links_health, objective_ms
from console.queries.linktasks import failing_rows
from linkengine.domain.linkconfigs import LINK_CONFIGS, RPO_OBJECTIVE, LinkConfigSpec, is_connection
from linkengine.domain.states import MirrorState

_RELATED = ("destination__environment__organization", "source__environment")
_UNDONE = Exists(LinkTask.objects.filter(link=OuterRef("pk"), error_count__gt=0))  # the last run of a task had errors
_Counts = dict[int, Counter[MirrorState]]
_HEALTH = {"FAILED": 0, "UNAVAILABLE": 1, "PAUSED": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSummary:
    """A link with totals of its visible mirrors; lag and rates without the stopped mirrors. Unknown is None, never 0."""

    link: ClusterLink
    mirrors_by_state: Mapping[MirrorState, int] = field(default_factory=dict)  # states that occur
    mirrors: int = 0
    max_lag: int | None = None  # of the partitions whose lag is known
    unknown_lags: int = 0  # partitions whose lag is unknown, and mirrors without partitions yet
    oldest_lag_ms: int | None = None
    lag_bytes: int | None = None  # estimated, all partitions
    bytes_per_s: float | None = None
    records_per_s: float | None = None
    errors: int = 0  # mirrors with an error
    failing_tasks: int = 0  # recurring tasks whose last run had errors; 0 if the actor may not see the whole link
    health: LinkHealth = NOT_JUDGED


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveConfig:
    """A config with its effective value; the value of a sensitive config is never returned."""

    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    description: str
    default: str | None = None


def get_link(*, cluster_id: str, name: str, by: Actor) -> ClusterLink:
    """Return a link of a destination cluster together with both clusters; raise NotFoundError if it is not visible."""
    links = visible_links(by).select_related(*_RELATED).annotate(undone=_UNDONE)
    link = links.filter(destination__cluster_id=cluster_id, name=name).first()
    if link is None:
        raise NotFoundError(f"Cluster link '{name}' does not exist on cluster {cluster_id}.", code="UNKNOWN_LINK")
    return link


def get_whole_link(*, cluster_id: str, name: str, by: Actor) -> ClusterLink:
    """Return a link for figures of all its mirrors; raise DeniedError if the actor may see only some of them."""
    link = get_link(cluster_id=cluster_id, name=name, by=by)
    check_permission(by, Permission.VIEW, link=link)
    return link


def rpo_objective_ms(link: ClusterLink) -> int | None:
    """Return the RPO objective of a link; None if it has none. One query."""
    return objective_ms(link.config(RPO_OBJECTIVE))


def list_links(
    *,
    by: Actor,
    cluster_id: str | None = None,
    environment: Environment | None = None,
    search: str = "",
    state: str = "",
) -> list[LinkSummary]:
    """Return links, first those that are not healthy, then by name; three queries, five if a task fails."""
    links = matching_links(by=by, search=search).annotate(undone=_UNDONE)
    if cluster_id:
        links = links.filter(destination__cluster_id=cluster_id)
    if environment is not None:
        links = links.filter(destination__environment=environment)
    if state:
        links = links.filter(state=state)
    rows = sorted(links, key=lambda link: (_HEALTH.get(link.state, 9), link.name))
    return summarize(rows, by=by)


def matching_links(*, by: Actor, search: str = "") -> QuerySet[ClusterLink]:
    """Return the visible links whose name, or that of a visible cluster at one end, contains a text."""
    links = visible_links(by).select_related(*_RELATED)
    if not search:
        return links
    is_source = Q(source__name__icontains=search, sees_source=True)
    return links.filter(Q(name__icontains=search) | is_source | Q(destination__name__icontains=search))


def summarize(links: Iterable[ClusterLink], *, by: Actor) -> list[LinkSummary]:
    """Return loaded links with totals and health of the mirrors that the actor may see; two to four queries."""
    chosen = list(links)
    # ``get_link`` and ``list_links`` annotate whether a task fails.
    unchecked = [link for link in chosen if getattr(link, "undone", True)]
    shown = {link.pk for link in chosen if can(by, Permission.VIEW, link=link)}
    failing = failing_rows(links=unchecked)
    mirrors, now = visible_mirrors(by).filter(link__in=chosen), timezone.now()
    current = progress.current(mirrors.unstopped(), now=now)
    health = links_health(chosen, mirrors, now=now, failing=failing, shown=shown, current=current)
    states, unseen = _mirror_counts(health)
    totals = _partition_totals(current, unseen, now=now)
    return [
        LinkSummary(
            link=link,
            mirrors_by_state=states[link.pk],
            mirrors=sum(states[link.pk].values()),
            errors=sum(mirror.has_error for mirror in health[link.pk].mirrors.values()),
            failing_tasks=len(failing.get(link.pk, ())) if link.pk in shown else 0,
            health=health[link.pk],
            max_lag=totals[link.pk].max_lag,
            unknown_lags=totals[link.pk].hidden,
            oldest_lag_ms=totals[link.pk].oldest_ms(now),
            lag_bytes=totals[link.pk].lag_bytes,
            bytes_per_s=totals[link.pk].bytes_per_s,
            records_per_s=totals[link.pk].records_per_s,
        )
        for link in chosen
    ]


def effective_configs(*, link: ClusterLink) -> list[EffectiveConfig]:
    """Return every config of a link in the order of ``LINK_CONFIGS``; a config that was not set has its default. One query."""
    stored: dict[str, str] = {**readable(link.properties), **{config.name: config.value for config in link.configs.all()}}
    return [_effective(spec, stored, link) for spec in LINK_CONFIGS.values()]


def _effective(spec: LinkConfigSpec, stored: Mapping[str, str], link: ClusterLink) -> EffectiveConfig:
    value = None if spec.sensitive else stored.get(spec.name, spec.default)
    is_default = spec.name not in stored
    if is_default and is_connection(spec.name) and link.uses_cluster_credentials and not spec.sensitive:
        # The link connects with the registered cluster's properties, so the config's default would be wrong.
        value = readable(link.known_source.properties).get(spec.name, value) if link.known_source else None
    return EffectiveConfig(
        name=spec.name,
        value=value,
        is_default=is_default,
        is_read_only=spec.read_only,
        is_sensitive=spec.sensitive,
        description=spec.description,
        default=None if spec.sensitive else spec.default,
    )


def _mirror_counts(health: Mapping[int, LinkHealth]) -> tuple[_Counts, Counter[int]]:
    """Return, by link: its mirrors by state, and the number without partitions yet."""
    states: _Counts = defaultdict(Counter)
    unseen: Counter[int] = Counter()
    for link_id, link in health.items():
        for mirror in link.mirrors.values():
            states[link_id][mirror.state] += 1
            unseen[link_id] += mirror.is_unseen
    return states, unseen


def _partition_totals(current: Iterable[CurrentMirror], unseen: Counter[int], *, now: datetime) -> dict[int, Figures]:
    totals: dict[int, Figures] = defaultdict(Figures)
    for mirror in current:
        figures_of(mirror.partitions, now=now, into=totals[mirror.link_id])
    for link_id, count in unseen.items():
        totals[link_id].add_unseen(count)
    return totals
