"""What a topic holds, and which topic that is: a name alone says neither after a topic was deleted and created again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import LogRange
from linkengine.domain.restoring import CommonPart, RestorePoint, common_ends, restore_points


class Topic(NamedTuple):
    """Where a topic is."""

    address: ClusterAddress
    name: str


class Parting(NamedTuple):
    """Which two topics were looked at, and where they part."""

    here_id: str
    there_id: str
    points: tuple[RestorePoint, ...]


def held_by(address: ClusterAddress, topic: str, *, closed: bool) -> tuple[str, Sequence[LogRange]]:
    """Answer the topic's id and what each partition holds; ``closed``: nobody may write, so this is final.

    Raises UNKNOWN_TOPIC_OR_PARTITION_ERROR where there is no such topic, and whatever ``jobs.log_ranges`` does.
    """
    found = jobs.find_topic(address, topic)
    if found is None:
        raise LinkEngineError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, f"Topic {topic!r} does not exist any more.")
    return found.topic_id, jobs.log_ranges(address, topic, closed=closed)


def parting_of(
    here: Topic, there: Topic, *, parts: Iterable[CommonPart], held: tuple[str, Sequence[LogRange]] | None = None
) -> Parting:
    """Look where two topics part, by what is known of their common part and what both hold now.

    ``held`` is what the topic here holds, if somebody has just looked. A source that lost records since they were copied from
    it (an unclean election, a cluster that was set back) has its mirror's records up to there only (KIP-101); of a mirror that
    lost its end after it was stopped nothing is known.
    """
    here_id, ours = held or held_by(*here, closed=False)
    there_id, theirs = held_by(*there, closed=False)
    common = common_now(here, there, parts=parts, ids=(here_id, there_id))
    return Parting(here_id, there_id, restore_points(ours, common=common, other=theirs))


def common_now(here: Topic, there: Topic, *, parts: Iterable[CommonPart], ids: tuple[str, str]) -> dict[int, int]:
    """Answer, by partition, up to where the two topics of these ids are known to be the same, as both prove it now."""
    proven = [_proven(part, here, there) for part in parts if (part.here_id, part.there_id) == ids]
    return common_ends(proven, here_id=ids[0], there_id=ids[1])


def _proven(part: CommonPart, here: Topic, there: Topic) -> CommonPart:
    """Answer what both still have of it: the source up to where its history goes, the copy where it still has its fence."""
    source, copy = (here, there) if part.source_is_here else (there, here)
    kept = part.as_kept(jobs.kept_up_to(*source, epochs=part.epochs))
    lost = jobs.lost_fences(*copy, fences=part.fences, epochs=part.fence_epochs, by_markers=part.by_markers)
    return kept.without(lost)
