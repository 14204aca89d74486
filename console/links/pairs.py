"""Finds related rows: the two sides of a link, and the two topics that mirror each other in turn. Reads only.

A bidirectional link has two rows with the same name, at both clusters, each with the mirrors whose destination it is. A
source-initiated link has a row with mode SOURCE at the source and an INBOUND row at the destination.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter

from django.db.models import Case, Exists, FilteredRelation, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce

from console.models import ClusterLink, GapRange, MirrorPartition, MirrorTopic, SourceTopic, StateTransitionError
from console.models.links import ConnectionMode
from console.models.mirrors import RECORDS_DIFFER
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linkrules import inbound_properties, own_properties, registered_properties
from linkengine.domain.mirrorjobs import CommonPart
from linkengine.domain.plans import GapFiller
from linkengine.domain.states import BECOMING, CLOSED_FIRST, GapReason, LinkMode, MirrorEvent, MirrorState

_OTHER_MODE = {
    LinkMode.BIDIRECTIONAL: LinkMode.BIDIRECTIONAL,
    LinkMode.SOURCE: LinkMode.DESTINATION,
    LinkMode.DESTINATION: LinkMode.SOURCE,
}


def other_side(link: ClusterLink) -> ClusterLink | None:
    """Return the row of the same link at the other cluster, if that cluster is registered and the row exists."""
    return other_sides(link).first() if has_two_sides(link) else None


def other_sides(link: ClusterLink) -> QuerySet[ClusterLink]:
    """Return the row of ``other_side`` as a QuerySet, for a link that ``has_two_sides``."""
    return ClusterLink.objects.filter(_is_other_side(link)).select_related("destination__environment", "source__environment")


def _is_other_side(link: ClusterLink) -> Q:
    found = Q(
        name=link.name,
        mode=_OTHER_MODE[LinkMode(link.mode)],
        destination__cluster_id=link.source_cluster_id,
        source_cluster_id=link.destination.cluster_id,
        deletion_requested_at=None,
    )
    return found & Q(connection_mode=ConnectionMode.INBOUND) if link.mode == LinkMode.SOURCE else found


def has_two_sides(link: ClusterLink) -> bool:
    """Return whether the link has two rows, at both clusters."""
    return link.mode != LinkMode.DESTINATION or link.connection_mode == ConnectionMode.INBOUND


def needs_other_side(link: ClusterLink) -> bool:
    """Return whether the link does nothing without its other side: the source of an INBOUND link opens the connection."""
    return link.mode == LinkMode.SOURCE or is_inbound(link)


def is_inbound(link: ClusterLink) -> bool:
    """Return whether the link is the destination's side of a source-initiated link."""
    return link.mode == LinkMode.DESTINATION and link.connection_mode == ConnectionMode.INBOUND


def properties_of_source(link: ClusterLink) -> dict[str, str]:
    """Return the properties with which a link reaches its source; contains secrets.

    Raises LinkEngineError if the link would send the registered cluster's credentials to an address that is not registered,
    and REMOTE_LINK_NOT_FOUND_ERROR for a stored INBOUND link without its source side. The owner of the source side decides
    which credentials are used, and by deleting it that none are; the registered credentials must not take their place. Only a
    link that is being created is checked with them, by a user who may use them (``console.links.checks``).
    """
    registered = link.source.properties if link.source else {}
    if is_inbound(link):
        other = other_side(link)
        if other is None and link.pk is not None:
            raise LinkEngineError(ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR, missing_side(link))
        return inbound_properties(other.properties if other else {}, registered)
    if link.uses_cluster_credentials and link.source:
        return registered_properties(own_properties(link.properties), registered)
    return own_properties(link.properties)


def missing_side(link: ClusterLink) -> str:
    """Return the message that says which row has to be created before a link can work that needs its other side."""
    here, there = link.destination.cluster_id, link.source_cluster_id
    if link.mode == LinkMode.SOURCE:
        return (
            f"The destination side is missing: create cluster link '{link.name}' on cluster {there} with "
            f"link.mode=DESTINATION, connection.mode=INBOUND and source_cluster_id {here}. Mirror topics are created there."
        )
    return (
        f"The source side is missing: create cluster link '{link.name}' on cluster {there} with link.mode=SOURCE and "
        f"destination_cluster_id {here}. Until then nothing is mirrored."
    )


