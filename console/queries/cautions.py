"""Warnings before an operation on a mirror topic. They do not prevent the operation."""

from __future__ import annotations

from console.access import visible_mirrors
from console.actors import Actor
from console.models import MirrorTopic
from linkengine.domain.clusterviews import ReversalRisks, TransactionalWriters
from linkengine.domain.states import GapReason, MirrorEvent, MirrorState

REVERSALS = (MirrorEvent.REVERSE_AND_START, MirrorEvent.REVERSE_AND_PAUSE)
_TRANSACTIONAL = (GapReason.TRANSACTION_MARKER, GapReason.ABORTED)
_NAMED = 3  # mirrors listed in a warning
IDS_NAMED = 10  # transactional ids listed in a warning


def cautions_of(
    mirror: MirrorTopic, operation: MirrorEvent, *, by: Actor, risks: ReversalRisks | None = None
) -> tuple[str, ...]:
    """Return the warnings before an operation. ``risks`` are the risks of a reversal, if they were read from the clusters."""
    warnings: list[str] = []
    if operation in REVERSALS:
        warnings += _transactions(mirror, risks)
        if risks is not None:
            warnings.append(unclean_elections(mirror.name, risks.unclean_on))
    if operation is MirrorEvent.DELETE:
        warnings.append(mirrored_elsewhere(mirror.link.destination.cluster_id, mirror.name, by=by))
    return tuple(warning for warning in warnings if warning)


def mirrored_elsewhere(cluster_id: str, topic: str, *, by: Actor) -> str:
    """Return the warning on mirrors that copy from a topic, "" if there are none. Lists only those that the actor may see."""
    mirrors = MirrorTopic.objects.filter(link__source_cluster_id=cluster_id, source_topic=topic, drill=None)
    mirrors = mirrors.exclude(state=MirrorState.STOPPED)
    total = mirrors.count()
    if not total:
        return ""
    visible = (
        visible_mirrors(by).filter(pk__in=mirrors.values("pk")).select_related("link__destination").order_by("pk")[:_NAMED]
    )
    named = [
        f"'{mirror.name}' on cluster '{mirror.link.destination.name}' (link '{mirror.link.name}')"
        for mirror in visible[:_NAMED]
    ]
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


def _transactions(mirror: MirrorTopic, risks: ReversalRisks | None) -> list[str]:
    writers = risks.writers if risks is not None else None
    named = transactional_ids(mirror.source_topic, risks.writers) if risks is not None else ""
    counts = [row.held_back for row in mirror.partitions.all()]
    waiting = sum(count for count in counts if count is not None)
    writes = bool(writers and (writers.ids or writers.unnamed_open))
    if not waiting and not writes and not mirror.gaps.filter(reason__in=_TRANSACTIONAL).exists():
        return [named]
    now = f" {waiting:,} offsets wait behind open transactions now." if waiting else ""
    advice = (
        f"Transactional producers write to '{mirror.source_topic}'.{now} A transaction that is open when the reversal begins "
        "cannot write to this topic any more and ends by its timeout; the reversal waits for it. Stop these producers first, "
        "and reverse topics that share transactions one at a time."
    )
    return [advice, named]


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
