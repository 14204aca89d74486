"""The observed values that health is derived from; ``linkengine.domain.health`` has the rules."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Case, FilteredRelation, Q, QuerySet, When

from console.access import Permission, can, visible_mirrors
from console.actors import Actor
from console.links.task_queries import failing_of, failing_rows
from console.mirrors import progress
from console.mirrors.figures import Figures, Missing, figures_of, is_lacking, missing_of
from console.mirrors.progress import EXPECTED, CurrentMirror, is_expected
from console.models import (
    Cluster,
    ClusterLink,
    Environment,
    LinkTask,
    MirrorPartition,
    MirrorTopic,
)
from console.models.mirrors import KEPT, MirrorTopicQuerySet
from linkengine.domain.errors import WAITING, ErrorCode
from linkengine.domain.health import (
    NO_REPORTS,
    NOT_COPYING_AFTER_MS,
    UNKNOWN_AFTER_MS,
    Health,
    HealthStatus,
    LinkInputs,
    MirrorInputs,
    Reason,
    Reports,
    cluster_health,
    link_health,
    mirror_health,
    worst,
)
from linkengine.domain.linkconfigs import RPO_OBJECTIVE
from linkengine.domain.linktasks import TaskName
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import LinkMode, LinkState, MirrorState

# --- observed values --------------------------------------------------------------------------------------------------
#
# Two queries for any number of links and mirrors: the mirrors with the codes of their errors, and the current progress of
# their partitions (``console.mirrors.progress``, with a request to Redis per link). A third query reads tasks whose last
# run had errors.


Sample = tuple[dict[str, str], float]
_Metric = tuple[str, str, str, list[Sample]]
_BLOCKED = (
    PartitionPhase.SOURCE_UNREACHABLE,
    PartitionPhase.DESTINATION_UNREACHABLE,
    PartitionPhase.LINK_BROKEN,
    PartitionPhase.FAILED,
)
_WAITING = (PartitionPhase.WAITING, PartitionPhase.RELEASED)
_SILENT, _STALLED = timedelta(milliseconds=UNKNOWN_AFTER_MS), timedelta(milliseconds=NOT_COPYING_AFTER_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorHealth:
    """The health of a mirror topic."""

    pk: int
    name: str
    state: MirrorState
    status: HealthStatus
    partitions: int  # 0: not set up yet
    has_error: bool
    is_unseen: bool  # not stopped, and without partitions: its lag is unknown
    deleting: bool = False
    task_error: str = ""  # message of a recurring task that names it

    @property
    def is_stoppable(self) -> bool:
        """Whether a failover would stop it, as ``MirrorTopicQuerySet.stoppable``."""
        return self.state is not MirrorState.STOPPED and not self.deleting


@dataclass(frozen=True, kw_only=True)
class LinkHealth:
    """The health of a link and of those of its mirrors that were read."""

    status: HealthStatus
    mirrors: Mapping[int, MirrorHealth] = field(default_factory=dict)  # by primary key

    def status_of(self, pk: int) -> HealthStatus | None:
        """Return the health of a mirror, None if it was not read."""
        mirror = self.mirrors.get(pk)
        return None if mirror is None else mirror.status

    @cached_property
    def severities(self) -> Mapping[int, int]:
        """Severities of the health of mirrors, by primary key."""
        return {pk: mirror.status.severity for pk, mirror in self.mirrors.items()}

    @cached_property
    def counts(self) -> Mapping[Health, int]:
        """Numbers of mirrors by health; only values that occur."""
        return Counter(mirror.status.health for mirror in self.mirrors.values())

    @cached_property
    def states(self) -> Mapping[MirrorState, int]:
        """Numbers of mirrors by state; only states that occur."""
        return Counter(mirror.state for mirror in self.mirrors.values())

    @cached_property
    def partitions(self) -> int:
        """Number of partitions of all mirrors."""
        return sum(mirror.partitions for mirror in self.mirrors.values())

    @cached_property
    def errors(self) -> int:
        """Number of mirrors with an error."""
        return sum(mirror.has_error for mirror in self.mirrors.values())

    @cached_property
    def concerned(self) -> int:
        """Number of mirrors with the health of the link for the same reason."""
        statuses = (mirror.status for mirror in self.mirrors.values())
        return sum((status.health, status.reason) == (self.status.health, self.status.reason) for status in statuses)

    @cached_property
    def attention(self) -> int:
        """Number of mirrors that need attention."""
        return sum(mirror.status.needs_attention for mirror in self.mirrors.values())


_COLUMNS_OF_MIRROR = ("state", "state_since", "deletion_requested_at", "num_partitions", "expected", "objective")


@dataclass(slots=True)
class _Mirror:
    """A row of a mirror topic with the codes of its errors."""

    state: str
    state_since: datetime
    deletion_requested_at: datetime | None
    num_partitions: int
    expected: bool  # by ``EXPECTED``
    objective: str | None  # link config link.rpo.objective.ms; None: not set
    codes: list[str]


NOT_JUDGED = LinkHealth(status=HealthStatus(health=Health.UNKNOWN, reason=Reason.NOT_OBSERVED))


def links_health(
    links: Sequence[ClusterLink],
    mirrors: MirrorTopicQuerySet,
    *,
    now: datetime,
    failing: Mapping[int, Sequence[LinkTask]],
    shown: Iterable[int],
    current: Iterable[CurrentMirror] | None = None,
) -> dict[int, LinkHealth]:
    """Return the health of links by primary key; two queries, one if ``current`` was read.

    ``mirrors`` are those that count, ``failing`` the tasks whose last run had errors. Only the links ``shown`` are degraded by
    them: a user who may see some mirrors of a link does not see its tasks. A mirror that an error names is degraded anyway.
    ``current``: the current progress of ``mirrors``, of which that of stopped mirrors is not needed.
    """
    by_link: dict[int, dict[int, MirrorHealth]] = defaultdict(dict)
    named = {link.pk: _named_by(failing.get(link.pk, ())) for link in links}
    known = {link.pk: link for link in links}
    mirrors = mirrors.filter(link__in=known)
    if current is None:
        current = progress.current(mirrors.unstopped(), now=now)
    reports = reports_by_mirror(current, now=now)
    for pk, link_id, name, row in _rows(mirrors):
        errors = named[link_id].get(name, ())
        codes = [code for code, _ in errors]
        inputs = _inputs(row, known[link_id], reports.get(pk, NO_REPORTS), task_errors=codes, now=now)
        state = MirrorState(row.state)
        by_link[link_id][pk] = MirrorHealth(
            pk=pk,
            name=name,
            state=state,
            status=mirror_health(inputs),
            partitions=row.num_partitions,
            has_error=bool(row.codes),
            is_unseen=state is not MirrorState.STOPPED and pk not in reports,
            deleting=row.deletion_requested_at is not None,
            task_error=errors[0][1] if errors else "",
        )
    with_tasks = set(shown)
    found = {}
    for link in links:
        failed = len(failing.get(link.pk, ())) if link.pk in with_tasks else 0
        of_link = by_link[link.pk]
        found[link.pk] = LinkHealth(status=status_of_link(link, of_link.values(), failing_tasks=failed), mirrors=of_link)
    return found


def status_of_link(link: ClusterLink, mirrors: Iterable[MirrorHealth], *, failing_tasks: int) -> HealthStatus:
    """Return the health of a link with these mirrors."""
    own = LinkInputs(
        state=LinkState(link.state),
        engine_error=bool(link.engine_error),
        failing_tasks=failing_tasks,
        deleting=link.deletion_requested_at is not None,
        holds_mirrors=link.mode != LinkMode.SOURCE,
    )
    return link_health(own, [mirror.status for mirror in mirrors])


# --- links with all their mirrors, as pages show them -----------------------------------------------------------------
#
# To judge a link, all its partitions and their reports are read: of thousands of mirrors that takes longer than all other
# parts of a page. Requests of users who may see the whole link therefore share the result: for ``SHARED_S``, and if there are
# many mirrors, for ten times as long as it took to read them, but at most ``LONGEST_SHARED_S``. A change of the link or its
# mirrors (``ClusterLink.sequence``) and news of a copy worker (``progress.news``) end that at once. So only lags, rates, and a
# health that time alone has changed, such as by silence, can be shown that much later.


SHARED_S = 2.0  # since the begin of the reading; not longer than between two polls of a page
SHARED_FACTOR = 10
LONGEST_SHARED_S = 10.0  # shorter than the silence that makes a health unknown


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The state of a link and of the mirrors that an actor may see, as it was read."""

    health: LinkHealth
    read_at: datetime
    current: Sequence[CurrentMirror] = ()  # that are not stopped
    total: Figures = field(default_factory=Figures)  # of these; without partitions yet: unknown
    failing: Sequence[LinkTask] = ()  # tasks whose last run had errors; none if the actor may not see the whole link

    @cached_property
    def partitions(self) -> Mapping[int, Sequence[MirrorPartition]]:
        """The partitions with their current progress, by primary key of the mirror."""
        return {mirror.pk: mirror.partitions for mirror in self.current}

    @cached_property
    def missing(self) -> Mapping[int, Missing]:
        """What a failover now would not copy, by primary key of the mirror."""
        return {pk: missing_of(rows) for pk, rows in self.partitions.items()}

    @cached_property
    def stoppable(self) -> Sequence[MirrorHealth]:
        """The mirrors that a failover would stop."""
        return [mirror for mirror in self.health.mirrors.values() if mirror.is_stoppable]

    @cached_property
    def stoppable_total(self) -> Figures:
        """The figures of the mirrors that a failover would stop."""
        if not any(mirror.deleting for mirror in self.health.mirrors.values()):
            return self.total
        total = Figures()
        for mirror in self.stoppable:
            total.add(figures_of(self.partitions.get(mirror.pk, ()), now=self.read_at))
        total.add_unseen(sum(mirror.is_unseen for mirror in self.stoppable))
        return total

    @cached_property
    def records_at_risk(self) -> Mapping[int, int | None]:
        """What a failover now would not copy, by primary key of the mirror, unless its source topic has more partitions."""
        missing = self.missing
        return {
            mirror.pk: missing[mirror.pk].known_for(mirror.partitions) if mirror.pk in missing else None
            for mirror in self.stoppable
        }


