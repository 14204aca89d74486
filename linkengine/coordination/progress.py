"""Progress of copy workers: the newest observation of every partition of a link, on its way to whoever stores or shows it.

* ``progress:<link id>``: a hash, one field per partition key, gone ten minutes after the last report: the moment at which Redis
  got it, the moment at which it was signed (both by Redis' clock), the signature, and the report as JSON. Two workers may tell
  of one partition while it moves, so a report is put aside while the owner of a later lease reports.
  When another hold reports on a partition, the last report of the previous hold moves to the field ``former <key>``: a reader
  that reads every few seconds still sees where that hold ended, also after a crash. The field ``news`` counts reports on which
  the console has to act immediately (``_matters_of``);
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

EXPIRY_MS = 600_000  # long enough to look at what a dead link did last, short enough to leave no litter
KEPT_MS = 24 * 3_600_000  # of a link that nobody looks after
OWNER_SILENT_MS = 5_000  # an owner reports twice a second; after ten missed reports anybody may speak

CLOCK_S = 1.0  # so long a worker derives Redis' time from its own clock, after each reading of Redis' clock
_FIELDS = {field.name: field.default for field in fields(PartitionProgress)}
_TIMES = ("observed_at_ms", "source_seen_at_ms", "caught_up_at_ms", "failed_at_ms")  # by the clock of who reports
_GAP_WORDS = 6  # start, end, reason, filled, before and after
_PURPOSE, _KEPT_PURPOSE = "progress", "kept progress"
_FORMER, _NEWS = "former ", "news"
_CLOCK_SET_MS = 250  # a larger change of the difference to Redis' clock: a clock was set, and ages are computed again
_LINKS_DECODED = 256  # links whose reports are cached decoded in this process
_SIGNED_WORDS = 4  # when Redis got it, when it was signed, signature, JSON
_log = structlog.get_logger(__name__)
# Patterns read the JSON of ``to_json``: decoding it would take ten times as long, during which Redis serves no other client.
# ARGV: expiry, silence, number of news, then per report: key, hold, generation of its lease (0: none), time, signature and JSON
_REPORT = (
    NOW_MS
    + """
for i = 4, #ARGV, 4 do
  local key, hold, generation = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local before = redis.call('HGET', KEYS[1], key) or ''
  local at, text = string.match(before, '^(%d+) %d+ %x+ (.*)$')
  local owner = at and string.match(text, '"hold_id": "([^"]*)"')
  local hidden = false
  if owner and owner ~= hold then
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
    """Where a copy worker reports."""

    def __init__(self, url: str, signer_of: Callable[[str], Signer]) -> None:
        """Report nothing yet; ``signer_of`` returns what signs the reports on a link."""
        self._url, self._signer_of = url, signer_of
        self._redis = client_for(url)
        self._matters: dict[str, tuple[object, ...]] = {}  # of the last report of each partition that reached Redis
        self._asked_at, self._ahead_ms = float("-inf"), 0.0  # last reading of Redis' clock, and its lead over ours

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
            news = self._news(observations)
            self._redis.eval(_REPORT, 1, _name(link_id), EXPIRY_MS, OWNER_SILENT_MS, len(news), *words)
        self._remember(news, observations)

    def keep(self, link_id: str, observation: PartitionProgress) -> None:
        """Keep an observation until it was taken in; raise CoordinationUnavailableError in an outage."""
        name = f"{observation.key} {observation.hold_id} {observation.observed_at_ms}"
        with redis_answers("take progress"):
            text = signed_report(self._signer_of(link_id), link_id, observation, at_ms=self._now_ms(), kept_as=name)
            self._redis.eval(_KEEP, 1, _kept(link_id), KEPT_MS, name, text)

    def lose(self, link_id: str, loss: Loss) -> None:
        """Keep a loss until the ledger has it; raise CoordinationUnavailableError in an outage."""
        note_loss(self._url, link_id, self._signer_of(link_id), loss)
        with redis_answers("take progress"):
            self._redis.hincrby(_name(link_id), _NEWS, 1)

    def _news(self, observations: Sequence[PartitionProgress]) -> dict[str, tuple[object, ...]]:
        """Return ``_matters_of`` the reports that differ from the last ones in more than offsets, counters and times."""
        matters = {progress.key: _matters_of(progress) for progress in observations}
        return {key: values for key, values in matters.items() if self._matters.get(key) != values}

    def _remember(self, news: Mapping[str, tuple[object, ...]], observations: Sequence[PartitionProgress]) -> None:
        """Remember what Redis has counted as news. It is not called in an outage, so that the report is news afterwards."""
        self._matters |= news
        for progress in observations:
            if progress.phase is PartitionPhase.RELEASED:
                self._matters.pop(progress.key, None)

    def _now_ms(self) -> int:
        """Return the time of Redis' clock, which is read once a second: a worker of many links sends hundreds of reports."""
        now = time.monotonic()
        if now - self._asked_at > CLOCK_S:
            seconds, micros = self._redis.time()
            self._asked_at = time.monotonic()
            self._ahead_ms = int(seconds) * 1000 + int(micros) / 1000 - self._asked_at * 1000
            return int(seconds) * 1000 + int(micros) // 1000
        return int(now * 1000 + self._ahead_ms)


