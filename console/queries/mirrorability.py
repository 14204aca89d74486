"""Why source topics of a link are mirrored or not: rows become the facts that ``linkengine.domain.mirrorchecks`` judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from django.db.models import prefetch_related_objects

from console.access import link_words, whole_cluster_names
from console.actors import Actor
from console.models import AutoCreateFailure, ClusterLink, MirrorTopic, Namespace, SourceTopic
from linkengine.domain.filters import NameFilter, known_filters
from linkengine.domain.linkrules import AUTO_CREATE, AUTO_CREATE_FILTERS
from linkengine.domain.linktasks import TaskError
from linkengine.domain.mirrorability import KnownMirror, Surroundings, Topic, Verdict
from linkengine.domain.mirrorchecks import judge, judge_all
from linkengine.domain.rings import Place
from linkengine.domain.states import LinkMode, LinkState, MirrorState

_TROUBLES = {
    LinkState.PAUSED: "The link is paused.",
    LinkState.FAILED: "The link is broken: {}",
    LinkState.UNAVAILABLE: "The source cannot be reached: {}",
}


def surroundings_of(link: ClusterLink, *, by: Actor | None = None, taken: Iterable[str] | None = None) -> Surroundings:
    """Gather what is known around a link; eight queries. ``taken`` are the destination's topics if they were just listed.

    ``by`` is the reader; other links and clusters are named only as far as that person may see them. Without a reader, for
    findings that are stored and shown to many, none is named.
    """
    prefetch_related_objects([link], "configs")
    words = link_words(by, link.destination) if by else _unnamed
    if taken is None:
        taken = SourceTopic.objects.filter(cluster=link.destination_id).values_list("name", flat=True)
    return Surroundings(
        source=link.source_cluster_id,
        destination=link.destination.cluster_id,
        prefix=link.prefix,
        auto_create=link.config(AUTO_CREATE) == "true",
        filters=filters_of(link),
        link_trouble=_trouble(link),
        mirrors=_mirrors(link, words),
        taken=frozenset(taken),
        reserved=_reserved(link, words),
        sources=sources(),
        cluster_names=whole_cluster_names(by) if by else {},
        failures=_failures(link),
    )


def filters_of(link: ClusterLink) -> tuple[NameFilter, ...]:
    """Answer the auto-create filters of a link."""
    return known_filters(link.config(AUTO_CREATE_FILTERS))


def sources() -> Mapping[Place, Place]:
    """Answer what each mirror topic that is not stopped mirrors, over all links; one query."""
    rows = MirrorTopic.objects.exclude(state=MirrorState.STOPPED).order_by()
    values = rows.values_list("link__destination__cluster_id", "name", "link__source_cluster_id", "source_topic")
    return {Place(here, name): Place(there, topic) for here, name, there, topic in values}


def judge_topic(*, link: ClusterLink, name: str, by: Actor | None = None) -> Verdict:
    """Answer why one topic of the source, by name, is mirrored or not; a name nobody has seen is answered too."""
    row = SourceTopic.objects.filter(link=link, name=name).first()
    topic = _topic(row) if row else Topic(name=name, exists=False)
    return judge(topic, surroundings_of(link, by=by))


def judge_source(
    *, link: ClusterLink, by: Actor, search: str = "", filters: tuple[NameFilter, ...] | None = None
) -> list[Verdict]:
    """Judge every topic of the source that was last seen, by name; eight queries. ``filters``: as if auto-create had these."""
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


def _mirrors(link: ClusterLink, words: Callable[[str], str]) -> dict[str, KnownMirror]:
    rows = MirrorTopic.objects.filter(link__destination=link.destination_id, drill=None).order_by()
    known: dict[str, KnownMirror] = {}
    for name, link_id, link_name, state in rows.values_list("name", "link_id", "link__name", "state"):
        one = KnownMirror(link=words(link_name), state=MirrorState(state), own=link_id == link.pk)
        if one.own or name not in known:
            known[name] = one
    return known


def _reserved(link: ClusterLink, words: Callable[[str], str]) -> dict[str, str]:
    """Answer the namespaces of the destination in which nobody may create a mirror topic of this link, by hand or not."""
    rows = Namespace.objects.filter(cluster=link.destination_id, reserved=True).exclude(link=link.pk)
    return {prefix: words(name) if name else "" for prefix, name in rows.values_list("prefix", "link__name")}


def _failures(link: ClusterLink) -> dict[str, TaskError]:
    rows = AutoCreateFailure.objects.filter(link=link).values_list("source_topic", "code", "message")
    return {topic: TaskError(code=code, message=message) for topic, code, message in rows}


def _trouble(link: ClusterLink) -> str:
    if link.deletion_requested_at is not None:
        return "The link is being deleted."
    if link.mode == LinkMode.SOURCE:
        return "This is the source's side of the link; mirror topics are created by the link of the other cluster."
    words = _TROUBLES.get(LinkState(link.state), "")
    return words.format(link.error_message)