class _Shared(NamedTuple):
    version: str
    until: float  # monotonic seconds
    seen: Observation


_shared: dict[UUID, _Shared] = {}  # by ``link_uuid``
_reading = Lock()  # other requests wait instead of reading the same


def observe_links(
    links: Sequence[ClusterLink], *, by: Actor, now: datetime, failing: Mapping[int, Sequence[LinkTask]]
) -> dict[int, Observation]:
    """Return the state of links by primary key, of which ``failing`` tasks were read. Two queries, none for shared results."""
    whole = {link.pk for link in links if can(by, Permission.VIEW, link=link)}
    news = progress.news([link.link_uuid.hex for link in links])  # before the rows: it must not be newer
    versions = {link.pk: f"{link.sequence} {part}" for link, part in zip(links, news, strict=True)}
    found = _still_valid(links, versions, whole)
    if len(found) == len(links):
        return found
    is_first = _reading.acquire(timeout=SHARED_S)
    try:
        found = _still_valid(links, versions, whole)
        began, unread = time.monotonic(), [link for link in links if link.pk not in found]
        read = _observe(unread, by=by, now=now, failing=failing, whole=whole)
        until = began + min(LONGEST_SHARED_S, max(SHARED_S, SHARED_FACTOR * (time.monotonic() - began)))
        for link in unread:
            if link.pk in whole:
                _shared[link.link_uuid] = _Shared(versions[link.pk], until, read[link.pk])
        return found | read
    finally:
        if is_first:
            _reading.release()


