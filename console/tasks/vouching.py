"""What a promotion asks about the copier: has it given up, and does it vouch for what the mirror ends with."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils import timezone

from console import progress
from console.models import MirrorTopic
from console.reconciling import plans
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.leases import Grant
from linkengine.domain.plans import PartitionPhase


def verdict(mirror: MirrorTopic) -> dict[ErrorCode, str]:
    """Return why the copier has given a partition up permanently, if it has; equal ends do not overrule it."""
    newest = progress.current(MirrorTopic.objects.filter(pk=mirror.pk), now=timezone.now(), insist=True)
    failed = [row for one in newest for row in one.partitions if row.phase == PartitionPhase.FAILED]
    return {ErrorCode(row.error_code): row.error_message for row in failed[:1]}


def doubts(mirror: MirrorTopic, grants: Iterable[Grant]) -> dict[ErrorCode, str]:
    """Answer what nobody vouches for, by the leases that the copier gave back; call it while it is not at work.

    The next copier compares such an end with the source before it goes on, so the promotion has to wait for it. Markers of a
    dead owner that may be under way are no reason to wait: the promotion's own fence shuts them out.
    """
    left = {one.key: one.left for one in grants}
    try:
        found = jobs.unvouched(
            source=plans.source_address(mirror.link),
            destination=mirror.link.destination.address,
            source_topic=mirror.source_topic,
            mirror_topic=mirror.name,
            left={one.partition: left.get(one.key) for one in plans.assignments_of(mirror)},
        )
    except LinkEngineError as error:
        return {error.code: error.message}
    if not found:
        return {}
    return {
        ErrorCode.WAITING_FOR_LAG: f"Both sides end at the same offset, but no copier has told yet that the mirror's last "
        f"records are the source's (partition {found[0]}). They are compared as soon as mirroring goes on."
    }
