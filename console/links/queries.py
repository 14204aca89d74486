"""Cluster links with totals, versions and effective configs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from django.db.models import (
    Exists,
    FilteredRelation,
    OuterRef,
    Q,
    QuerySet,
)
from django.utils import timezone

from console.access import (
    Permission,
    check_permission,
    known_links,
    visible_links,
    whole_links,
)
from console.actors import Actor
from console.errors import NotFoundError
from console.links.health_queries import NOT_JUDGED, LinkHealth, objective_ms, observe_links
from console.links.task_queries import HAS_UNSTOPPED_MIRRORS, failing_rows
from console.mirrors import progress
from console.models import ClusterLink, Environment, LinkTask
from console.models.fields import readable
from linkengine.domain.linkconfigs import LINK_CONFIGS, RPO_OBJECTIVE, LinkConfigSpec, is_connection
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.states import MirrorState

# --- links, totals and effective configs ------------------------------------------------------------------------------


_RELATED = ("destination__environment__organization", "source__environment")
_UNDONE = Exists(LinkTask.objects.filter(link=OuterRef("pk"), error_count__gt=0))  # the last run of a task had errors
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
    """Return a link of a destination cluster together with both clusters; raise NotFoundError if it is not visible. One query.

    ``failing_tasks`` are the recurring tasks whose last run had errors: there is a row of the link for each. They are sorted
    here, because Django compiles a query of so many columns a sixth faster without an order.
    """
    failing = FilteredRelation("tasks", condition=Q(tasks__error_count__gt=0))
    links = visible_links(by).annotate(failing=failing, unstopped=HAS_UNSTOPPED_MIRRORS)
    links = links.select_related(*_RELATED, "failing")  # type: ignore[misc]  # a FilteredRelation
    rows: list[Any] = list(links.filter(destination__cluster_id=cluster_id, name=name).order_by())
    if not rows:
        raise NotFoundError(
            gettext_lazy("Cluster link '%(name)s' does not exist on cluster %(cluster_id)s.", name=name, cluster_id=cluster_id),
            code="UNKNOWN_LINK",
        )
    failed = [row.failing for row in rows if hasattr(row, "failing")]
    rows[0].failing_tasks = sorted(failed, key=attrgetter("name"))
    link: ClusterLink = rows[0]
    return link


def get_whole_link(*, cluster_id: str, name: str, by: Actor) -> ClusterLink:
    """Return a link for figures of all its mirrors; raise DeniedError if the actor may see only some of them."""
    link = get_link(cluster_id=cluster_id, name=name, by=by)
    check_permission(by, Permission.VIEW, link=link)
    return link


def version_of(link: ClusterLink) -> str:
    """Return what changes with all that the pages of a link show, except ages and figures.

    One request to Redis at the first call for a loaded link. Call it before the rows are read: the version must not be newer.
    """
    known = vars(link)
    if "version" not in known:
        known["version"] = f"{link.sequence} {progress.news([link.link_uuid.hex])}"
    version: str = known["version"]
    return version


def version_now(*, cluster_id: str, name: str, by: Actor, whole: bool) -> str | None:
    """Return the ``version_of`` a link without loading it; None if it is not visible, or not as a ``whole``. One query."""
    links = whole_links(by) if whole else known_links(by)
    rows = links.filter(destination__cluster_id=cluster_id, name=name).order_by().values_list("sequence", "link_uuid")
    return next((f"{sequence} {progress.news([link_uuid.hex])}" for sequence, link_uuid in rows), None)


def versions_of(links: Iterable[ClusterLink], *, by: Actor) -> list[object]:
    """Return what changes with all that a page shows of links from ``load_links``, except ages and figures. One Redis request.

    Call it before other rows are read, as for ``version_of``.
    """
    rows, keys = [], []
    for link in links:
        places = (link.known_source, link.destination, link.destination.environment)
        rows.append((link.pk, link.sequence, [place.name for place in places if place is not None]))
        keys.append(link.link_uuid.hex)
    return _versions(rows, keys, by=by)


def versions_of_all(*, by: Actor) -> list[object]:
    """Return what ``versions_of`` returns for all links that the actor may see, without loading them. One query."""
    names = ("source__name", "destination__name", "destination__environment__name")
    rows, keys = [], []
    for key, sequence, link_uuid, sees_source, source, *places in (
        visible_links(by).order_by("pk").values_list("pk", "sequence", "link_uuid", "sees_source", *names)
    ):
        rows.append((key, sequence, [source, *places] if sees_source and source is not None else places))
        keys.append(link_uuid.hex)
    return _versions(rows, keys, by=by)


def _versions(rows: Sequence[object], keys: Sequence[str], *, by: Actor) -> list[object]:
    roles = [] if by.may_do_all else [binding.pk for binding in by.bindings]
    return [rows, progress.news(keys), roles]


def rpo_objective_ms(link: ClusterLink) -> int | None:
    """Return the RPO objective of a link; None if it has none. One query."""
    return objective_ms(link.config(RPO_OBJECTIVE))


def list_links(*, by: Actor, cluster_id: str | None = None, environment: Environment | None = None) -> list[LinkSummary]:
    """Return links, first those that are not healthy, then by name; three queries, five if a task fails."""
    return summarize(load_links(by=by, cluster_id=cluster_id, environment=environment), by=by)


def load_links(
    *,
    by: Actor,
    cluster_id: str | None = None,
    environment: Environment | None = None,
    search: str = "",
    state: str = "",
) -> list[ClusterLink]:
    """Return links without figures and health, in the order of ``list_links``. One query."""
    links = matching_links(by=by, search=search).annotate(undone=_UNDONE)
    if cluster_id:
        links = links.filter(destination__cluster_id=cluster_id)
    if environment is not None:
        links = links.filter(destination__environment=environment)
    if state:
        links = links.filter(state=state)
    return sorted(links, key=lambda link: (_HEALTH.get(link.state, 9), link.name))


def matching_links(*, by: Actor, search: str) -> QuerySet[ClusterLink]:
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
    failing = failing_rows(links=unchecked)
    now = timezone.now()
    found = observe_links(chosen, by=by, now=now, failing=failing)
    return [
        LinkSummary(
            link=link,
            mirrors_by_state=seen.health.states,
            mirrors=len(seen.health.mirrors),
            errors=seen.health.errors,
            failing_tasks=len(seen.failing),
            health=seen.health,
            max_lag=seen.total.max_lag,
            unknown_lags=seen.total.unknown_lags,
            oldest_lag_ms=seen.total.oldest_ms(now),
            lag_bytes=seen.total.lag_bytes,
            bytes_per_s=seen.total.bytes_per_s,
            records_per_s=seen.total.records_per_s,
        )
        for link, seen in ((link, found[link.pk]) for link in chosen)
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
