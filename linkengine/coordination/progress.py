"""Progress reports of copy workers in Redis: the newest observation of every partition of a link.

* ``progress:<link id>``: a hash with a field per partition key, which expires ten minutes after the last report. A value
  consists of the time at which Redis received the report, the time at which it was signed (both by Redis' clock), the
  signature, and the report as JSON. While a partition moves between workers, both may report it. A report is therefore dropped
  if a report with a higher lease generation arrived less than ``OWNER_SILENT_MS`` ago.
  When another hold reports a partition, the last report of the previous hold moves to the field ``former <key>``: a reader
  that reads every few seconds still sees where that hold ended, also after a crash. The field ``news`` counts the reports that
  the console has to process immediately (``_matters_of``).
* ``kept:<link id>``: a hash of reports that stay until the reader removes them: the last report of each hold on a partition,
  and a report per minute of partitions in which gaps are filled. In the first hash, each report replaces the previous report,
  read or unread.

The wall clocks of two machines are never compared. The lease generation decides which report is later, Redis' clock gives a
report's age, and the reader converts the times in it to its own clock. A report cannot look new because its writer's clock is
ahead, and it hides other reports only while its own writer reports.

Decisions depend on reports: a promotion waits for them, and a failure in a report stops a mirror. A report is therefore signed
with the link's key, which the worker has from the link's plan. Its age is the signature's age, so an old report that is written
to Redis again stays old. A report in the first hash with an invalid signature is ignored. The signature of a kept report
includes its name; a kept report with an invalid signature is ignored, but not removed, because this process may not have the
signing key yet.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import structlog

from linkengine.coordination.client import NOW_MS, client_for, redis_answers
from linkengine.coordination.losses import Loss, note_loss, report_refused
from linkengine.domain.plans import PartitionPhase, PartitionProgress
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.signatures import Signer
from linkengine.domain.states import GapReason

EXPIRY_MS = 600_000  # long enough to show the last progress of a stopped link, short enough to leave no stale keys
KEPT_MS = 24 * 3_600_000  # since the last kept report of a link, if no reader removes them
OWNER_SILENT_MS = 5_000  # an owner reports twice a second; after ten missed reports, other workers' reports are accepted

CLOCK_S = 1.0  # between readings of Redis' clock, a worker derives Redis' time from its own monotonic clock
_FIELDS = {field.name: field.default for field in fields(PartitionProgress)}
_TIMES = ("observed_at_ms", "source_seen_at_ms", "caught_up_at_ms", "failed_at_ms")  # by the reporting worker's clock
_GAP_WORDS = 6  # start, end, reason, filled, before and after
_PURPOSE, _KEPT_PURPOSE = "progress", "kept progress"
_FORMER, _NEWS = "former ", "news"
_CLOCK_SET_MS = 250  # a larger change of the difference to Redis' clock: a clock was set, so cached times are wrong
_LINKS_DECODED = 256  # links whose decoded reports are cached in this process
_SIGNED_WORDS = 4  # time received by Redis, time signed, signature, JSON
_log = structlog.get_logger(__name__)
# Patterns parse the JSON of ``to_json``: decoding it would take ten times as long, during which Redis serves no other client.
# ARGV: expiry, OWNER_SILENT_MS, number of news, then per report: key, hold, lease generation (0: no lease), signed report
_REPORT = (
    NOW_MS
    + """
for i = 4, #ARGV, 4 do
  local key, hold, generation = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local before = redis.call('HGET', KEYS[1], key) or ''
  local hidden, at, text, owner = false
  if not string.find(before, '"hold_id": "' .. hold .. '"', 1, true) then
    at, text = string.match(before, '^(%d+) %d+ %x+ (.*)$')
    owner = at and string.match(text, '"hold_id": "([^"]*)"')
  end
  if owner then
    local age, known = now - tonumber(at), tonumber(string.match(text, '"generation": (%d+)') or '0')
    local released = string.find(text, '"phase": "RELEASED"', 1, true)
    hidden = known > generation and age >= 0 and age < tonumber(ARGV[2]) and not (generation == 0 and released)
    if not hidden then redis.call('HSET', KEYS[1], 'former ' .. key, before) end
  end
  if not hidden then redis.call('HSET', KEYS[1], key, stamp .. ' ' .. ARGV[i + 3]) end
