"""Assignments and stops of mirrors that a test has set up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.mirrorjobs import MirrorCreated, MirrorSetup, MirrorStop, MirrorStopped
from linkengine.domain.plans import PartitionAssignment, producer_id_for
from linkengine.domain.states import StopReason
from linkengine.jobs.mirror_topics import AssignmentsFactory


def assignments_of(setup: MirrorSetup) -> AssignmentsFactory:
    """Return a factory for the assignments of a mirror."""

    def make(partitions: int, source_topic_id: str) -> tuple[PartitionAssignment, ...]:
        return tuple(
            PartitionAssignment(
                mirror_id=setup.mirror_id,
                partition=partition,
                source_topic=setup.source_topic,
                mirror_topic=setup.mirror_topic,
                source_topic_id=source_topic_id,
                producer_id=producer_id_for(int(setup.link_id), int(setup.mirror_id), partition),
            )
            for partition in range(partitions)
        )

    return make


def failover_of(setup: MirrorSetup, created: MirrorCreated) -> MirrorStop:
    """Return the failover of a mirror with two partitions, directly after its set-up."""
    return MirrorStop(
        source=setup.source,
        destination=setup.destination,
        assignments=tuple(assignments_of(setup)(2, created.source_topic_id)),
        reason=StopReason.FAILOVER,
        generation=9,
        source_topic=setup.source_topic,
        mirror_topic=setup.mirror_topic,
        mirror_topic_id=created.mirror_topic_id,
        source_configs=created.source_configs,
    )


def stop_mirror(
    stop: MirrorStop, *, on_fenced: Callable[[MirrorStopped], Any] = lambda _: None, on_open: Callable[[], Any] = lambda: None
) -> MirrorStopped:
    """Stop a mirror in a list of its own; return the result or raise the error."""

    def record(found: Any) -> None:
        for stopped in found.values():
            on_fenced(stopped)

    (result,) = jobs.stop_mirrors([stop], on_fenced=record, on_open=lambda _: on_open()).values()
    if isinstance(result, LinkEngineError):
        raise result
    return result
