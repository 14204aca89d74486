"""Progress as JSON and in a real Redis; which of two overlapping holds is shown."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from devcluster.redis import RedisServer
from linkengine.coordination import progress as progress_module
from linkengine.coordination.client import client_for
from linkengine.coordination.progress import (
    RedisProgress,
    clear_link,
    clear_mirror,
    forget_kept,
    from_json,
    read_kept,
    read_news,
    read_progress,
    read_readings,
    signed_renewal,
    signed_report,
    to_json,
    unix_ms,
)
from linkengine.domain.plans import PartitionPhase, PartitionProgress
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.signatures import Signer
from linkengine.domain.states import GapReason
from linkengine.domain.workers import CoordinationUnavailableError
from tests.signing import OTHER, SIGNER

NOW_MS = 1_800_000_000_000
PAUSE_S = 0.3
HOUR_MS = 3_600_000
offsets = st.integers(0, 2**63 - 1)
ranges = st.tuples(offsets, offsets).map(lambda pair: OffsetRange(min(pair), max(pair)))
observations = st.builds(
    PartitionProgress,
    key=st.text(min_size=1),
    copy_run_id=st.text(),
    phase=st.sampled_from(PartitionPhase),
    observed_at_ms=offsets,
    generation=st.integers(0, 2**31),
    source_start=st.none() | offsets,
    source_end=st.none() | offsets,
    source_seen_at_ms=st.none() | offsets,
    mirror_start=st.none() | offsets,
    mirror_end=st.none() | offsets,
    last_fetch_offset=st.none() | offsets,
    last_timestamp_ms=st.none() | st.integers(-1, 2**63 - 1),
    caught_up_at_ms=st.none() | offsets,
    source_high_watermark=st.none() | offsets,
    unproven_end=st.none() | offsets,
    set_back_to=st.none() | offsets,
    set_backs=st.integers(0, 5),
    source_kept=st.none() | offsets,
    source_epoch=st.none() | st.integers(0, 2**31),
    bytes_copied=offsets,
    records_copied=offsets,
    bytes_per_s=st.none() | st.floats(0, 1e12),
    records_per_s=st.none() | st.floats(0, 1e12),
    error_code=st.text(),
    error_message=st.text(),
    failed_at_ms=st.none() | offsets,
    since_ms=offsets,
    gaps=st.lists(st.builds(Gap, ranges, st.sampled_from(GapReason)), max_size=5).map(tuple),
    topic_ids=st.text(),
)


@pytest.fixture
def link_id() -> str:
    return f"link-{secrets.token_hex(6)}"


def seen(
    key: str = "mirror/0",
    *,
    copy_run_id: str = "s1",
    phase: PartitionPhase = PartitionPhase.COPYING,
    generation: int = 1,
    after_ms: int = 0,
) -> PartitionProgress:
    return PartitionProgress(
        key=key,
        copy_run_id=copy_run_id,
        phase=phase,
        generation=0 if phase is PartitionPhase.WAITING else generation,
        observed_at_ms=NOW_MS + after_ms,
        mirror_end=after_ms,
    )


def signer_of(_: str) -> Signer:
    return SIGNER


def in_sync(key: str = "mirror/0", *, end: int = 10, generation: int = 1, **values: object) -> PartitionProgress:
    """Return an observation, made now, of a partition that is idle and in sync."""
    now_ms = unix_ms()
    known: dict[str, object] = {"source_end": end, "source_high_watermark": end, "mirror_end": end, "observed_at_ms": now_ms}
    known |= {"source_seen_at_ms": now_ms, "caught_up_at_ms": now_ms}
    return replace(seen(key, generation=generation), **{**known, **values})  # type: ignore[arg-type]


def stored(redis_url: str, link_id: str, key: str = "mirror/0") -> str:
    """Return a report as it is stored, with the time at which Redis received it."""
    return str(client_for(redis_url).hget(f"progress:{link_id}", key))


def ages(redis_url: str, link_id: str) -> dict[str, int]:
    """Return the ages of the reports by key, in milliseconds."""
    found = read_readings(redis_url, link_id, SIGNER).latest
    return {key: unix_ms() - report.observed_at_ms for key, report in found.items()}


def shown(redis_url: str, link_id: str) -> list[PartitionProgress]:
    """Return the progress of a link, with the times of ``seen`` instead of the reader's."""
    found = read_progress(redis_url, link_id, SIGNER)
    return [replace(progress, observed_at_ms=NOW_MS + (progress.mirror_end or 0)) for progress in found]


