"""A partition for tests of its rules: nothing of it exists on any cluster."""

from __future__ import annotations

from linkengine.copyjob.partition import MirrorPartition
from linkengine.domain.plans import PartitionAssignment


def partition(number: int = 0) -> MirrorPartition:
    assignment = PartitionAssignment(
        mirror_id="1", partition=number, source_topic="t", mirror_topic="t", source_topic_id="", producer_id=1 << 62
    )
    return MirrorPartition(assignment, slice_id="slice")