def counterpart(mirror: MirrorTopic) -> MirrorTopic | None:
    """Return the row of the other topic of a pair, if it was a mirror of this topic or is to become its mirror."""
    there = other_side(mirror.link)
    if there is None:
        return None
    rows = MirrorTopic.objects.filter(link=there, name=mirror.source_topic, source_topic=mirror.name)
    return rows.select_related("link__destination__environment", "link__source").first()


def mirrors_of_names(cluster_id: str, topics: Sequence[str]) -> QuerySet[MirrorTopic]:
    """Return the rows by which topics of these names are, are to become, or were until recently, mirrors on a cluster."""
    return MirrorTopic.objects.unstopped().filter(link__destination__cluster_id=cluster_id, name__in=topics)


def side_with_common_part(mirror: MirrorTopic) -> ClusterLink | None:
    """Return the paired link of a stopped mirror if ``have_common_part`` holds for the mirror and its counterpart."""
    if not has_two_sides(mirror.link):
        return None
    copies = MirrorTopic.objects.filter(name=mirror.source_topic, source_topic=mirror.name, link=OuterRef("pk"))
    stopped = Exists(copies.filter(state=MirrorState.STOPPED, holds_copy=True))
    other = other_sides(mirror.link).annotate(has_copy=stopped).first()
    return other if other is not None and (_was_copy(mirror) or other.has_copy) else None


def have_common_part(mirror: MirrorTopic, other: MirrorTopic | None) -> bool:
    """Return whether either topic was stopped as a copy of the other: up to there both topics have the same records."""
    return _was_copy(mirror) or (other is not None and was_stopped_as_copy(other))


def common_parts(mirror: MirrorTopic, other: MirrorTopic | None) -> Iterator[CommonPart]:
    """Yield the ranges that both topics have in common, as each of the two rows has them; ``here`` is the topic of ``mirror``.

    If a verification run found different records, whatever the direction of copying, nothing counts as common.
    """
    differ = any(row is not None and row.pk is not None and is_known_to_differ(row) for row in (mirror, other))
    if _was_copy(mirror):
        yield _part(mirror, here_id=mirror.mirror_topic_id, there_id=mirror.source_topic_id, differ=differ)
    if other is not None and was_stopped_as_copy(other):
        part = _part(other, here_id=other.source_topic_id, there_id=other.mirror_topic_id, differ=differ)
        yield replace(part, source_is_here=True)


def _part(copy: MirrorTopic, *, here_id: str, there_id: str, differ: bool) -> CommonPart:
    return CommonPart(
        here_id=here_id,
        there_id=there_id,
        ends={} if differ else _ends(copy),
        epochs=_epochs(copy),
        fences=_fences(copy),
        fence_epochs=fence_epochs(copy),
        by_markers=copy.link.gap_filler == GapFiller.MARKERS,
    )


def was_stopped_as_copy(mirror: MirrorTopic) -> bool:
    """Return whether the topic is stopped and its row has the offsets at which it ended as a copy."""
    return mirror.state == MirrorState.STOPPED and mirror.holds_copy


def _was_copy(mirror: MirrorTopic) -> bool:
    """Return ``was_stopped_as_copy``, also for a topic that is to be restored, until both sides have agreed on its offsets."""
    waits = mirror.state == MirrorState.PENDING_SETUP_FOR_RESTORE and mirror.holds_copy
    return waits or was_stopped_as_copy(mirror)


def first_offsets(mirror: MirrorTopic) -> dict[int, int]:
    """Return, by partition, the first offset that a mirror ever had, for partitions that did not start at offset 0."""
    heads = mirror.gaps.filter(reason=GapReason.HEAD).values_list("partition", "end")
    return dict(heads.order_by("end"))


def _ends(mirror: MirrorTopic) -> dict[int, int]:
    """Return the mirrored ends by partition; empty if the mirror is no valid copy, so that its ends mean nothing."""
    if not was_valid_copy(mirror):
        return {}
    return mirrored_ends(mirror)


def mirrored_ends(mirror: MirrorTopic) -> dict[int, int]:
    """Return, by partition, the offset after the last mirrored record. The fence may be at a later offset.

    Contains the partitions whose fence was recorded.
    """
    rows = MirrorPartition.objects.filter(mirror=mirror).exclude(stopped_end=None).order_by("partition")
    return {row.partition: row.stopped_end for row in rows if row.stopped_end is not None}


def is_known_to_differ(mirror: MirrorTopic) -> bool:
    """Return whether a verification run found records that differ from the source's.

    A later run that verifies the whole mirror ends that.
    """
    return mirror.transition_errors.filter(code=RECORDS_DIFFER).exists()


