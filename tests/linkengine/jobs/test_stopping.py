import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from devcluster.ports import free_port
from linkengine import jobs
from linkengine.copyjob.stop import fence
from linkengine.domain.configs import has_mirror_configs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import ClampedOffset, Committed, KnownOffset
from linkengine.domain.mirrorjobs import MirrorSetup, MirrorStop, MirrorStopped
from linkengine.domain.states import StopReason
from linkengine.jobs.mirror_topics import AssignmentsFactory
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from tests.linkengine.jobs.stops import failover_of, stop_mirror

pytestmark = pytest.mark.kafka
Send = Callable[..., None]


def commit(admin: ClusterAdmin, group: str, place: tuple[str, int], *, offset: int) -> None:
    deadline = time.monotonic() + 60
    while any(refused := list(admin.commit({group: {place: Committed(offset=offset)}})[group].values())):
        assert time.monotonic() < deadline, refused
        time.sleep(0.2)


@pytest.fixture
def stop(
    setup_plan: MirrorSetup, assignments: AssignmentsFactory, there: ClusterAdmin, source_topic: str, send_here: Send
) -> MirrorStop:
    """A failover of a mirror with five records in partition 0, whose source keeps records for 99 s."""
    there.set_configs(source_topic, {"retention.ms": "99000", "message.timestamp.type": "LogAppendTime"})
    created = jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)
    send_here(source_topic, count=5)
    return failover_of(setup_plan, created)


def test_a_stopped_mirror_is_a_writable_topic_with_the_sources_configs(
    stop: MirrorStop, here: ClusterAdmin, send_here: Send
) -> None:
    stopped = stop_mirror(stop)

    configs = here.describe(stop.mirror_topic).configs
    assert stopped == MirrorStopped(ends=((0, 5), (1, 0)), epochs=((0, 0), (1, 0)))
    assert (configs["retention.ms"], configs["message.timestamp.type"]) == ("99000", "LogAppendTime")
    assert not has_mirror_configs(configs)
    assert not here.denies_writes(stop.mirror_topic)
    send_here(stop.mirror_topic, user="app")


def test_a_fence_ends_every_partition(stop: MirrorStop, here: ClusterAdmin) -> None:
    stop_mirror(stop)

    assert here.offsets(stop.mirror_topic, OffsetKind.END) == {0: 6, 1: 1}


def test_stopping_twice_returns_the_same_ends_and_writes_no_second_fence(stop: MirrorStop, here: ClusterAdmin) -> None:
    first = stop_mirror(stop)

    assert stop_mirror(stop) == first
    assert here.offsets(stop.mirror_topic, OffsetKind.END) == {0: 6, 1: 1}


def test_ends_are_recorded_before_producers_may_write_and_kept_afterwards(
    stop: MirrorStop, here: ClusterAdmin, send_here: Send
) -> None:
    recorded: list[tuple[MirrorStopped, bool]] = []

    stop_mirror(stop, on_fenced=lambda stopped: recorded.append((stopped, here.denies_writes(stop.mirror_topic))))
    send_here(stop.mirror_topic, user="app", count=2)
    again = stop_mirror(replace(stop, fenced_ends=recorded[0][0].ends))

    assert recorded == [(MirrorStopped(ends=((0, 5), (1, 0)), epochs=((0, 0), (1, 0))), True)]
    assert (again.ends, again.epochs) == (((0, 5), (1, 0)), ())
    assert here.offsets(stop.mirror_topic, OffsetKind.END) == {0: 8, 1: 1}


