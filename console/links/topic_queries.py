"""Source topics of links: facts for the checks of ``mirrorability``, the status of many topics, and topics to choose from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from django.db import connection
from django.db.models import (
    BooleanField,
    Case,
    Count,
    Exists,
    F,
    FilteredRelation,
    OuterRef,
    Q,
    QuerySet,
    Value,
    When,
    Window,
    prefetch_related_objects,
)
from django.db.models.expressions import RawSQL
from django.db.models.functions import Concat, Left, Length
from django.db.models.lookups import Exact, GreaterThan
from django.utils.translation import gettext

from console.access import (
    Permission,
    can,
    link_words,
    visible_clusters,
    visible_links,
    words_for_link,
)
from console.actors import Actor
from console.models import AutoCreateFailure, Cluster, ClusterLink, MirrorTopic, SourceTopic
from linkengine.domain.linkrules import AUTO_CREATE, AUTO_CREATE_FILTERS
from linkengine.domain.linktasks import TaskError
from linkengine.domain.messages import gettext_lazy, gettext_noop
from linkengine.domain.mirrorability import (
    CheckedTopic,
    KnownMirror,
    LinkFacts,
    ListedTopic,
    MirrorabilityStatus,
    TopicOfCluster,
    check_topic,
    check_topics,
)
from linkengine.domain.names import (
    INTERNAL_NAMES,
    INTERNAL_PREFIXES,
    MAX_TOPIC_LENGTH,
    SCRATCH,
    SCRATCH_MARK,
    WILDCARD,
    FilterType,
    NameFilter,
    PatternType,
    contains,
    known_filters,
)
from linkengine.domain.states import LinkMode, LinkState, MirrorState

# --- facts about source topics ----------------------------------------------------------------------------------------
#
# ``linkengine.domain.mirrorability`` decides from them why a topic is mirrored or not.


_TROUBLES = {
    LinkState.PAUSED: gettext_noop("The link is paused."),
    LinkState.FAILED: gettext_noop("The link has failed: %(problem)s"),
    LinkState.UNAVAILABLE: gettext_noop("The source is unreachable: %(problem)s"),
}


def facts_of_link(
    link: ClusterLink,
    *,
    by: Actor | None = None,
    taken: Iterable[str] | None = None,
    failures: Mapping[str, TaskError] | None = None,
) -> LinkFacts:
    """Load the facts of a link. Three queries, and one for each of ``taken`` and ``failures`` that was not read.

    ``taken``: topics of the destination. ``failures``: why mirror topics could not be created, by source topic. ``by`` is the
    user; other links and clusters are named only if that user may see them. Without a user, for findings that are stored and
    shown to several users, none is named.
    """
    prefetch_related_objects([link], "configs")
    destination = link.destination
    names, reserved = _clusters(destination, by=by, link=link)
    mirrors, sources = _mirrors(destination, by=by, link=link)
    return replace(
        _facts(link, names, reserved),
        mirrors=mirrors,
        taken=frozenset(_topics_of(destination) if taken is None else taken),
        sources=sources,
        failures=_failures(link) if failures is None else failures,
    )


def _facts(link: ClusterLink, names: Mapping[str, str], reserved: Mapping[str, str]) -> LinkFacts:
    """Return the facts about a link itself, with the names and namespaces of ``_clusters``. No query if configs are read."""
    return LinkFacts(
        source=link.source_cluster_id,
        destination=link.destination.cluster_id,
        prefix=link.prefix,
        auto_create=link.config(AUTO_CREATE) == "true",
        filters=filters_of(link),
        link_trouble=_trouble(link),
        reserved=reserved,
        cluster_names=names,
    )


def facts_of_new_link(
    *,
    destination: Cluster,
    source_cluster_id: str,
    prefix: str,
    filters: tuple[NameFilter, ...],
    cluster_names: Mapping[str, str],
    by: Actor,
) -> LinkFacts:
    """Load the facts of a link that is not stored yet, with auto-create on. Three queries."""
    mirrors, sources = _mirrors(destination, by=by)
    _, reserved = _clusters(destination, by=by)
    return LinkFacts(
        source=source_cluster_id,
        destination=destination.cluster_id,
        prefix=prefix,
        auto_create=True,
        filters=filters,
        mirrors=mirrors,
        taken=frozenset(_topics_of(destination)),
        reserved=reserved,
        sources=sources,
        cluster_names=cluster_names,
    )


def filters_of(link: ClusterLink) -> tuple[NameFilter, ...]:
    """Return the auto-create filters of a link."""
    return known_filters(link.config(AUTO_CREATE_FILTERS))


def check_source_topic(*, link: ClusterLink, name: str, by: Actor | None = None) -> CheckedTopic:
    """Return why a source topic is mirrored or not. The topic need not exist. Four queries."""
    topics, facts = _listed(link, Q(name=name))
    topic = topics[0] if topics else ListedTopic(name=name, exists=False)
    return check_topic(topic, facts_of_link(link, by=by, **facts))


def check_source_topics(
    *, link: ClusterLink, by: Actor, search: str = "", filters: tuple[NameFilter, ...] | None = None
) -> list[CheckedTopic]:
    """Return why each source topic is mirrored or not, by name. Four queries. ``filters`` replace the auto-create filters."""
    topics, facts = _listed(link, Q(name__icontains=search) if search else Q())
    link_facts = facts_of_link(link, by=by, **facts)
    if filters is not None:
        link_facts = replace(link_facts, auto_create=True, filters=filters)
    return list(check_topics(topics, link_facts))


class _Facts(TypedDict):
    """Facts that were read already, for ``facts_of_link``."""

    taken: list[str]
    failures: dict[str, TaskError]


def _listed(link: ClusterLink, condition: Q) -> tuple[list[ListedTopic], _Facts]:
    """Return the listed source topics that meet a condition, by name, with the topics of the destination. One query."""
    tried = FilteredRelation("link__auto_create_failures", condition=Q(link__auto_create_failures__source_topic=F("name")))
    rows = SourceTopic.objects.filter(Q(condition, link=link) | Q(cluster=link.destination_id)).annotate(tried=tried)
    columns = ("link_id", "name", "internal", "is_mirror", "tried__code", "tried__message")
    topics: list[ListedTopic] = []
    facts: _Facts = {"taken": [], "failures": {}}
    for link_id, name, internal, is_mirror, code, message in rows.order_by("name").values_list(*columns):
        if link_id is None:
            facts["taken"].append(name)
            continue
        topics.append(ListedTopic(name=name, internal=internal, is_mirror=is_mirror))
        if code is not None:
            facts["failures"][name] = TaskError(code=code, message=message)
    return topics, facts


def _topics_of(cluster: Cluster) -> Iterable[str]:
    return SourceTopic.objects.filter(cluster=cluster).order_by().values_list("name", flat=True)


def _sight_of(field: str, by: Actor | None) -> Exists | Value:
    """Return the expression for whether the user may see the link in a field; without a user, none is seen."""
    if by is None or by.may_do_all:
        return Value(by is not None, output_field=BooleanField())
    return Exists(visible_links(by).filter(pk=OuterRef(field)).order_by())


def _mirrors(
    destination: Cluster, *, by: Actor | None, link: ClusterLink | None = None, condition: Q | None = None
) -> tuple[dict[str, KnownMirror], dict[TopicOfCluster, TopicOfCluster]]:
    """Return the mirrors on a cluster by name, and the source topic of each mirror of all links that is not stopped. One query.

    Mirrors of ``link`` are its own. ``condition``: for those that are needed.
    """
    here = Q(link__destination=destination, drill=None)
    needed = (here | ~Q(state=MirrorState.STOPPED)) & (Q() if condition is None else condition)
    rows = MirrorTopic.objects.filter(needed).order_by().annotate(seen=_sight_of("link_id", by))
    columns = ("name", "link_id", "link__name", "state", "stop_reason", "drill_id", "link__destination__cluster_id", "seen")
    known: dict[str, KnownMirror] = {}
    sources: dict[TopicOfCluster, TopicOfCluster] = {}
    for name, link_id, link_name, state, reason, drill_id, cluster_id, seen, there, topic in rows.values_list(
        *columns, "link__source_cluster_id", "source_topic"
    ):
        if state != MirrorState.STOPPED:
            sources[TopicOfCluster(cluster_id, name)] = TopicOfCluster(there, topic)
        if drill_id is not None or cluster_id != destination.cluster_id:
            continue
        own = link is not None and link_id == link.pk
        if own or name not in known:
            words = words_for_link(link_name, seen=seen)
            known[name] = KnownMirror(link=words, state=MirrorState(state), stop_reason=reason, own=own)
    return known, sources


def _clusters(
    destination: Cluster, *, by: Actor | None, link: ClusterLink | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names of the clusters that the user may see as a whole, and the reserved namespaces of the destination.

    The namespaces are those in which ``link`` may not create topics, with the links they belong to. One query.
    """
    condition = Q(namespaces__cluster=destination.pk, namespaces__reserved=True)
    shown = visible_clusters(by).order_by().values("pk") if by else ()
    clusters = Cluster.objects.filter(Q(pk=destination.pk) | Q(pk__in=shown)).select_related("environment")
    found = clusters.annotate(
        namespace=FilteredRelation("namespaces", condition=condition),
        prefix=F("namespace__prefix"),
        owner_id=F("namespace__link_id"),
        owner=F("namespace__link__name"),
        seen=_sight_of("owner_id", by),
    )
    names: dict[str, str] = {}
    reserved: dict[str, str] = {}
    for cluster in found:
        if by is not None and can(by, Permission.VIEW, cluster=cluster):
            names[cluster.cluster_id] = cluster.name
        if cluster.prefix is not None and (link is None or cluster.owner_id != link.pk):
            reserved[cluster.prefix] = words_for_link(cluster.owner, seen=cluster.seen) if cluster.owner else ""
    return names, reserved


