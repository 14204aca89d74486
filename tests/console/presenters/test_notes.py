"""Notes beside a mirror: what it waits for is news, what it fails with is trouble."""

from __future__ import annotations

import pytest

from console.models import StateTransitionError
from console.presenters.looks import Family
from console.presenters.notes import transition_notes
from linkengine.domain.errors import ErrorCode
from tests.console.conftest import NOW


@pytest.mark.parametrize(
    ("code", "family"),
    [
        (ErrorCode.WAITING_FOR_LAG, Family.BUSY),
        (ErrorCode.WAITING_FOR_OTHER_SIDE, Family.BUSY),  # every ordinary reversal passes through it
        (ErrorCode.WAITING_FOR_TRANSACTIONS, Family.BUSY),
        (ErrorCode.AUTHORIZATION_ERROR, Family.BAD),
    ],
)
def test_what_a_mirror_waits_for_is_calm(code: ErrorCode, family: Family) -> None:
    error = StateTransitionError(code=code, message="", since=NOW, last_seen_at=NOW)

    assert [one.family for one in transition_notes([error], now=NOW)] == [family]


def test_every_wait_is_calm() -> None:
    waits = [code for code in ErrorCode if code.startswith("WAITING_FOR_")]
    errors = [StateTransitionError(code=code, message="", since=NOW, last_seen_at=NOW) for code in waits]

    assert {one.family for one in transition_notes(errors, now=NOW)} == {Family.BUSY}
