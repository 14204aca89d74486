"""Progress reports of copy workers in Redis: the newest observation of every partition of a link.

* ``progress:<link id>``: a hash with a field per partition key, which expires ten minutes after the last report. A value
  consists of the time at which Redis received the report, the time at which it was signed (both by Redis's clock), the
  signature, and the report as JSON. While a partition moves between workers, both may report it. A report is therefore dropped
  if a report with a higher lease generation arrived, or was renewed, less than ``OWNER_SILENT_MS`` ago.
  When another copy run reports a partition, the last report of the previous run moves to the field ``former <key>``: a reader
  that reads every few seconds still sees where that run ended, also after a crash. The field ``news`` counts the reports that
  the console has to process immediately (``_urgent_values``).
* ``renewals:<link id>``: a hash with two fields per copy worker: its last *renewal* and a mark (below).
* ``kept:<link id>``: a hash of reports that stay until the reader removes them: the last report of each copy run, and a report
  per minute of partitions in which gaps are filled. In the first hash, each report replaces the previous report, read or
  unread.

A partition that is idle and in sync is reported once. While each further observation of it equals the report in all but its
times, the worker only renews the report: a renewal is a signed list of the signatures of such reports, with the time of the
*oldest* of the observations that it stands for. A reader gives the listed reports this time. A renewal names what it renews by
content, so it cannot renew anything else (ADR 45):

* *A worker ends, or its loop hangs.* Its last renewal keeps its time and becomes old.
* *A partition is no longer observed.* It makes the renewals old, and after ``OBSERVED_S`` it is left out of them.
* *Redis was restored from a backup, or an old report is written to it again.* The signature of the old report is not in the
  worker's next renewal, so the report stays old. Nor do older renewals help: each has its own time.
* *A partition moves to another worker.* The new owner's report replaces the renewed report.
* *A report of an earlier lease replaces the owner's report.* That happens if the owner was silent for ``OWNER_SILENT_MS``: it
  is dead, or Redis is slow and the other report was late as well. Renewals of the replaced report have no effect, so the marks
  (below) of all workers are removed: if the owner lives, it reports everything again.
* *Redis has lost reports, so that renewals have no effect.* Each request of a worker carries the mark that its previous request
  left. If Redis does not have it, or if Redis's clock was set back, the worker reports everything again. After a loss the
  reports count as news: the console may have read none of those that were lost.

The wall clocks of two machines are never compared. The lease generation decides which report is later, Redis's clock gives a
report's age, and the reader converts the times in it to its own clock. A report cannot look new because its writer's clock is
ahead, and it hides other reports only while its own writer reports.

Decisions depend on reports: a promotion waits for them, and a failure in a report stops a mirror. A report is therefore signed
with the link's key, which the worker has from the link's plan. Its age is the signature's age, so an old report that is written
to Redis again stays old. A report in the first hash, or a renewal, with an invalid signature is ignored. The signature of a
kept report includes its name; a kept report with an invalid signature is ignored, but not removed, because this process may not
have the signing key yet.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from itertools import count
from math import ceil
from operator import attrgetter
from typing import Any, NamedTuple

import structlog

from linkengine.coordination.client import NOW_MS, client_for, translate_redis_errors
from linkengine.coordination.losses import Loss, note_loss, report_refused
from linkengine.domain.plans import PartitionPhase, PartitionProgress
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.signatures import Signer
from linkengine.domain.states import GapReason

EXPIRY_MS = 600_000  # long enough to show the last progress of a stopped link, short enough to leave no stale keys
KEPT_MS = 24 * 3_600_000  # since the last kept report of a link, if no reader removes them
OWNER_SILENT_MS = 5_000  # an owner reports or renews twice a second; after this time other workers' reports are accepted
RENEW_S = 0.4  # between two renewals of a link by a worker; less than between two reports of a link with few partitions
OBSERVED_S = 5.0  # a report is not renewed later than this after its partition was last observed
SOURCE_SEEN_MS = 2_000  # a report is not renewed if the source had not been seen for longer when the partition was observed

CLOCK_S = 1.0  # between readings of Redis's clock, a worker derives Redis's time from its own monotonic clock
_FIELDS = {field.name: field.default for field in fields(PartitionProgress)}
_TIMES = ("observed_at_ms", "source_seen_at_ms", "caught_up_at_ms", "failed_at_ms")  # by the reporting worker's clock
_GAP_WORDS = 6  # start, end, reason, filled, before and after
_CONTENT = attrgetter(*(name for name in _FIELDS if name not in {"observed_at_ms", "source_seen_at_ms", "caught_up_at_ms"}))
# ``dataclasses.replace`` takes three times as long, and a pass, a sample or a scrape renews each idle partition of a link
_VALUES, _SETTERS = attrgetter(*_FIELDS), tuple(getattr(PartitionProgress, name).__set__ for name in _FIELDS)
_RENEWED = tuple(
    getattr(PartitionProgress, name).__set__ for name in ("observed_at_ms", "source_seen_at_ms", "caught_up_at_ms")
)
_PURPOSE, _KEPT_PURPOSE, _RENEWAL_PURPOSE = "progress", "kept progress", "renewal"
_NAMED = 16  # hexadecimal digits of a signature that name a report in a renewal
_MARK = "mark "
_FORMER, _NEWS = "former ", "news"
_CLOCK_SET_MS = 250  # a larger change of the difference to Redis's clock: a clock was set, so cached times are wrong
_LINKS_DECODED = 256  # links whose decoded reports are cached in this process
_SIGNED_WORDS = 4  # time received by Redis, time signed, signature, JSON
_log = structlog.get_logger(__name__)
# Patterns parse the JSON of ``to_json``: decoding it would take ten times as long, during which Redis serves no other client.
# KEYS: reports, renewals. ARGV: expiry, OWNER_SILENT_MS, number of news, worker, its previous mark, number of its new mark, its
# renewal or '', then per report: key, copy_run_id, lease generation (0: no lease), signed report. Returns the new mark,
# whether the reports and the previous mark were there, and the keys of dropped reports.
_REPORT = (
    NOW_MS
    + """