end
if tonumber(ARGV[3]) > 0 then redis.call('HINCRBY', KEYS[1], 'news', ARGV[3]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""
)
_KEEP = NOW_MS + "redis.call('HSET', KEYS[1], ARGV[2], stamp .. ' ' .. ARGV[3]) redis.call('PEXPIRE', KEYS[1], ARGV[1])"
_READ = "return {redis.call('TIME'), redis.call('HGETALL', KEYS[1])}"
# ARGV: fields. Returns what _READ returns, with the fields that exist
_READ_SOME = """
local found = {}
for i = 1, #ARGV do
  local value = redis.call('HGET', KEYS[1], ARGV[i])
  if value then
    found[#found + 1] = ARGV[i]
    found[#found + 1] = value
  end
end
return {redis.call('TIME'), found}
"""
_CLEAR = """
for _, key in ipairs(redis.call('HKEYS', KEYS[1])) do
  local name = string.gsub(key, '^former ', '')
  if string.sub(name, 1, #ARGV[1]) == ARGV[1] then redis.call('HDEL', KEYS[1], key) end
end
"""


class RedisProgress:
    """Publisher of a copy worker's progress reports."""

    def __init__(self, url: str, signer_of: Callable[[str], Signer]) -> None:
        """Prepare the connection; nothing is reported yet. ``signer_of`` returns the signer for a link's reports."""
        self._url, self._signer_of = url, signer_of
        self._redis = client_for(url)
        self._matters: dict[str, tuple[object, ...]] = {}  # of the last report of each partition that reached Redis
        self._clock_read_at, self._ahead_ms = float("-inf"), 0.0  # last reading of Redis' clock, its lead over time.monotonic

    def report(self, link_id: str, observations: Sequence[PartitionProgress]) -> None:
        """Publish the newest observations of a link in two round trips; raise CoordinationUnavailableError in an outage."""
        if not observations:
            return
        signer = self._signer_of(link_id)
        with redis_answers("store progress"):
            at_ms = self._now_ms()
            words = [
                word
                for seen in observations
                for word in (seen.key, seen.hold_id, seen.generation, signed_report(signer, link_id, seen, at_ms=at_ms))
            ]
            news = self._news(observations)
            self._redis.eval(_REPORT, 1, _name(link_id), EXPIRY_MS, OWNER_SILENT_MS, len(news), *words)
        self._remember(news, observations)

    def keep(self, link_id: str, observation: PartitionProgress) -> None:
        """Store an observation until the reader removes it; raise CoordinationUnavailableError in an outage."""
        name = f"{observation.key} {observation.hold_id} {observation.observed_at_ms}"
        with redis_answers("store progress"):
            text = signed_report(self._signer_of(link_id), link_id, observation, at_ms=self._now_ms(), kept_as=name)
            self._redis.eval(_KEEP, 1, _kept(link_id), KEPT_MS, name, text)

    def lose(self, link_id: str, loss: Loss) -> None:
        """Store a loss until it is in the gap ledger; raise CoordinationUnavailableError in an outage."""
        note_loss(self._url, link_id, self._signer_of(link_id), loss)
        with redis_answers("store progress"):
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.hincrby(_name(link_id), _NEWS, 1)
            pipeline.pexpire(_name(link_id), EXPIRY_MS)
            pipeline.execute()

    def _news(self, observations: Sequence[PartitionProgress]) -> dict[str, tuple[object, ...]]:
        """Return ``_matters_of`` each report in which it differs from the partition's previous report, by key."""
        matters = {seen.key: _matters_of(seen) for seen in observations}
        return {key: values for key, values in matters.items() if self._matters.get(key) != values}

    def _remember(self, news: Mapping[str, tuple[object, ...]], observations: Sequence[PartitionProgress]) -> None:
        """Remember what Redis has counted as news. Not called in an outage, so the next report is counted as news again."""
        self._matters |= news
        for seen in observations:
            if seen.phase is PartitionPhase.RELEASED:
                self._matters.pop(seen.key, None)

    def _now_ms(self) -> int:
        """Return the time by Redis' clock, which is read once a second: a worker of many links sends hundreds of reports."""
        now = time.monotonic()
        if now - self._clock_read_at > CLOCK_S:
            seconds, micros = self._redis.time()
            self._clock_read_at = time.monotonic()
            self._ahead_ms = int(seconds) * 1000 + int(micros) / 1000 - self._clock_read_at * 1000
            return int(seconds) * 1000 + int(micros) // 1000
        return int(now * 1000 + self._ahead_ms)


