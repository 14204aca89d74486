from itertools import product

import pytest

from linkengine.domain.errors import ErrorCode, IllegalTransitionError
from linkengine.domain.states import (
    BIDIRECTIONAL_ONLY,
    COPYING,
    OPERATIONS,
    TRANSITIONS,
    WRITABLE,
    GapReason,
    LinkState,
    MirrorEvent,
    MirrorState,
    StopReason,
    allowed_operations,
    can,
    next_state,
)

# The transition table, written from the documentation and not from the code: one line per edge, all others are refused.
EDGES = {
    tuple(line.split(" -> ")[0].split(maxsplit=1)): line.split(" -> ")[1]
    for line in """\
PENDING_SETUP setup-done -> ACTIVE
PENDING_SETUP failover -> PENDING_STOPPED
PENDING_SETUP delete -> PENDING_SETUP
PENDING_SETUP fatal -> FAILED
ACTIVE pause -> PAUSED
ACTIVE promote -> PENDING_STOPPED
ACTIVE failover -> PENDING_STOPPED
ACTIVE reverse-and-start -> PENDING_SYNCHRONIZE
ACTIVE reverse-and-pause -> PENDING_SYNCHRONIZE
ACTIVE delete -> ACTIVE
ACTIVE source-lost -> SOURCE_UNAVAILABLE
ACTIVE link-broken -> LINK_FAILED
ACTIVE fatal -> FAILED
PAUSED resume -> ACTIVE
PAUSED promote -> PENDING_STOPPED
PAUSED failover -> PENDING_STOPPED
PAUSED delete -> PAUSED
PAUSED fatal -> FAILED
PENDING_SYNCHRONIZE pause -> PAUSED
PENDING_SYNCHRONIZE failover -> PENDING_STOPPED
PENDING_SYNCHRONIZE synchronized -> PENDING_STOPPED
PENDING_SYNCHRONIZE reversal-ended -> ACTIVE
PENDING_SYNCHRONIZE delete -> PENDING_SYNCHRONIZE
PENDING_SYNCHRONIZE fatal -> FAILED
PENDING_MIRROR failover -> PENDING_STOPPED
PENDING_MIRROR mirror-ready -> ACTIVE
PENDING_MIRROR mirror-ready-paused -> PAUSED
PENDING_MIRROR fatal -> FAILED
PENDING_SETUP_FOR_RESTORE failover -> PENDING_STOPPED
PENDING_SETUP_FOR_RESTORE offsets-agreed -> PENDING_RESTORE_MIRROR
PENDING_SETUP_FOR_RESTORE fatal -> FAILED
PENDING_RESTORE_MIRROR failover -> PENDING_STOPPED
PENDING_RESTORE_MIRROR mirror-ready -> ACTIVE
PENDING_RESTORE_MIRROR fatal -> FAILED
PENDING_STOPPED failover -> PENDING_STOPPED
PENDING_STOPPED fenced -> STOPPED
PENDING_STOPPED delete -> PENDING_STOPPED
PENDING_STOPPED fatal -> PENDING_STOPPED
STOPPED truncate-and-restore -> PENDING_SETUP_FOR_RESTORE
STOPPED become-mirror -> PENDING_MIRROR
STOPPED delete -> STOPPED
SOURCE_UNAVAILABLE pause -> PAUSED
SOURCE_UNAVAILABLE failover -> PENDING_STOPPED
SOURCE_UNAVAILABLE source-back -> ACTIVE
SOURCE_UNAVAILABLE link-broken -> LINK_FAILED
SOURCE_UNAVAILABLE delete -> SOURCE_UNAVAILABLE
SOURCE_UNAVAILABLE fatal -> FAILED
LINK_FAILED failover -> PENDING_STOPPED
LINK_FAILED link-healed -> ACTIVE
LINK_FAILED source-lost -> SOURCE_UNAVAILABLE
LINK_FAILED delete -> LINK_FAILED
LINK_FAILED fatal -> FAILED
FAILED failover -> PENDING_STOPPED
FAILED recover -> ACTIVE
FAILED delete -> FAILED
""".splitlines()
}


@pytest.mark.parametrize(("state", "event"), list(product(MirrorState, MirrorEvent)), ids=str)
def test_every_event_in_every_state_leads_to_the_documented_state_or_is_refused(state: MirrorState, event: MirrorEvent) -> None:
    expected = EDGES.get((state, event))

    if expected is not None:
        assert can(state, event)
        assert next_state(state, event) == expected
        return

    assert not can(state, event)
    with pytest.raises(IllegalTransitionError) as refused:
        next_state(state, event)
    assert refused.value.code is ErrorCode.ILLEGAL_STATE
    assert (refused.value.state, refused.value.event) == (state, event)
    assert event in refused.value.message
    assert state in refused.value.message
    assert all(operation in refused.value.message for operation in allowed_operations(state))


def test_the_expected_matrix_names_only_known_states_and_events() -> None:
    assert {state for state, _ in EDGES} | set(EDGES.values()) <= set(MirrorState)
    assert {event for _, event in EDGES} <= set(MirrorEvent)


def test_failover_is_possible_in_every_state_that_is_not_writable() -> None:
    assert {state for state in MirrorState if can(state, MirrorEvent.FAILOVER)} == set(MirrorState) - WRITABLE


def test_pending_stopped_is_the_only_way_to_stopped() -> None:
    ways = {(state, event) for state, row in TRANSITIONS.items() for event, to in row.items() if to is MirrorState.STOPPED}

    assert ways - {(MirrorState.STOPPED, MirrorEvent.DELETE)} == {(MirrorState.PENDING_STOPPED, MirrorEvent.FENCED)}


def test_every_state_can_be_reached_from_a_set_up_or_a_reversal() -> None:
    reached = {MirrorState.PENDING_SETUP, MirrorState.PENDING_MIRROR}  # mirrors begin in the first, reversals in the second
    while new := {to for state in reached for to in TRANSITIONS[state].values()} - reached:
        reached |= new

    assert reached == set(MirrorState)


def test_every_state_can_lead_to_stopped() -> None:
    saved = {MirrorState.STOPPED}
    while new := {state for state in MirrorState if saved & set(TRANSITIONS[state].values())} - saved:
        saved |= new

    assert saved == set(MirrorState)


@pytest.mark.parametrize("state", MirrorState)
def test_allowed_operations_are_the_operations_of_users(state: MirrorState) -> None:
    assert set(allowed_operations(state)) == {event for event in OPERATIONS if (state, event) in EDGES}


def test_the_table_cannot_be_changed_at_run_time() -> None:
    with pytest.raises(TypeError):
        TRANSITIONS[MirrorState.STOPPED][MirrorEvent.PAUSE] = MirrorState.PAUSED  # type: ignore[index]


def test_only_reversal_and_restore_need_a_bidirectional_link() -> None:
    assert {str(event) for event in BIDIRECTIONAL_ONLY} == {"reverse-and-start", "reverse-and-pause", "truncate-and-restore"}


def test_a_stopped_or_paused_or_failed_mirror_is_never_copied() -> None:
    assert not COPYING & {MirrorState.STOPPED, MirrorState.PAUSED, MirrorState.FAILED, MirrorState.PENDING_SETUP}


@pytest.mark.parametrize("kind", [MirrorState, LinkState, GapReason])
def test_names_that_clients_see_equal_their_values(kind: type[MirrorState]) -> None:
    assert [member.name for member in kind] == [member.value for member in kind]


def test_a_stop_is_a_promotion_or_a_failover() -> None:
    assert {str(reason) for reason in StopReason} == {"promote", "failover"}