def _still_valid(links: Iterable[ClusterLink], versions: Mapping[int, str], whole: AbstractSet[int]) -> dict[int, Observation]:
    """Return the shared results that are young enough and have these versions, and remove those that are too old."""
    now = time.monotonic()
    for key in [key for key, shared in list(_shared.items()) if shared.until <= now]:
        _shared.pop(key, None)
    known = ((link.pk, _shared.get(link.link_uuid)) for link in links if link.pk in whole)
    return {pk: shared.seen for pk, shared in known if shared is not None and shared.version == versions[pk]}


def _observe(
    links: Sequence[ClusterLink],
    *,
    by: Actor,
    now: datetime,
    failing: Mapping[int, Sequence[LinkTask]],
    whole: AbstractSet[int],
) -> dict[int, Observation]:
    if not links:
        return {}
    mirrors = visible_mirrors(by).filter(link__in=[link.pk for link in links if link.mode != LinkMode.SOURCE])
    current: dict[int, list[CurrentMirror]] = defaultdict(list)
    totals: dict[int, Figures] = defaultdict(Figures)
    for mirror in progress.current(mirrors.unstopped(), now=now):
        current[mirror.link_id].append(mirror)
        totals[mirror.link_id].add(figures_of(mirror.partitions, now=now))
    everything = [mirror for of_link in current.values() for mirror in of_link]
    health = links_health(links, mirrors, now=now, failing=failing, shown=whole, current=everything)
    for key, of_link in health.items():
        totals[key].add_unseen(sum(mirror.is_unseen for mirror in of_link.mirrors.values()))
    return {
        link.pk: Observation(
            health=health[link.pk],
            read_at=now,
            current=current[link.pk],
            total=totals[link.pk],
            failing=failing.get(link.pk, ()) if link.pk in whole else (),
        )
        for link in links
    }