def test_ends_are_recorded_even_if_a_partition_cannot_be_fenced(
    stop: MirrorStop, here: ClusterAdmin, send_here: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition 2 does not exist yet. Records written behind the other fences neither move them nor cause new ones."""
    monkeypatch.setattr(fence, "PATIENCE_S", 1.0)
    recorded: list[MirrorStopped] = []
    more = replace(stop, assignments=(*stop.assignments, replace(stop.assignments[0], partition=2)))
    copied = ((0, 4), (1, 0))
    with pytest.raises(LinkEngineError):
        stop_mirror(replace(more, copied=copied), on_fenced=recorded.append)
    assert recorded == [MirrorStopped(ends=((0, 5), (1, 0)), foreign=((0, 4),), epochs=((0, 0), (1, 0)))]
    assert has_mirror_configs(here.describe(stop.mirror_topic).configs)
    assert here.denies_writes(stop.mirror_topic)

    send_here(stop.mirror_topic, count=2)  # by a super user
    here.add_partitions(stop.mirror_topic, total=3)
    again = stop_mirror(replace(more, copied=copied, fenced_ends=recorded[0].ends), on_fenced=recorded.append)

    assert again == recorded[1] == MirrorStopped(ends=((0, 5), (1, 0), (2, 0)), foreign=((0, 4),), epochs=((2, 0),))
    assert here.offsets(stop.mirror_topic, OffsetKind.END) == {0: 8, 1: 1, 2: 1}


@pytest.mark.parametrize(
    ("known", "foreign"),
    [
        ({"copied": ((0, 5), (1, 0))}, ()),
        ({"copied": ((0, 3), (1, 0))}, ((0, 3),)),
        ({"copied": ((0, 2), (1, 0)), "released_ends": ((0, 4),)}, ((0, 4),)),
        ({"copied": ((0, 2), (1, 0)), "released_ends": ((0, 5),)}, ()),
        ({"copied": ((0, 3), (1, 0)), "was_mirror": False}, ()),  # it was always an ordinary topic
    ],
    ids=["equal", "reported", "released", "released equal", "no mirror"],
)
def test_records_that_no_copy_worker_wrote_count_as_foreign(
    stop: MirrorStop, here: ClusterAdmin, send_here: Send, known: dict[str, Any], foreign: tuple[tuple[int, int], ...]
) -> None:
    """The five records are of another producer than the mirror's. The recorded ends stay, whatever is written then."""
    first = stop_mirror(replace(stop, **known))
    send_here(stop.mirror_topic, user="app", count=2)
    recorded = tuple(sorted((dict(first.ends) | dict(first.foreign)).items()))
    again = stop_mirror(replace(stop, **known | {"fenced_ends": first.ends, "copied": recorded, "released_ends": ()}))

    assert (first.ends, first.foreign) == (((0, 5), (1, 0)), foreign)
    assert replace(again, epochs=first.epochs) == first


def test_a_group_is_rewound_to_the_end_of_the_mirrored_records(stop: MirrorStop, here: ClusterAdmin) -> None:
    group, place = f"{stop.mirror_topic}-app", (stop.mirror_topic, 0)
    commit(here, group, place, offset=5)
    known = (KnownOffset(group=group, partition=0, source=5),)

    stop_mirror(replace(stop, copied=((0, 3), (1, 0)), group_offsets=known))

    assert here.committed([group])[0][group][place].offset == 3


def test_a_group_that_was_rewound_is_reported_even_if_producers_cannot_be_allowed(
    stop: MirrorStop, here: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt finds the group at the end, and cannot know where it was."""
    group, error = f"{stop.mirror_topic}-app", LinkEngineError(ErrorCode.TIMEOUT_ERROR, "No response.")
    commit(here, group, (stop.mirror_topic, 0), offset=5)
    rewound = replace(stop, copied=((0, 3), (1, 0)), group_offsets=(KnownOffset(group=group, partition=0, source=5),))
    reported: dict[str, Any] = {}
    monkeypatch.setattr(ClusterAdmin, "allow_many_writes", lambda _, topics: dict.fromkeys(topics, error))

    assert jobs.stop_mirrors([rewound], on_clamped=reported.update) == {stop.mirror_topic: error}

    assert reported == {stop.mirror_topic: [ClampedOffset(group=group, partition=0, source=5, before=5, after=3)]}


@pytest.mark.parametrize(("guard", "failed"), [(True, False), (False, True)], ids=["guarded", "failed"])
def test_a_topic_used_by_applications_since_an_earlier_stop_is_only_fenced(
    stop: MirrorStop, here: ClusterAdmin, guard: bool, failed: bool
) -> None:
    stop_mirror(stop)
    here.set_configs(stop.mirror_topic, {"retention.ms": "123000"})
    again = replace(stop, guard=guard, failed=failed)

    assert stop_mirror(again).ends == ((0, 5), (1, 0))
    assert here.describe(stop.mirror_topic).configs["retention.ms"] == "123000"


@pytest.mark.parametrize("opened", [True, False], ids=["after", "before"])
def test_a_stop_repeated_after_producers_may_write_rewinds_no_group(
    stop: MirrorStop, here: ClusterAdmin, send_here: Send, opened: bool
) -> None:
    group, place = f"{stop.mirror_topic}-app", (stop.mirror_topic, 0)
    first = stop_mirror(stop)
    send_here(stop.mirror_topic, user="app", count=4)
    if not opened:
        here.deny_writes(stop.mirror_topic)
    commit(here, group, place, offset=9)
    known = (KnownOffset(group=group, partition=0, source=7),)

    again = stop_mirror(replace(stop, fenced_ends=first.ends, group_offsets=known))

    found, _ = here.committed([group])
    assert found[group][place].offset == (9 if opened else 5)
    assert len(again.clamped) == (0 if opened else 1)


@pytest.mark.parametrize("reason", StopReason)
@pytest.mark.parametrize("known", [True, False], ids=["down", "without an address"])
def test_a_mirror_is_stopped_while_its_source_is_down(
    stop: MirrorStop, here: ClusterAdmin, reason: StopReason, known: bool
) -> None:
    down = replace(stop.source, bootstrap_servers=f"127.0.0.1:{free_port()}" if known else "")

    stop_mirror(replace(stop, source=down, reason=reason))

    assert here.describe(stop.mirror_topic).configs["retention.ms"] == "99000"
    assert not here.denies_writes(stop.mirror_topic)


@pytest.mark.parametrize("known", [True, False], ids=["down", "without an address"])
def test_a_stop_without_known_source_configs_keeps_unlimited_retention(
    stop: MirrorStop, here: ClusterAdmin, known: bool
) -> None:
    down = replace(stop.source, bootstrap_servers=f"127.0.0.1:{free_port()}" if known else "")

    stop_mirror(replace(stop, source=down, source_configs={}))

    configs = here.describe(stop.mirror_topic).configs
    assert configs["retention.ms"] == "-1"
    assert "message.timestamp.type" not in configs
    assert not here.denies_writes(stop.mirror_topic)


def test_a_promotion_applies_the_sources_current_configs(stop: MirrorStop, there: ClusterAdmin, here: ClusterAdmin) -> None:
    there.set_configs(stop.source_topic, {"retention.ms": "77000"})

    stop_mirror(replace(stop, reason=StopReason.PROMOTE))

    assert here.describe(stop.mirror_topic).configs["retention.ms"] == "77000"


def test_a_deleted_mirror_topic_cannot_be_stopped(stop: MirrorStop, here: ClusterAdmin) -> None:
    here.delete_topic(stop.mirror_topic)

    with pytest.raises(LinkEngineError) as missed:
        stop_mirror(stop)

    assert missed.value.code is ErrorCode.MIRROR_TOPIC_MISSING


@pytest.mark.parametrize("known", [True, False], ids=["by its id", "by its configs"])
def test_another_topic_of_the_mirrors_name_is_neither_stopped_nor_deleted(
    stop: MirrorStop, here: ClusterAdmin, known: bool
) -> None:
    here.delete_topic(stop.mirror_topic)
    here.create_topic(stop.mirror_topic, partitions=1, configs={"retention.ms": "1000000"})
    other = here.describe(stop.mirror_topic)
    topic_id = stop.mirror_topic_id if known else ""

    with pytest.raises(LinkEngineError) as missed:
        stop_mirror(replace(stop, mirror_topic_id=topic_id))
    deleted = jobs.delete_mirror_topic(destination=stop.destination, mirror_topic=stop.mirror_topic, mirror_topic_id=topic_id)

    assert missed.value.code is ErrorCode.MIRROR_TOPIC_MISSING
    assert not deleted
    assert here.describe(stop.mirror_topic) == other
    assert not here.denies_writes(stop.mirror_topic)


def test_a_foreign_acl_that_denies_reads_deletes_no_records(stop: MirrorStop, here: ClusterAdmin) -> None:
    """It looks like the ACL of a head that is being seeded, but was synced from the source or set to keep readers away."""
    here.deny_reads(stop.mirror_topic)

    ends = stop_mirror(stop).ends

    assert ends == ((0, 5), (1, 0))
    assert here.offsets(stop.mirror_topic, OffsetKind.START) == {0: 0, 1: 0}
    assert here.offsets(stop.mirror_topic, OffsetKind.END)[0] >= 5
    assert here.denies_reads(stop.mirror_topic)
    assert not here.denies_writes(stop.mirror_topic)


def test_a_topic_with_its_own_records_is_never_treated_as_being_seeded(stop: MirrorStop, here: ClusterAdmin) -> None:
    stop_mirror(stop)  # an ordinary topic from here on
    here.deny_reads(stop.mirror_topic)

    stop_mirror(replace(stop, seeding=True, was_mirror=False))

    assert here.offsets(stop.mirror_topic, OffsetKind.START) == {0: 0, 1: 0}


def test_deleting_a_mirror_removes_topic_and_acls_and_can_be_repeated(stop: MirrorStop, here: ClusterAdmin) -> None:
    assert jobs.delete_mirror_topic(destination=stop.destination, mirror_topic=stop.mirror_topic)

    assert here.find(stop.mirror_topic) is None
    assert not here.denies_writes(stop.mirror_topic)
    assert not jobs.delete_mirror_topic(destination=stop.destination, mirror_topic=stop.mirror_topic)
