"""What people may do with a mirror topic, in words: names, icons, confirmations. Whether they may is decided elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from console.presenters.numbers import exact
from linkengine.domain.states import MirrorEvent, MirrorState

_E = MirrorEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """An operation of people, as its button and its confirmation name it."""

    event: MirrorEvent
    label: str  # of the button
    icon: str
    doing: str  # heading of the confirmation: "Promote orders"
    explains: str
    done: str  # said after it was accepted; {name} is the mirror topic
    danger: bool = False  # cannot be taken back, whatever the link's mode
    loses_lag: bool = False  # what was not copied yet is given up


_VERBS = (
    Verb(
        event=_E.PAUSE,
        label="Pause",
        icon="pause-circle-fill",
        doing="Pause",
        explains="Copying stops within a second. The topic stays readable and read-only; nothing is lost while the source "
        "keeps its records. Resume it at any time.",
        done="{name} is paused.",
    ),
    Verb(
        event=_E.RESUME,
        label="Resume",
        icon="play-fill",
        doing="Resume",
        explains="Copying goes on where it stopped.",
        done="{name} is copied again.",
    ),
    Verb(
        event=_E.PROMOTE,
        label="Promote",
        icon="arrow-repeat",
        doing="Promote",
        explains="The link copies the last records, configs and partitions; when both sides are equal the topic becomes "
        "writable. Stop the producers on the source first, or the lag may never reach 0. Writes are refused until then.",
        done="{name} is being promoted. It becomes writable when its lag is 0.",
    ),
    Verb(
        event=_E.FAILOVER,
        label="Fail over",
        icon="exclamation-triangle-fill",
        doing="Fail over",
        explains="Mirroring stops at once, without asking the source, and the topic becomes writable. Records that were not "
        "copied yet stay on the source only.",
        done="{name} is failing over. It becomes writable within seconds.",
        danger=True,
        loses_lag=True,
    ),
    Verb(
        event=_E.REVERSE_AND_START,
        label="Reverse and start",
        icon="arrow-left-right",
        doing="Reverse",
        explains="Both topics become read-only until they are equal; then they swap roles and mirroring goes the other way.",
        done="{name} is being reversed.",
    ),
    Verb(
        event=_E.REVERSE_AND_PAUSE,
        label="Reverse and pause",
        icon="arrow-left-right",
        doing="Reverse",
        explains="Both topics become read-only until they are equal; then they swap roles and the new mirror waits, paused.",
        done="{name} is being reversed.",
    ),
    Verb(
        event=_E.RESTORE,
        label="Truncate and restore",
        icon="scissors",
        doing="Restore",
        explains="The topic becomes a mirror again. Records that exist on this side only are set aside.",
        done="{name} is being restored.",
        danger=True,
    ),
    Verb(
        event=_E.RECOVER,
        label="Try again",
        icon="arrow-repeat",
        doing="Recover",
        explains="Mirroring is tried again from where it stopped. Correct the cause of the failure first.",
        done="{name} is tried again.",
    ),
    Verb(
        event=_E.DELETE,
        label="Delete",
        icon="trash",
        doing="Delete",
        explains="The topic and all its records are deleted on the destination cluster. The source topic is not touched.",
        done="{name} is being deleted.",
        danger=True,
    ),
)
VERBS: Mapping[MirrorEvent, Verb] = MappingProxyType({verb.event: verb for verb in _VERBS})
BULK_VERBS: tuple[Verb, ...] = tuple(VERBS[event] for event in (_E.PAUSE, _E.RESUME, _E.PROMOTE, _E.FAILOVER))


def explanation(verb: Verb, *, state: str, since: datetime) -> str:
    """Say what the step does; what was stopped at ``since`` is no mere copy any more."""
    if verb.event is not _E.DELETE or state != MirrorState.STOPPED:
        return verb.explains
    return (
        f"This topic is not mirrored any more. Applications may have written to it since {exact(since)}; what they wrote is "
        f"in no other topic. {verb.explains}"
    )


def needs_typed_name(event: MirrorEvent, *, bidirectional: bool) -> bool:
    """Tell whether the topic's name must be typed: whatever cannot be taken back. A promotion can, on a bidirectional link."""
    return VERBS[event].danger or (event is _E.PROMOTE and not bidirectional)


def reversibility(event: MirrorEvent, *, bidirectional: bool) -> str:
    """Say whether the step can be taken back; it depends on the link's mode."""
    if event is _E.DELETE:
        return "This cannot be undone."
    if event not in {_E.PROMOTE, _E.FAILOVER}:
        return ""
    if bidirectional:
        return "The link is bidirectional: the original topic can become a mirror of this one afterwards."
    return "This cannot be undone: a stopped topic never becomes a mirror again on this link."