# --- a mirror, metrics, and reports -----------------------------------------------------------------------------------


def health_of_mirror(mirror: MirrorTopic, *, now: datetime) -> tuple[HealthStatus, str]:
    """Return the health of a mirror, and the first error of the config sync that names it; "" if there is none.

    Its partitions, transition errors and link have to be read. One query, none for a mirror that ``get_mirror`` has returned.
    """
    errors = config_errors(mirror)
    status = _status_of(mirror, mirror.link, task_errors=[code for code, _ in errors], now=now)
    return status, errors[0][1] if errors else ""


def health_of_mirrors(link: ClusterLink, mirrors: Iterable[MirrorTopic], *, now: datetime) -> dict[int, HealthStatus]:
    """Return the health of mirrors of a link from ``get_link``, by primary key.

    Their partitions and transition errors, and the link's configs, have to be read. No query.
    """
    named = _named_by(failing_of(link))
    return {
        mirror.pk: _status_of(mirror, link, task_errors=[code for code, _ in named.get(mirror.name, ())], now=now)
        for mirror in mirrors
    }


def _status_of(mirror: MirrorTopic, link: ClusterLink, *, task_errors: Sequence[str], now: datetime) -> HealthStatus:
    codes = [mirror.error_code, *(error.code for error in mirror.transition_errors.all())]
    found = _Mirror(
        state=mirror.state,
        state_since=mirror.state_since,
        deletion_requested_at=mirror.deletion_requested_at,
        num_partitions=mirror.num_partitions,
        expected=is_expected(mirror),
        objective=link.config(RPO_OBJECTIVE),
        codes=[code for code in codes if code],
    )
    began = max(mirror.state_since, link.state_since)
    reports = reports_of(mirror.partitions.all(), began=began, now=now)
    return mirror_health(_inputs(found, link, reports, task_errors=task_errors, now=now))