def signed_report(signer: Signer, link_id: str, progress: PartitionProgress, *, at_ms: int, kept_as: str | None = None) -> str:
    """Return a report as it is stored, without the time received by Redis; ``kept_as``: its name in ``kept:<link id>``."""
    text = to_json(progress)
    return f"{at_ms} {signer.sign(*_signed(link_id, str(at_ms), text, kept_as))} {text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Reports of a link's copy workers, by partition key."""

    latest: Mapping[str, PartitionProgress]
    former: Mapping[str, PartitionProgress]  # the last report of the previous hold


def read_readings(url: str, link_id: str, signer: Signer, *, keys: Sequence[str] | None = None) -> Readings:
    """Return the reports of a link, or of some of its partitions (``keys``); raise CoordinationUnavailableError in an outage.

    Times are by this machine's clock. They are in the future if Redis' clock was set back after the report.
    """
    found = _read(url, _name(link_id), link_id, signer, kept=False, keys=keys)
    latest = {key: seen for key, seen in found.items() if seen is not None and seen.key == key}
    former = {
        key.removeprefix(_FORMER): seen for key, seen in found.items() if seen is not None and key == f"{_FORMER}{seen.key}"
    }
    return Readings(latest=latest, former=former)


def read_news(url: str, link_ids: Sequence[str]) -> list[str]:
    """Return a mark per link, which changes when the link's reports should be read immediately. A single round trip."""
    with redis_answers("return progress"):
        pipeline = client_for(url).pipeline(transaction=False)
        for link_id in link_ids:
            pipeline.hget(_name(link_id), _NEWS)
        return [str(mark or "") for mark in pipeline.execute()]


def read_progress(url: str, link_id: str, signer: Signer) -> list[PartitionProgress]:
    """Return the newest observation of every partition of the link, by key; empty if all reports have expired."""
    latest = read_readings(url, link_id, signer).latest
    return [latest[key] for key in sorted(latest)]


def read_kept(url: str, link_id: str, signer: Signer) -> dict[str, PartitionProgress | None]:
    """Return the kept reports by name, earliest first; None for a signed report that cannot be parsed."""
    found = _read(url, _kept(link_id), link_id, signer, kept=True)
    return dict(sorted(found.items(), key=lambda item: 0 if item[1] is None else item[1].observed_at_ms))


def has_kept(url: str, link_id: str) -> bool:
    """Return whether kept reports of a link wait to be processed; raise CoordinationUnavailableError in an outage."""
    with redis_answers("return progress"):
        return bool(client_for(url).exists(_kept(link_id)))


def forget_kept(url: str, link_id: str, names: Iterable[str]) -> None:
    """Remove kept reports by name."""
    words = list(names)
    if words:
        with redis_answers("remove progress"):
            client_for(url).hdel(_kept(link_id), *words)


def clear_link(url: str, link_id: str) -> None:
    """Remove all progress of a deleted link."""
    with redis_answers("clear progress"):
        client_for(url).delete(_name(link_id), _kept(link_id))


def clear_mirror(url: str, link_id: str, *, mirror_id: str) -> None:
    """Remove the progress of a deleted mirror."""
    with redis_answers("clear progress"):
        for name in (_name(link_id), _kept(link_id)):
            client_for(url).eval(_CLEAR, 1, name, f"{mirror_id}/")


def to_json(progress: PartitionProgress) -> str:
    """Return an observation as JSON, without fields at their default: thousands of idle partitions report every two seconds.

    Gaps are lists of start, end, reason, filled and the timestamps around lost records.
    """
    values = {name: value for name, default in _FIELDS.items() if (value := getattr(progress, name)) != default}
    if progress.gaps:
        values["gaps"] = [
            [gap.range.start, gap.range.end, gap.reason, gap.filled, gap.before_ms, gap.after_ms] for gap in progress.gaps
        ]
    return json.dumps(values)


def from_json(text: str, *, observed_at_ms: int | None = None) -> PartitionProgress:
    """Return the observation that ``to_json`` wrote; raise ValueError for any other text.

    The writer may be another version: unknown fields are ignored, and missing fields have their defaults. With
    ``observed_at_ms``, all times are shifted to the clock by which the observation was made at that time.
    """
    try:
        values = json.loads(text)
        for name in values.keys() - _FIELDS.keys():
            del values[name]
        values["phase"] = PartitionPhase(values["phase"])
        if "gaps" in values:
            values["gaps"] = tuple(_gap(*words[:_GAP_WORDS]) for words in values["gaps"])
        shift_ms = 0 if observed_at_ms is None else observed_at_ms - values["observed_at_ms"]
        for name in _TIMES if shift_ms else ():
            if (at_ms := values.get(name)) is not None:
                values[name] = at_ms + shift_ms
        return PartitionProgress(**values)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a partition's progress: {error}") from error


