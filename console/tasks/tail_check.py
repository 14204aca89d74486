"""Checks a promotion against the copy: whether it has failed, and whether the mirror ends with the source's records."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils import timezone

from console.mirrors import progress
from console.models import MirrorTopic
from console.reconciling import plans
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.leases import Grant
from linkengine.domain.plans import PartitionPhase


def copy_failure(mirror: MirrorTopic) -> dict[ErrorCode, str]:
    """Return the error of a partition that has failed permanently, if any has. Equal log ends do not override it."""
    newest = progress.current(MirrorTopic.objects.filter(pk=mirror.pk), now=timezone.now(), insist=True)
    failed = [row for entry in newest for row in entry.partitions if row.phase == PartitionPhase.FAILED]
    return {ErrorCode(row.error_code): row.error_message for row in failed[:1]}


def unconfirmed_end(mirror: MirrorTopic, grants: Iterable[Grant]) -> dict[ErrorCode, str]:
    """Return why the mirror's last records are not confirmed to be the source's. Call it while no copy worker runs.

    ``grants`` are the released leases; they contain how each owner left its partition. If a mirror's end is not confirmed, the
    next copy worker runs a tail check before it resumes, so the promotion has to wait for it. Markers that a crashed owner may
    have in flight are no reason to wait: the fence of the promotion makes the broker refuse them.
    """
    left = {grant.key: grant.left for grant in grants}
    try:
        found = jobs.failed_tail_checks(
            source=plans.source_address(mirror.link),
            destination=mirror.link.destination.address,
            source_topic=mirror.source_topic,
            mirror_topic=mirror.name,
            left={partition.partition: left.get(partition.key) for partition in plans.assignments_of(mirror)},
        )
    except LinkEngineError as error:
        return {error.code: error.message}
    if not found:
        return {}
    return {
        ErrorCode.WAITING_FOR_LAG: "Both sides end at the same offset, but the mirror's last records were not compared with "
        f"the source's yet (partition {found[0]}). The tail check runs as soon as copying resumes."
    }
