from itertools import product

import pytest

from linkengine.domain.errors import ErrorCode
from linkengine.domain.policies import (
    LINK_HINTS,
    NEEDS_LIVE_LINK,
    OPERATION_NEEDS,
    STATE_HINTS,
    LinkMode,
    PolicyError,
    can_create_mirror,
    can_delete_link,
    can_operation,
    check_create_mirror,
    check_delete_link,
    check_operation,
    create_mirror_hint,
    delete_link_hint,
    operation_hint,
)
from linkengine.domain.states import BIDIRECTIONAL_ONLY, OPERATIONS, LinkState, MirrorEvent, MirrorState, can

LIVE = {"link_mode": LinkMode.BIDIRECTIONAL, "link_state": LinkState.ACTIVE}


def test_every_state_operation_and_link_state_has_its_words() -> None:
    assert set(STATE_HINTS) == set(MirrorState)
    assert set(OPERATION_NEEDS) == OPERATIONS
    assert set(LINK_HINTS) == set(LinkState)


@pytest.mark.parametrize(("state", "event"), list(product(MirrorState, sorted(OPERATIONS))), ids=str)
def test_with_a_live_bidirectional_link_the_transition_table_alone_decides(state: MirrorState, event: MirrorEvent) -> None:
    assert can_operation(state=state, event=event, **LIVE) == can(state, event)


@pytest.mark.parametrize(("mode", "link"), list(product(LinkMode, LinkState)), ids=str)
def test_check_raises_exactly_where_can_says_no_and_in_the_words_of_the_hint(mode: LinkMode, link: LinkState) -> None:
    for state, event in product(MirrorState, OPERATIONS):
        hint = operation_hint(state=state, event=event, link_mode=mode, link_state=link)

        assert can_operation(state=state, event=event, link_mode=mode, link_state=link) == (hint == "")
        assert _refusal(state, event, mode, link) == hint


@pytest.mark.parametrize("event", sorted(BIDIRECTIONAL_ONLY))
def test_reversal_and_restore_need_a_bidirectional_link(event: MirrorEvent) -> None:
    for state in MirrorState:
        assert "bidirectional" in operation_hint(state=state, event=event, link_mode=LinkMode.DESTINATION)


@pytest.mark.parametrize("event", sorted(NEEDS_LIVE_LINK))
@pytest.mark.parametrize("link", [LinkState.PAUSED, LinkState.UNAVAILABLE, LinkState.FAILED])
def test_what_needs_both_clusters_needs_a_live_link(event: MirrorEvent, link: LinkState) -> None:
    for state in MirrorState:
        assert not can_operation(state=state, event=event, link_mode=LinkMode.BIDIRECTIONAL, link_state=link)


@pytest.mark.parametrize("link", LinkState)
def test_failover_never_depends_on_the_link(link: LinkState) -> None:
    assert can_operation(state=MirrorState.LINK_FAILED, event=MirrorEvent.FAILOVER, link_state=link)


def test_a_mirror_of_a_paused_link_is_resumed_through_the_link() -> None:
    hint = operation_hint(state=MirrorState.PAUSED, event=MirrorEvent.RESUME, link_state=LinkState.PAUSED)

    assert "resume the link" in hint


def test_nobody_may_ask_for_an_observation_of_the_engine() -> None:
    with pytest.raises(ValueError, match="nobody may ask"):
        check_operation(state=MirrorState.PENDING_STOPPED, event=MirrorEvent.FENCED)


def test_a_link_is_deleted_once_all_its_mirrors_are_stopped() -> None:
    assert can_delete_link([])
    assert can_delete_link([("a", MirrorState.STOPPED), ("b", MirrorState.STOPPED)])
    check_delete_link([("a", MirrorState.STOPPED)])


@pytest.mark.parametrize("state", set(MirrorState) - {MirrorState.STOPPED})
def test_a_mirror_in_any_other_state_keeps_its_link_and_is_named(state: MirrorState) -> None:
    assert not can_delete_link([("done", MirrorState.STOPPED), ("orders", state)])

    with pytest.raises(PolicyError, match="orders") as refused:
        check_delete_link([("done", MirrorState.STOPPED), ("orders", state)])

    assert "done" not in refused.value.message


def test_many_attached_mirrors_are_counted_rather_than_all_listed() -> None:
    hint = delete_link_hint([(f"t{number}", MirrorState.ACTIVE) for number in range(9)])

    assert "t4 and 4 more" in hint
    assert "t5" not in hint


@pytest.mark.parametrize(("mode", "link"), list(product(LinkMode, LinkState)), ids=str)
def test_a_mirror_is_created_where_the_link_can_read_its_source(mode: LinkMode, link: LinkState) -> None:
    expected = mode is not LinkMode.SOURCE and link in {LinkState.ACTIVE, LinkState.PAUSED}

    assert can_create_mirror(link_mode=mode, link_state=link) == expected
    if expected:
        check_create_mirror(link_mode=mode, link_state=link)
        return
    with pytest.raises(PolicyError) as refused:
        check_create_mirror(link_mode=mode, link_state=link)
    assert refused.value.message == create_mirror_hint(link_mode=mode, link_state=link) != ""


def _refusal(state: MirrorState, event: MirrorEvent, mode: LinkMode, link: LinkState) -> str:
    try:
        check_operation(state=state, event=event, link_mode=mode, link_state=link)
    except PolicyError as error:
        return error.message if error.code is ErrorCode.ILLEGAL_STATE else f"wrong code {error.code}"
    return ""