def _gap(start: int, end: int, reason: str, *more: Any) -> Gap:
    return Gap(OffsetRange(start, end), GapReason(reason), *more)


def _read(
    url: str, name: str, link_id: str, signer: Signer, *, kept: bool, keys: Sequence[str] | None = None
) -> dict[str, PartitionProgress | None]:
    now_ms = time.time_ns() // 1_000_000  # before the request: a slow reply must not make a report look younger
    with redis_answers("return progress"):
        if keys is None:
            reply: Any = client_for(url).eval(_READ, 1, name)
        else:
            reply = client_for(url).eval(_READ_SOME, 1, name, *keys, *(f"{_FORMER}{key}" for key in keys))
    (seconds, micros), words = reply
    redis_ms = int(seconds) * 1000 + int(micros) // 1000
    ahead_ms = now_ms - redis_ms
    known = _decoded.get((url, name), {})
    found: dict[str, _Decoded] = {}
    for key, value in zip(words[::2], words[1::2], strict=True):
        if key == _NEWS or (key.startswith(_FORMER) and _has_expired(value, redis_ms)):
            continue
        last = known.get(key)
        if last is None or last.value != value or last.signer is not signer or abs(last.ahead_ms - ahead_ms) > _CLOCK_SET_MS:
            text, at_ms = _verified(value, link_id, signer, kept_as=key if kept else None)
            if at_ms is None:
                report_refused(url, "report", link_id, f"{key} {value}")
                continue
            last = _Decoded(value, signer, ahead_ms, _readable(text, observed_at_ms=at_ms + ahead_ms))
        found[key] = last
    if keys is None and not kept:
        if len(_decoded) >= _LINKS_DECODED:
            _decoded.clear()
        _decoded[url, name] = found
    return {key: decoded.progress for key, decoded in found.items()}


def _has_expired(value: str, redis_ms: int) -> bool:
    """Return whether a former report is too old to matter. Its field has no expiry, and its key may have been removed since."""
    received_ms = value.partition(" ")[0]
    return received_ms.isdecimal() and redis_ms - int(received_ms) > EXPIRY_MS


class _Decoded(NamedTuple):
    """A report as stored and decoded; cached, because most reports are unchanged when they are read again."""

    value: str
    signer: Signer
    ahead_ms: int
    progress: PartitionProgress | None


_decoded: dict[tuple[str, str], dict[str, _Decoded]] = {}  # by Redis URL and hash, as last read


def _matters_of(progress: PartitionProgress) -> tuple[object, ...]:
    """Return the values that the console acts on immediately: hold, phase, error, set-backs, whether the ends are known."""
    unknown = (progress.mirror_end is None, progress.source_end is None)
    errors = (progress.error_code, progress.error_message, progress.failed_at_ms)
    return (
        progress.hold_id,
        progress.phase,
        *errors,
        progress.set_backs,
        progress.source_kept,
        progress.source_epoch,
        progress.since_ms,
        *unknown,
    )


def _verified(value: str, link_id: str, signer: Signer, *, kept_as: str | None) -> tuple[str, int | None]:
    """Return the report and the time it was signed; None as time if no key has signed it for this link and kept name."""
    words = value.split(" ", maxsplit=_SIGNED_WORDS - 1)
    if len(words) != _SIGNED_WORDS or not signer.verifies(words[2], *_signed(link_id, words[1], words[3], kept_as)):
        return "", None
    return words[3], int(words[1])


def _signed(link_id: str, at_ms: str, text: str, kept_as: str | None) -> tuple[str, ...]:
    """Return the purpose of a signature and the words that it covers."""
    return (_PURPOSE, link_id, at_ms, text) if kept_as is None else (_KEPT_PURPOSE, link_id, kept_as, at_ms, text)


def _readable(text: str, *, observed_at_ms: int) -> PartitionProgress | None:
    try:
        return from_json(text, observed_at_ms=observed_at_ms)
    except ValueError as error:  # written by another version during a rolling deployment; the next report replaces it
        _log.warning("progress.unreadable", error=str(error))
        return None


def _name(link_id: str) -> str:
    return f"progress:{link_id}"


def _kept(link_id: str) -> str:
    return f"kept:{link_id}"
