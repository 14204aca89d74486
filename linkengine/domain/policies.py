"""Who may do what next, as pairs: ``check_x`` raises with the reason, ``can_x`` answers, ``x_hint`` words the disabled button.

The transition table says which operations a state has; the rules here add what the link must be for it. Rights of people are
the console's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import (
    BIDIRECTIONAL_ONLY,
    OPERATIONS,
    LinkState,
    MirrorEvent,
    MirrorState,
    can,
)

_S, _E = MirrorState, MirrorEvent
_NAMED_AT_MOST = 5  # blocking mirrors listed in a message


class LinkMode(StrEnum):
    """Which ends of a link may hold mirrors (``link.mode``)."""

    DESTINATION = "DESTINATION"  # mirrors are here
    SOURCE = "SOURCE"  # mirrors are on the other cluster, which cannot call us
    BIDIRECTIONAL = "BIDIRECTIONAL"  # mirrors on both sides: reversal and restore are possible


class PolicyError(LinkEngineError):
    """An operation is refused by a rule; the message says why and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.ILLEGAL_STATE, message)


# What a person should know about a mirror in this state when an operation is not possible.
STATE_HINTS: Mapping[MirrorState, str] = MappingProxyType(
    {
        _S.PENDING_SETUP: "The mirror topic is still being set up.",
        _S.ACTIVE: "The mirror topic is mirroring.",
        _S.PAUSED: "The mirror topic is paused.",
        _S.PENDING_SYNCHRONIZE: "The mirror topic is being reversed: it is catching up with its source.",
        _S.PENDING_MIRROR: "The topic is becoming a mirror.",
        _S.PENDING_SETUP_FOR_RESTORE: "The topic is being restored: both sides are agreeing on offsets.",
        _S.PENDING_RESTORE_MIRROR: "The topic is being restored: records that diverged are being dropped.",
        _S.PENDING_STOPPED: "The mirror topic is being stopped.",
        _S.STOPPED: "The mirror topic is stopped: it is an ordinary, writable topic now.",
        _S.SOURCE_UNAVAILABLE: "The source cluster cannot be reached; mirroring goes on by itself when it answers again.",
        _S.LINK_FAILED: "The link is broken; correct its settings first.",
        _S.FAILED: "The mirror topic has failed permanently; it can be failed over or deleted.",
    }
)
# What each operation asks for, where the state does not allow it.
OPERATION_NEEDS: Mapping[MirrorEvent, str] = MappingProxyType(
    {
        _E.PAUSE: "Only a mirror topic that is mirroring can be paused.",
        _E.RESUME: "Only a paused mirror topic can be resumed.",
        _E.PROMOTE: "Only an active or paused mirror topic can be promoted; fail over if the source is lost.",
        _E.FAILOVER: "Only a topic that is still a mirror can be failed over.",
        _E.REVERSE_AND_START: "Only an active mirror topic can be reversed.",
        _E.REVERSE_AND_PAUSE: "Only an active mirror topic can be reversed.",
        _E.RESTORE: "Only a stopped mirror topic can be restored.",
        _E.RECOVER: "Only a failed mirror topic can be recovered.",
        _E.DELETE: "This mirror topic cannot be deleted now.",
    }
)
# Operations that need an answer from the other cluster at once; a promotion waits for it instead and shows that it waits.
NEEDS_LIVE_LINK: frozenset[MirrorEvent] = frozenset({_E.REVERSE_AND_START, _E.REVERSE_AND_PAUSE, _E.RESTORE})
LINK_HINTS: Mapping[LinkState, str] = MappingProxyType(
    {
        LinkState.ACTIVE: "",
        LinkState.PAUSED: "The link is paused; resume the link first.",
        LinkState.UNAVAILABLE: "The source cluster cannot be reached; this operation needs both clusters.",
        LinkState.FAILED: "The link is broken; correct its settings first.",
    }
)


def operation_hint(
    *,
    state: MirrorState,
    event: MirrorEvent,
    link_mode: LinkMode = LinkMode.DESTINATION,
    link_state: LinkState = LinkState.ACTIVE,
) -> str:
    """Answer why the operation is not possible now, "" if it is."""
    if event in BIDIRECTIONAL_ONLY and link_mode is not LinkMode.BIDIRECTIONAL:
        return "Only mirror topics of a bidirectional link can be reversed or restored."
    if not can(state, event):
        return f"{STATE_HINTS[state]} {OPERATION_NEEDS[event]}"
    if event is _E.RESUME and link_state is LinkState.PAUSED:
        return LINK_HINTS[link_state]
    return LINK_HINTS[link_state] if event in NEEDS_LIVE_LINK else ""


def check_operation(
    *,
    state: MirrorState,
    event: MirrorEvent,
    link_mode: LinkMode = LinkMode.DESTINATION,
    link_state: LinkState = LinkState.ACTIVE,
) -> None:
    """Raise PolicyError with the hint's words where the table has no edge or the link forbids it."""
    if event not in OPERATIONS:
        raise ValueError(f"{event} is an observation of the engine, nobody may ask for it")
    hint = operation_hint(state=state, event=event, link_mode=link_mode, link_state=link_state)
    if hint:
        raise PolicyError(hint)


def can_operation(
    *,
    state: MirrorState,
    event: MirrorEvent,
    link_mode: LinkMode = LinkMode.DESTINATION,
    link_state: LinkState = LinkState.ACTIVE,
) -> bool:
    """Tell whether the operation is possible now."""
    return not operation_hint(state=state, event=event, link_mode=link_mode, link_state=link_state)


def delete_link_hint(mirrors: Iterable[tuple[str, MirrorState]]) -> str:
    """Answer why a link with these (mirror name, state) cannot be deleted, "" if it can."""
    attached = sorted(name for name, state in mirrors if state is not _S.STOPPED)
    if not attached:
        return ""
    more = f" and {len(attached) - _NAMED_AT_MOST} more" if len(attached) > _NAMED_AT_MOST else ""
    names = ", ".join(attached[:_NAMED_AT_MOST])
    return f"The link still has mirror topics: {names}{more}. Promote, fail over or delete them first."


def check_delete_link(mirrors: Iterable[tuple[str, MirrorState]]) -> None:
    """Raise PolicyError, naming them, while mirrors that are not STOPPED are attached."""
    hint = delete_link_hint(mirrors)
    if hint:
        raise PolicyError(hint)


def can_delete_link(mirrors: Iterable[tuple[str, MirrorState]]) -> bool:
    """Tell whether no mirror is attached any more."""
    return not delete_link_hint(mirrors)


def create_mirror_hint(*, link_mode: LinkMode, link_state: LinkState) -> str:
    """Answer why this link takes no new mirror now, "" if it does."""
    if link_mode is LinkMode.SOURCE:
        return "This is the source side of the link; create mirror topics on the destination cluster."
    if link_state in {LinkState.UNAVAILABLE, LinkState.FAILED}:
        return LINK_HINTS[link_state]
    return ""


def check_create_mirror(*, link_mode: LinkMode, link_state: LinkState) -> None:
    """Raise PolicyError where the link takes no new mirror: its source must be readable."""
    hint = create_mirror_hint(link_mode=link_mode, link_state=link_state)
    if hint:
        raise PolicyError(hint)


def can_create_mirror(*, link_mode: LinkMode, link_state: LinkState) -> bool:
    """Tell whether the link takes a new mirror now."""
    return not create_mirror_hint(link_mode=link_mode, link_state=link_state)
