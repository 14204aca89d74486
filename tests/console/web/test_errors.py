"""Error notes of a mirror: waiting codes are not shown as errors."""

from __future__ import annotations

import pytest

from console.models import StateTransitionError
from console.web.badges import Family
from console.web.errors import error_note, transition_notes
from linkengine.domain.errors import ErrorCode
from tests.console.conftest import NOW


@pytest.mark.parametrize(
    ("code", "family"),
    [
        (ErrorCode.WAITING_FOR_LAG, Family.BUSY),
        (ErrorCode.WAITING_FOR_OTHER_SIDE, Family.BUSY),  # a step of each reversal
        (ErrorCode.WAITING_FOR_TRANSACTIONS, Family.BUSY),
        (ErrorCode.AUTHORIZATION_ERROR, Family.BAD),
    ],
)
def test_waiting_codes_are_not_shown_as_errors(code: ErrorCode, family: Family) -> None:
    error = StateTransitionError(code=code, message="", since=NOW, last_seen_at=NOW)

    assert [note.family for note in transition_notes([error], now=NOW)] == [family]


def test_all_waiting_codes_are_busy() -> None:
    waits = [code for code in ErrorCode if code.startswith("WAITING_FOR_")]
    errors = [StateTransitionError(code=code, message="", since=NOW, last_seen_at=NOW) for code in waits]

    assert {note.family for note in transition_notes(errors, now=NOW)} == {Family.BUSY}


@pytest.mark.parametrize(
    ("code", "helps"),
    [
        (ErrorCode.AUTHENTICATION_ERROR, True),
        (ErrorCode.CLUSTER_ID_MISMATCH, True),
        ("RECORDS_DIFFER", False),  # no config fixes differing records
        ("RECORDS_LOST", False),
        (ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED, False),
        (ErrorCode.WAITING_FOR_LAG, False),
    ],
)
def test_edit_of_the_link_is_suggested_only_for_connection_errors(code: str, helps: bool) -> None:
    note = error_note(code, "", now=NOW)

    assert note is not None
    assert note.is_connection_error is helps
