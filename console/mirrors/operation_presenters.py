"""The display of operations on mirror topics: labels, icons and confirmation texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from django.utils.translation import gettext, gettext_noop

from console.web.numbers import exact
from linkengine.domain.states import BIDIRECTIONAL_ONLY, MirrorEvent, MirrorState

# --- labels, icons and confirmation texts -----------------------------------------------------------------------------
#
# Permissions are checked elsewhere.


_E = MirrorEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """An operation with the texts of its button and its confirmation, in English; pages show their translations."""

    event: MirrorEvent
    label: str  # of the button
    icon: str
    doing: str  # verb in the heading of the confirmation: "Promote orders?"
    explains: str
    done: str  # message after the request was accepted; %(name)s is the mirror topic
    danger: bool = False  # irreversible in each link mode
    loses_lag: bool = False  # records that are not copied yet are lost


_VERBS = (
    Verb(
        event=_E.PAUSE,
        label=gettext_noop("Pause"),
        icon="pause-circle-fill",
        doing=gettext_noop("Pause"),
        explains=gettext_noop(
            "Copying stops within a second. The topic remains readable and read-only. No data is lost as long as the "
            "source retains its records. You can resume it at any time."
        ),
        done=gettext_noop("%(name)s is paused."),
    ),
    Verb(
        event=_E.RESUME,
        label=gettext_noop("Resume"),
        icon="play-fill",
        doing=gettext_noop("Resume"),
        explains=gettext_noop("Copying resumes where it stopped."),
        done=gettext_noop("%(name)s is resumed."),
    ),
    Verb(
        event=_E.PROMOTE,
        label=gettext_noop("Promote"),
        icon="arrow-repeat",
        doing=gettext_noop("Promote"),
        explains=gettext_noop(
            "The link copies the last records, configs and partitions. When the lag is 0, the topic becomes writable. "
            "Stop the producers on the source first, or the lag may never reach 0. Until then, writes are rejected."
        ),
        done=gettext_noop("%(name)s is being promoted. It becomes writable when its lag is 0."),
    ),
    Verb(
        event=_E.FAILOVER,
        label=gettext_noop("Fail over"),
        icon="exclamation-triangle-fill",
        doing=gettext_noop("Fail over"),
        explains=gettext_noop(
            "Mirroring stops immediately, without contacting the source, and the topic becomes writable. Records that "
            "are not copied yet remain on the source only."
        ),
        done=gettext_noop("%(name)s is failing over. It becomes writable within seconds."),
        danger=True,
        loses_lag=True,
    ),
    Verb(
        event=_E.REVERSE_AND_START,
        label=gettext_noop("Reverse and start"),
        icon="arrow-left-right",
        doing=gettext_noop("Reverse"),
        explains=gettext_noop(
            "Both topics become read-only until they are in sync. Then they swap roles and mirroring starts in reverse."
        ),
        done=gettext_noop("%(name)s is being reversed."),
    ),
    Verb(
        event=_E.REVERSE_AND_PAUSE,
        label=gettext_noop("Reverse and pause"),
        icon="arrow-left-right",
        doing=gettext_noop("Reverse"),
        explains=gettext_noop(
            "Both topics become read-only until they are in sync. Then they swap roles and the new mirror is paused."
        ),
        done=gettext_noop("%(name)s is being reversed."),
    ),
    Verb(
        event=_E.RESTORE,
        label=gettext_noop("Truncate and restore"),
        icon="scissors",
        doing=gettext_noop("Restore"),
        explains=gettext_noop(
            "The topic becomes a mirror again. Its diverged records are exported to a file and deleted from the topic."
        ),
        done=gettext_noop("%(name)s is being restored."),
        danger=True,
    ),
    Verb(
        event=_E.RECOVER,
        label=gettext_noop("Recover"),
        icon="arrow-repeat",
        doing=gettext_noop("Recover"),
        explains=gettext_noop("Mirroring is retried from where it stopped. Fix the cause of the failure first."),
        done=gettext_noop("%(name)s is being recovered."),
    ),
    Verb(
        event=_E.DELETE,
        label=gettext_noop("Delete"),
        icon="trash",
        doing=gettext_noop("Delete"),
        explains=gettext_noop(
            "The topic and all its records are deleted on the destination cluster. The source topic is not changed."
        ),
        done=gettext_noop("%(name)s is being deleted."),
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
    label=gettext_noop("Verify"),
    icon="check-circle-fill",
    doing=gettext_noop("Verify"),
    explains=gettext_noop(
        "Compares all records of each topic with its source in Spark, a few topics at a time. Mirroring continues. The page of "
        "each mirror topic shows the result."
    ),
    frequent=True,
)
BULK_VERBS: Mapping[str, BulkVerb] = MappingProxyType({verb.name: verb for verb in (*map(_bulk, _VERBS), _VERIFY)})


def bulk_verbs(*, bidirectional: bool) -> list[BulkVerb]:
    """Return the operations on several mirror topics of a link, in the order of the buttons."""
    return [verb for verb in BULK_VERBS.values() if bidirectional or verb.event not in BIDIRECTIONAL_ONLY]


def explanation(verb: Verb, *, state: str, since: datetime) -> str:
    """Return what an operation does. A deletion also warns of records written to a topic that was stopped at ``since``."""
    if verb.event is not _E.DELETE or state != MirrorState.STOPPED:
        return gettext(verb.explains)
    warning = gettext(
        "This topic is no longer mirrored. Applications may have written to it since %(time)s; these records exist in no other "
        "topic."
    )
    return f"{warning % {'time': exact(since)}} {gettext(verb.explains)}"


def needs_typed_name(event: MirrorEvent, *, bidirectional: bool) -> bool:
    """Return True if the user must type the topic name: for irreversible operations, and promotions on one-way links."""
    return VERBS[event].danger or (event is _E.PROMOTE and not bidirectional)


def reversibility(event: MirrorEvent, *, bidirectional: bool) -> str:
    """Return whether an operation is reversible, which depends on the link mode; "" if nothing needs to be said."""
    if event is _E.DELETE:
        return gettext("This cannot be undone.")
    if event not in {_E.PROMOTE, _E.FAILOVER}:
        return ""
    if bidirectional:
        return gettext("The link is bidirectional: the source topic can become a mirror of this topic afterwards.")
    return gettext("This cannot be undone: a stopped topic cannot become a mirror again on this link.")
