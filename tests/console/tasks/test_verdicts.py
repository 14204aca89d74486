"""Permanent verdicts of tasks do not follow from the metadata of a single broker; without database and clusters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from console.tasks import export_diverged, mirrors
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import LogRange

HELD = (LogRange(partition=0, start=0, end=9, stable_end=9),)


@pytest.mark.parametrize(
    ("code", "retries", "ends"),
    [
        (ErrorCode.SOURCE_TOPIC_ID_CHANGED, 0, False),
        (ErrorCode.SOURCE_TOPIC_ID_CHANGED, 4, True),
        (ErrorCode.SOURCE_PARTITIONS_DECREASED, 0, True),  # counted at every broker
        (ErrorCode.POLICY_VIOLATION_ERROR, 0, True),
        (ErrorCode.TIMEOUT_ERROR, 4, False),
    ],
)
def test_setup_fails_permanently_only_after_several_attempts(code: ErrorCode, retries: int, *, ends: bool) -> None:
    """An old leader, or a damaged response, makes a seeded partition look longer than its source's start."""
    mirror: Any = SimpleNamespace(retry_count=retries)

    assert mirrors._ends_setup(mirror, LinkEngineError(code, "")) is ends


def held(*, doomed: bool) -> tuple[LogRange, ...]:
    mirror: Any = SimpleNamespace(name="t", link=SimpleNamespace(destination=SimpleNamespace(address=None)))
    run: Any = SimpleNamespace(diverged_topic_id="id", doomed_at=1 if doomed else None)
    return export_diverged._held(mirror, run)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Simulate a cluster; the element is what its brokers return: a topic, None, or an error because they disagree."""
    answers: list[object] = []

    def find_mirror(*_: object, topic_id: str) -> object:
        assert topic_id == "id"
        if isinstance(answers[0], LinkEngineError):
            raise answers[0]
        return answers[0]

    monkeypatch.setattr(jobs, "find_mirror", find_mirror)
    monkeypatch.setattr(jobs, "find_topic", lambda *_: None)  # of a broker that does not know the topic
    monkeypatch.setattr(jobs, "log_ranges", lambda *_: HELD)
    return answers


def test_doomed_topic_counts_as_deleted_if_no_broker_knows_it(known: list[object]) -> None:
    known.append(None)

    assert held(doomed=True) == ()
    with pytest.raises(LinkEngineError) as raised:
        held(doomed=False)
    assert raised.value.code == ErrorCode.SIDES_DIVERGED


def test_doomed_topic_is_not_deleted_while_brokers_disagree(known: list[object]) -> None:
    """Otherwise its export would end unfinished, and the request for its deletion would still be sent."""
    known.append(LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The brokers do not agree."))

    with pytest.raises(LinkEngineError) as raised:
        held(doomed=True)
    assert raised.value.code == ErrorCode.TIMEOUT_ERROR


@pytest.mark.parametrize("doomed", [False, True])
def test_topic_that_a_broker_knows_is_held(known: list[object], *, doomed: bool) -> None:
    known.append(SimpleNamespace(topic_id="id"))

    assert held(doomed=doomed) == HELD
