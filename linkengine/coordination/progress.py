"""Progress of copy workers: the newest observation of every partition of a link, on its way to whoever stores or shows it.

* ``progress:<link id>``: a hash, one field per partition key, gone ten minutes after the last report: the moment at which Redis
  got it, the moment at which it was signed (both by Redis' clock), the signature, and the report as JSON. Two workers may tell
  of one partition while it moves, so a report is put aside while the owner of a later lease reports.
* ``kept:<link id>``: a hash of reports that stay until they were taken in: the last one of each hold on a partition, and one a
  minute of partitions in which gaps are filled. In the first hash each report replaces the one before, whether it was read or
  not.

No wall clocks of two machines are compared: the generation of the lease tells whose report is the later one, Redis' own clock
how old it is, and its times are answered by the clock of whoever reads. A report cannot look new because its writer's clock is
ahead, nor keep others out for longer than its own writer is heard.

A report decides: a promotion waits for it, a failure in it stops a mirror. So it is signed with the link's key, which its
worker has from the link's plan, and its age is that of the signature: an old report that is put back stays old. One that is not
valid is read as if it were not there. What is kept is signed together with its name, and one that is not valid stays where it
is: the key that signed it may be one that this process does not have yet.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import structlog

from linkengine.coordination.client import NOW_MS, client_for, redis_answers
from linkengine.coordination.losses import Loss, note_loss, report_refused
from linkengine.domain.plans import PartitionPhase, PartitionProgress
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.signatures import Signer
from linkengine.domain.states import GapReason

EXPIRY_MS = 600_000  # long enough to look at what a dead link did last, short enough to leave no litter
KEPT_MS = 24 * 3_600_000  # of a link that nobody looks after
OWNER_SILENT_MS = 5_000  # an owner reports twice a second; after ten missed reports anybody may speak

_FIELDS = tuple(one.name for one in fields(PartitionProgress))
_TIMES = ("observed_at_ms", "source_seen_at_ms", "caught_up_at_ms", "failed_at_ms")  # by the clock of who reports
_GAP_WORDS = 6  # start, end, reason, filled, before and after
_PURPOSE, _KEPT_PURPOSE = "progress", "kept progress"
_SIGNED_WORDS = 4  # when Redis got it, when it was signed, signature, JSON
_log = structlog.get_logger(__name__)
# ARGV: expiry, silence, then per report: key, hold, generation of its lease (0: none), time, signature and JSON
_REPORT = (
    NOW_MS
    + """
for i = 3, #ARGV, 4 do
  local key, hold, generation = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local at, text = string.match(redis.call('HGET', KEYS[1], key) or '', '^(%d+) %d+ %x+ (.*)$')
  local hidden, readable, known = false, false, nil
  if at then readable, known = pcall(cjson.decode, text) end
  if readable and type(known) == 'table' then
    local age = now - tonumber(at)
    hidden = known.hold_id ~= hold and (tonumber(known.generation) or 0) > generation and age >= 0 and age < tonumber(ARGV[2])
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

    def __init__(self, url: str, signer_of: Callable[[str], Signer]) -> None:
        """Report nothing yet; ``signer_of`` returns what signs the reports on a link."""
        self._url, self._signer_of = url, signer_of
        self._redis = client_for(url)

    def report(self, link_id: str, observations: Sequence[PartitionProgress]) -> None:
        """Publish the newest observations of a link in two round trips; raise CoordinationUnavailableError in an outage."""
        if not observations:
            return
        signer = self._signer_of(link_id)
        with redis_answers("take progress"):
            at_ms = self._now_ms()
            words = [
                word
                for one in observations
                for word in (one.key, one.hold_id, one.generation, signed_report(signer, link_id, one, at_ms=at_ms))
            ]
            self._redis.eval(_REPORT, 1, _name(link_id), EXPIRY_MS, OWNER_SILENT_MS, *words)

    def keep(self, link_id: str, observation: PartitionProgress) -> None:
        """Keep an observation until it was taken in; raise CoordinationUnavailableError in an outage."""
        name = f"{observation.key} {observation.hold_id} {observation.observed_at_ms}"
        with redis_answers("take progress"):
            text = signed_report(self._signer_of(link_id), link_id, observation, at_ms=self._now_ms(), kept_as=name)
            self._redis.eval(_KEEP, 1, _kept(link_id), KEPT_MS, name, text)

    def lose(self, link_id: str, loss: Loss) -> None:
        """Keep a loss until the ledger has it; raise CoordinationUnavailableError in an outage."""
        note_loss(self._url, link_id, self._signer_of(link_id), loss)

    def _now_ms(self) -> int:
        seconds, micros = self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000


def signed_report(signer: Signer, link_id: str, one: PartitionProgress, *, at_ms: int, kept_as: str | None = None) -> str:
    """Write a report as it is stored, but for the moment at which Redis gets it; ``kept_as``: its name among the kept ones."""
    text = to_json(one)
    return f"{at_ms} {signer.sign(*_signed(link_id, str(at_ms), text, kept_as))} {text}"


def read_progress(url: str, link_id: str, signer: Signer) -> list[PartitionProgress]:
    """Answer the newest observation of every partition of the link, by key; empty when nothing was reported lately.

    Its times are told by this machine's clock. They lie ahead of now where Redis' clock was set back since.
    """
    record = _read(url, _name(link_id), link_id, signer, kept=False)
    return [one for key in sorted(record) if (one := record[key]) is not None and one.key == key]


def read_kept(url: str, link_id: str, signer: Signer) -> dict[str, PartitionProgress | None]:
    """Answer what is kept, by name, the earliest first; None for what was signed and cannot be read."""
    found = _read(url, _kept(link_id), link_id, signer, kept=True)
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


def _read(url: str, name: str, link_id: str, signer: Signer, *, kept: bool) -> dict[str, PartitionProgress | None]:
    now_ms = time.time_ns() // 1_000_000  # before asking: an answer that took long must not make a report look younger
    with redis_answers("answer progress"):
        answer: Any = client_for(url).eval(_READ, 1, name)
    (seconds, micros), words = answer
    ahead_ms = now_ms - (int(seconds) * 1000 + int(micros) // 1000)
    found = {}
    for key, value in zip(words[::2], words[1::2], strict=True):
        text, at_ms = _verified(value, link_id, signer, kept_as=key if kept else None)
        if at_ms is None:
            report_refused(url, "report", link_id, f"{key} {value}")
        else:
            found[key] = _readable(text, observed_at_ms=at_ms + ahead_ms)
    return found


def _verified(value: str, link_id: str, signer: Signer, *, kept_as: str | None) -> tuple[str, int | None]:
    """Return the report and when it was signed, None where no key has signed it for this link and this place."""
    words = value.split(" ", maxsplit=_SIGNED_WORDS - 1)
    if len(words) != _SIGNED_WORDS or not signer.verifies(words[2], *_signed(link_id, words[1], words[3], kept_as)):
        return "", None
    return words[3], int(words[1])


def _signed(link_id: str, at_ms: str, text: str, kept_as: str | None) -> tuple[str, ...]:
    """Return the purpose of a signature and the words that it covers."""
    return (_PURPOSE, link_id, at_ms, text) if kept_as is None else (_KEPT_PURPOSE, link_id, kept_as, at_ms, text)


def _readable(text: str, *, observed_at_ms: int) -> PartitionProgress | None:
    try:
        return _moved(from_json(text), observed_at_ms=observed_at_ms)
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
