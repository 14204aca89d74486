"""A storm with an unexpected failure reports it, and judges what can be judged."""

from collections.abc import Collection, Iterator

import pytest
from confluent_kafka import Producer

from chaos.environment import TOPICS, ChaosEnvironment
from chaos.judge import Finding
from chaos.loops import LoopEngine
from chaos.storm import Storm
from chaos.writers import PlainWriter

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
SECONDS = 5.0
CRASH = Finding(kind="crash", detail="worker.log: KeyError: 3")


class Unsettled(LoopEngine):
    """Copies as usual, and reports that it has not caught up."""

    def settle(self, topics: Collection[str], *, timeout_s: float) -> None:
        super().settle(topics, timeout_s=timeout_s)
        raise TimeoutError("The mirrors are not in sync.")

    def crashes(self) -> Iterator[Finding]:
        yield CRASH


class MortalWriter(PlainWriter):
    """Fails with a bug in its third round."""

    def round(self, producer: Producer) -> None:
        super().round(producer)
        if next(self._numbers) > 30:
            raise KeyError(3)


def test_an_unsettled_storm_is_judged_and_a_failed_writer_is_reported(
    small_environment: ChaosEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.storm.PlainWriter", MortalWriter)
    with Unsettled(small_environment, TOPICS) as engine:
        verdict = Storm(small_environment, engine, seed=1, spare={}).run((), seconds=SECONDS)

    kinds = [finding.kind for finding in verdict.findings]
    assert kinds.count("writer") == 1
    assert kinds.count("unsettled") == 1
    findings = [str(finding) for finding in verdict.findings]
    assert set(kinds) == {"writer", "unsettled", "end", "crash"}, findings  # "end": mirrors were not promoted
    assert all(verdict.judged[topic] for topic in TOPICS)
    assert verdict.status() == 1
    assert "KeyError: 3" in next(str(finding) for finding in verdict.findings if finding.kind == "writer")