def was_valid_copy(mirror: MirrorTopic) -> bool:
    """Return whether the mirror was a copy of its source when it was stopped, as far as was known then.

    A mirror that had failed (a foreign write, a truncated source), even while its promotion waited, or that differed in a
    verification run has an end, too, but its records below that say nothing about the source.
    """
    if is_known_to_differ(mirror):
        return False
    stops = mirror.transitions.filter(to_state=MirrorState.PENDING_STOPPED)
    stop = stops.exclude(from_state__in=[*BECOMING, MirrorState.PENDING_STOPPED]).first()
    if stop is None:
        return True
    failed = mirror.transitions.filter(pk__gt=stop.pk, event=MirrorEvent.FATAL)
    return stop.from_state != MirrorState.FAILED and not failed.exists()


def _epochs(mirror: MirrorTopic) -> dict[int, int]:
    """Return the newest leader epochs of the source under which the mirror was read, by partition."""
    rows = MirrorPartition.objects.filter(mirror=mirror, source_epoch__gte=0)
    return {row.partition: row.source_epoch for row in rows if row.source_epoch is not None}


def _fences(mirror: MirrorTopic) -> dict[int, int]:
    """Return the offsets of the mirror's fences, by partition. An earlier version has stored a single end."""
    rows = MirrorPartition.objects.filter(mirror=mirror).annotate(fence=Coalesce("fenced_end", "stopped_end"))
    return dict(rows.exclude(stopped_end=None).order_by("partition").values_list("partition", "fence"))


def fence_epochs(mirror: MirrorTopic) -> dict[int, int]:
    """Return the leader epochs under which the fences were seen, by partition, where that was stored."""
    rows = MirrorPartition.objects.filter(mirror=mirror).order_by("partition").values_list("partition", "fence_epoch")
    return {partition: epoch for partition, epoch in rows if epoch is not None}


# --- the same for several mirrors -------------------------------------------------------------------------------------


_DIFFERENT, _TRANSACTIONAL = -1, -2


def copies_of(cluster_id: str, topics: Collection[str]) -> Mapping[str, Sequence[MirrorTopic]]:
    """Return the mirrors, not stopped, of topics of a cluster, by the topic; oldest first. One query."""
    found: dict[str, list[MirrorTopic]] = defaultdict(list)
    rows = MirrorTopic.objects.unstopped().filter(link__source_cluster_id=cluster_id, source_topic__in=topics)
    for row in rows.select_related("link__destination__environment").order_by("pk"):
        found[row.source_topic].append(row)
    return found


def that_needs_records(copies: Iterable[MirrorTopic]) -> MirrorTopic | None:
    """Return the first of the mirrors of an ordinary topic that is being made from it and may need its records."""
    return next((row for row in copies if row.state in CLOSED_FIRST), None)


