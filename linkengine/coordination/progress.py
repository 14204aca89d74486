"""Progress of copy tasks: the newest observation of every partition of a link, on its way to whoever stores or shows it.

A hash ``progress:<link id>``, one field per partition key, JSON values, gone ten minutes after the last report. Two slices
overlap, so a report is put aside when it would hide a better one: an older one of another slice, or a task that only waits
for the lease while the owner reports.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import structlog

from linkengine.coordination.client import client_for, redis_answers
from linkengine.domain.plans import PartitionPhase, PartitionProgress
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason

EXPIRY_MS = 600_000  # long enough to look at what a dead link did last, short enough to leave no litter
OWNER_SILENT_MS = 5_000  # an owner reports twice a second; after ten missed reports a waiting successor may speak

_FIELDS = tuple(one.name for one in fields(PartitionProgress))
_log = structlog.get_logger(__name__)
# ARGV: expiry, silence, then per report: key, slice, phase, time, JSON
_REPORT = """
for i = 3, #ARGV, 5 do
  local key, slice, waiting, at = ARGV[i], ARGV[i + 1], ARGV[i + 2] == 'WAITING', tonumber(ARGV[i + 3])
  local text = redis.call('HGET', KEYS[1], key)
  local hidden = false
  if text then
    local known = cjson.decode(text)
    local silence = waiting and tonumber(ARGV[2]) or 0
    hidden = known.slice_id ~= slice and known.observed_at_ms + silence > at
      and not (waiting and known.phase == 'RELEASED' and known.observed_at_ms <= at)
  end
  if not hidden then redis.call('HSET', KEYS[1], key, ARGV[i + 4]) end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""
_CLEAR = """
for _, key in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(key, 1, #ARGV[1]) == ARGV[1] then redis.call('HDEL', KEYS[1], key) end
end
"""


class RedisProgress:
    """Where the copy tasks of one link report."""

    def __init__(self, url: str, link_id: str) -> None:
        """Report nothing yet."""
        self._redis = client_for(url)
        self._name = _name(link_id)

    def report(self, observations: Sequence[PartitionProgress]) -> None:
        """Publish the newest observations in one round trip; raise CoordinationUnavailableError in an outage."""
        if not observations:
            return
        words = [word for one in observations for word in (one.key, one.slice_id, one.phase, one.observed_at_ms, to_json(one))]
        with redis_answers("take progress"):
            self._redis.eval(_REPORT, 1, self._name, EXPIRY_MS, OWNER_SILENT_MS, *words)


def read_progress(url: str, link_id: str) -> list[PartitionProgress]:
    """Answer the newest observation of every partition of the link, by key; empty when nothing was reported lately."""
    with redis_answers("answer progress"):
        record: Any = client_for(url).hgetall(_name(link_id))
    return [one for _, text in sorted(record.items()) if (one := _readable(text)) is not None]


def clear_mirror(url: str, link_id: str, *, mirror_id: str) -> None:
    """Remove the progress of one mirror that is gone."""
    with redis_answers("clear progress"):
        client_for(url).eval(_CLEAR, 1, _name(link_id), f"{mirror_id}/")


def to_json(progress: PartitionProgress) -> str:
    """Write one observation as JSON; gaps are lists of start, end, reason, filled and the times around what was lost."""
    values = {name: getattr(progress, name) for name in _FIELDS}
    values["gaps"] = [
        [gap.range.start, gap.range.end, gap.reason, gap.filled, gap.before_ms, gap.after_ms] for gap in progress.gaps
    ]
    return json.dumps(values)


def from_json(text: str) -> PartitionProgress:
    """Read what ``to_json`` wrote; raise ValueError for anything else."""
    try:
        values = json.loads(text)
        values["phase"] = PartitionPhase(values["phase"])
        values["gaps"] = tuple(_gap(*words) for words in values["gaps"])
        return PartitionProgress(**values)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a partition's progress: {error}") from error


def _gap(start: int, end: int, reason: str, *more: Any) -> Gap:
    return Gap(OffsetRange(start, end), GapReason(reason), *more)


def _readable(text: str) -> PartitionProgress | None:
    try:
        return from_json(text)
    except ValueError as error:  # written by another version while a deployment rolls; the next report replaces it
        _log.warning("progress.unreadable", error=str(error))
        return None


def _name(link_id: str) -> str:
    return f"progress:{link_id}"