local renewals  -- read once: a list names up to all reports of a worker
local function is_renewed(signature)
  renewals = renewals or redis.call('HVALS', KEYS[2])
  for _, value in ipairs(renewals) do
    local age = now - tonumber(string.match(value, '^%d+') or '0')
    if age >= 0 and age < tonumber(ARGV[2]) and string.find(value, string.sub(signature, 1, 16), 1, true) then return true end
  end
  return false
end
local complete = redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HGET', KEYS[2], 'mark ' .. ARGV[4]) == ARGV[5]
local dropped, replaced = {}, false
for i = 8, #ARGV, 4 do
  local key, run, generation = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local before = redis.call('HGET', KEYS[1], key) or ''
  local hidden, at, signature, text, owner = false
  if not string.find(before, '"copy_run_id": "' .. run .. '"', 1, true) then
    at, signature, text = string.match(before, '^(%d+) %d+ (%x+) (.*)$')
    owner = at and string.match(text, '"copy_run_id": "([^"]*)"')
  end
  if owner then
    local age, known = now - tonumber(at), tonumber(string.match(text, '"generation": (%d+)') or '0')
    local released = string.find(text, '"phase": "RELEASED"', 1, true)
    if known > generation and age >= 0 and not (generation == 0 and released) then
      hidden = age < tonumber(ARGV[2]) or is_renewed(signature)
    end
    if not hidden then  -- received again: it may have been renewed until now
      redis.call('HSET', KEYS[1], 'former ' .. key, stamp .. string.sub(before, #at + 1))
      replaced = replaced or (known >= generation and string.find(text, '"phase": "COPYING"', 1, true))
    end
  end
  if hidden then dropped[#dropped + 1] = key
  else redis.call('HSET', KEYS[1], key, stamp .. ' ' .. ARGV[i + 3]) end
end
if tonumber(ARGV[3]) > 0 then redis.call('HINCRBY', KEYS[1], 'news', ARGV[3]) end
for _, name in ipairs(redis.call('HKEYS', KEYS[2])) do
  local old = now - tonumber(string.match(redis.call('HGET', KEYS[2], name), '^%d+') or '0') > tonumber(ARGV[1])
  if old or (replaced and string.sub(name, 1, 5) == 'mark ') then redis.call('HDEL', KEYS[2], name) end
end
local mark = stamp .. ' ' .. ARGV[6]
redis.call('HSET', KEYS[2], 'mark ' .. ARGV[4], mark)
if ARGV[7] ~= '' then redis.call('HSET', KEYS[2], ARGV[4], stamp .. ' ' .. ARGV[7]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return {mark, complete and 1 or 0, dropped}
"""
)
_KEEP = NOW_MS + "redis.call('HSET', KEYS[1], ARGV[2], stamp .. ' ' .. ARGV[3]) redis.call('PEXPIRE', KEYS[1], ARGV[1])"
# KEYS: hash, and for reports the renewals
_READ = "return {redis.call('TIME'), redis.call('HGETALL', KEYS[1]), KEYS[2] and redis.call('HGETALL', KEYS[2]) or {}}"
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
return {redis.call('TIME'), found, redis.call('HGETALL', KEYS[2])}
"""
_CLEAR = """
for _, key in ipairs(redis.call('HKEYS', KEYS[1])) do
  local name = string.gsub(key, '^former ', '')
  if string.sub(name, 1, #ARGV[1]) == ARGV[1] then redis.call('HDEL', KEYS[1], key) end
end
"""


def unix_ms() -> int:
    """Return the system time."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class _Reported:
    """A report of an idle partition in sync that this writer has stored in Redis and that Redis may have lost since."""

    content: tuple[object, ...]  # without its times
    name: str  # in renewals
    seen_at: float  # when the partition's source was last observed with this content (monotonic seconds)


@dataclass(slots=True)
class _LinkReports:
    """A worker's reports of a link."""

    signer: Signer
    reported: dict[str, _Reported] = field(default_factory=dict)  # that can be renewed, by partition key
    urgent_values: dict[str, tuple[object, ...]] = field(default_factory=dict)  # of each partition's last report that arrived
    mark: str = ""  # that the last request left in Redis
    renew_at: float = 0.0  # monotonic seconds
    renews: bool = False  # the last renewal names reports


class RedisProgress:
    """Publisher of a copy worker's progress reports."""

    def __init__(self, url: str, signer_of: Callable[[str], Signer], *, now_ms: Callable[[], int] = unix_ms) -> None:
        """Prepare the connection; nothing is reported yet. ``signer_of`` returns the signer for a link's reports.

        ``now_ms``: the clock of the times in observations.
        """
        self._url, self._signer_of, self._unix_ms = url, signer_of, now_ms
        self._redis = client_for(url)
        self._name, self._marks = uuid.uuid4().hex, count(1)
        self._links: dict[str, _LinkReports] = {}
        self._clock_read_at, self._ahead_ms = float("-inf"), 0.0  # last reading of Redis's clock, its lead over time.monotonic

    def report(self, link_id: str, observations: Sequence[PartitionProgress]) -> None:
        """Publish the newest observations of a link in two round trips; raise CoordinationUnavailableError in an outage.

        Observations of idle partitions that were reported before only renew their reports.
        """
        if not observations:
            return
        link = self._link(link_id)
        changed = [seen for seen in observations if not self._renews(link, seen)]
        if not changed and time.monotonic() < link.renew_at:
            return
        with translate_redis_errors("store progress"):
            at_ms = self._now_ms()
            texts = [signed_report(link.signer, link_id, seen, at_ms=at_ms) for seen in changed]
            words = [
                word
                for seen, text in zip(changed, texts, strict=True)
                for word in (seen.key, seen.copy_run_id, seen.generation, text)
            ]
            news, renewal = _news(link, changed), self._renewal(link_id, link, at_ms=at_ms)
            if not changed and not renewal:
                return
            begin = (EXPIRY_MS, OWNER_SILENT_MS, len(news), self._name, link.mark, next(self._marks), renewal)
            reply: Any = self._redis.eval(_REPORT, 2, _name(link_id), _renewals(link_id), *begin, *words)
        before, (link.mark, is_complete, dropped) = link.mark, reply
        if before and not is_complete:  # Redis has lost reports
            link.reported.clear()
            link.urgent_values.clear()
        for seen, text in zip(changed, texts, strict=True):
            link.reported.pop(seen.key, None)  # an earlier copy run in the same request
            if _is_in_sync(seen) and seen.key not in dropped:
                link.reported[seen.key] = _Reported(_CONTENT(seen), _name_in_renewals(text), self._seen_at(seen))
        _remember(link, news, changed)

    def _link(self, link_id: str) -> _LinkReports:
        """Return the reports of a link; those that were signed with another key are reported again."""
        signer, link = self._signer_of(link_id), self._links.get(link_id)
        if link is None:
            link = self._links[link_id] = _LinkReports(signer)
        elif link.signer != signer:
            link.signer = signer
            link.reported.clear()
        return link

    def _renews(self, link: _LinkReports, seen: PartitionProgress) -> bool:
        """Note an observation; return whether it renews the partition's report, which is forgotten otherwise."""
        known = link.reported.get(seen.key)
        if known is not None and _is_in_sync(seen) and _CONTENT(seen) == known.content:
            known.seen_at = self._seen_at(seen)
            return True
        link.reported.pop(seen.key, None)
        return False

    def _seen_at(self, seen: PartitionProgress) -> float:
        """Return when the partition's source was observed, by this process's monotonic clock; never in the future."""
        assert seen.source_seen_at_ms is not None  # by ``_is_in_sync``
        return time.monotonic() - max(0, self._unix_ms() - seen.source_seen_at_ms) / 1000

    def _renewal(self, link_id: str, link: _LinkReports, *, at_ms: int) -> str:
        """Return a renewal without the time received by Redis, or "" if none is due. ``at_ms``: now, by Redis's clock.

        A renewal without names follows the last one with names, so that readers see the change at once.
        """
        now = time.monotonic()
        if now < link.renew_at:
            return ""
        link.renew_at = now + RENEW_S
        link.reported = {key: known for key, known in link.reported.items() if now - known.seen_at <= OBSERVED_S}
        if not link.reported and not link.renews:
            return ""
        link.renews = bool(link.reported)
        oldest = min((known.seen_at for known in link.reported.values()), default=now)
        names = " ".join(known.name for known in link.reported.values())
        return signed_renewal(link.signer, link_id, names, at_ms=at_ms - ceil((now - oldest) * 1000))

    def keep(self, link_id: str, observation: PartitionProgress) -> None:
        """Store an observation until the reader removes it; raise CoordinationUnavailableError in an outage."""
        name = f"{observation.key} {observation.copy_run_id} {observation.observed_at_ms}"
        with translate_redis_errors("store progress"):
            text = signed_report(self._signer_of(link_id), link_id, observation, at_ms=self._now_ms(), kept_as=name)
            self._redis.eval(_KEEP, 1, _kept(link_id), KEPT_MS, name, text)

    def report_loss(self, link_id: str, loss: Loss) -> None:
        """Store a loss until it is in the gap ledger; raise CoordinationUnavailableError in an outage."""
        note_loss(self._url, link_id, self._signer_of(link_id), loss)
        with translate_redis_errors("store progress"):
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.hincrby(_name(link_id), _NEWS, 1)
            pipeline.pexpire(_name(link_id), EXPIRY_MS)
            pipeline.execute()

    def _now_ms(self) -> int:
        """Return the time by Redis's clock, which is read once a second: a worker of many links sends hundreds of reports."""
        now = time.monotonic()
        if now - self._clock_read_at > CLOCK_S:
            seconds, micros = self._redis.time()
            self._clock_read_at = time.monotonic()
            redis_ms = int(seconds) * 1000 + int(micros) / 1000
            # However slow the reply was, the clock was set back, and reports would be later than their renewals. They are sent
            # again: otherwise, if this worker dies, its partitions would look in sync when the clock reaches their times.
            if redis_ms - now * 1000 < self._ahead_ms - _CLOCK_SET_MS:
                for link in self._links.values():
                    link.reported.clear()
            self._ahead_ms = redis_ms - self._clock_read_at * 1000
            return int(seconds) * 1000 + int(micros) // 1000
        return int(now * 1000 + self._ahead_ms)


def _news(link: _LinkReports, observations: Sequence[PartitionProgress]) -> dict[str, tuple[object, ...]]:
    """Return the urgent values of each report in which they differ from the partition's previous report, by key."""
    values_of = {seen.key: _urgent_values(seen) for seen in observations}
    return {key: values for key, values in values_of.items() if link.urgent_values.get(key) != values}


def _remember(link: _LinkReports, news: Mapping[str, tuple[object, ...]], observations: Sequence[PartitionProgress]) -> None:
    """Remember what Redis has counted as news. Not called in an outage, so the next report is counted as news again."""
    link.urgent_values |= news
    for seen in observations:
        if seen.phase is PartitionPhase.RELEASED:
            link.urgent_values.pop(seen.key, None)


def signed_report(signer: Signer, link_id: str, progress: PartitionProgress, *, at_ms: int, kept_as: str | None = None) -> str:
    """Return a report as it is stored, without the time received by Redis; ``kept_as``: its name in ``kept:<link id>``."""
    text = to_json(progress)
    return f"{at_ms} {signer.sign(*_signed(link_id, str(at_ms), text, kept_as))} {text}"


def signed_renewal(signer: Signer, link_id: str, names: str, *, at_ms: int) -> str:
    """Return a renewal as it is stored, without the time received by Redis; ``at_ms``: of its oldest observation."""
    return f"{at_ms} {signer.sign(_RENEWAL_PURPOSE, link_id, str(at_ms), names)} {names}"


def _name_in_renewals(signed: str) -> str:
    """Return how a report, as ``signed_report`` returned it, is named in renewals."""
    return signed.split(" ", maxsplit=2)[1][:_NAMED]


def _is_in_sync(seen: PartitionProgress) -> bool:
    """Return whether a partition is copied without error and had all records of its source when it was observed."""
    end, ends = seen.mirror_end, (seen.source_end, seen.source_high_watermark)
    if seen.phase is not PartitionPhase.COPYING or seen.error_code or not seen.generation or seen.source_seen_at_ms is None:
        return False
    has_all = end is not None and all(source_end is not None and source_end <= end for source_end in ends)
    return has_all and seen.observed_at_ms - seen.source_seen_at_ms <= SOURCE_SEEN_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Reports of a link's copy workers, by partition key."""

    latest: Mapping[str, PartitionProgress]
    former: Mapping[str, PartitionProgress]  # the last report of the previous copy run
    names: Mapping[str, str]  # of the latest reports, in renewals


def read_readings(url: str, link_id: str, signer: Signer, *, keys: Sequence[str] | None = None) -> Readings:
    """Return the reports of a link, or of some of its partitions (``keys``); raise CoordinationUnavailableError in an outage.

    Times are by this machine's clock. They are in the future if Redis's clock was set back after the report.
    """
    found, times, ahead_ms = _read(url, _name(link_id), link_id, signer, kept=False, keys=keys)
    latest, former, names = {}, {}, {}
    for key, decoded in found.items():
        if decoded.progress is None:
            continue
        if key == decoded.progress.key:
            names[key] = decoded.name
            latest[key] = _renewed(decoded.progress, times.get(decoded.name), ahead_ms=ahead_ms)
        elif key == f"{_FORMER}{decoded.progress.key}":
            former[decoded.progress.key] = decoded.progress
    return Readings(latest=latest, former=former, names=names)


def read_renewal(url: str, link_id: str, signer: Signer, names: AbstractSet[str]) -> int | None:
    """Return a time, by this machine's clock, at which reports with these names still held; None if any was not renewed.

    Raises CoordinationUnavailableError in an outage.
    """
    now_ms = unix_ms()
    with translate_redis_errors("return progress"):
        reply: Any = client_for(url).eval(_READ, 1, _renewals(link_id))
    (seconds, micros), renewals, _ = reply
    times = _renewed_at(url, link_id, signer, renewals)
    at_ms = min((times.get(name, 0) for name in names), default=0)
    return at_ms + now_ms - int(seconds) * 1000 - int(micros) // 1000 if at_ms else None


def read_news(url: str, link_ids: Sequence[str]) -> list[str]:
    """Return the count of news per link, which changes when its reports should be read immediately. A single round trip."""
    with translate_redis_errors("return progress"):
        pipeline = client_for(url).pipeline(transaction=False)
        for link_id in link_ids:
            pipeline.hget(_name(link_id), _NEWS)
        return [str(news or "") for news in pipeline.execute()]


def read_progress(url: str, link_id: str, signer: Signer) -> list[PartitionProgress]:
    """Return the newest observation of every partition of the link, by key; empty if all reports have expired."""
    latest = read_readings(url, link_id, signer).latest
    return [latest[key] for key in sorted(latest)]


def read_kept(url: str, link_id: str, signer: Signer) -> dict[str, PartitionProgress | None]:
    """Return the kept reports by name, earliest first; None for a signed report that cannot be parsed."""
    decoded, _, _ = _read(url, _kept(link_id), link_id, signer, kept=True)
    found = {name: kept.progress for name, kept in decoded.items()}
    return dict(sorted(found.items(), key=lambda item: 0 if item[1] is None else item[1].observed_at_ms))


def has_kept(url: str, link_id: str) -> bool:
    """Return whether kept reports of a link wait to be processed; raise CoordinationUnavailableError in an outage."""
    with translate_redis_errors("return progress"):
        return bool(client_for(url).exists(_kept(link_id)))


def forget_kept(url: str, link_id: str, names: Iterable[str]) -> None:
    """Remove kept reports by name."""
    words = list(names)
    if words:
        with translate_redis_errors("remove progress"):
            client_for(url).hdel(_kept(link_id), *words)


def clear_link(url: str, link_id: str) -> None:
    """Remove all progress of a deleted link."""
    with translate_redis_errors("clear progress"):
        client_for(url).delete(_name(link_id), _renewals(link_id), _kept(link_id))


def clear_mirror(url: str, link_id: str, *, mirror_id: str) -> None:
    """Remove the progress of a deleted mirror."""
    with translate_redis_errors("clear progress"):
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
) -> tuple[dict[str, _Decoded], dict[str, int], int]:
    """Return reports by field, times of renewals by name, and how far this machine's clock is ahead of Redis's clock."""
    now_ms = unix_ms()  # before the request: a slow reply must not make a report look younger
    names = (name,) if kept else (name, _renewals(link_id))
    with translate_redis_errors("return progress"):
        if keys is None:
            reply: Any = client_for(url).eval(_READ, len(names), *names)
        else:
            reply = client_for(url).eval(_READ_SOME, len(names), *names, *keys, *(f"{_FORMER}{key}" for key in keys))
    (seconds, micros), words, renewals = reply
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
            progress = _decode(text, observed_at_ms=at_ms + ahead_ms)
            last = _Decoded(value, signer, ahead_ms, progress, _name_in_renewals(value.partition(" ")[2]))
        found[key] = last
    if keys is None and not kept:
        if len(_decoded) >= _LINKS_DECODED:
            _decoded.clear()
        _decoded[url, name] = found
    return found, _renewed_at(url, link_id, signer, renewals), ahead_ms


def _renewed_at(url: str, link_id: str, signer: Signer, renewals: Sequence[str]) -> dict[str, int]:
    """Return the latest time, by Redis's clock, at which each renewed report held, by its name in renewals."""
    found: dict[str, int] = {}
    for writer, value in zip(renewals[::2], renewals[1::2], strict=True):
        if writer.startswith(_MARK):
            continue
        words = value.split(" ", maxsplit=_SIGNED_WORDS - 1)
        if len(words) != _SIGNED_WORDS or not signer.verifies(words[2], _RENEWAL_PURPOSE, link_id, words[1], words[3]):
            report_refused(url, "report", link_id, f"{writer} {value}")
            continue
        at_ms = int(words[1])
        found |= {name: at_ms for name in words[3].split() if found.get(name, at_ms) <= at_ms}
    return found


def _renewed(progress: PartitionProgress, at_ms: int | None, *, ahead_ms: int) -> PartitionProgress:
    """Return a report with the time of its renewal, if it was renewed: it was in sync at that time as well."""
    if at_ms is None or at_ms + ahead_ms <= progress.observed_at_ms:
        return progress
    renewed = object.__new__(PartitionProgress)
    for set_value, value in zip(_SETTERS, _VALUES(progress), strict=True):
        set_value(renewed, value)
    for set_time in _RENEWED:
        set_time(renewed, at_ms + ahead_ms)
    return renewed


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
    name: str  # in renewals


_decoded: dict[tuple[str, str], dict[str, _Decoded]] = {}  # by Redis URL and hash, as last read


def _urgent_values(progress: PartitionProgress) -> tuple[object, ...]:
    """Return the values that the console acts on immediately: copy run, phase, error, set-backs, whether the ends are known."""
    unknown = (progress.mirror_end is None, progress.source_end is None)
    errors = (progress.error_code, progress.error_message, progress.failed_at_ms)
    return (
        progress.copy_run_id,
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


def _decode(text: str, *, observed_at_ms: int) -> PartitionProgress | None:
    try:
        return from_json(text, observed_at_ms=observed_at_ms)
    except ValueError as error:  # written by another version during a rolling deployment; the next report replaces it
        _log.warning("progress.unreadable", error=str(error))
        return None


def _name(link_id: str) -> str:
    return f"progress:{link_id}"


def _renewals(link_id: str) -> str:
    return f"renewals:{link_id}"


def _kept(link_id: str) -> str:
    return f"kept:{link_id}"
