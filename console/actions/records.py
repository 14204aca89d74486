"""Reads the record at an offset of a mirror and of its source. Each read is in the audit log, without contents."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from console import audit
from console.access import Permission, check_permission
from console.actors import Actor
from console.clusters.live_queries import CALL_TIMEOUT_S
from console.errors import BadRequestError, ConflictError, ConsoleError, from_cluster
from console.models import MirrorTopic
from console.models.fields import unseal
from console.queue import dispatch
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.record_views import GapEntry, Judgement, Presence, judge
from linkengine.domain.states import GapReason, MirrorState

MAX_OFFSET = (1 << 63) - 1
_ACTION = "ReadRecord"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRecord:
    """Both sides at an offset. ``source`` and ``mirror`` are a ``record_views.SideView`` as JSON."""

    partition: int
    offset: int
    judgement: Judgement
    differing: tuple[str, ...]
    source: dict[str, Any]
    mirror: dict[str, Any]

    @property
    def next_offset(self) -> int | None:
        """The next offset at which either side may have something; None if both logs end here."""
        following = [side["next_offset"] for side in (self.source, self.mirror) if side["next_offset"] is not None]
        return min(following, default=None)


def compare_record(
    *, mirror: MirrorTopic, partition: int, offset: int | None = None, timestamp_ms: int | None = None, by: Actor, now: datetime
) -> ComparedRecord:
    """Read both sides at an offset, or at the mirror's first record that is not older than ``timestamp_ms``.

    Needs the permission to read records of the mirror topic, which includes those of its source. A worker reads them; the
    call waits at most CALL_TIMEOUT_S. Raises ConsoleError. The audit log has the place, whether or not it could be read.
    """
    check_permission(by, Permission.READ_RECORDS, mirror=mirror)
    _check_place(mirror, partition=partition, offset=offset, timestamp_ms=timestamp_ms)
    place = {"partition": partition, "offset": offset, "timestamp_ms": timestamp_ms}
    detail = {name: value for name, value in place.items() if value is not None}
    note = partial(audit.record, by=by, action=_ACTION, resource=audit.path_of(mirror), now=now)
    try:
        sealed = dispatch.call("compare_record", timeout_s=CALL_TIMEOUT_S, mirror_pk=mirror.pk, **place)
    except (LinkEngineError, ConsoleError) as error:
        refusal = from_cluster(error) if isinstance(error, LinkEngineError) else error
        note(result=audit.Result.FAILURE, detail={**detail, "code": refusal.code})
        raise refusal from error
    found = unseal(sealed)
    note(detail={**detail, "offset": found["offset"]})
    return _judged(mirror, found)


def _check_place(mirror: MirrorTopic, *, partition: int, offset: int | None, timestamp_ms: int | None) -> None:
    if not mirror.num_partitions:
        raise ConflictError(f"Topic '{mirror.name}' is not set up yet. Retry when its state is ACTIVE.")
    if not 0 <= partition < mirror.num_partitions:
        raise BadRequestError(
            f"Mirror topic '{mirror.name}' has no partition {partition}. Its partitions are 0 to {mirror.num_partitions - 1}.",
            field="partition",
        )
    if (offset is None) == (timestamp_ms is None):
        raise BadRequestError("Give either an offset or a time.", field="offset")
    if not 0 <= (offset or 0) <= MAX_OFFSET:
        raise BadRequestError(f"An offset is a whole number from 0 to {MAX_OFFSET}.", field="offset")
    if not 0 <= (timestamp_ms or 0) <= MAX_OFFSET:  # negative ones have other meanings in Kafka's protocol
        raise BadRequestError("The time must not be before 1970.", field="timestamp_ms")


def _judged(mirror: MirrorTopic, found: dict[str, Any]) -> ComparedRecord:
    partition, offset = found["partition"], found["offset"]
    rows = mirror.gaps.filter(partition=partition, start__lte=offset, end__gt=offset)
    ledger = [GapEntry(reason=GapReason(row.reason), exact=row.filled == row.end - row.start) for row in rows]
    stopped = mirror.state == MirrorState.STOPPED
    ends = mirror.partitions.filter(partition=partition).values_list("stopped_end", flat=True) if stopped else ()
    judgement = judge(
        source=Presence(found["source"]["presence"]),
        mirror=Presence(found["mirror"]["presence"]),
        differing=found["differing"],
        ledger=ledger,
        was_compacted=mirror.was_compacted,
        after_stop=any(end is not None and offset >= end for end in ends),
    )
    return ComparedRecord(
        partition=partition,
        offset=offset,
        judgement=judgement,
        differing=tuple(found["differing"]),
        source=found["source"],
        mirror=found["mirror"],
    )
