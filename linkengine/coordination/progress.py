"""Progress of copy workers: the newest observation of every partition of a link, on its way to whoever stores or shows it.

* ``progress:<link id>``: a hash, one field per partition key, gone ten minutes after the last report: the moment at which Redis
  got it, and the report as JSON. Two workers may tell of one partition while it moves, so a report is put aside while the owner
  of a later lease reports.
* ``kept:<link id>``: a hash of reports that stay until they were taken in: the last one of each hold on a partition, and one a
  minute of partitions in which gaps are filled. In the first hash each report replaces the one before, whether it was read or
  not.

No wall clocks of two machines are compared: the generation of the lease tells whose report is the later one, Redis' own clock
how old it is, and its times are answered by the clock of whoever reads. A report cannot look new because its writer's clock is
ahead, nor keep others out for longer than its own writer is heard.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import structlog

from linkengine.coordination.client import NOW_MS, client_for, redis_answers
from linkengine.coordination.losses import Loss, note_loss
from linkengine.domain.plans import PartitionPhase, PartitionProgress
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason

EXPIRY_MS = 600_000  # long enough to look at what a dead link did last, short enough to leave no litter
KEPT_MS = 24 * 3_600_000  # of a link that nobody looks after
OWNER_SILENT_MS = 5_000  # an owner reports twice a second; after ten missed reports anybody may speak

_FIELDS = tuple(one.name for one in fields(PartitionProgress))
_TIMES = ("observed_at_ms", "source_seen_at_ms", "caught_up_at_ms", "failed_at_ms")  # by the clock of who reports
_GAP_WORDS = 6  # start, end, reason, filled, before and after
_log = structlog.get_logger(__name__)
# ARGV: expiry, silence, then per report: key, hold, generation of its lease (0: none), JSON
_REPORT = (
    NOW_MS
    + """
for i = 3, #ARGV, 4 do
  local key, hold, generation = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local at, text = string.match(redis.call('HGET', KEYS[1], key) or '', '^(%d+) (.*)$')
  local hidden = false
  if at then
    local known, age = cjson.decode(text), now - tonumber(at)
    hidden = known.hold_id ~= hold and (known.generation or 0) > generation and age >= 0 and age < tonumber(ARGV[2])
      and not (generation == 0 and known.phase == 'RELEASED')
  end
  if not hidden then redis.call('HSET', KEYS[1], key, stamp .. ' ' .. ARGV[i + 3]) end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""
)
_KEEP = NOW_MS + "redis.call('HSET', KEYS[1], ARGV[2], stamp .. ' ' .. ARGV[3]) redis.call('PEXPIRE', KEYS[1], ARGV[1])"
_READ = "return {redis.call('TIME'), redis.call('HGETALL', KEYS[1])}"
_CLEAR = """
for _, key in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(key, 1, #ARGV[1]) == ARGV[1] then redis.call('HDEL', KEYS[1], key) end
end
"""


class RedisProgress:
    """Where a copy worker reports."""

    def __init__(self, url: str) -> None:
        """Report nothing yet."""
        self._url = url
        self._redis = client_for(url)

    def report(self, link_id: str, observations: Sequence[PartitionProgress]) -> None:
        """Publish the newest observations of a link in one round trip; raise CoordinationUnavailableError in an outage."""
        if not observations:
            return
        words = [word for one in observations for word in (one.key, one.hold_id, one.generation, to_json(one))]
        with redis_answers("take progress"):
            self._redis.eval(_REPORT, 1, _name(link_id), EXPIRY_MS, OWNER_SILENT_MS, *words)

    def keep(self, link_id: str, observation: PartitionProgress) -> None:
        """Keep an observation until it was taken in; raise CoordinationUnavailableError in an outage."""
        name = f"{observation.key} {observation.hold_id} {observation.observed_at_ms}"
        with redis_answers("take progress"):
            self._redis.eval(_KEEP, 1, _kept(link_id), KEPT_MS, name, to_json(observation))

    def lose(self, link_id: str, loss: Loss) -> None:
        """Keep a loss until the ledger has it; raise CoordinationUnavailableError in an outage."""
        note_loss(self._url, link_id, loss)


