"""The migration gate."""

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
def test_data_passes_only_if_every_record_was_compared(differences: int | None, state: GateCheckState) -> None:
    assert check_data(VerifiedData(records=10, differences=differences, problem="Spark is unavailable.")).state is state


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
def test_data_fails_if_the_mirror_was_behind_when_it_was_compared(
    records: int, not_copied: int | None, since: int, words: str
) -> None:
    check = check_data(VerifiedData(records=records, differences=0, not_copied=not_copied, copied_since=since))
    assert (check.state, check.detail.startswith(words)) == (FAILED, True)


def test_records_written_since_the_comparison_are_mentioned_and_do_not_fail_the_check() -> None:
    check = check_data(VerifiedData(records=10, differences=0, not_copied=0, copied_since=1_234))
    assert (check.state, check.detail) == (PASSED, "10 records compared, no differences. 1,234 offsets were copied since.")


def test_a_loss_fails_the_gate() -> None:
    assert check_losses(0).state is PASSED
    assert check_losses(17).state is FAILED
    assert "17" in check_losses(17).detail


def test_lag_and_configs_are_separate_checks() -> None:
    lag, configs = check_blockers([(ErrorCode.WAITING_FOR_LAG, "5 offsets"), (ErrorCode.WAITING_FOR_CONFIGS, "retention.ms")])
    assert (lag.state, configs.state) == (FAILED, FAILED)
    assert (lag.detail, configs.detail) == ("5 offsets", "retention.ms")
    assert [check.state for check in check_blockers([])] == [PASSED, PASSED]


@pytest.mark.parametrize(
    "code", [ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, ErrorCode.TIMEOUT_ERROR, ErrorCode.WAITING_FOR_PARTITIONS]
)
def test_an_error_that_prevents_the_comparison_fails_both_checks(code: ErrorCode) -> None:
    lag, configs = check_blockers([(code, "no response")])

    assert (lag.state, lag.detail) == (FAILED, "The log end offsets were not compared: no response")
    assert (configs.state, configs.detail) == (FAILED, "no response")


def test_waiting_for_configs_does_not_fail_the_lag_check() -> None:
    assert [check.state for check in check_blockers([(ErrorCode.WAITING_FOR_CONFIGS, "retention.ms")])] == [PASSED, FAILED]


def test_an_unreachable_source_fails_the_gate() -> None:
    assert not is_green(check_blockers([(ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, "no broker responds")]))


@pytest.mark.parametrize("state", list(TaskState))
@pytest.mark.parametrize("problems", [[], ["group a is ahead"]])
def test_a_task_check_depends_on_both_clusters_and_the_link_state(state: TaskState, problems: list[str]) -> None:
    expected = NONE if state is TaskState.NOT_CONFIGURED else FAILED if problems or state in LINK_TROUBLES else PASSED
    assert check_task(TaskName.CONSUMER_OFFSETS, state, problems).state is expected


def test_a_failed_canary_check_names_the_partition() -> None:
    reads = [CanaryRead(partition=0, offset=9), CanaryRead(partition=3, offset=4, problem="another value")]
    check = check_canary(reads)
    assert (check.state, check.detail) == (FAILED, "partition 3: another value")
    assert check_canary(reads[:1]).state is PASSED
    assert check_canary([]).state is FAILED


def test_the_canary_check_names_records_that_the_source_has_deleted() -> None:
    reads = [CanaryRead(partition=0, offset=9), CanaryRead(partition=3, offset=4, gone="deleted at the source since")]
    check = check_canary(reads)
    words = "1 of them equal. Not compared: partition 3: deleted at the source since."
    assert (check.state, check.detail) == (PASSED, f"A consumer read the newest record of 2 of 2 partitions, {words}")


def test_a_gate_without_checks_is_closed() -> None:
    assert not is_green([])