class RelatedRows:
    """The rows that the rules of operations read beside mirrors of a link.

    Each kind is read when a rule needs it, for all mirrors in one query.
    """

    def __init__(self, mirrors: Sequence[MirrorTopic]) -> None:
        """``mirrors`` are those that the rules are applied to."""
        self._mirrors = mirrors

    @cached_property
    def other_side(self) -> ClusterLink | None:
        """The other side of the link."""
        return next((row for row in self._links_there if row.is_other_side), None)  # type: ignore[attr-defined]

    def counterpart(self, mirror: MirrorTopic) -> MirrorTopic | None:
        """Return the row of the other topic of a pair, as ``counterpart`` does."""
        other = self.other_side
        rows = self._there.get(mirror.source_topic, ())
        return next((row for row in rows if other and row.link_id == other.pk and row.source_topic == mirror.name), None)

    def owner_there(self, mirror: MirrorTopic) -> MirrorTopic | None:
        """Return the mirror, not stopped, that owns the source topic on the cluster of the other side."""
        return _unstopped(self._there.get(mirror.source_topic, ()))

    def owner_here(self, mirror: MirrorTopic) -> MirrorTopic | None:
        """Return the mirror, not stopped, that owns the topic of the mirror, whatever its link."""
        return _unstopped(self._here.get(mirror.name, ()))

    @cached_property
    def _there(self) -> Mapping[str, Sequence[MirrorTopic]]:
        found: dict[str, list[MirrorTopic]] = defaultdict(list)
        for row in self._links_there if self.other_side is not None else ():
            mirror: MirrorTopic | None = getattr(row, "of_topic", None)
            if mirror is not None:
                mirror.link = row
                found[mirror.name].append(mirror)
        return {name: sorted(rows, key=attrgetter("pk")) for name, rows in found.items()}

    @cached_property
    def _links_there(self) -> Sequence[ClusterLink]:
        """The other side of the link, and each link of its cluster with a mirror of a source topic's name, once per mirror."""
        link, names = self._mirrors[0].link, {mirror.source_topic for mirror in self._mirrors}
        if not has_two_sides(link):
            return ()
        is_other_side = _is_other_side(link)
        links = ClusterLink.objects.filter(destination__cluster_id=link.source_cluster_id).annotate(
            of_topic=FilteredRelation("mirrors", condition=Q(mirrors__name__in=names)),
            is_other_side=Case(When(is_other_side, then=True), default=False),
        )
        shown = links.filter(is_other_side | Q(of_topic__isnull=False))
        related = ("destination__environment", "source__environment", "of_topic")
        return list(shown.select_related(*related))

    @cached_property
    def _here(self) -> Mapping[str, Sequence[MirrorTopic]]:
        return _rows_by_name(self._mirrors[0].link.destination_id, {mirror.name for mirror in self._mirrors})

    def differs(self, mirror: MirrorTopic) -> bool:
        """Return ``is_known_to_differ``."""
        return _DIFFERENT in self._ledger.get(mirror.pk, {})

    def has_transactions(self, mirror: MirrorTopic) -> bool:
        """Return whether the gap ledger of a mirror has transaction markers or aborted records."""
        return _TRANSACTIONAL in self._ledger.get(mirror.pk, {})

    def first_offsets(self, mirror: MirrorTopic) -> dict[int, int]:
        """Return ``first_offsets``."""
        return {partition: end for partition, end in self._ledger.get(mirror.pk, {}).items() if partition >= 0}

    @cached_property
    def _ledger(self) -> Mapping[int, Mapping[int, int]]:
        """The first offsets by mirror and partition, with two marks of mirrors in the place of a partition."""
        keys = [mirror.pk for mirror in self._mirrors if mirror.pk is not None]
        heads = GapRange.objects.filter(mirror__in=keys, reason=GapReason.HEAD).order_by()
        different = StateTransitionError.objects.filter(mirror__in=keys, code=RECORDS_DIFFER).order_by()
        gaps = GapRange.objects.filter(mirror=OuterRef("pk"), reason__in=(GapReason.TRANSACTION_MARKER, GapReason.ABORTED))
        transactional = MirrorTopic.objects.filter(Exists(gaps), pk__in=keys).order_by()
        rows = heads.values_list("mirror_id", "partition", "end").union(
            different.values_list("mirror_id", Value(_DIFFERENT), Value(0)),
            transactional.values_list("pk", Value(_TRANSACTIONAL), Value(0)),
            all=True,
        )
        found: dict[int, dict[int, int]] = defaultdict(dict)
        for key, partition, end in sorted(rows):  # of several heads of a partition the last, as above
            found[key][partition] = end
        return found

    @cached_property
    def listed_sources(self) -> set[str]:
        """The source topics of the mirrors that the last list of the source's topics has."""
        names = {mirror.source_topic for mirror in self._mirrors}
        found = SourceTopic.objects.filter(link=self._mirrors[0].link_id, name__in=names)
        return set(found.values_list("name", flat=True))

    @cached_property
    def copies(self) -> Mapping[str, Sequence[MirrorTopic]]:
        """``copies_of`` the topics of the mirrors."""
        return copies_of(self._mirrors[0].link.destination.cluster_id, [mirror.name for mirror in self._mirrors])

    def dependent(self, mirror: MirrorTopic) -> MirrorTopic | None:
        """Return the first mirror that needs the records of the topic of a mirror."""
        return that_needs_records(self.copies.get(mirror.name, ()))


def _rows_by_name(cluster_pk: int, names: Collection[str]) -> Mapping[str, Sequence[MirrorTopic]]:
    """Return the rows of topics of a cluster, of all links, by name."""
    found: dict[str, list[MirrorTopic]] = defaultdict(list)
    rows = MirrorTopic.objects.filter(link__destination=cluster_pk, name__in=names)
    for row in rows.select_related("link__destination__environment", "link__source").order_by("pk"):
        found[row.name].append(row)
    return found


def _unstopped(rows: Iterable[MirrorTopic]) -> MirrorTopic | None:
    return next((row for row in rows if row.state != MirrorState.STOPPED), None)
