"""Warnings before an operation on mirror topics. They do not prevent the operation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from django.db.models import Exists, OuterRef

from console.access import visible_mirrors
from console.actors import Actor
from console.models import GapRange, MirrorTopic
from linkengine.domain.clusterviews import ReversalRisks, TransactionalWriters
from linkengine.domain.states import GapReason, MirrorEvent

REVERSALS = (MirrorEvent.REVERSE_AND_START, MirrorEvent.REVERSE_AND_PAUSE)
WARNED = (*REVERSALS, MirrorEvent.DELETE)  # the operations that can have warnings
_TRANSACTIONAL = (GapReason.TRANSACTION_MARKER, GapReason.ABORTED)
_NAMED = 3  # mirrors listed in a warning
IDS_NAMED = 10  # transactional ids listed in a warning


def cautions_of(
    mirror: MirrorTopic, operation: MirrorEvent, *, by: Actor, risks: ReversalRisks | None = None
) -> tuple[str, ...]:
    """Return the warnings before an operation. ``risks`` are the risks of a reversal, if they were read from the clusters."""
    read = {mirror.name: risks} if risks is not None else {}
    return cautions_of_many([mirror], operation, by=by, risks=read)[mirror.pk]


def cautions_of_many(
    mirrors: Sequence[MirrorTopic], operation: MirrorEvent, *, by: Actor, risks: Mapping[str, ReversalRisks]
) -> dict[int, tuple[str, ...]]:
    """Return the warnings before an operation on mirrors of a link, by primary key. At most two queries for all of them.

    ``risks`` are the risks of a reversal by mirror topic, if they were read from the clusters. The partitions must be
    prefetched.
    """
    if operation in REVERSALS:
        transactional = _with_transactions(mirrors)
        found = {mirror.pk: _of_reversal(mirror, risks.get(mirror.name), transactional=transactional) for mirror in mirrors}
    elif operation is MirrorEvent.DELETE and mirrors:
        names = {mirror.name for mirror in mirrors}
        copied = _mirrored_elsewhere(mirrors[0].link.destination.cluster_id, names, by=by)
        found = {mirror.pk: [copied.get(mirror.name, "")] for mirror in mirrors}
    else:
        found = {mirror.pk: [] for mirror in mirrors}
    return {pk: tuple(warning for warning in warnings if warning) for pk, warnings in found.items()}


def mirrored_elsewhere(cluster_id: str, topic: str, *, by: Actor) -> str:
    """Return the warning on mirrors that copy from a topic, "" if there are none. Lists only those that the actor may see."""
    return _mirrored_elsewhere(cluster_id, [topic], by=by).get(topic, "")


def _mirrored_elsewhere(cluster_id: str, topics: Iterable[str], *, by: Actor) -> dict[str, str]:
    """Return the warning by topic, without the topics from which no mirror copies."""
    mirrors = MirrorTopic.objects.listed().unstopped().filter(link__source_cluster_id=cluster_id, source_topic__in=topics)
    totals: dict[str, int] = defaultdict(int)
    for topic in mirrors.values_list("source_topic", flat=True):
        totals[topic] += 1
    if not totals:
        return {}
    visible = visible_mirrors(by).filter(pk__in=mirrors.values("pk")).select_related("link__destination").order_by("pk")
    named: dict[str, list[str]] = defaultdict(list)
    for mirror in visible:
        named[mirror.source_topic].append(
            f"'{mirror.name}' on cluster '{mirror.link.destination.name}' (link '{mirror.link.name}')"
        )
    return {topic: _deletion_warning(topic, named[topic][:_NAMED], total) for topic, total in totals.items()}


def _deletion_warning(topic: str, named: Sequence[str], total: int) -> str:
    others = total - len(named)
    more = [f"{others} {'more' if named else 'on other clusters'}"] if others else []
    return (
        f"Mirror topics copy from '{topic}': {', '.join([*named, *more])}. They become FAILED once it is deleted. Fail them "
        "over first, so that they become ordinary topics."
    )


def unclean_elections(topic: str, clusters: tuple[str, ...] | None) -> str:
    """Return the warning on unclean leader election on these clusters (None: could not be read); "" if there are none."""
    if clusters is None:
        return f"Whether unclean.leader.election.enable is on for '{topic}' could not be read on both clusters."
    if not clusters:
        return ""
    return (
        f"unclean.leader.election.enable is on for '{topic}' on {' and '.join(clusters)}. A leader election there may lose "
        "records that the other side has, and the sides then differ after the reversal. Set it to false first."
    )


def _with_transactions(mirrors: Iterable[MirrorTopic]) -> set[int]:
    """Return the primary keys of the mirrors whose gap ledger has transaction markers or aborted records."""
    gaps = GapRange.objects.filter(mirror=OuterRef("pk"), reason__in=_TRANSACTIONAL)
    chosen = MirrorTopic.objects.filter(Exists(gaps), pk__in=[mirror.pk for mirror in mirrors])
    return set(chosen.values_list("pk", flat=True))


def _of_reversal(mirror: MirrorTopic, risks: ReversalRisks | None, *, transactional: Collection[int]) -> list[str]:
    """Return the warnings before a reversal, some empty. ``transactional``: mirrors with copied or aborted transactions."""
    writers = risks.writers if risks is not None else None
    named = transactional_ids(mirror.source_topic, risks.writers) if risks is not None else ""
    elections = unclean_elections(mirror.name, risks.unclean_on) if risks is not None else ""
    counts = [row.held_back for row in mirror.partitions.all()]
    waiting = sum(count for count in counts if count is not None)
    writes = bool(writers and (writers.ids or writers.unnamed_open))
    if not waiting and not writes and mirror.pk not in transactional:
        return [named, elections]
    now = f" {waiting:,} offsets wait behind open transactions now." if waiting else ""
    advice = (
        f"Transactional producers write to '{mirror.source_topic}'.{now} A transaction that is open when the reversal begins "
        "cannot write to this topic any more and ends by its timeout; the reversal waits for it. Stop these producers first, "
        "and reverse topics that share transactions one at a time."
    )
    return [advice, named, elections]


def transactional_ids(topic: str, writers: TransactionalWriters | None) -> str:
    """Return the warning on transactional ids that write to a topic (None: could not be read); "" if there are none."""
    if writers is None:
        return f"The transactional ids that write to '{topic}' could not be read; there may be some."
    sentences = []
    if writers.ids:
        shown = [f"{name} (transaction open)" if name in writers.open_ids else name for name in _open_first(writers)]
        more = [f"{len(shown) - IDS_NAMED:,} more"] if len(shown) > IDS_NAMED else []
        sentences.append(f"Transactional ids that wrote to '{topic}' recently: {', '.join([*shown[:IDS_NAMED], *more])}.")
    if writers.unnamed_open:
        sentences.append(f"Open transactions in '{topic}' whose transactional id is unknown: {writers.unnamed_open:,}.")
    if not writers.complete:
        sentences.append(
            f"More transactional ids may write to '{topic}': the link's principal at the source lacks DESCRIBE on some "
            "transactional ids, and these cannot be listed."
        )
    return " ".join(sentences)


def _open_first(writers: TransactionalWriters) -> list[str]:
    return sorted(writers.ids, key=lambda name: (name not in writers.open_ids, name))
