"""Cluster links with totals and effective configs; source topics, and why each is mirrored or not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.db.models import Exists, OuterRef, Q, QuerySet, prefetch_related_objects
from django.utils import timezone

from console.access import Permission, can, check_permission, link_words, visible_links, visible_mirrors, whole_cluster_names
from console.actors import Actor
from console.errors import NotFoundError
from console.links.health_queries import NOT_JUDGED, LinkHealth, links_health, objective_ms
from console.links.task_queries import failing_rows
from console.mirrors import progress
from console.mirrors.figures import Figures, figures_of
from console.mirrors.progress import CurrentMirror
from console.models import AutoCreateFailure, Cluster, ClusterLink, Environment, LinkTask, MirrorTopic, Namespace, SourceTopic
from console.models.fields import readable
from linkengine.domain.linkconfigs import LINK_CONFIGS, RPO_OBJECTIVE, LinkConfigSpec, is_connection
from linkengine.domain.linkrules import AUTO_CREATE, AUTO_CREATE_FILTERS
from linkengine.domain.linktasks import TaskError
from linkengine.domain.mirrorability import KnownMirror, Place, Surroundings, Topic, Verdict, judge, judge_all
from linkengine.domain.names import NameFilter, known_filters
from linkengine.domain.states import LinkMode, LinkState, MirrorState

# --- links, totals and effective configs ------------------------------------------------------------------------------


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
        totals[mirror.link_id].add(figures_of(mirror.partitions, now=now))
    for link_id, count in unseen.items():
        totals[link_id].add_unseen(count)
    return totals


# --- facts about source topics ----------------------------------------------------------------------------------------
#
# ``linkengine.domain.mirrorability`` decides from them why a topic is mirrored or not.


_TROUBLES = {
    LinkState.PAUSED: "The link is paused.",
    LinkState.FAILED: "The link has failed: {}",
    LinkState.UNAVAILABLE: "The source is unreachable: {}",
}


def surroundings_of(link: ClusterLink, *, by: Actor | None = None, taken: Iterable[str] | None = None) -> Surroundings:
    """Load the facts of a link. Eight queries. ``taken``: topics of the destination, if they were just listed.

    ``by`` is the user; other links and clusters are named only if that user may see them. Without a user, for findings that are
    stored and shown to several users, none is named.
    """
    prefetch_related_objects([link], "configs")
    names = link_words(by, link.destination) if by else _unnamed
    if taken is None:
        taken = SourceTopic.objects.filter(cluster=link.destination_id).values_list("name", flat=True)
    return Surroundings(
        source=link.source_cluster_id,
        destination=link.destination.cluster_id,
        prefix=link.prefix,
        auto_create=link.config(AUTO_CREATE) == "true",
        filters=filters_of(link),
        link_trouble=_trouble(link),
        mirrors=_mirrors(link.destination, names, link=link),
        taken=frozenset(taken),
        reserved=_reserved(link.destination, names, link=link),
        sources=sources(),
        cluster_names=whole_cluster_names(by) if by else {},
        failures=_failures(link),
    )


def surroundings_of_new(
    *,
    destination: Cluster,
    source_cluster_id: str,
    prefix: str,
    filters: tuple[NameFilter, ...],
    cluster_names: Mapping[str, str],
    by: Actor,
) -> Surroundings:
    """Load the facts of a link that is not stored yet, with auto-create on. Five queries."""
    names = link_words(by, destination)
    taken = SourceTopic.objects.filter(cluster=destination).values_list("name", flat=True)
    return Surroundings(
        source=source_cluster_id,
        destination=destination.cluster_id,
        prefix=prefix,
        auto_create=True,
        filters=filters,
        mirrors=_mirrors(destination, names),
        taken=frozenset(taken),
        reserved=_reserved(destination, names),
        sources=sources(),
        cluster_names=cluster_names,
    )


def filters_of(link: ClusterLink) -> tuple[NameFilter, ...]:
    """Return the auto-create filters of a link."""
    return known_filters(link.config(AUTO_CREATE_FILTERS))


def sources() -> Mapping[Place, Place]:
    """Return the source topic of each mirror topic that is not stopped, of all links. One query."""
    rows = MirrorTopic.objects.unstopped().order_by()
    values = rows.values_list("link__destination__cluster_id", "name", "link__source_cluster_id", "source_topic")
    return {Place(here, name): Place(there, topic) for here, name, there, topic in values}


def judge_topic(*, link: ClusterLink, name: str, by: Actor | None = None) -> Verdict:
    """Return why a source topic is mirrored or not. The topic need not exist."""
    row = SourceTopic.objects.filter(link=link, name=name).first()
    topic = _topic(row) if row else Topic(name=name, exists=False)
    return judge(topic, surroundings_of(link, by=by))


def judge_source(
    *, link: ClusterLink, by: Actor, search: str = "", filters: tuple[NameFilter, ...] | None = None
) -> list[Verdict]:
    """Return why each source topic is mirrored or not, by name. Eight queries. ``filters`` replace the auto-create filters."""
    rows = SourceTopic.objects.filter(link=link)
    if search:
        rows = rows.filter(name__icontains=search)
    around = surroundings_of(link, by=by)
    if filters is not None:
        around = replace(around, auto_create=True, filters=filters)
    return list(judge_all([_topic(row) for row in rows], around))


def _topic(row: SourceTopic) -> Topic:
    return Topic(name=row.name, internal=row.internal, is_mirror=row.is_mirror)


def _unnamed(_link: str) -> str:
    return "another cluster link"


def _mirrors(
    destination: Cluster, display_name: Callable[[str], str], *, link: ClusterLink | None = None
) -> dict[str, KnownMirror]:
    """Return the mirrors on a cluster by name; those of ``link`` are its own."""
    rows = MirrorTopic.objects.listed().filter(link__destination=destination).order_by()
    known: dict[str, KnownMirror] = {}
    for name, link_id, link_name, state in rows.values_list("name", "link_id", "link__name", "state"):
        own = link is not None and link_id == link.pk
        mirror = KnownMirror(link=display_name(link_name), state=MirrorState(state), own=own)
        if mirror.own or name not in known:
            known[name] = mirror
    return known


def _reserved(destination: Cluster, display_name: Callable[[str], str], *, link: ClusterLink | None = None) -> dict[str, str]:
    """Return the namespaces of a cluster in which ``link`` may not create topics, with the links they belong to."""
    rows = Namespace.objects.filter(cluster=destination, reserved=True)
    if link is not None:
        rows = rows.exclude(link=link.pk)
    return {prefix: display_name(name) if name else "" for prefix, name in rows.values_list("prefix", "link__name")}


def _failures(link: ClusterLink) -> dict[str, TaskError]:
    rows = AutoCreateFailure.objects.filter(link=link).values_list("source_topic", "code", "message")
    return {topic: TaskError(code=code, message=message) for topic, code, message in rows}


def _trouble(link: ClusterLink) -> str:
    if link.deletion_requested_at is not None:
        return "The link is being deleted."
    if link.mode == LinkMode.SOURCE:
        return "This is the source side of the link. Mirror topics are created by the paired link."
    return _TROUBLES.get(LinkState(link.state), "").format(link.error_message)


# --- source topics to choose from -------------------------------------------------------------------------------------
#
# As of the last refresh, for the form that adds a mirror topic.


LIMIT = 500  # maximum in the list; with more topics the user enters names or narrows the list


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopicChoice:
    """A source topic that can be mirrored, or the reason why it cannot."""

    name: str
    partitions: int
    retention_ms: int | None
    available: bool
    reason: str = ""
    mirror_name: str = ""


def source_topics_for(*, link: ClusterLink, by: Actor, search: str = "", limit: int = LIMIT) -> list[SourceTopicChoice]:
    """Return source topics by name, those that can be mirrored first. Three queries. Empty unless ``is_listable``."""
    if not is_listable(link) or not can(by, Permission.VIEW, link=link):
        return []
    topics = link.source_topics.all()
    if search:
        topics = topics.filter(name__icontains=search)
    mirrored = dict(MirrorTopic.objects.filter(link__destination=link.destination_id).values_list("name", "link__name"))
    others = link_words(by, link.destination)
    mirrored = {name: "" if owner == link.name else others(owner) for name, owner in mirrored.items()}
    taken = set(SourceTopic.objects.filter(cluster=link.destination_id).values_list("name", flat=True))
    choices = [_choice(topic, link, mirrored=mirrored, taken=taken) for topic in topics[:limit]]
    return sorted(choices, key=lambda choice: (not choice.available, choice.name))


def matching_names(*, link: ClusterLink, by: Actor, search: str, standing: str, limit: int) -> list[str]:
    """Return the names of the source topics that can be mirrored and match the filter of the source topics list.

    Three queries, and eight more with a ``standing``.
    """
    names = [choice.name for choice in source_topics_for(link=link, by=by, search=search, limit=limit) if choice.available]
    if not standing:
        return names
    matching = {row.topic for row in judge_source(link=link, by=by, search=search) if row.standing == standing}
    return [name for name in names if name in matching]


def is_listable(link: ClusterLink) -> bool:
    """Return True if the source topics are known, so that a page can list them."""
    return link.topics_at is not None


def _choice(topic: SourceTopic, link: ClusterLink, *, mirrored: dict[str, str], taken: set[str]) -> SourceTopicChoice:
    """Create the choice of a topic. ``mirrored`` maps destination topics to the name of the other link, "" for this link."""
    name = link.prefix + topic.name
    reason = ""
    if topic.internal:
        reason = "Internal topic"
    elif name in mirrored:
        reason = f"'{name}' is a mirror topic of {mirrored[name]}" if mirrored[name] else "Already mirrored"
    elif name in taken:
        reason = f"The destination already has a topic '{name}'"
    return SourceTopicChoice(
        name=topic.name,
        partitions=topic.partitions,
        retention_ms=topic.retention_ms,
        available=not reason,
        reason=reason,
        mirror_name=name,
    )