def age(redis_url: str, link_id: str, *, ms: int) -> None:
    """Make the reports older, by Redis's clock; a negative age is that of a clock that was set back."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        for key, value in client.hgetall(f"progress:{link_id}").items():
            if key == "news":
                continue
            got_at_ms, signed_at_ms, _, text = value.split(" ", maxsplit=3)
            signed = signed_report(SIGNER, link_id, from_json(text), at_ms=int(signed_at_ms) - ms)
            client.hset(f"progress:{link_id}", key, f"{int(got_at_ms) - ms} {signed}")


@given(observations)
def test_an_observation_survives_serialization_to_json(observation: PartitionProgress) -> None:
    assert from_json(to_json(observation)) == observation


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"phase": "COPYING", "gaps": [[2, 1, "HEAD"]]}', '{"phase": "?"}'])
def test_text_that_is_not_a_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_json(text)


def test_unknown_fields_of_a_report_are_ignored_and_missing_fields_have_defaults() -> None:
    gap = Gap(OffsetRange(3, 5), GapReason.LOST, 2, 10, 20)
    progress = PartitionProgress(
        key="m/0", copy_run_id="s", phase=PartitionPhase.COPYING, observed_at_ms=1, mirror_end=9, gaps=(gap,)
    )
    values = json.loads(to_json(progress))

    newer = {**values, "a_field_of_tomorrow": 7, "gaps": [[*values["gaps"][0], "more of tomorrow"]]}
    older = {name: values[name] for name in ("key", "copy_run_id", "phase", "observed_at_ms", "mirror_end")}

    assert from_json(json.dumps(newer)) == progress
    assert from_json(json.dumps(older)) == replace(progress, gaps=())


def test_the_newest_observation_of_every_partition_is_read_by_key(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, signer_of)
    progress.report(link_id, [seen("b/1"), seen("a/0")])
    progress.report(link_id, [seen("b/1", after_ms=10)])
    progress.report(link_id, [])

    assert shown(redis_url, link_id) == [seen("a/0"), seen("b/1", after_ms=10)]


def test_offsets_up_to_the_highest_survive_redis(redis_url: str, link_id: str) -> None:
    last = replace(seen(), mirror_end=2**63 - 1, gaps=(Gap(OffsetRange(2**53 + 1, 2**63 - 1), GapReason.LOST),))
    RedisProgress(redis_url, signer_of).report(link_id, [last])

    (read,) = read_progress(redis_url, link_id, SIGNER)
    assert (read.mirror_end, read.gaps) == (last.mirror_end, last.gaps)


@pytest.mark.parametrize("wrong_by_ms", [-HOUR_MS, HOUR_MS])
def test_times_are_by_the_readers_clock_even_if_the_writers_is_wrong(redis_url: str, link_id: str, wrong_by_ms: int) -> None:
    before_ms = time.time_ns() // 1_000_000
    observed_at_ms = before_ms + wrong_by_ms
    ago = {"caught_up_at_ms": 700, "source_seen_at_ms": 200, "failed_at_ms": 400}
    times: dict[str, Any] = {name: observed_at_ms - ms for name, ms in ago.items()}
    reported = replace(seen(), observed_at_ms=observed_at_ms, **times)
    RedisProgress(redis_url, signer_of).report(link_id, [reported])

    requested_ms = time.time_ns() // 1_000_000
    (read,) = read_progress(redis_url, link_id, SIGNER)
    after_ms = time.time_ns() // 1_000_000

    assert before_ms - (after_ms - requested_ms) - 1 <= read.observed_at_ms <= after_ms  # older by up to the response time
    assert {name: read.observed_at_ms - getattr(read, name) for name in ago} == ago


def test_a_writer_whose_clock_is_ahead_does_not_hide_the_next_copy_run(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, signer_of)
    progress.report(link_id, [seen(copy_run_id="s1", after_ms=HOUR_MS)])
    progress.report(link_id, [seen(copy_run_id="s2", generation=2, phase=PartitionPhase.FAILED)])

    assert shown(redis_url, link_id) == [seen(copy_run_id="s2", generation=2, phase=PartitionPhase.FAILED)]


def test_a_redis_clock_that_was_set_back_hides_no_report_and_makes_the_age_unknown(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, signer_of)
    progress.report(link_id, [seen(copy_run_id="s1")])
    age(redis_url, link_id, ms=-HOUR_MS)
    assert read_progress(redis_url, link_id, SIGNER)[0].observed_at_ms > time.time_ns() // 1_000_000 + HOUR_MS // 2

    progress.report(link_id, [seen(copy_run_id="s2", phase=PartitionPhase.WAITING)])

    assert [progress.copy_run_id for progress in read_progress(redis_url, link_id, SIGNER)] == ["s2"]


def test_a_task_that_waits_for_the_lease_does_not_hide_the_owner(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, signer_of)
    progress.report(link_id, [seen(copy_run_id="s1")])
    progress.report(link_id, [seen(copy_run_id="s2", phase=PartitionPhase.WAITING, after_ms=400)])

    assert shown(redis_url, link_id) == [seen(copy_run_id="s1")]


def test_a_waiting_task_is_shown_after_the_owner_has_stopped_reporting(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, signer_of)
    waiting = seen(copy_run_id="s2", phase=PartitionPhase.WAITING)
    progress.report(link_id, [seen(copy_run_id="s1", after_ms=HOUR_MS)])
    age(redis_url, link_id, ms=6_000)
    progress.report(link_id, [waiting])

    assert shown(redis_url, link_id) == [waiting]


def test_a_waiting_task_is_shown_after_the_owner_has_released_the_partition(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, signer_of)
    waiting = seen(copy_run_id="s2", phase=PartitionPhase.WAITING, after_ms=1)
    progress.report(link_id, [seen(copy_run_id="s1", phase=PartitionPhase.RELEASED)])
    progress.report(link_id, [waiting])

    assert shown(redis_url, link_id) == [waiting]


@pytest.mark.parametrize("phase", [PartitionPhase.RELEASED, PartitionPhase.FAILED, PartitionPhase.COPYING])
def test_a_report_of_an_earlier_lease_is_dropped(redis_url: str, link_id: str, phase: PartitionPhase) -> None:
    progress = RedisProgress(redis_url, signer_of)
    progress.report(link_id, [seen(copy_run_id="s2", generation=5)])
    progress.report(link_id, [seen(copy_run_id="s1", generation=4, phase=phase, after_ms=HOUR_MS)])

    assert shown(redis_url, link_id) == [seen(copy_run_id="s2", generation=5)]


def test_unreadable_reports_are_ignored_until_they_are_replaced(redis_url: str, link_id: str) -> None:
    RedisProgress(redis_url, signer_of).report(link_id, [seen("a/0")])
    with redis.Redis.from_url(redis_url) as client:
        client.hset(f"progress:{link_id}", mapping={"b/0": '1 {"of": "another version"}', "c/0": '{"of": "an older version"}'})

    assert shown(redis_url, link_id) == [seen("a/0")]
    RedisProgress(redis_url, signer_of).report(link_id, [seen("b/0"), seen("c/0")])
    assert [progress.key for progress in shown(redis_url, link_id)] == ["a/0", "b/0", "c/0"]


def test_progress_expires_automatically(redis_url: str, link_id: str) -> None:
    RedisProgress(redis_url, signer_of).report(link_id, [seen()])

    with redis.Redis.from_url(redis_url) as client:
        assert 590_000 < client.pttl(f"progress:{link_id}") <= 600_000


def test_the_progress_of_one_mirror_can_be_removed(redis_url: str, link_id: str) -> None:
    RedisProgress(redis_url, signer_of).report(link_id, [seen("a/0"), seen("a/1"), seen("ab/0")])

    clear_mirror(redis_url, link_id, mirror_id="a")

    assert shown(redis_url, link_id) == [seen("ab/0")]


def test_without_redis_reporting_and_reading_raise(own_redis: RedisServer, link_id: str) -> None:
    progress = RedisProgress(own_redis.url, signer_of)
    own_redis.kill()

    with pytest.raises(CoordinationUnavailableError):
        progress.report(link_id, [seen()])
    with pytest.raises(CoordinationUnavailableError):
        read_progress(own_redis.url, link_id, SIGNER)


def test_kept_reports_stay_until_they_are_removed(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, signer_of)
    first, last = seen("a/0"), seen("a/0", after_ms=10)
    other = replace(first, copy_run_id="s2")
    for observation in (first, last, other):
        progress.keep(link_id, observation)
        progress.keep(link_id, observation)

    kept = read_kept(redis_url, link_id, SIGNER)
    forget_kept(redis_url, link_id, list(kept)[:1])

    ends = sorted(observation.mirror_end or 0 for observation in (first, last, other))
    assert sorted(report.mirror_end or 0 for report in kept.values() if report) == ends
    assert len(read_kept(redis_url, link_id, SIGNER)) == 2
    clear_link(redis_url, link_id)
    assert read_kept(redis_url, link_id, SIGNER) == {}


def test_the_kept_reports_of_a_deleted_mirror_are_removed(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, signer_of)
    progress.keep(link_id, seen("a/0"))
    progress.keep(link_id, seen("ab/0"))

    clear_mirror(redis_url, link_id, mirror_id="a")

    assert [report.key for report in read_kept(redis_url, link_id, SIGNER).values() if report] == ["ab/0"]


def test_a_kept_report_that_cannot_be_parsed_is_returned_by_name(redis_url: str, link_id: str) -> None:
    text, name = '{"of": "another version"}', "a/0 s 1"
    signature = SIGNER.sign("kept progress", link_id, name, "1", text)
    client_for(redis_url).hset(f"kept:{link_id}", name, f"1 1 {signature} {text}")

    assert read_kept(redis_url, link_id, SIGNER) == {name: None}


def test_a_forged_kept_report_is_ignored_and_stays(redis_url: str, link_id: str) -> None:
    client, progress = client_for(redis_url), seen("a/0")
    RedisProgress(redis_url, signer_of).keep(link_id, progress)
    RedisProgress(redis_url, signer_of).report(link_id, [progress])
    ((name, true),) = ((str(name), str(text)) for name, text in client.hgetall(f"kept:{link_id}").items())
    forged: dict[Any, str] = {
        "unsigned": f"1 {to_json(progress)}",
        "by another": f"1 {signed_report(OTHER, link_id, progress, at_ms=1, kept_as='by another')}",
        "of another link": f"1 {signed_report(SIGNER, 'another', progress, at_ms=1, kept_as='of another link')}",
        "under another name": true,
        "a report": str(client.hget(f"progress:{link_id}", "a/0")),
        "altered": true.replace('"mirror_end": 0', '"mirror_end": 9'),
    }
    client.hset(f"kept:{link_id}", mapping=forged)
    before = int(client.hget("refused", "report") or 0)

    for _ in range(2):
        assert list(read_kept(redis_url, link_id, SIGNER)) == [name]
    assert int(client.hget("refused", "report") or 0) == before + len(forged)
    assert client.hlen(f"kept:{link_id}") == len(forged) + 1
    client.hset(f"progress:{link_id}", "a/0", true)
    assert read_progress(redis_url, link_id, SIGNER) == []


def test_a_kept_report_that_is_written_again_keeps_its_age(redis_url: str, link_id: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    old = signed_report(SIGNER, link_id, seen(), at_ms=now_ms - HOUR_MS, kept_as="name")
    client_for(redis_url).hset(f"kept:{link_id}", "name", f"{now_ms} {old}")

    read = read_kept(redis_url, link_id, SIGNER)["name"]
    assert read is not None
    assert read.observed_at_ms < now_ms - HOUR_MS + 60_000


def test_a_forged_report_is_not_read(redis_url: str, link_id: str) -> None:
    caught_up = replace(seen("a/0"), mirror_end=10, source_end=10)
    progress = RedisProgress(redis_url, signer_of)
    progress.report(link_id, [seen("a/0", after_ms=5)])
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        name, now_ms = f"progress:{link_id}", int(client.time()[0]) * 1000
        true = str(client.hget(name, "a/0"))
        for forged in (
            f"{now_ms} {to_json(caught_up)}",  # the format without signatures
            f"{now_ms} {now_ms} {'0' * 64} {to_json(caught_up)}",
            f"{now_ms} {signed_report(SIGNER, 'another link', caught_up, at_ms=now_ms)}",
            f"{now_ms} {signed_report(OTHER, link_id, caught_up, at_ms=now_ms)}",
            true.replace('"mirror_end": 5', '"mirror_end": 10'),
        ):
            assert forged != true
            client.hset(name, "a/0", forged)
            assert read_progress(redis_url, link_id, SIGNER) == []

        client.hset(name, mapping={"a/0": "1 2 f not json", "b/0": true})  # a genuine report under another partition's key
        assert read_progress(redis_url, link_id, SIGNER) == []

    progress.report(link_id, [seen("a/0", after_ms=6)])
    assert shown(redis_url, link_id) == [seen("a/0", after_ms=6)]


def test_a_report_that_is_written_to_redis_again_keeps_its_age(redis_url: str, link_id: str) -> None:
    RedisProgress(redis_url, signer_of).report(link_id, [seen()])
    age(redis_url, link_id, ms=HOUR_MS)
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        got_at_ms, rest = str(client.hget(f"progress:{link_id}", "mirror/0")).split(" ", maxsplit=1)
        client.hset(f"progress:{link_id}", "mirror/0", f"{int(got_at_ms) + HOUR_MS} {rest}")

    (read,) = read_progress(redis_url, link_id, SIGNER)
    assert read.observed_at_ms < time.time_ns() // 1_000_000 - HOUR_MS + 60_000


def test_the_last_report_of_a_copy_run_stays_when_another_run_reports(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, signer_of)
    for end, copy_run_id, generation in [(10, "s1", 1), (20, "s1", 1), (21, "s2", 2), (22, "s2", 2)]:
        progress.report(link_id, [replace(seen(copy_run_id=copy_run_id, generation=generation), mirror_end=end)])

    readings = read_readings(redis_url, link_id, SIGNER)

    assert [(progress.copy_run_id, progress.mirror_end) for progress in readings.latest.values()] == [("s2", 22)]
    assert [(progress.copy_run_id, progress.mirror_end) for progress in readings.former.values()] == [("s1", 20)]
    some = read_readings(redis_url, link_id, SIGNER, keys=["mirror/0", "mirror/7"])
    assert (set(some.latest), set(some.former)) == ({"mirror/0"}, {"mirror/0"})
    clear_mirror(redis_url, link_id, mirror_id="mirror")
    assert read_readings(redis_url, link_id, SIGNER).former == {}


def test_an_old_report_of_a_former_copy_run_is_skipped_without_an_alert(redis_url: str, link_id: str) -> None:
    """Its field stays while the link reports, perhaps longer than the key that signed it."""
    progress, client = RedisProgress(redis_url, signer_of), client_for(redis_url)
    for copy_run_id, generation in [("s1", 1), ("s2", 2)]:
        progress.report(link_id, [seen(copy_run_id=copy_run_id, generation=generation)])
    former = str(client.hget(f"progress:{link_id}", "former mirror/0"))
    received_ms, rest = former.split(" ", maxsplit=1)
    refused = client.hget("refused", "report")
    client.hset(f"progress:{link_id}", "former mirror/0", f"{int(received_ms) - HOUR_MS} {rest}")

    assert read_readings(redis_url, link_id, SIGNER).former == {}
    assert client.hget("refused", "report") == refused
    client.hset(f"progress:{link_id}", "former mirror/0", former.replace('"mirror_end": 0', '"mirror_end": 9'))
    assert read_readings(redis_url, link_id, SIGNER).former == {}
    assert client.hget("refused", "report") != refused


def test_reports_to_act_on_change_the_count_of_news(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, signer_of)

    def news(**values: object) -> bool:
        before = read_news(redis_url, [link_id])
        progress.report(link_id, [replace(seen(), source_end=5, mirror_end=5, **values)])  # type: ignore[arg-type]
        return read_news(redis_url, [link_id]) != before

    assert news()
    assert not news(bytes_copied=7, bytes_per_s=3.0, observed_at_ms=NOW_MS + 500, caught_up_at_ms=NOW_MS)
    assert news(phase=PartitionPhase.SOURCE_UNREACHABLE, error_code="TIMEOUT_ERROR")
    assert news(phase=PartitionPhase.SOURCE_UNREACHABLE, error_code="TIMEOUT_ERROR", failed_at_ms=NOW_MS)
    assert news()
    assert news(set_backs=1, set_back_to=3)
    assert news(copy_run_id="s2")


def test_an_altered_report_is_refused_although_the_original_was_read_before(redis_url: str, link_id: str) -> None:
    RedisProgress(redis_url, signer_of).report(link_id, [seen()])
    assert len(read_progress(redis_url, link_id, SIGNER)) == 1
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        value = str(client.hget(f"progress:{link_id}", "mirror/0"))
        client.hset(f"progress:{link_id}", "mirror/0", value.replace("COPYING", "FAILED"))

    assert read_progress(redis_url, link_id, SIGNER) == []


def test_a_report_that_failed_in_an_outage_is_news_afterwards(own_redis: RedisServer, link_id: str) -> None:
    progress = RedisProgress(own_redis.url, signer_of)
    own_redis.kill()
    with pytest.raises(CoordinationUnavailableError):
        progress.report(link_id, [seen()])
    own_redis.start()

    progress.report(link_id, [seen()])

    assert read_news(own_redis.url, [link_id]) == ["1"]


# --- renewals ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def writer(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> RedisProgress:
    """A worker that renews its reports with each observation."""
    monkeypatch.setattr(progress_module, "RENEW_S", 0.0)
    return RedisProgress(redis_url, signer_of)


def test_an_idle_partition_is_reported_once_and_renewed_by_further_observations(
    redis_url: str, link_id: str, writer: RedisProgress
) -> None:
    with monkeypatched_clock(writer, ahead_ms=-HOUR_MS):  # an hour ago
        writer.report(link_id, [in_sync()])
    first = stored(redis_url, link_id)
    latest = in_sync()
    writer.report(link_id, [latest])

    (read,) = read_progress(redis_url, link_id, SIGNER)
    assert stored(redis_url, link_id) == first
    assert 0 <= latest.observed_at_ms - read.observed_at_ms < HOUR_MS // 2
    assert read.observed_at_ms == read.source_seen_at_ms == read.caught_up_at_ms
    assert replace(read, observed_at_ms=0, source_seen_at_ms=0, caught_up_at_ms=0) == replace(
        latest, observed_at_ms=0, source_seen_at_ms=0, caught_up_at_ms=0
    )
    (some,) = read_readings(redis_url, link_id, SIGNER, keys=["mirror/0"]).latest.values()
    assert abs(some.observed_at_ms - read.observed_at_ms) < HOUR_MS // 2


def test_renewals_are_limited_in_number(redis_url: str, link_id: str) -> None:
    progress, client = RedisProgress(redis_url, signer_of), client_for(redis_url)
    values = set()
    for _ in range(20):
        progress.report(link_id, [in_sync()])
        values.add(str(client.hgetall(f"renewals:{link_id}")))
        time.sleep(0.03)

    assert len(values) <= 3


@pytest.mark.parametrize(
    "values",
    [
        {"end": 11},
        {"source_high_watermark": 12},
        {"source_end": 11, "source_high_watermark": 11},
        {"phase": PartitionPhase.SOURCE_UNREACHABLE, "error_code": "TIMEOUT_ERROR"},
        {"error_code": "TIMEOUT_ERROR"},
        {"bytes_copied": 7},
        {"copy_run_id": "s2"},
        {"generation": 2},
        {"mirror_end": None, "unproven_end": 10},
        {"source_end": None, "source_high_watermark": None},
        {"gaps": (Gap(OffsetRange(3, 5), GapReason.LOST),)},
        {"topic_ids": "other topics"},
    ],
    ids="-".join,
)
def test_a_partition_that_has_changed_is_reported_with_its_own_time(
    redis_url: str, link_id: str, writer: RedisProgress, values: dict[str, object]
) -> None:
    for _ in range(2):
        writer.report(link_id, [in_sync(), in_sync("mirror/1")])
    before = stored(redis_url, link_id)

    writer.report(link_id, [in_sync(**values), in_sync("mirror/1")])  # type: ignore[arg-type]

    assert stored(redis_url, link_id) != before
    read = read_readings(redis_url, link_id, SIGNER).latest["mirror/0"]
    changed = in_sync(**values)  # type: ignore[arg-type]
    assert to_json(replace(read, observed_at_ms=0, source_seen_at_ms=0, caught_up_at_ms=0)) == to_json(
        replace(changed, observed_at_ms=0, source_seen_at_ms=0, caught_up_at_ms=0)
    )


@pytest.mark.parametrize(
    "values",
    [
        {"phase": PartitionPhase.WAITING},
        {"generation": 0},
        {"source_high_watermark": 12},  # an open transaction
        {"source_end": 12, "source_high_watermark": 12},  # behind
        {"mirror_end": None, "unproven_end": 10},
        {"source_seen_at_ms": None},
        {"source_seen_at_ms": 1},  # a source that does not respond
    ],
    ids="-".join,
)
def test_a_partition_that_is_not_idle_and_in_sync_is_reported_each_time(
    redis_url: str, link_id: str, writer: RedisProgress, values: dict[str, object]
) -> None:
    reports = set()
    for _ in range(3):
        writer.report(link_id, [in_sync(**values), in_sync("mirror/1")])  # type: ignore[arg-type]
        reports.add(stored(redis_url, link_id))
        time.sleep(0.01)

    read = read_readings(redis_url, link_id, SIGNER).latest["mirror/0"]
    assert len(reports) == 3
    assert read.source_seen_at_ms is None or read.source_seen_at_ms < read.observed_at_ms + (read.source_seen_at_ms != 1)


def test_a_renewal_has_the_time_of_the_oldest_observation(redis_url: str, link_id: str, writer: RedisProgress) -> None:
    writer.report(link_id, [in_sync("a/0"), in_sync("b/0")])
    writer.report(link_id, [in_sync("a/0")])
    time.sleep(PAUSE_S)
    writer.report(link_id, [in_sync("b/0")])

    found = read_readings(redis_url, link_id, SIGNER).latest
    assert found["a/0"].observed_at_ms == found["b/0"].observed_at_ms
    assert unix_ms() - found["b/0"].observed_at_ms >= PAUSE_S * 1000


def test_a_partition_that_is_no_longer_observed_becomes_old(redis_url: str, link_id: str, writer: RedisProgress) -> None:
    """It makes the other partitions look older for some seconds only."""
    with monkeypatched_clock(writer, ahead_ms=-HOUR_MS):  # an hour ago
        writer.report(link_id, [in_sync("a/0"), in_sync("b/0")])
    writer._links[link_id].reported["a/0"].seen_at -= HOUR_MS / 1_000
    for _ in range(2):
        writer.report(link_id, [in_sync("b/0")])

    found = ages(redis_url, link_id)
    assert found["a/0"] > HOUR_MS // 2
    assert found["b/0"] < HOUR_MS // 2


def test_observations_that_waited_before_they_were_published_are_old(
    redis_url: str, link_id: str, writer: RedisProgress
) -> None:
    writer.report(link_id, [in_sync()])
    waiting = in_sync()
    time.sleep(PAUSE_S)
    writer.report(link_id, [waiting])

    assert ages(redis_url, link_id)["mirror/0"] >= PAUSE_S * 1000


def test_without_further_observations_reports_become_old(redis_url: str, link_id: str, writer: RedisProgress) -> None:
    """The worker was killed, or its loop hangs."""
    for _ in range(3):
        writer.report(link_id, [in_sync()])
    time.sleep(PAUSE_S)
    writer.report(link_id, [])

    assert ages(redis_url, link_id)["mirror/0"] >= PAUSE_S * 1000


def test_an_older_report_in_a_restored_redis_is_not_renewed_and_everything_is_reported_again(
    redis_url: str, link_id: str, writer: RedisProgress
) -> None:
    client, names = client_for(redis_url), (f"progress:{link_id}", f"renewals:{link_id}")
    for _ in range(2):
        writer.report(link_id, [in_sync("a/0", end=10), in_sync("b/0")])
    backup = {name: client.hgetall(name) for name in names}
    time.sleep(PAUSE_S)
    behind = {"end": 20, "source_end": 25, "source_high_watermark": 25}
    for _ in range(2):
        writer.report(link_id, [in_sync("a/0", **behind), in_sync("b/0")])
    for name, values in backup.items():
        client.delete(name)
        client.hset(name, mapping=values)  # type: ignore[arg-type]
    assert ages(redis_url, link_id)["a/0"] >= PAUSE_S * 1000

    writer.report(link_id, [in_sync("b/0")])
    assert ages(redis_url, link_id)["a/0"] >= PAUSE_S * 1000
    writer.report(link_id, [in_sync("a/0", **behind), in_sync("b/0")])

    read = read_readings(redis_url, link_id, SIGNER).latest
    assert (read["a/0"].mirror_end, read["a/0"].source_end) == (20, 25)
    assert max(ages(redis_url, link_id).values()) < 30_000


@pytest.mark.parametrize("lost", [("progress", "renewals"), ("progress",), ("renewals",)], ids="-".join)
def test_everything_is_reported_again_after_redis_has_lost_it(
    redis_url: str, link_id: str, writer: RedisProgress, lost: tuple[str, ...]
) -> None:
    for _ in range(2):
        writer.report(link_id, [in_sync("a/0"), in_sync("b/0")])
    client_for(redis_url).delete(*(f"{name}:{link_id}" for name in lost))

    writer.report(link_id, [in_sync("a/0")])  # notices the loss
    writer.report(link_id, [in_sync("a/0"), in_sync("b/0")])

    assert sorted(ages(redis_url, link_id)) == ["a/0", "b/0"]


def test_a_failure_that_a_replica_lacks_is_news_again(redis_url: str, link_id: str, writer: RedisProgress) -> None:
    """The console has to process it at once, although Redis had counted it before the failover."""
    client: Any = client_for(redis_url)
    names = (f"progress:{link_id}", f"renewals:{link_id}")
    failure: dict[str, Any] = {"phase": PartitionPhase.FAILED, "error_code": "SOURCE_TOPIC_ID_CHANGED"}
    for _ in range(2):
        writer.report(link_id, [in_sync()])
    replica = {name: client.hgetall(name) for name in names}
    before = read_news(redis_url, [link_id])
    writer.report(link_id, [in_sync(**failure)])
    for name, values in replica.items():
        client.delete(name)
        client.hset(name, mapping=values)
    assert read_news(redis_url, [link_id]) == before

    for _ in range(2):  # the first finds what was lost
        writer.report(link_id, [in_sync(**failure)])

    after = read_news(redis_url, [link_id])
    assert after != before
    assert read_readings(redis_url, link_id, SIGNER).latest["mirror/0"].phase is PartitionPhase.FAILED
    writer.report(link_id, [in_sync(**failure)])
    assert read_news(redis_url, [link_id]) == after


def test_an_old_report_that_is_written_to_redis_again_is_not_renewed(
    redis_url: str, link_id: str, writer: RedisProgress
) -> None:
    """Not even while the worker renews a later report of the partition, and with the old renewal beside the new."""
    client: Any = client_for(redis_url)
    for _ in range(2):
        writer.report(link_id, [in_sync(end=10)])
    old = stored(redis_url, link_id)
    (renewal,) = [value for name, value in client.hgetall(f"renewals:{link_id}").items() if not name.startswith("mark ")]
    time.sleep(PAUSE_S)
    for _ in range(2):
        writer.report(link_id, [in_sync(end=20)])
    client.hset(f"progress:{link_id}", "mirror/0", f"{unix_ms()} {old.split(' ', maxsplit=1)[1]}")
    client.hset(f"renewals:{link_id}", "another", f"{unix_ms()} {renewal.split(' ', maxsplit=1)[1]}")
    writer.report(link_id, [in_sync(end=20)])

    read = read_readings(redis_url, link_id, SIGNER).latest["mirror/0"]
    assert read.mirror_end == 10
    assert unix_ms() - read.observed_at_ms >= PAUSE_S * 1000


def test_a_forged_renewal_is_ignored_and_counted(redis_url: str, link_id: str, writer: RedisProgress) -> None:
    client: Any = client_for(redis_url)
    with monkeypatched_clock(writer, ahead_ms=-HOUR_MS):  # an hour ago
        writer.report(link_id, [in_sync()])
    now_ms, name = unix_ms(), stored(redis_url, link_id).split(" ")[2][:16]
    true = signed_renewal(SIGNER, link_id, name, at_ms=now_ms - 10_000)
    forged = {
        "another key": f"{now_ms} {signed_renewal(OTHER, link_id, name, at_ms=now_ms)}",
        "another link": f"{now_ms} {signed_renewal(SIGNER, 'another link', name, at_ms=now_ms)}",
        "another time": f"{now_ms} {true.replace(str(now_ms - 10_000), str(now_ms), 1)}",
        "another report": f"{now_ms} {true} {name}",
        "a report": stored(redis_url, link_id),
        "not a renewal": "1",
    }
    client.hset(f"renewals:{link_id}", mapping=forged)
    before = int(client.hget("refused", "report") or 0)

    assert ages(redis_url, link_id)["mirror/0"] > HOUR_MS // 2
    assert int(client.hget("refused", "report") or 0) == before + len(forged)

    client.hset(f"renewals:{link_id}", "true", f"{now_ms} {signed_renewal(SIGNER, link_id, name, at_ms=now_ms)}")
    assert ages(redis_url, link_id)["mirror/0"] < HOUR_MS // 2


def test_the_previous_owner_cannot_renew_the_report_of_the_new_owner(
    redis_url: str, link_id: str, writer: RedisProgress
) -> None:
    for _ in range(2):
        writer.report(link_id, [in_sync()])
    RedisProgress(redis_url, signer_of).report(link_id, [in_sync(generation=2, copy_run_id="s2")])
    time.sleep(PAUSE_S)
    writer.report(link_id, [in_sync()])  # has not noticed yet that it lost the lease

    readings = read_readings(redis_url, link_id, SIGNER)
    assert readings.latest["mirror/0"].copy_run_id == "s2"
    assert unix_ms() - readings.latest["mirror/0"].observed_at_ms >= PAUSE_S * 1000
    assert unix_ms() - readings.former["mirror/0"].observed_at_ms >= PAUSE_S * 1000


def test_a_report_that_was_dropped_is_not_renewed_but_sent_again(redis_url: str, link_id: str, writer: RedisProgress) -> None:
    owner = RedisProgress(redis_url, signer_of)
    owner.report(link_id, [in_sync(generation=5, copy_run_id="s2")])
    writer.report(link_id, [in_sync(generation=4)])
    clear_mirror(redis_url, link_id, mirror_id="mirror")

    writer.report(link_id, [in_sync(generation=4)])

    assert read_readings(redis_url, link_id, SIGNER).latest["mirror/0"].generation == 4


def silence(redis_url: str, link_id: str) -> None:
    """Make all reports and renewals of a link look as if Redis had received them six seconds earlier, and none since."""
    client: Any = client_for(redis_url)
    for name in (f"progress:{link_id}", f"renewals:{link_id}"):
        for key, value in client.hgetall(name).items():
            received_ms, _, rest = value.partition(" ")
            if rest and not key.startswith("mark "):  # a mark has to stay as its worker knows it
                client.hset(name, key, f"{int(received_ms) - 6_000} {rest}")


@pytest.mark.parametrize(
    "late",
    [
        {"phase": PartitionPhase.RELEASED, "generation": 4},
        {"generation": 4, "end": 8},
        {"phase": PartitionPhase.WAITING, "generation": 0},
    ],
    ids=["released", "idle", "waiting"],
)
def test_an_owner_reports_again_after_a_late_report_of_another_worker_was_accepted(
    redis_url: str, link_id: str, writer: RedisProgress, late: dict[str, Any]
) -> None:
    """Its renewals have no effect then: the partition would be shown as the other worker left it until its next record."""
    for _ in range(2):
        writer.report(link_id, [in_sync(generation=5, copy_run_id="s2"), in_sync("mirror/1")])
    silence(redis_url, link_id)
    RedisProgress(redis_url, signer_of).report(link_id, [in_sync(**late)])
    assert read_readings(redis_url, link_id, SIGNER).latest["mirror/0"].copy_run_id == "s1"

    for _ in range(2):  # the first finds that its mark was removed
        writer.report(link_id, [in_sync(generation=5, copy_run_id="s2"), in_sync("mirror/1")])

    read = read_readings(redis_url, link_id, SIGNER).latest["mirror/0"]
    assert (read.copy_run_id, read.mirror_end) == ("s2", 10)
    assert max(ages(redis_url, link_id).values()) < 30_000


@pytest.mark.parametrize("phase", [PartitionPhase.RELEASED, PartitionPhase.COPYING])
def test_a_handover_makes_no_worker_report_again(
    redis_url: str, link_id: str, writer: RedisProgress, phase: PartitionPhase
) -> None:
    """Neither if the next owner reports before the last report of the previous owner arrives."""
    for _ in range(2):
        writer.report(link_id, [in_sync("mirror/1")])
    first, previous = stored(redis_url, link_id, "mirror/1"), RedisProgress(redis_url, signer_of)
    previous.report(link_id, [in_sync(generation=4, phase=phase)])
    RedisProgress(redis_url, signer_of).report(link_id, [in_sync(generation=5, copy_run_id="s2")])

    for _ in range(2):
        writer.report(link_id, [in_sync("mirror/1")])

    assert read_readings(redis_url, link_id, SIGNER).latest["mirror/0"].copy_run_id == "s2"
    assert stored(redis_url, link_id, "mirror/1") == first


def test_a_waiting_worker_does_not_hide_an_owner_that_renews_its_report(
    redis_url: str, link_id: str, writer: RedisProgress
) -> None:
    waiting = seen(copy_run_id="s2", phase=PartitionPhase.WAITING)
    for _ in range(2):
        writer.report(link_id, [in_sync()])
    received_ms, rest = stored(redis_url, link_id).split(" ", maxsplit=1)
    client_for(redis_url).hset(f"progress:{link_id}", "mirror/0", f"{int(received_ms) - HOUR_MS} {rest}")
    other = RedisProgress(redis_url, signer_of)

    other.report(link_id, [waiting])
    assert read_readings(redis_url, link_id, SIGNER).latest["mirror/0"].copy_run_id == "s1"

    client_for(redis_url).delete(f"renewals:{link_id}")  # the owner has renewed nothing for long
    other.report(link_id, [waiting])
    assert read_readings(redis_url, link_id, SIGNER).latest["mirror/0"].copy_run_id == "s2"


def test_the_last_report_of_a_copy_run_stays_although_it_was_renewed_for_longer_than_reports_are_kept(
    redis_url: str, link_id: str, writer: RedisProgress
) -> None:
    for _ in range(2):
        writer.report(link_id, [in_sync()])
    received_ms, rest = stored(redis_url, link_id).split(" ", maxsplit=1)
    client_for(redis_url).hset(f"progress:{link_id}", "mirror/0", f"{int(received_ms) - HOUR_MS} {rest}")

    RedisProgress(redis_url, signer_of).report(link_id, [in_sync(generation=2, copy_run_id="s2")])

    assert read_readings(redis_url, link_id, SIGNER).former["mirror/0"].copy_run_id == "s1"


def test_reports_are_signed_again_with_another_key(redis_url: str, link_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous key is removed later, and the reports that it signed become invalid."""
    monkeypatch.setattr(progress_module, "RENEW_S", 0.0)
    signers = {link_id: SIGNER}
    progress = RedisProgress(redis_url, signers.__getitem__)
    for _ in range(2):
        progress.report(link_id, [in_sync()])

    signers[link_id] = OTHER
    progress.report(link_id, [in_sync()])

    assert list(read_readings(redis_url, link_id, OTHER).latest) == ["mirror/0"]


