"""What a closed topic holds, as the last word before it becomes a mirror."""

from collections.abc import Callable

import pytest

from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorSetup
from linkengine.jobs import reversing
from linkengine.kafka.codes import KafkaCode

pytestmark = pytest.mark.kafka
BEYOND = (KafkaCode.NONE, 4)  # the leader's log end, one after what everybody can read


def test_a_closed_topic_is_told_to_its_end(setup_plan: MirrorSetup, source_topic: str, send_there: Callable[..., None]) -> None:
    send_there(source_topic, count=3)

    first = jobs.log_ranges(setup_plan.source, source_topic, closed=True)[0]

    assert (first.start, first.end, first.stable_end) == (0, 3, 3)


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (BEYOND, ErrorCode.NOT_ENOUGH_REPLICAS_ERROR),
        ((KafkaCode.NOT_LEADER_OR_FOLLOWER, -1), ErrorCode.TIMEOUT_ERROR),  # moved: nobody's followers are to blame
    ],
)
def test_an_end_that_may_still_change_is_no_last_word(
    setup_plan: MirrorSetup,
    source_topic: str,
    send_there: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    told: tuple[int, int],
    code: ErrorCode,
) -> None:
    send_there(source_topic, count=3)
    monkeypatch.setattr(reversing, "log_ends", lambda _cluster, _broker, epochs: dict.fromkeys(epochs, told))

    with pytest.raises(LinkEngineError) as refused:
        jobs.log_ranges(setup_plan.source, source_topic, closed=True)

    assert refused.value.code is code


def test_a_topic_tells_what_it_has_kept_of_what_was_read_under_an_epoch(
    setup_plan: MirrorSetup, source_topic: str, send_there: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    send_there(source_topic, count=3)

    assert jobs.kept_up_to(setup_plan.source, source_topic, epochs={0: 0, 99: 0}) == {0: 3}
    assert jobs.kept_up_to(setup_plan.source, source_topic, epochs={0: 7}) == {
        0: 0
    }  # set back: nobody knows of epoch 7 any more
    assert jobs.kept_up_to(setup_plan.source, source_topic, epochs={}) == {}

    cut_short = {(source_topic, 0): (KafkaCode.NONE, 0, 2)}
    monkeypatch.setattr(reversing, "epoch_ends", lambda _cluster, _broker, _asked: cut_short)
    assert jobs.kept_up_to(setup_plan.source, source_topic, epochs={0: 0}) == {0: 2}
