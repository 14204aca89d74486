"""What a person should know before an operation: warnings that refuse nothing."""

from __future__ import annotations

from console.access import visible_mirrors
from console.actors import Actor
from console.models import MirrorTopic
from linkengine.domain.states import GapReason, MirrorEvent, MirrorState

REVERSALS = (MirrorEvent.REVERSE_AND_START, MirrorEvent.REVERSE_AND_PAUSE)
_TRANSACTIONAL = (GapReason.TRANSACTION_MARKER, GapReason.ABORTED)
_NAMED = 3


def cautions_of(mirror: MirrorTopic, operation: MirrorEvent, *, by: Actor) -> tuple[str, ...]:
    """List what is worth knowing before an operation, from rows; no cluster is asked."""
    found: list[str] = []
    if operation in REVERSALS:
        found.append(_transactions(mirror))
    if operation is MirrorEvent.DELETE:
        found.append(mirrored_elsewhere(mirror.link.destination.cluster_id, mirror.name, by=by))
    return tuple(sentence for sentence in found if sentence)


def mirrored_elsewhere(cluster_id: str, topic: str, *, by: Actor) -> str:
    """Return a sentence on the mirrors that copy from a topic, "" if there are none. Names only those the actor may see."""
    mirrors = MirrorTopic.objects.filter(link__source_cluster_id=cluster_id, source_topic=topic, drill=None)
    mirrors = mirrors.exclude(state=MirrorState.STOPPED)
    total = mirrors.count()
    if not total:
        return ""
    seen = visible_mirrors(by).filter(pk__in=mirrors.values("pk")).select_related("link__destination").order_by("pk")[:_NAMED]
    named = [f"'{one.name}' on cluster '{one.link.destination.name}' (link '{one.link.name}')" for one in seen]
    others = total - len(named)
    more = [f"{others} {'more' if named else 'on other clusters'}"] if others else []
    return (
        f"Mirror topics copy from '{topic}': {', '.join([*named, *more])}. They become FAILED once it is deleted. Fail them "
        "over first, so that they become ordinary topics."
    )


def unclean_elections(topic: str, clusters: tuple[str, ...] | None) -> str:
    """Return the warning on unclean leader elections on these clusters; None: it could not be read."""
    if clusters is None:
        return f"Whether unclean.leader.election.enable is on for '{topic}' could not be read on both clusters."
    if not clusters:
        return ""
    return (
        f"unclean.leader.election.enable is on for '{topic}' on {' and '.join(clusters)}. A leader election there may lose "
        "records that the other side has, and the sides then differ after the reversal. Set it to false first."
    )


def _transactions(mirror: MirrorTopic) -> str:
    counts = [row.held_back for row in mirror.partitions.all()]
    waiting = sum(count for count in counts if count is not None)
    if not waiting and not mirror.gaps.filter(reason__in=_TRANSACTIONAL).exists():
        return ""
    now = f" {waiting:,} offsets wait behind open transactions now." if waiting else ""
    return (
        f"Transactional producers write to '{mirror.source_topic}'.{now} A transaction that is open when the reversal begins "
        "cannot write to this topic any more and ends by its timeout; the reversal waits for it. Stop these producers first, "
        "and reverse topics that share transactions one at a time."
    )
