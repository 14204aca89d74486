"""The state machine of a mirror topic as a table: state x event -> next state.

All decisions about which step a mirror may take next are made here; other code does not compare states. The console's
permissions decide which user may raise an event, ``linkengine.jobs`` executes it. Database rows change their state only by
compare-and-swap along an edge of this table. The diagram in ``docs/states.md`` is generated from it.

A user or an API client raises an *operation* event; the engine raises the other events when it observes or completes something.
``failover`` is legal wherever the mirror is not writable yet, because a disaster can strike in any state. PENDING_STOPPED is
the only way to STOPPED: the fence has to be written before producers may write.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from linkengine.domain.errors import IllegalTransitionError


class MirrorState(StrEnum):
    """State of a mirror topic; all but STOPPED are read-only for producers."""

    PENDING_SETUP = "PENDING_SETUP"  # topic being created, head being seeded; REST shows ACTIVE
    ACTIVE = "ACTIVE"  # mirroring
    PAUSED = "PAUSED"  # a user paused the topic or its link
    PENDING_SYNCHRONIZE = "PENDING_SYNCHRONIZE"  # reversing: catching up, both sides read-only
    PENDING_MIRROR = "PENDING_MIRROR"  # reversing, the other side: becoming a mirror
    PENDING_SETUP_FOR_RESTORE = "PENDING_SETUP_FOR_RESTORE"  # restoring: agreeing on offsets
    PENDING_RESTORE_MIRROR = "PENDING_RESTORE_MIRROR"  # restoring: dropping diverged records
    PENDING_STOPPED = "PENDING_STOPPED"  # promoting (draining) or failing over (fencing)
    STOPPED = "STOPPED"  # an ordinary, writable topic; listed while the link exists
    SOURCE_UNAVAILABLE = "SOURCE_UNAVAILABLE"  # source cannot be reached; resumes automatically
    LINK_FAILED = "LINK_FAILED"  # the link is broken (credentials, config) and has to be edited
    FAILED = "FAILED"  # permanent: source topic deleted, rights missing for too long, foreign write


class MirrorEvent(StrEnum):
    """Events of a mirror topic. The first block are operations of users, the second observations of the engine."""

    PAUSE = "pause"
    RESUME = "resume"
    PROMOTE = "promote"
    FAILOVER = "failover"
    REVERSE_AND_START = "reverse-and-start"
    REVERSE_AND_PAUSE = "reverse-and-pause"
    RESTORE = "truncate-and-restore"
    RECOVER = "recover"
    DELETE = "delete"

    SETUP_DONE = "setup-done"  # topic exists, head seeded, producers denied
    SOURCE_LOST = "source-lost"  # no source broker responds
    SOURCE_BACK = "source-back"
    LINK_BROKEN = "link-broken"  # credentials or config refused
    LINK_HEALED = "link-healed"
    FATAL = "fatal"  # needs a user's action
    SYNCHRONIZED = "synchronized"  # reversing: no lag left, source read-only
    OFFSETS_AGREED = "offsets-agreed"  # restoring: truncation point known
    MIRROR_READY = "mirror-ready"  # reversing or restoring: the topic is a mirror now
    MIRROR_READY_PAUSED = "mirror-ready-paused"
    BECOME_MIRROR = "become-mirror"  # reversing, requested by the other side; this topic is closed to producers
    REVERSAL_ENDED = "reversal-ended"  # the other side was failed over before the swap: mirroring continues
    FENCED = "fenced"  # the fence is written and DENY WRITE removed


OPERATIONS: frozenset[MirrorEvent] = frozenset(
    {
        MirrorEvent.PAUSE,
        MirrorEvent.RESUME,
        MirrorEvent.PROMOTE,
        MirrorEvent.FAILOVER,
        MirrorEvent.REVERSE_AND_START,
        MirrorEvent.REVERSE_AND_PAUSE,
        MirrorEvent.RESTORE,
        MirrorEvent.RECOVER,
        MirrorEvent.DELETE,
    }
)
BIDIRECTIONAL_ONLY: frozenset[MirrorEvent] = frozenset(
    {MirrorEvent.REVERSE_AND_START, MirrorEvent.REVERSE_AND_PAUSE, MirrorEvent.RESTORE}
)

_S, _E = MirrorState, MirrorEvent
# DELETE keeps the state: the row shows it until the topic is gone, then the row is deleted too. A topic that is only becoming a
# mirror may hold records that exist nowhere else, so it must be failed over before it can be deleted. FATAL keeps
# PENDING_STOPPED: the promotion waits until a user fails the mirror over, and the history then has to show that copying had
# failed.
_TABLE: dict[MirrorState, dict[MirrorEvent, MirrorState]] = {
    _S.PENDING_SETUP: {
        _E.FAILOVER: _S.PENDING_STOPPED,
        _E.DELETE: _S.PENDING_SETUP,
        _E.SETUP_DONE: _S.ACTIVE,
        _E.FATAL: _S.FAILED,
    },
    _S.ACTIVE: {
        _E.PAUSE: _S.PAUSED,
        _E.PROMOTE: _S.PENDING_STOPPED,
        _E.FAILOVER: _S.PENDING_STOPPED,
        _E.REVERSE_AND_START: _S.PENDING_SYNCHRONIZE,
        _E.REVERSE_AND_PAUSE: _S.PENDING_SYNCHRONIZE,
        _E.DELETE: _S.ACTIVE,
        _E.SOURCE_LOST: _S.SOURCE_UNAVAILABLE,
        _E.LINK_BROKEN: _S.LINK_FAILED,
        _E.FATAL: _S.FAILED,
    },
    _S.PAUSED: {
        _E.RESUME: _S.ACTIVE,
        _E.PROMOTE: _S.PENDING_STOPPED,
        _E.FAILOVER: _S.PENDING_STOPPED,
        _E.DELETE: _S.PAUSED,
        _E.FATAL: _S.FAILED,
    },
    _S.PENDING_SYNCHRONIZE: {
        _E.PAUSE: _S.PAUSED,
        _E.FAILOVER: _S.PENDING_STOPPED,
        _E.SYNCHRONIZED: _S.PENDING_STOPPED,
        _E.REVERSAL_ENDED: _S.ACTIVE,
        _E.DELETE: _S.PENDING_SYNCHRONIZE,
        _E.FATAL: _S.FAILED,
    },
    _S.PENDING_MIRROR: {
        _E.FAILOVER: _S.PENDING_STOPPED,
        _E.MIRROR_READY: _S.ACTIVE,
        _E.MIRROR_READY_PAUSED: _S.PAUSED,
        _E.FATAL: _S.FAILED,
    },
    _S.PENDING_SETUP_FOR_RESTORE: {
        _E.FAILOVER: _S.PENDING_STOPPED,
        _E.OFFSETS_AGREED: _S.PENDING_RESTORE_MIRROR,
        _E.FATAL: _S.FAILED,
    },
    _S.PENDING_RESTORE_MIRROR: {
        _E.FAILOVER: _S.PENDING_STOPPED,
        _E.MIRROR_READY: _S.ACTIVE,
        _E.FATAL: _S.FAILED,
    },
    _S.PENDING_STOPPED: {
        _E.FAILOVER: _S.PENDING_STOPPED,
        _E.FENCED: _S.STOPPED,
        _E.DELETE: _S.PENDING_STOPPED,
        _E.FATAL: _S.PENDING_STOPPED,
    },
    _S.STOPPED: {
        _E.RESTORE: _S.PENDING_SETUP_FOR_RESTORE,
        _E.BECOME_MIRROR: _S.PENDING_MIRROR,
        _E.DELETE: _S.STOPPED,
    },
    _S.SOURCE_UNAVAILABLE: {
        _E.PAUSE: _S.PAUSED,
        _E.FAILOVER: _S.PENDING_STOPPED,
        _E.DELETE: _S.SOURCE_UNAVAILABLE,
        _E.SOURCE_BACK: _S.ACTIVE,
        _E.LINK_BROKEN: _S.LINK_FAILED,
        _E.FATAL: _S.FAILED,
    },
    _S.LINK_FAILED: {
        _E.FAILOVER: _S.PENDING_STOPPED,
        _E.DELETE: _S.LINK_FAILED,
        _E.LINK_HEALED: _S.ACTIVE,
        _E.SOURCE_LOST: _S.SOURCE_UNAVAILABLE,
        _E.FATAL: _S.FAILED,
    },
    _S.FAILED: {
        _E.FAILOVER: _S.PENDING_STOPPED,
        _E.RECOVER: _S.ACTIVE,
        _E.DELETE: _S.FAILED,
    },
}
TRANSITIONS: Mapping[MirrorState, Mapping[MirrorEvent, MirrorState]] = MappingProxyType(
    {state: MappingProxyType(row) for state, row in _TABLE.items()}
)
if set(TRANSITIONS) != set(MirrorState):  # no operation could end a state without a row
    raise AssertionError("every state needs a row")

# States in which copy workers own the partitions. PENDING_STOPPED copies only while a promotion drains.
COPYING: frozenset[MirrorState] = frozenset(
    {_S.ACTIVE, _S.SOURCE_UNAVAILABLE, _S.LINK_FAILED, _S.PENDING_SYNCHRONIZE, _S.PENDING_STOPPED}
)
# States in which a task makes a topic a mirror; a stop has to wait until that task has ended.
BECOMING: frozenset[MirrorState] = frozenset(
    {_S.PENDING_SETUP, _S.PENDING_MIRROR, _S.PENDING_SETUP_FOR_RESTORE, _S.PENDING_RESTORE_MIRROR}
)
# Those in which the topic was an ordinary topic before and is closed to producers first, whatever the gap filler.
CLOSED_FIRST: frozenset[MirrorState] = BECOMING - {_S.PENDING_SETUP}
WRITABLE: frozenset[MirrorState] = frozenset({_S.STOPPED})


def next_state(state: MirrorState, event: MirrorEvent) -> MirrorState:
    """Return the state that ``event`` leads to; raise IllegalTransitionError, naming both, if the table has no such edge."""
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransitionError(state=state, event=event, allowed=allowed_operations(state)) from None


def can(state: MirrorState, event: MirrorEvent) -> bool:
    """Return whether the table has an edge for ``event`` in ``state``."""
    return event in TRANSITIONS[state]


def allowed_operations(state: MirrorState) -> tuple[MirrorEvent, ...]:
    """Return the operations of users that are legal in ``state``, in the order of declaration."""
    return tuple(event for event in MirrorEvent if event in OPERATIONS and event in TRANSITIONS[state])


class LinkState(StrEnum):
    """State of a cluster link as REST reports it in ``link_state``."""

    ACTIVE = "ACTIVE"  # the last probe of the source succeeded
    PAUSED = "PAUSED"  # a user paused the whole link
    UNAVAILABLE = "UNAVAILABLE"  # source cannot be reached
    FAILED = "FAILED"  # credentials or config refused; the link has to be edited


class LinkMode(StrEnum):
    """Which ends of a link may hold mirrors (``link.mode``)."""

    DESTINATION = "DESTINATION"  # mirrors are on this cluster
    SOURCE = "SOURCE"  # mirrors are on the other cluster, which cannot connect to this cluster
    BIDIRECTIONAL = "BIDIRECTIONAL"  # mirrors on both sides: reversal and restore are possible


class StopReason(StrEnum):
    """Why a mirror is in PENDING_STOPPED: promote waits until the lag is zero, failover does not wait."""

    PROMOTE = "promote"
    FAILOVER = "failover"


class GapReason(StrEnum):
    """Why an offset of the mirror holds a filler instead of a record."""

    TRANSACTION_MARKER = "TRANSACTION_MARKER"  # the source holds a commit or abort marker there
    ABORTED = "ABORTED"  # the source holds data of an aborted transaction
    COMPACTED = "COMPACTED"  # compaction removed the record on the source
    HEAD = "HEAD"  # below the source's log start when the mirror began
    LOST = "LOST"  # retention removed it on the source before it was copied
