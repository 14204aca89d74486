"""Cluster links: one, many with their totals, their configs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Case, Count, Exists, F, Max, Min, OuterRef, Q, QuerySet, Sum, Value, When
from django.utils import timezone

from console.access import Permission, can, check_permission, visible_links, visible_mirrors
from console.actors import Actor
from console.errors import NotFoundError
from console.models import ClusterLink, Environment, LinkTask, MirrorPartition, MirrorTopic
from console.models.mirrors import incomplete, measured_rates, unknown_ages, unknown_lags
from console.queries.lagbytes import lag_bytes, lag_bytes_columns
from console.queries.linktasks import failing_by_link
from console.queries.unseen import UNSEEN, with_unseen
from linkengine.domain.linkconfigs import LINK_CONFIGS, LinkConfigSpec, is_connection
from linkengine.domain.states import MirrorState

_RELATED = ("destination__environment__organization", "source__environment")
_Counts = dict[int, Counter[MirrorState]]
_HEALTH = {"FAILED": 0, "UNAVAILABLE": 1, "PAUSED": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSummary:
    """A link with the totals of those of its mirrors that one may see and that are not stopped. Unknown is None, never 0."""

    link: ClusterLink
    mirrors_by_state: Mapping[MirrorState, int] = field(default_factory=dict)  # states that occur
    mirrors: int = 0
    max_lag: int | None = None  # of the partitions whose lag is known
    unknown_lags: int = 0  # partitions whose lag is not, and mirrors without partitions yet
    oldest_lag_ms: int | None = None
    lag_bytes: int | None = None  # estimated, all partitions
    bytes_per_s: float | None = None
    records_per_s: float | None = None
    errors: int = 0  # mirrors with an error
    errors_by_state: Mapping[MirrorState, int] = field(default_factory=dict)
    failing_tasks: int = 0  # recurring ones whose last run left something undone; told to who may see the whole link


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveConfig:
    """A config as it counts now; the value of a sensitive one is never told."""

    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    description: str
    default: str | None = None


def get_link(*, cluster_id: str, name: str, by: Actor) -> ClusterLink:
    """Answer a link of a destination cluster; both clusters come with it."""
    links = visible_links(by).select_related(*_RELATED)
    link = links.filter(destination__cluster_id=cluster_id, name=name).first()
    if link is None:
        raise NotFoundError(f"Cluster link '{name}' does not exist on cluster {cluster_id}.", code="UNKNOWN_LINK")
    return link


def get_whole_link(*, cluster_id: str, name: str, by: Actor) -> ClusterLink:
    """Answer a link for what is told of all its mirrors together; who may see some of them only is refused."""
    link = get_link(cluster_id=cluster_id, name=name, by=by)
    check_permission(by, Permission.VIEW, link=link)
    return link


def rpo_objective_ms(_link: ClusterLink) -> int | None:
    """Return the recovery point objective of a link; None if it has none. No link config sets an objective yet."""
    return None


def list_links(
    *,
    by: Actor,
    cluster_id: str | None = None,
    environment: Environment | None = None,
    search: str = "",
    state: str = "",
) -> list[LinkSummary]:
    """List links, those in trouble first, then by name; three queries, five where a task fails."""
    undone = Exists(LinkTask.objects.filter(link=OuterRef("pk"), error_count__gt=0))
    links = visible_links(by).select_related(*_RELATED).annotate(undone=undone)
    if cluster_id:
        links = links.filter(destination__cluster_id=cluster_id)
    if environment is not None:
        links = links.filter(destination__environment=environment)
    if search:
        links = links.filter(
            Q(name__icontains=search)
            | Q(source__name__icontains=search, sees_source=True)
            | Q(destination__name__icontains=search)
        )
    if state:
        links = links.filter(state=state)
    rows = sorted(links, key=lambda link: (_HEALTH.get(link.state, 9), link.name))
    return summarize(rows, by=by)


def summarize(links: Iterable[ClusterLink], *, by: Actor) -> list[LinkSummary]:
    """Add the totals of the mirrors that the actor may see to links that were read already; four queries."""
    chosen = list(links)
    doubtful = [one for one in chosen if getattr(one, "undone", True)]  # who read them may know that no task fails
    failing = failing_by_link(links=[one for one in doubtful if can(by, Permission.VIEW, link=one)])
    mirrors, now = visible_mirrors(by).filter(link__in=chosen), timezone.now()
    states, errors, unseen = _mirror_counts(mirrors)
    totals = _partition_totals(mirrors, now)
    return [
        LinkSummary(
            link=link,
            mirrors_by_state=states[link.pk],
            mirrors=sum(states[link.pk].values()),
            errors=sum(errors[link.pk].values()),
            errors_by_state=errors[link.pk],
            failing_tasks=len(failing.get(link.pk, ())),
            **_figures(with_unseen(totals.get(link.pk, {}), unseen[link.pk]), now),
        )
        for link in chosen
    ]


def effective_configs(*, link: ClusterLink) -> list[EffectiveConfig]:
    """List every config of a link by name; what was not set has its default. One query."""
    stored: dict[str, str] = {**link.properties, **{one.name: one.value for one in link.configs.all()}}
    return [_effective(spec, stored, link) for spec in LINK_CONFIGS.values()]


def _effective(spec: LinkConfigSpec, stored: Mapping[str, str], link: ClusterLink) -> EffectiveConfig:
    value = None if spec.sensitive else stored.get(spec.name, spec.default)
    is_default = spec.name not in stored
    if is_default and is_connection(spec.name) and link.uses_cluster_credentials and not spec.sensitive:
        # The link is connected as the registered cluster is; a default that does not count would mislead.
        value = link.known_source.properties.get(spec.name, value) if link.known_source else None
    return EffectiveConfig(
        name=spec.name,
        value=value,
        is_default=is_default,
        is_read_only=spec.read_only,
        is_sensitive=spec.sensitive,
        description=spec.description,
        default=None if spec.sensitive else spec.default,
    )


def _mirror_counts(mirrors: QuerySet[MirrorTopic]) -> tuple[_Counts, _Counts, Counter[int]]:
    """Answer, by link: its mirrors by state, those with an error by state, and how many have no partitions yet."""
    states: _Counts = defaultdict(Counter)
    errors: _Counts = defaultdict(Counter)
    unseen: Counter[int] = Counter()
    troubled = ~Q(error_code="") | Q(transition_errors__isnull=False)
    counted = mirrors.order_by().values("link_id", "state").annotate(
        n=Count("pk", distinct=True),
        bad=Count("pk", distinct=True, filter=troubled),
        new=Count("pk", distinct=True, filter=UNSEEN),
    )  # fmt: skip
    for row in counted:
        states[row["link_id"]][MirrorState(row["state"])] += row["n"]
        errors[row["link_id"]][MirrorState(row["state"])] += row["bad"]
        unseen[row["link_id"]] += row["new"]
    return states, errors, unseen


def _partition_totals(mirrors: QuerySet[MirrorTopic], now: datetime) -> dict[int, dict[str, Any]]:
    hidden = unknown_lags(now)
    behind, lacking = Q(source_end__gt=F("mirror_end")), incomplete(now)
    lag = Case(When(behind, then=F("source_end") - F("mirror_end")), default=Value(0))
    rows = MirrorPartition.objects.filter(mirror__in=mirrors).exclude(mirror__state=MirrorState.STOPPED)
    totals = rows.order_by().values("mirror__link_id").annotate(
        max_lag=Max(lag, filter=~hidden),
        behind_since=Min("caught_up_at", filter=lacking),
        hidden=Count("pk", filter=hidden),
        lacking=Count("pk", filter=lacking),
        never=Count("pk", filter=lacking & unknown_ages(now)),
        total_bytes=Sum("bytes_per_s", filter=measured_rates(now)),
        total_records=Sum("records_per_s", filter=measured_rates(now)),
        **lag_bytes_columns(now),
    )  # fmt: skip
    return {row["mirror__link_id"]: dict(row) for row in totals}


def _figures(total: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    max_lag, since = total.get("max_lag"), total.get("behind_since")
    oldest = 0 if max_lag == 0 and not total["lacking"] else None
    if since is not None and not total["never"]:
        oldest = max(0, int((now - since).total_seconds() * 1000))
    return {
        "max_lag": max_lag,
        "unknown_lags": total.get("hidden", 0),
        "oldest_lag_ms": oldest,
        "lag_bytes": lag_bytes(total),
        "bytes_per_s": total.get("total_bytes"),
        "records_per_s": total.get("total_records"),
    }