def read_progress(url: str, link_id: str) -> list[PartitionProgress]:
    """Answer the newest observation of every partition of the link, by key; empty when nothing was reported lately.

    Its times are told by this machine's clock. They lie ahead of now where Redis' clock was set back since.
    """
    record = _read(url, _name(link_id))
    return [one for key in sorted(record) if (one := record[key]) is not None]


def read_kept(url: str, link_id: str) -> dict[str, PartitionProgress | None]:
    """Answer what is kept, by name, the earliest first; None for what cannot be read."""
    found = _read(url, _kept(link_id))
    return dict(sorted(found.items(), key=lambda item: 0 if item[1] is None else item[1].observed_at_ms))


def forget_kept(url: str, link_id: str, names: Iterable[str]) -> None:
    """Let go of what was taken in."""
    words = list(names)
    if words:
        with redis_answers("forget progress"):
            client_for(url).hdel(_kept(link_id), *words)


def clear_link(url: str, link_id: str) -> None:
    """Remove all of a link that is gone."""
    with redis_answers("clear progress"):
        client_for(url).delete(_name(link_id), _kept(link_id))


def clear_mirror(url: str, link_id: str, *, mirror_id: str) -> None:
    """Remove the progress of one mirror that is gone."""
    with redis_answers("clear progress"):
        for name in (_name(link_id), _kept(link_id)):
            client_for(url).eval(_CLEAR, 1, name, f"{mirror_id}/")


def to_json(progress: PartitionProgress) -> str:
    """Write one observation as JSON; gaps are lists of start, end, reason, filled and the times around what was lost."""
    values = {name: getattr(progress, name) for name in _FIELDS}
    values["gaps"] = [
        [gap.range.start, gap.range.end, gap.reason, gap.filled, gap.before_ms, gap.after_ms] for gap in progress.gaps
    ]
    return json.dumps(values)


def from_json(text: str) -> PartitionProgress:
    """Read what ``to_json`` wrote; raise ValueError for anything else.

    Another version may have: what it told besides is left out, and what it did not know of has its default.
    """
    try:
        values = {name: value for name, value in json.loads(text).items() if name in _FIELDS}
        values["phase"] = PartitionPhase(values["phase"])
        values["gaps"] = tuple(_gap(*words[:_GAP_WORDS]) for words in values.get("gaps", ()))
        return PartitionProgress(**values)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a partition's progress: {error}") from error


def _gap(start: int, end: int, reason: str, *more: Any) -> Gap:
    return Gap(OffsetRange(start, end), GapReason(reason), *more)


def _read(url: str, name: str) -> dict[str, PartitionProgress | None]:
    now_ms = time.time_ns() // 1_000_000  # before asking: an answer that took long must not make a report look younger
    with redis_answers("answer progress"):
        answer: Any = client_for(url).eval(_READ, 1, name)
    (seconds, micros), words = answer
    ahead_ms = now_ms - (int(seconds) * 1000 + int(micros) // 1000)
    return {key: _readable(value, ahead_ms=ahead_ms) for key, value in zip(words[::2], words[1::2], strict=True)}


def _readable(value: str, *, ahead_ms: int) -> PartitionProgress | None:
    try:
        got_at_ms, text = value.split(" ", maxsplit=1)
        return _moved(from_json(text), observed_at_ms=int(got_at_ms) + ahead_ms)
    except ValueError as error:  # written by another version while a deployment rolls; the next report replaces it
        _log.warning("progress.unreadable", error=str(error))
        return None


def _moved(one: PartitionProgress, *, observed_at_ms: int) -> PartitionProgress:
    """Answer a report with the times it has by another clock."""
    by = observed_at_ms - one.observed_at_ms
    times = {name: at + by for name in _TIMES if (at := getattr(one, name)) is not None}
    return replace(one, **times)


def _name(link_id: str) -> str:
    return f"progress:{link_id}"


def _kept(link_id: str) -> str:
    return f"kept:{link_id}"
