"""Progress through JSON and a real Redis; which of two overlapping slices is heard."""

from __future__ import annotations

import secrets

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from devcluster.redis import RedisServer
from linkengine.coordination.progress import RedisProgress, clear_mirror, from_json, read_progress, to_json
from linkengine.domain.leases import CoordinationUnavailableError
from linkengine.domain.plans import PartitionPhase, PartitionProgress
from linkengine.domain.ranges import Gap, OffsetRange
from linkengine.domain.states import GapReason

NOW_MS = 1_800_000_000_000
offsets = st.integers(0, 2**63 - 1)
ranges = st.tuples(offsets, offsets).map(lambda pair: OffsetRange(min(pair), max(pair)))
observations = st.builds(
    PartitionProgress,
    key=st.text(min_size=1),
    slice_id=st.text(),
    phase=st.sampled_from(PartitionPhase),
    observed_at_ms=offsets,
    source_start=st.none() | offsets,
    source_end=st.none() | offsets,
    mirror_start=st.none() | offsets,
    mirror_end=st.none() | offsets,
    last_fetch_offset=st.none() | offsets,
    last_timestamp_ms=st.none() | st.integers(-1, 2**63 - 1),
    caught_up_at_ms=st.none() | offsets,
    bytes_copied=offsets,
    records_copied=offsets,
    error_code=st.text(),
    error_message=st.text(),
    gaps=st.lists(st.builds(Gap, ranges, st.sampled_from(GapReason)), max_size=5).map(tuple),
)


@pytest.fixture
def link_id() -> str:
    return f"link-{secrets.token_hex(6)}"


def seen(
    key: str = "mirror/0", *, slice_id: str = "s1", phase: PartitionPhase = PartitionPhase.COPYING, after_ms: int = 0
) -> PartitionProgress:
    return PartitionProgress(key=key, slice_id=slice_id, phase=phase, observed_at_ms=NOW_MS + after_ms, mirror_end=after_ms)


@given(observations)
def test_an_observation_survives_the_way_through_json(observation: PartitionProgress) -> None:
    assert from_json(to_json(observation)) == observation


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"phase": "COPYING", "gaps": [[2, 1, "HEAD"]]}', '{"phase": "?"}'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_json(text)


def test_the_newest_observation_of_every_partition_is_read_by_key(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, link_id)
    progress.report([seen("b/1"), seen("a/0")])
    progress.report([seen("b/1", after_ms=10)])
    progress.report([])

    assert read_progress(redis_url, link_id) == [seen("a/0"), seen("b/1", after_ms=10)]


def test_offsets_up_to_the_last_one_survive_redis(redis_url: str, link_id: str) -> None:
    last = PartitionProgress(
        key="m/0",
        slice_id="s",
        phase=PartitionPhase.COPYING,
        observed_at_ms=NOW_MS,
        mirror_end=2**63 - 1,
        gaps=(Gap(OffsetRange(2**53 + 1, 2**63 - 1), GapReason.LOST),),
    )
    RedisProgress(redis_url, link_id).report([last])

    assert read_progress(redis_url, link_id) == [last]


def test_a_task_that_waits_for_the_lease_does_not_hide_the_owner(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, link_id)
    progress.report([seen(slice_id="s1")])
    progress.report([seen(slice_id="s2", phase=PartitionPhase.WAITING, after_ms=400)])

    assert read_progress(redis_url, link_id) == [seen(slice_id="s1")]


def test_a_waiting_task_is_heard_once_the_owner_has_been_silent_for_long(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, link_id)
    waiting = seen(slice_id="s2", phase=PartitionPhase.WAITING, after_ms=6_000)
    progress.report([seen(slice_id="s1")])
    progress.report([waiting])

    assert read_progress(redis_url, link_id) == [waiting]


def test_a_waiting_task_is_heard_when_nobody_owns_the_partition(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, link_id)
    waiting = seen(slice_id="s2", phase=PartitionPhase.WAITING, after_ms=1)
    progress.report([seen(slice_id="s1", phase=PartitionPhase.RELEASED)])
    progress.report([waiting])

    assert read_progress(redis_url, link_id) == [waiting]


def test_an_older_report_of_the_previous_slice_comes_too_late(redis_url: str, link_id: str) -> None:
    progress = RedisProgress(redis_url, link_id)
    progress.report([seen(slice_id="s2", after_ms=5)])
    progress.report([seen(slice_id="s1", phase=PartitionPhase.RELEASED, after_ms=4)])

    assert read_progress(redis_url, link_id) == [seen(slice_id="s2", after_ms=5)]


def test_what_cannot_be_read_is_left_out(redis_url: str, link_id: str) -> None:
    RedisProgress(redis_url, link_id).report([seen("a/0")])
    with redis.Redis.from_url(redis_url) as client:
        client.hset(f"progress:{link_id}", "b/0", '{"of": "another version"}')

    assert read_progress(redis_url, link_id) == [seen("a/0")]


def test_progress_goes_away_by_itself(redis_url: str, link_id: str) -> None:
    RedisProgress(redis_url, link_id).report([seen()])

    with redis.Redis.from_url(redis_url) as client:
        assert 590_000 < client.pttl(f"progress:{link_id}") <= 600_000  # type: ignore[operator]


def test_the_progress_of_one_mirror_can_be_removed(redis_url: str, link_id: str) -> None:
    RedisProgress(redis_url, link_id).report([seen("a/0"), seen("a/1"), seen("ab/0")])

    clear_mirror(redis_url, link_id, mirror_id="a")

    assert read_progress(redis_url, link_id) == [seen("ab/0")]


def test_without_redis_both_sides_say_so(own_redis: RedisServer, link_id: str) -> None:
    progress = RedisProgress(own_redis.url, link_id)
    own_redis.kill()

    with pytest.raises(CoordinationUnavailableError):
        progress.report([seen()])
    with pytest.raises(CoordinationUnavailableError):
        read_progress(own_redis.url, link_id)