def test_reports_are_sent_again_after_redis_clock_was_set_back(redis_url: str, link_id: str, writer: RedisProgress) -> None:
    """Otherwise their own times would be later than those of their renewals, and in the future, for an hour."""
    real_ms = unix_ms()
    with monkeypatched_clock(writer, ahead_ms=HOUR_MS):
        for _ in range(2):
            writer.report(link_id, [in_sync()])
    assert read_progress(redis_url, link_id, SIGNER)[0].observed_at_ms > real_ms + HOUR_MS // 2

    for _ in range(2):
        writer.report(link_id, [in_sync()])

    assert abs(ages(redis_url, link_id)["mirror/0"]) < 30_000


@contextmanager
def monkeypatched_clock(progress: RedisProgress, *, ahead_ms: int) -> Iterator[None]:
    """Make Redis's clock, as a writer reads it, run ahead of the real clock."""
    client: Any = progress._redis
    real = client.time

    def ahead() -> tuple[int, int]:
        seconds, micros = real()
        return seconds + ahead_ms // 1000, micros

    client.time = ahead
    progress._clock_read_at = float("-inf")
    try:
        yield
    finally:
        client.time = real
        progress._clock_read_at = float("-inf")


def test_a_slow_reply_is_not_taken_for_a_clock_that_was_set_back(redis_url: str, link_id: str, writer: RedisProgress) -> None:
    """Otherwise a busy Redis would get all reports again."""
    writer.report(link_id, [in_sync()])
    first, real = stored(redis_url, link_id), writer._redis.time

    def slow_time(**_: Any) -> tuple[int, int]:
        found = real()
        time.sleep(2 * PAUSE_S)
        return found

    writer._redis.time = slow_time  # type: ignore[method-assign]
    writer._clock_read_at = float("-inf")
    try:
        writer.report(link_id, [in_sync()])
    finally:
        writer._redis.time = real  # type: ignore[method-assign]
    writer.report(link_id, [in_sync()])

    assert stored(redis_url, link_id) == first