def health_samples(current: Iterable[CurrentMirror], *, now: datetime) -> list[_Metric]:
    """Return (name, type, help, samples) of the metrics of health. Five queries, six if a task fails.

    ``current``: all mirrors with their current progress.
    """
    clusters = list(Cluster.objects.only("environment", "cluster_id", "probed_at", "error_code").order_by("pk"))
    links = list(ClusterLink.objects.select_related("destination").order_by("pk"))
    failing, shown = failing_rows(links=links), [link.pk for link in links]
    found = links_health(links, MirrorTopic.objects.listed(), now=now, failing=failing, shown=shown, current=current)
    environments, of_clusters, of_links, mirrors = list[Sample](), list[Sample](), list[Sample](), list[Sample]()
    by_cluster: dict[int, list[HealthStatus]] = defaultdict(list)
    by_environment: dict[int, list[HealthStatus]] = defaultdict(list)
    for link in links:
        labels, health = {"cluster": link.destination.cluster_id, "link": link.name}, found[link.pk]
        by_cluster[link.destination_id].append(health.status)
        of_links += _per_health(labels, {health.status.health: 1})
        mirrors += _per_health(labels, health.counts)
    for cluster in clusters:
        status = cluster_health(reachable=cluster.is_reachable, links=by_cluster[cluster.pk])
        by_environment[cluster.environment_id].append(status)
        of_clusters += _per_health({"cluster": cluster.cluster_id}, {status.health: 1})
    for pk, slug in Environment.objects.order_by("pk").values_list("pk", "slug"):
        status = worst(by_environment[pk], empty=Reason.NO_LINKS)
        environments += _per_health({"environment": slug}, {status.health: 1})
    text = "1 for the health of the {}, 0 for the other values."
    return [
        ("clusterlink_environment_health", "gauge", text.format("environment"), environments),
        ("clusterlink_cluster_health", "gauge", text.format("cluster"), of_clusters),
        ("clusterlink_link_health", "gauge", text.format("link"), of_links),
        ("clusterlink_mirror_topics_by_health", "gauge", "Mirror topics of a link by health.", mirrors),
    ]


def _per_health(labels: dict[str, str], numbers: Mapping[Health, int]) -> list[Sample]:
    return [({**labels, "health": value.lower()}, float(numbers.get(value, 0))) for value in Health]


def reports_by_mirror(current: Iterable[CurrentMirror], *, now: datetime) -> dict[int, Reports]:
    """Return what was reported on the partitions of mirrors, by primary key. Mirrors without partitions are left out."""
    return {
        mirror.pk: reports_of(mirror.partitions, began=max(mirror.state_since, mirror.link_since), now=now)
        for mirror in current
        if mirror.partitions
    }


def reports_of(rows: Iterable[MirrorPartition], *, began: datetime, now: datetime) -> Reports:
    """Return what was reported on partitions that are to be copied since ``began``; the rows have their current progress."""
    partitions = silent = blocked = waiting = stalled = unknown_lags = lacking = never = 0
    oldest, seen, since, rate = None, None, None, None
    silent_since, stalled_since = now - _SILENT, now - _STALLED
    for row in rows:
        reported_at = began if row.observed_at is None else max(began, row.observed_at)
        oldest = reported_at if oldest is None else min(oldest, reported_at)
        rate = row.bytes_per_s if rate is None else rate + (row.bytes_per_s or 0.0)
        lag = row.lag_at(now)
        partitions += 1
        silent += reported_at <= silent_since
        blocked += row.phase in _BLOCKED
        waiting += row.phase in _WAITING
        stalled += bool(lag) and row.caught_up_at is not None and row.caught_up_at <= stalled_since
        if lag is None:
            unknown_lags += 1
        elif row.last_source_seen_at is not None:
            seen = row.last_source_seen_at if seen is None else min(seen, row.last_source_seen_at)
        if is_lacking(row, lag):
            lacking += 1
            if row.caught_up_at is None:
                never += 1
            else:
                since = row.caught_up_at if since is None else min(since, row.caught_up_at)
    if oldest is None:
        return NO_REPORTS
    return Reports(
        partitions=partitions,
        staleness_ms=_age_ms(oldest, now),
        unseen_ms=0 if seen is None else _age_ms(seen, now),
        silent=silent,
        blocked=blocked,
        waiting=waiting,
        stalled=stalled if rate == 0 else 0,
        unknown_lags=unknown_lags,
        lag_ms=_lag_ms(since, lacking=lacking, never=never, now=now),
    )


