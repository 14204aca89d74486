"""The contents of a closed topic before it becomes a mirror, and when it is not taken over."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorSetup, MirrorTakeover
from linkengine.jobs import reversing
from linkengine.jobs.mirror_topics import AssignmentsFactory
from linkengine.kafka import offsets
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.protocol import KafkaCode

pytestmark = pytest.mark.kafka
BEYOND = (KafkaCode.NONE, 4)  # the leader's log end, one above the high watermark


def test_log_ranges_of_a_closed_topic_reach_its_end(
    setup_plan: MirrorSetup, source_topic: str, send_there: Callable[..., None]
) -> None:
    send_there(source_topic, count=3)

    first = jobs.log_ranges(setup_plan.source, source_topic, closed=True)[0]

    assert (first.start, first.end, first.stable_end) == (0, 3, 3)


@pytest.mark.parametrize(
    ("log_end", "code"),
    [
        (BEYOND, ErrorCode.NOT_ENOUGH_REPLICAS_ERROR),
        ((KafkaCode.NOT_LEADER_OR_FOLLOWER, -1), ErrorCode.TIMEOUT_ERROR),  # the leader moved: followers are not the cause
    ],
)
def test_an_end_that_may_still_change_raises(
    setup_plan: MirrorSetup,
    source_topic: str,
    send_there: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    log_end: tuple[int, int],
    code: ErrorCode,
) -> None:
    send_there(source_topic, count=3)
    monkeypatch.setattr(reversing, "log_ends", lambda _cluster, _broker, epochs: dict.fromkeys(epochs, log_end))

    with pytest.raises(LinkEngineError) as refused:
        jobs.log_ranges(setup_plan.source, source_topic, closed=True)

    assert refused.value.code is code


def test_kept_up_to_returns_the_end_of_what_was_read_under_an_epoch(
    setup_plan: MirrorSetup, source_topic: str, send_there: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    send_there(source_topic, count=3)

    assert jobs.kept_up_to(setup_plan.source, source_topic, epochs={0: 0, 99: 0}) == {0: 3}
    unknown_epoch = jobs.kept_up_to(setup_plan.source, source_topic, epochs={0: 7})  # the cluster was restored from a snapshot
    assert unknown_epoch == {0: 0}
    assert jobs.kept_up_to(setup_plan.source, source_topic, epochs={}) == {}

    truncated = {(source_topic, 0): (KafkaCode.NONE, 0, 2)}
    monkeypatch.setattr(offsets, "epoch_ends", lambda _cluster, _broker, _epochs: truncated)
    assert jobs.kept_up_to(setup_plan.source, source_topic, epochs={0: 0}) == {0: 2}


@pytest.fixture
def takeover(
    setup_plan: MirrorSetup, source_topic: str, assignments: AssignmentsFactory, here: ClusterAdmin, there: ClusterAdmin
) -> MirrorTakeover:
    """A source topic that is to become the mirror of its mirror, which began at offset 3 and was fenced at 3."""
    here.create_topic(setup_plan.mirror_topic, partitions=2)
    return MirrorTakeover(
        source=setup_plan.destination,
        destination=setup_plan.source,
        source_topic=setup_plan.mirror_topic,
        source_topic_id=here.describe(setup_plan.mirror_topic).topic_id,
        mirror_topic=setup_plan.source_topic,
        mirror_topic_id=there.describe(source_topic).topic_id,
        assignments=tuple(assignments(2, "")),
        ends=((0, 3), (1, 0)),
        begins=((0, 3),),
        generation=1,
    )


def test_a_topic_with_records_that_its_new_source_never_had_is_not_taken_over(
    source_topic: str, takeover: MirrorTakeover, there: ClusterAdmin, send_there: Callable[..., None]
) -> None:
    """As a mirror it would be trimmed to its source's start."""
    send_there(source_topic, count=3)

    with pytest.raises(LinkEngineError, match="partition 0 begins at offset 0, the other side at 3") as refused:
        jobs.take_over_mirror(takeover)

    assert refused.value.code is ErrorCode.SIDES_DIVERGED
    assert there.offsets(source_topic, OffsetKind.END) == {0: 3, 1: 0}  # no takeover marker


@pytest.mark.parametrize("how", ["retention deleted them too", "the start is not followed", "the other side had them"])
def test_a_topic_that_loses_no_records_as_a_mirror_is_taken_over(
    source_topic: str, takeover: MirrorTakeover, there: ClusterAdmin, send_there: Callable[..., None], how: str
) -> None:
    send_there(source_topic, count=3)
    if how == "retention deleted them too":
        there.trim(source_topic, {0: 3})
    if how == "the start is not followed":
        takeover = replace(takeover, sync_include=())
    if how == "the other side had them":
        takeover = replace(takeover, begins=())

    jobs.take_over_mirror(takeover)

    assert there.offsets(source_topic, OffsetKind.END) == {0: 4, 1: 1}


@pytest.mark.parametrize(
    ("again", "code"), [("the source", ErrorCode.SOURCE_TOPIC_ID_CHANGED), ("the mirror", ErrorCode.SIDES_DIVERGED)]
)
def test_a_topic_that_was_created_again_cannot_be_reversed(
    takeover: MirrorTakeover, here: ClusterAdmin, there: ClusterAdmin, again: str, code: ErrorCode
) -> None:
    side, name = (here, takeover.source_topic) if again == "the source" else (there, takeover.mirror_topic)
    side.delete_topic(name)
    side.create_topic(name, partitions=2)

    with pytest.raises(LinkEngineError, match="was deleted and created again") as refused:
        jobs.take_over_mirror(takeover)

    assert refused.value.code is code
    assert there.offsets(takeover.mirror_topic, OffsetKind.END) == {0: 0, 1: 0}  # no takeover marker
    assert not there.denies_writes(takeover.mirror_topic)


def test_markers_of_an_interrupted_takeover_are_found_until_another_write(
    source_topic: str, takeover: MirrorTakeover, send_there: Callable[..., None]
) -> None:
    takeover = replace(takeover, begins=())
    send_there(source_topic, count=3)
    assert jobs.taken_over_before(takeover) == frozenset()
    jobs.take_over_mirror(takeover)

    assert jobs.taken_over_before(takeover) == {0, 1}
    jobs.open_topic(takeover.destination, source_topic)
    send_there(source_topic)
    assert jobs.taken_over_before(takeover) == {1}
    assert jobs.taken_over_before(replace(takeover, ends=((0, 2), (1, 0)))) == {1}  # partition 0 ends with a record
