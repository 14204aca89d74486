"""The result of a storm: it is clean only if everything was judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from chaos.environment import PLAIN, TOPICS
from chaos.judge import Finding
from chaos.schedule import Fault
from chaos.storm import Verdict

CUT, SLOW = Fault.CUT_SOURCE, Fault.SLOW_SOURCE
WHOLE = Verdict(
    seed=7, injected=Counter([CUT, CUT, SLOW]), effective=Counter([CUT, SLOW]), samples=5, kept=1,
    judged=dict.fromkeys(TOPICS, 9),
)  # fmt: skip
FOUND = Finding(kind="lost", topic=PLAIN, partition=0, offset=3, detail="gone")


def test_a_storm_that_judged_everything_and_found_nothing_is_clean() -> None:
    assert (WHOLE.status(), WHOLE.unchecked()) == (0, [])
    assert WHOLE.line().endswith("2 effective faults of 3, 5 samples, 0 findings")
    assert WHOLE.idle() == "1 x CUT_SOURCE"


@pytest.mark.parametrize(
    "verdict",
    [
        replace(WHOLE, judged={**WHOLE.judged, PLAIN: 0}),
        replace(WHOLE, judged={}),
        replace(WHOLE, effective=Counter()),
        replace(WHOLE, kept=0),
        replace(WHOLE, samples=0),
        replace(WHOLE, watch_error="KeyError: 3"),
    ],
    ids=["an empty topic", "no topic", "nothing hit", "nothing kept", "no samples", "the watch failed"],
)
def test_a_storm_that_did_not_judge_everything_has_no_verdict(verdict: Verdict) -> None:
    assert verdict.status() == 1
    assert "no verdict: " in verdict.line()


def test_findings_count_even_if_something_was_not_judged() -> None:
    verdict = replace(WHOLE, samples=0, findings=[FOUND])
    assert verdict.status() == 1
    assert verdict.line().endswith("1 findings")