def signed_report(signer: Signer, link_id: str, one: PartitionProgress, *, at_ms: int, kept_as: str | None = None) -> str:
    """Write a report as it is stored, but for the moment at which Redis gets it; ``kept_as``: its name among the kept ones."""
    text = to_json(one)
    return f"{at_ms} {signer.sign(*_signed(link_id, str(at_ms), text, kept_as))} {text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What the copy workers of a link have reported, by partition key."""

    latest: Mapping[str, PartitionProgress]
    former: Mapping[str, PartitionProgress]  # the last report of the previous hold


def read_readings(url: str, link_id: str, signer: Signer, *, keys: Sequence[str] | None = None) -> Readings:
    """Return the reports of a link, or of some of its partitions (``keys``); raise CoordinationUnavailableError in an outage.

    Times are those of this machine's clock. They lie ahead of now where Redis' clock was set back since the report.
    """
    found = _read(url, _name(link_id), link_id, signer, kept=False, keys=keys)
    latest = {key: progress for key, progress in found.items() if progress is not None and progress.key == key}
    former = {
        key.removeprefix(_FORMER): progress
        for key, progress in found.items()
        if progress is not None and key == f"{_FORMER}{progress.key}"
    }
    return Readings(latest=latest, former=former)


def read_news(url: str, link_ids: Sequence[str]) -> list[str]:
    """Return, for each link, a mark that changes when its reports should be read immediately. One round trip."""
    with redis_answers("answer progress"):
        pipeline = client_for(url).pipeline(transaction=False)
        for link_id in link_ids:
            pipeline.hget(_name(link_id), _NEWS)
        return [str(mark or "") for mark in pipeline.execute()]


def read_progress(url: str, link_id: str, signer: Signer) -> list[PartitionProgress]:
    """Return the newest observation of every partition of the link, by key; empty without reports in the last ten minutes."""
    latest = read_readings(url, link_id, signer).latest
    return [latest[key] for key in sorted(latest)]


def read_kept(url: str, link_id: str, signer: Signer) -> dict[str, PartitionProgress | None]:
    """Answer what is kept, by name, the earliest first; None for what was signed and cannot be read."""
    found = _read(url, _kept(link_id), link_id, signer, kept=True)
    return dict(sorted(found.items(), key=lambda item: 0 if item[1] is None else item[1].observed_at_ms))


def has_kept(url: str, link_id: str) -> bool:
    """Return whether persistent reports of a link wait to be processed; raise CoordinationUnavailableError in an outage."""
    with redis_answers("answer progress"):
        return bool(client_for(url).exists(_kept(link_id)))


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
    """Return an observation as JSON, without fields at their default: thousands of idle partitions report every two seconds.

    Gaps are lists of start, end, reason, filled and the times around what was lost.
    """
    values = {name: value for name, default in _FIELDS.items() if (value := getattr(progress, name)) != default}
    if progress.gaps:
        values["gaps"] = [
            [gap.range.start, gap.range.end, gap.reason, gap.filled, gap.before_ms, gap.after_ms] for gap in progress.gaps
        ]
    return json.dumps(values)


def from_json(text: str, *, observed_at_ms: int | None = None) -> PartitionProgress:
    """Read what ``to_json`` wrote; raise ValueError for anything else.

    Another version may have written it: unknown fields are ignored, missing fields have their default. With ``observed_at_ms``
    all times are shifted to the clock of that time.
    """
    try:
        values = {name: value for name, value in json.loads(text).items() if name in _FIELDS}
        values["phase"] = PartitionPhase(values["phase"])
        values["gaps"] = tuple(_gap(*words[:_GAP_WORDS]) for words in values.get("gaps", ()))
        if observed_at_ms is not None:
            by = observed_at_ms - values["observed_at_ms"]
            values |= {name: at + by for name in _TIMES if (at := values.get(name)) is not None}
        return PartitionProgress(**values)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a partition's progress: {error}") from error


def _gap(start: int, end: int, reason: str, *more: Any) -> Gap:
    return Gap(OffsetRange(start, end), GapReason(reason), *more)


def _read(
    url: str, name: str, link_id: str, signer: Signer, *, kept: bool, keys: Sequence[str] | None = None
) -> dict[str, PartitionProgress | None]:
    now_ms = time.time_ns() // 1_000_000  # before asking: an answer that took long must not make a report look younger
    with redis_answers("answer progress"):
        if keys is None:
            response: Any = client_for(url).eval(_READ, 1, name)
        else:
            response = client_for(url).eval(_READ_SOME, 1, name, *keys, *(f"{_FORMER}{key}" for key in keys))
    (seconds, micros), words = response
    ahead_ms = now_ms - (int(seconds) * 1000 + int(micros) // 1000)
    known = _decoded.get((url, name), {})
    found: dict[str, _Decoded] = {}
    for key, value in zip(words[::2], words[1::2], strict=True):
        if key == _NEWS:
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


class _Decoded(NamedTuple):
    """A report as stored, and decoded. Most reports are unchanged when they are read again."""

    value: str
    signer: Signer
    ahead_ms: int
    progress: PartitionProgress | None


_decoded: dict[tuple[str, str], dict[str, _Decoded]] = {}  # by Redis and hash, as last read


def _matters_of(progress: PartitionProgress) -> tuple[object, ...]:
    """Return the values on which the console acts: hold, phase, error, set-backs, whether either end is known."""
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
        return from_json(text, observed_at_ms=observed_at_ms)
    except ValueError as error:  # written by another version while a deployment rolls; the next report replaces it
        _log.warning("progress.unreadable", error=str(error))
        return None


def _name(link_id: str) -> str:
    return f"progress:{link_id}"


def _kept(link_id: str) -> str:
    return f"kept:{link_id}"
