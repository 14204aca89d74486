"""Load the facts with which ``linkengine.domain.mirrorability`` decides why a source topic is mirrored or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from django.db.models import prefetch_related_objects

from console.access import link_words, whole_cluster_names
from console.actors import Actor
from console.models import AutoCreateFailure, Cluster, ClusterLink, MirrorTopic, Namespace, SourceTopic
from linkengine.domain.linkrules import AUTO_CREATE, AUTO_CREATE_FILTERS
from linkengine.domain.linktasks import TaskError
from linkengine.domain.mirrorability import KnownMirror, Place, Surroundings, Topic, Verdict, judge, judge_all
from linkengine.domain.names import NameFilter, known_filters
from linkengine.domain.states import LinkMode, LinkState, MirrorState

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
