"""The checklist before a promotion."""

from __future__ import annotations

import pytest

from linkengine.domain.errors import ErrorCode
from linkengine.domain.gates import (
    CanaryRead,
    GateCheckState,
    VerifiedData,
    check_blockers,
    check_canary,
    check_data,
    check_losses,
    check_task,
    is_green,
)
from linkengine.domain.linktasks import LINK_TROUBLES, TaskName, TaskState

PASSED, FAILED, NONE = GateCheckState.PASSED, GateCheckState.FAILED, GateCheckState.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("differences", "state"), [(0, PASSED), (1, FAILED), (None, FAILED)], ids=["equal", "different", "not compared"]
)
def test_data_passes_only_where_every_record_was_compared(differences: int | None, state: GateCheckState) -> None:
    assert check_data(VerifiedData(records=10, differences=differences, problem="Spark is away.")).state is state


@pytest.mark.parametrize(
    ("records", "not_copied", "since", "words"),
    [
        (10, None, 0, "It is unknown whether the mirror was complete"),
        (10, 7, 0, "7 offsets of the source were not on the mirror yet"),
        (0, 7, 7, "7 offsets of the source were not on the mirror yet"),
        (0, 0, 7, "No record was compared, and 7 offsets were copied since."),
    ],
    ids=["source's end unknown", "behind", "empty and behind", "empty, and filled since"],
)
def test_data_does_not_pass_where_the_mirror_was_behind_when_it_was_compared(
    records: int, not_copied: int | None, since: int, words: str
) -> None:
    check = check_data(VerifiedData(records=records, differences=0, not_copied=not_copied, copied_since=since))
    assert (check.state, check.detail.startswith(words)) == (FAILED, True)


def test_what_a_steadily_written_source_got_since_does_not_fail_it_and_is_told() -> None:
    check = check_data(VerifiedData(records=10, differences=0, not_copied=0, copied_since=1_234))
    assert (check.state, check.detail) == (PASSED, "10 records compared, no differences. 1,234 offsets were copied since.")


def test_a_loss_is_never_green() -> None:
    assert check_losses(0).state is PASSED
    assert check_losses(17).state is FAILED
    assert "17" in check_losses(17).detail


def test_lag_and_configs_are_told_apart() -> None:
    lag, configs = check_blockers([(ErrorCode.WAITING_FOR_LAG, "5 offsets"), (ErrorCode.WAITING_FOR_CONFIGS, "retention.ms")])
    assert (lag.state, configs.state) == (FAILED, FAILED)
    assert (lag.detail, configs.detail) == ("5 offsets", "retention.ms")
    assert [one.state for one in check_blockers([])] == [PASSED, PASSED]


@pytest.mark.parametrize(
    "code", [ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, ErrorCode.TIMEOUT_ERROR, ErrorCode.WAITING_FOR_PARTITIONS]
)
def test_where_nobody_could_look_there_is_no_word_of_equal_ends(code: ErrorCode) -> None:
    lag, configs = check_blockers([(code, "no answer")])

    assert (lag.state, lag.detail) == (FAILED, "The log end offsets were not compared: no answer")
    assert (configs.state, configs.detail) == (FAILED, "no answer")


def test_configs_that_wait_say_nothing_about_the_ends() -> None:
    assert [one.state for one in check_blockers([(ErrorCode.WAITING_FOR_CONFIGS, "retention.ms")])] == [PASSED, FAILED]


def test_a_source_nobody_reaches_fails_the_gate() -> None:
    assert not is_green(check_blockers([(ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, "no broker answers")]))


@pytest.mark.parametrize("state", list(TaskState))
@pytest.mark.parametrize("problems", [[], ["group a is ahead"]])
def test_a_task_is_judged_by_what_both_sides_hold(state: TaskState, problems: list[str]) -> None:
    looked = NONE if state is TaskState.NOT_CONFIGURED else FAILED if problems or state in LINK_TROUBLES else PASSED
    assert check_task(TaskName.CONSUMER_OFFSETS, state, problems).state is looked


def test_the_canary_names_the_partition() -> None:
    reads = [CanaryRead(partition=0, offset=9), CanaryRead(partition=3, offset=4, problem="another value")]
    check = check_canary(reads)
    assert (check.state, check.detail) == (FAILED, "partition 3: another value")
    assert check_canary(reads[:1]).state is PASSED
    assert check_canary([]).state is FAILED


def test_the_canary_says_what_the_source_has_no_more() -> None:
    reads = [CanaryRead(partition=0, offset=9), CanaryRead(partition=3, offset=4, gone="deleted at the source since")]
    check = check_canary(reads)
    words = "1 of them equal. Not compared: partition 3: deleted at the source since."
    assert (check.state, check.detail) == (PASSED, f"A consumer read the newest record of 2 of 2 partitions, {words}")


def test_nothing_checked_is_not_green() -> None:
    assert not is_green([])