def _failures(link: ClusterLink) -> dict[str, TaskError]:
    rows = AutoCreateFailure.objects.filter(link=link).values_list("source_topic", "code", "message")
    return {topic: TaskError(code=code, message=message) for topic, code, message in rows}


def _trouble(link: ClusterLink) -> str:
    if link.deletion_requested_at is not None:
        return gettext_lazy("The link is being deleted.")
    if link.mode == LinkMode.SOURCE:
        return gettext_lazy("This is the source side of the link. Mirror topics are created by the paired link.")
    text = _TROUBLES.get(LinkState(link.state))
    return gettext_lazy(text, problem=link.error_message) if text else ""


# --- the status of many source topics ---------------------------------------------------------------------------------
#
# A source can have many thousands of topics, and checking each of them in Python takes longer than all other parts of a page.
# A page therefore sorts, filters and counts by the expressions below, which have the same result as
# ``mirrorability.check_topic`` (a test compares them), and checks only the topics that it shows.


RANKS = {standing: rank for rank, standing in enumerate(MirrorabilityStatus)}
FEW = 500  # source topics; for more, as in a file, all mirrors are read


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopicPage:
    """Some source topics with their checks, and the numbers of all that match."""

    rows: Sequence[CheckedTopic]
    start: int
    total: int
    mirrorable: int  # a mirror topic can be added, whatever the auto-create filters include