def test_what_changed_during_an_outage_is_not_renewed(own_redis: RedisServer, link_id: str) -> None:
    progress = RedisProgress(own_redis.url, signer_of)
    for _ in range(2):
        progress.report(link_id, [in_sync(), in_sync("mirror/1")])
    own_redis.kill()
    with pytest.raises(CoordinationUnavailableError):
        progress.report(link_id, [in_sync(source_end=30, source_high_watermark=30)])
    own_redis.start()

    progress.report(link_id, [in_sync("mirror/1")])
    assert "mirror/0" not in ages(own_redis.url, link_id)
    progress.report(link_id, [in_sync(source_end=30, source_high_watermark=30), in_sync("mirror/1")])

    assert read_readings(own_redis.url, link_id, SIGNER).latest["mirror/0"].source_end == 30
    assert max(ages(own_redis.url, link_id).values()) < 30_000


def test_renewals_of_workers_that_are_gone_are_removed(redis_url: str, link_id: str, writer: RedisProgress) -> None:
    client: Any = client_for(redis_url)
    name = f"renewals:{link_id}"
    client.hset(name, mapping={"gone": f"{unix_ms() - HOUR_MS} 1 f f", "mark gone": f"{unix_ms() - HOUR_MS} 1"})

    for _ in range(2):
        writer.report(link_id, [in_sync()])

    assert "gone" not in client.hgetall(name)
    assert client.hlen(name) == 2
    assert 590_000 < client.pttl(name) <= 600_000
    clear_link(redis_url, link_id)
    assert client.hgetall(name) == {}