def _lag_ms(since: datetime | None, *, lacking: int, never: int, now: datetime) -> int | None:
    """Return the age of the oldest lacking record; None if that of any partition is unknown."""
    if not lacking:
        return 0
    return None if never or since is None else _age_ms(since, now)


def _rows(mirrors: QuerySet[MirrorTopic]) -> Iterable[tuple[int, int, str, _Mirror]]:
    """Yield (primary key, link, name, row) of mirrors. One query."""
    objective = FilteredRelation("link__configs", condition=Q(link__configs__name=RPO_OBJECTIVE))
    chosen = mirrors.annotate(objective=objective, expected=Case(When(EXPECTED, then=True), default=False)).order_by()
    columns = (*_COLUMNS_OF_MIRROR[:-1], "objective__value")
    found: dict[int, tuple[int, int, str, _Mirror]] = {}
    for pk, link_id, name, error, code, *rest in chosen.values_list(
        "pk", "link_id", "name", "error_code", "transition_errors__code", *columns
    ):
        if pk not in found:  # a mirror with several transition errors has several rows
            values: dict[str, Any] = dict(zip(_COLUMNS_OF_MIRROR, rest, strict=True))
            found[pk] = (pk, link_id, name, _Mirror(**values, codes=[error] if error else []))
        if code:
            found[pk][3].codes.append(code)
    return found.values()


def _inputs(mirror: _Mirror, link: ClusterLink, reports: Reports, *, task_errors: Sequence[str], now: datetime) -> MirrorInputs:
    link_state = LinkState(link.state)
    if link_state is LinkState.ACTIVE and link.error_code == ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR:
        link_state = LinkState.FAILED  # the engine orders no copy worker to copy its mirrors
    expected = mirror.expected and link_state is LinkState.ACTIVE
    since = max(mirror.state_since, link.state_since, mirror.deletion_requested_at or mirror.state_since)
    unreported = mirror.num_partitions - reports.partitions  # partitions that have no row yet
    if unreported > 0:
        staleness_ms = reports.staleness_ms if reports.partitions else _age_ms(since, now)
        reports = replace(reports, staleness_ms=staleness_ms, unknown_lags=reports.unknown_lags + unreported)
    return MirrorInputs(
        state=MirrorState(mirror.state),
        state_age_ms=_age_ms(since, now),
        link_state=link_state,
        expected=expected,
        engine_error=bool(link.engine_error),
        reports=reports,
        objective_ms=objective_ms(mirror.objective),
        alarms=[code for code in mirror.codes if code in KEPT],
        errors=[code for code in mirror.codes if code not in KEPT and code not in WAITING],
        task_errors=task_errors,
        deleting=mirror.deletion_requested_at is not None,
    )


def config_errors(mirror: MirrorTopic) -> list[tuple[str, str]]:
    """Return (code, message) of the errors of the last config sync that name a mirror; none for a stopped mirror."""
    if mirror.state == MirrorState.STOPPED:
        return []
    if hasattr(mirror, "config_errors"):
        errors = mirror.config_errors or []
    else:
        failing = mirror.link.tasks.filter(name=TaskName.TOPIC_CONFIGS, error_count__gt=0)
        errors = [error for task in failing for error in task.errors]
    return _by_topic(errors).get(mirror.name, [])


def _named_by(failing: Iterable[LinkTask]) -> dict[str, list[tuple[str, str]]]:
    """Return (code, message) of the errors of the config sync by mirror topic."""
    return _by_topic(error for task in failing if task.name == TaskName.TOPIC_CONFIGS for error in task.errors)


def _by_topic(errors: Iterable[Mapping[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Return (code, message) of errors by mirror topic, with whose name the message begins."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for error in errors:
        topic, colon, _ = error["message"].partition(": ")
        if colon:
            found[topic].append((error["code"], error["message"]))
    return found


def objective_ms(value: str | None) -> int | None:
    """Return the RPO objective of a link from its config's value; None if it has none."""
    milliseconds = int(value or -1)
    return milliseconds if milliseconds > 0 else None


def _age_ms(since: datetime, now: datetime) -> int:
    return max(0, int((now - since).total_seconds() * 1000))