def checked_page(
    *, link: ClusterLink, by: Actor, select: Callable[[QuerySet[Any]], QuerySet[Any]], start: int, size: int
) -> SourceTopicPage:
    """Return a page of source topics. ``select`` filters and sorts the topics of ``with_standing``.

    Four queries, and a further one for each cluster through which the records of a shown topic have come. A start beyond the
    end returns the last page.
    """
    prefetch_related_objects([link], "configs")
    destination = link.destination
    names, reserved = _clusters(destination, by=by, link=link)
    taken = Exists(SourceTopic.objects.filter(cluster=destination, name=_mirror_name(link)).order_by())
    tried = FilteredRelation("link__auto_create_failures", condition=Q(link__auto_create_failures__source_topic=F("name")))
    counts = {"total": Window(Count("pk")), "possible": Window(Count(Case(When(mirrorable=True, then=1))))}
    columns = ("name", "internal", "is_mirror", "taken", "tried__code", "tried__message", "total", "possible")
    chosen = select(with_standing(link, reserved=reserved)).annotate(taken=taken, tried=tried, **counts)
    rows = list(chosen.values_list(*columns)[start : start + size])
    if not rows and start:
        start = max(0, (chosen.count() - 1) // size * size)
        rows = list(chosen.values_list(*columns)[start : start + size])
    topics = [ListedTopic(name=name, internal=internal, is_mirror=is_mirror) for name, internal, is_mirror, *_ in rows]
    mirrors, sources = _mirrors_of(link, [topic.name for topic in topics], by=by)
    link_facts = replace(
        _facts(link, names, reserved),
        mirrors=mirrors,
        taken=frozenset(f"{link.prefix}{row[0]}" for row in rows if row[3]),
        sources=sources,
        failures={row[0]: TaskError(code=row[4], message=row[5]) for row in rows if row[4] is not None},
    )
    return SourceTopicPage(
        rows=list(check_topics(topics, link_facts)),
        start=start,
        total=rows[0][6] if rows else 0,
        mirrorable=rows[0][7] if rows else 0,
    )


def with_standing(link: ClusterLink, *, reserved: Collection[str]) -> QuerySet[Any]:
    """Return the source topics of a link, each with the ``rank`` of its status in ``RANKS`` and whether it is ``mirrorable``.

    ``reserved``: the namespaces of ``_clusters``. The configs have to be read. No query.
    """
    prevented = _prevented(link, reserved)
    is_mirrored = Exists(_mirrors_named(link).filter(link=link).exclude(state=MirrorState.STOPPED))
    rank = Case(
        When(is_mirrored, then=RANKS[MirrorabilityStatus.MIRRORED]),
        *_waiting(link),
        default=RANKS[MirrorabilityStatus.NOT_MIRRORED],
    )
    mirrorable = (
        Value(value=False) if prevented is None else Case(*(When(found, then=False) for found in prevented), default=True)
    )
    return SourceTopic.objects.filter(link=link).annotate(mirrorable=mirrorable, rank=rank)


def _prevented(link: ClusterLink, reserved: Iterable[str]) -> list[Any] | None:
    """Return the conditions under which no mirror topic can be added for a source topic; None if none can be added for any."""
    prefix, destination = link.prefix, link.destination
    if _trouble(link) or link.source_cluster_id == destination.cluster_id:
        return None
    taken = SourceTopic.objects.filter(cluster=destination, name=_mirror_name(link))
    found: list[Any] = [
        Exists(_mirrors_named(link).filter(link__destination=destination)),  # first: it applies to most topics
        Exists(taken.order_by()),
        Q(internal=True),
        Q(name__in=sorted(INTERNAL_NAMES)),
        *(_begins_with(start) for start in INTERNAL_PREFIXES),
        Q(name__contains=SCRATCH_MARK) & Q(name__regex=SCRATCH.pattern),  # the expression alone takes longer than all others
        GreaterThan(Length("name"), MAX_TOPIC_LENGTH - len(prefix)),
    ]
    for namespace in reserved:
        if namespace.startswith(prefix):
            found.append(_begins_with(namespace.removeprefix(prefix)) if namespace else ~_begins_with("_"))
        elif contains(namespace, prefix):
            return None
    return [*found, Q(name__in=_returning(link))]


def _waiting(link: ClusterLink) -> list[When]:
    """Return the cases of the status of a source topic without a mirror topic; without a match it is not mirrored."""
    rules = filters_of(link) if link.config(AUTO_CREATE) == "true" else ()
    included = [_matched_by(rule) for rule in rules if rule.filter_type is FilterType.INCLUDE]
    if not included:  # the database would evaluate all conditions for each topic without a result
        return []
    without: list[Any] = [_matched_by(rule) for rule in rules if rule.filter_type is FilterType.EXCLUDE]
    if link.prefix:  # no mirrors of mirrors
        above = MirrorTopic.objects.filter(link__destination__cluster_id=link.source_cluster_id, name=OuterRef("name"))
        without += [Q(is_mirror=True), Exists(above.exclude(state=MirrorState.STOPPED).order_by())]
    without.append(Q(mirrorable=False))
    return [
        *(When(condition, then=RANKS[MirrorabilityStatus.NOT_MIRRORED]) for condition in without),
        *(When(condition, then=RANKS[MirrorabilityStatus.WAITING]) for condition in included),
    ]


def _matched_by(rule: NameFilter) -> Q:
    if rule.pattern_type is PatternType.PREFIXED:
        return _begins_with(rule.name)
    return Q(name__isnull=False) if rule.name == WILDCARD else Q(name=rule.name)


def _begins_with(prefix: str) -> Q:
    """Compare with LEFT, because LIKE ignores case in SQLite."""
    return Q(Exact(Left("name", len(prefix)), prefix))


def _mirror_name(link: ClusterLink) -> Concat | OuterRef:
    """Return the expression for the name of the mirror topic, in a subquery for a source topic."""
    return Concat(Value(link.prefix), OuterRef("name")) if link.prefix else OuterRef("name")


def _mirrors_named(link: ClusterLink) -> QuerySet[MirrorTopic]:
    """Return the mirrors with the name of the mirror topic of a source topic, on all links, for a subquery."""
    return MirrorTopic.objects.filter(drill=None, name=_mirror_name(link)).order_by()


# The topics of a cluster whose records come from another cluster, perhaps through several mirrors, as for ``find_ring``.
_RETURNING = """
WITH RECURSIVE fed (cluster_id, topic) AS (
    SELECT c.cluster_id, m.name
    FROM {mirrors} m JOIN {links} l ON l.id = m.link_id JOIN {clusters} c ON c.id = l.destination_id
    WHERE m.state <> %s AND l.source_cluster_id = %s
  UNION
    SELECT c.cluster_id, m.name
    FROM fed JOIN {links} l ON l.source_cluster_id = fed.cluster_id
    JOIN {mirrors} m ON m.link_id = l.id AND m.source_topic = fed.topic JOIN {clusters} c ON c.id = l.destination_id
    WHERE m.state <> %s
)
SELECT fed.topic FROM fed WHERE fed.cluster_id = %s
"""


def _returning(link: ClusterLink) -> RawSQL:
    """Return the query for the names of the source topics whose records come from the destination."""
    models = {"mirrors": MirrorTopic, "links": ClusterLink, "clusters": Cluster}
    tables = {name: connection.ops.quote_name(model._meta.db_table) for name, model in models.items()}  # noqa: SLF001
    stopped = MirrorState.STOPPED
    return RawSQL(  # noqa: S611 - names of tables only
        _RETURNING.format(**tables), [stopped, link.destination.cluster_id, stopped, link.source_cluster_id]
    )


def _mirrors_of(
    link: ClusterLink, topics: Collection[str], *, by: Actor
) -> tuple[dict[str, KnownMirror], dict[TopicOfCluster, TopicOfCluster]]:
    """Return what ``_mirrors`` returns, as far as it is needed for some source topics.

    One query, and a further one for each cluster through which records of these topics have come to the source.
    """
    if len(topics) > FEW:
        return _mirrors(link.destination, by=by, link=link)
    needed = Q(link__destination=link.destination, name__in=[f"{link.prefix}{name}" for name in topics])
    known, sources = dict[str, KnownMirror](), dict[TopicOfCluster, TopicOfCluster]()
    unread = {TopicOfCluster(link.source_cluster_id, name) for name in topics}
    while unread:
        for cluster in {topic.cluster for topic in unread}:
            above = [topic.name for topic in unread if topic.cluster == cluster]
            needed |= Q(link__destination__cluster_id=cluster, name__in=above)
        mirrors, found = _mirrors(link.destination, by=by, link=link, condition=needed)
        known |= {name: mirror for name, mirror in mirrors.items() if name not in known}
        sources |= found
        unread = {sources[topic] for topic in unread if topic in sources} - sources.keys()
        unread = {topic for topic in unread if topic.cluster != link.destination.cluster_id}
        needed = Q(pk__in=())
    return known, sources


# --- source topics to choose from -------------------------------------------------------------------------------------
#
# As of the last refresh, for the form that adds a mirror topic.


LIMIT = 500  # maximum in the list; with more topics the user enters names or narrows the list


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopicChoice:
    """A source topic that can be mirrored, or the reason why it cannot, in the language of the page."""

    name: str
    partitions: int
    retention_ms: int | None
    available: bool
    reason: str = ""
    mirror_name: str = ""


def source_topics_for(*, link: ClusterLink, by: Actor, search: str = "") -> list[SourceTopicChoice]:
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
    choices = [_choice(topic, link, mirrored=mirrored, taken=taken) for topic in topics]
    return sorted(choices, key=lambda choice: (not choice.available, choice.name))


def matching_names(*, link: ClusterLink, by: Actor, search: str, standing: str) -> list[str]:
    """Return the names of the source topics that can be mirrored and match the filter of the source topics list.

    Three queries, and three more with a ``standing``.
    """
    names = [choice.name for choice in source_topics_for(link=link, by=by, search=search) if choice.available]
    if not standing:
        return names
    prefetch_related_objects([link], "configs")
    _, reserved = _clusters(link.destination, by=None, link=link)
    rank = RANKS[MirrorabilityStatus(standing)] if standing in list(MirrorabilityStatus) else None
    found = with_standing(link, reserved=reserved).filter(name__icontains=search, rank=rank).order_by()
    matching = set(found.values_list("name", flat=True))
    return [name for name in names if name in matching]


def is_listable(link: ClusterLink) -> bool:
    """Return True if the source topics are known, so that a page can list them."""
    return link.topics_at is not None


def _choice(topic: SourceTopic, link: ClusterLink, *, mirrored: dict[str, str], taken: set[str]) -> SourceTopicChoice:
    """Create the choice of a topic. ``mirrored`` maps destination topics to the name of the other link, "" for this link."""
    name = link.prefix + topic.name
    reason = ""
    if topic.internal:
        reason = gettext("Internal topic")
    elif name in mirrored and not mirrored[name]:
        reason = gettext("Already mirrored")
    elif name in mirrored:
        reason = gettext("'%(name)s' is a mirror topic of %(link)s") % {"name": name, "link": mirrored[name]}
    elif name in taken:
        reason = gettext("The destination already has a topic '%(name)s'") % {"name": name}
    return SourceTopicChoice(
        name=topic.name,
        partitions=topic.partitions,
        retention_ms=topic.retention_ms,
        available=not reason,
        reason=reason,
        mirror_name=name,
    )
