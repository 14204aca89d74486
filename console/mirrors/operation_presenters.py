"""The display of operations on mirror topics: labels, icons and confirmation texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from console.web.numbers import exact
from linkengine.domain.states import BIDIRECTIONAL_ONLY, MirrorEvent, MirrorState

if TYPE_CHECKING:
    pass


# --- labels, icons and confirmation texts -----------------------------------------------------------------------------
#
# Permissions are checked elsewhere.


_E = MirrorEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """An operation with the texts of its button and its confirmation."""

    event: MirrorEvent
    label: str  # of the button
    icon: str
    doing: str  # verb in the heading of the confirmation: "Promote orders?"
    explains: str
    done: str  # message after the request was accepted; {name} is the mirror topic
    danger: bool = False  # irreversible in each link mode
    loses_lag: bool = False  # records that are not copied yet are lost


_VERBS = (
    Verb(
        event=_E.PAUSE,
        label="Pause",
        icon="pause-circle-fill",
        doing="Pause",
        explains="Copying stops within a second. The topic remains readable and read-only. No data is lost as long as the "
        "source retains its records. You can resume it at any time.",
        done="{name} is paused.",
    ),
    Verb(
        event=_E.RESUME,
        label="Resume",
        icon="play-fill",
        doing="Resume",
        explains="Copying resumes where it stopped.",
        done="{name} is resumed.",
    ),
    Verb(
        event=_E.PROMOTE,
        label="Promote",
        icon="arrow-repeat",
        doing="Promote",
        explains="The link copies the last records, configs and partitions. When the lag is 0, the topic becomes writable. "
        "Stop the producers on the source first, or the lag may never reach 0. Until then, writes are rejected.",
        done="{name} is being promoted. It becomes writable when its lag is 0.",
    ),
    Verb(
        event=_E.FAILOVER,
        label="Fail over",
        icon="exclamation-triangle-fill",
        doing="Fail over",
        explains="Mirroring stops immediately, without contacting the source, and the topic becomes writable. Records that "
        "are not copied yet remain on the source only.",
        done="{name} is failing over. It becomes writable within seconds.",
        danger=True,
        loses_lag=True,
    ),
    Verb(
        event=_E.REVERSE_AND_START,
        label="Reverse and start",
        icon="arrow-left-right",
        doing="Reverse",
        explains="Both topics become read-only until they are in sync. Then they swap roles and mirroring starts in reverse.",
        done="{name} is being reversed.",
    ),
    Verb(
        event=_E.REVERSE_AND_PAUSE,
        label="Reverse and pause",
        icon="arrow-left-right",
        doing="Reverse",
        explains="Both topics become read-only until they are in sync. Then they swap roles and the new mirror is paused.",
        done="{name} is being reversed.",
    ),
    Verb(
        event=_E.RESTORE,
        label="Truncate and restore",
        icon="scissors",
        doing="Restore",
        explains="The topic becomes a mirror again. Its diverged records are exported to a file and deleted from the topic.",
        done="{name} is being restored.",
        danger=True,
    ),
    Verb(
        event=_E.RECOVER,
        label="Recover",
        icon="arrow-repeat",
        doing="Recover",
        explains="Mirroring is retried from where it stopped. Fix the cause of the failure first.",
        done="{name} is being recovered.",
    ),
    Verb(
        event=_E.DELETE,
        label="Delete",
        icon="trash",
        doing="Delete",
        explains="The topic and all its records are deleted on the destination cluster. The source topic is not changed.",
        done="{name} is being deleted.",
        danger=True,
    ),
)
VERBS: Mapping[MirrorEvent, Verb] = MappingProxyType({verb.event: verb for verb in _VERBS})


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkVerb:
    """An operation on several mirror topics. ``event`` is None for a verification, which changes no state."""

    name: str  # in forms and in ``BulkOperation.operation``
    event: MirrorEvent | None
    label: str
    icon: str
    doing: str
    explains: str
    danger: bool = False
    loses_lag: bool = False
    frequent: bool = False  # has a button of its own; the others are in a menu


def _bulk(verb: Verb) -> BulkVerb:
    return BulkVerb(
        name=verb.event,
        event=verb.event,
        label=verb.label,
        icon=verb.icon,
        doing=verb.doing,
        explains=verb.explains,
        danger=verb.danger,
        loses_lag=verb.loses_lag,
        frequent=verb.event in _FREQUENT,
    )


_FREQUENT = {_E.PAUSE, _E.RESUME, _E.PROMOTE, _E.FAILOVER}
_VERIFY = BulkVerb(
    name="verify",
    event=None,
    label="Verify",
    icon="check-circle-fill",
    doing="Verify",
    explains="Compares all records of each topic with its source in Spark, a few topics at a time. Mirroring continues. The "
    "page of each mirror topic shows the result.",
    frequent=True,
)
BULK_VERBS: Mapping[str, BulkVerb] = MappingProxyType({verb.name: verb for verb in (*map(_bulk, _VERBS), _VERIFY)})


def bulk_verbs(*, bidirectional: bool) -> list[BulkVerb]:
    """Return the operations on several mirror topics of a link, in the order of the buttons."""
    return [verb for verb in BULK_VERBS.values() if bidirectional or verb.event not in BIDIRECTIONAL_ONLY]


def explanation(verb: Verb, *, state: str, since: datetime) -> str:
    """Return what an operation does. A deletion also warns of records written to a topic that was stopped at ``since``."""
    if verb.event is not _E.DELETE or state != MirrorState.STOPPED:
        return verb.explains
    return (
        f"This topic is no longer mirrored. Applications may have written to it since {exact(since)}; these records exist "
        f"in no other topic. {verb.explains}"
    )


def needs_typed_name(event: MirrorEvent, *, bidirectional: bool) -> bool:
    """Return True if the user must type the topic name: for irreversible operations, and promotions on one-way links."""
    return VERBS[event].danger or (event is _E.PROMOTE and not bidirectional)


def reversibility(event: MirrorEvent, *, bidirectional: bool) -> str:
    """Return whether an operation is reversible, which depends on the link mode; "" if nothing needs to be said."""
    if event is _E.DELETE:
        return "This cannot be undone."
    if event not in {_E.PROMOTE, _E.FAILOVER}:
        return ""
    if bidirectional:
        return "The link is bidirectional: the source topic can become a mirror of this topic afterwards."
    return "This cannot be undone: a stopped topic cannot become a mirror again on this link."
