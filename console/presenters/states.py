"""The one table state -> label, icon, colour family, meaning and next step, for mirrors, links and clusters.

Badges, the legend of the help page and the tests read it; nobody else names a state for people. Words follow Confluent's
documentation of cluster linking; codes stay those of the REST API.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from console.presenters.looks import Family, Look
from linkengine.domain.states import LinkState, MirrorState, StopReason

_S = MirrorState


def _look(code: str, label: str, icon: str, family: Family, **words: str) -> Look:
    return Look(code=code, label=label, icon=icon, family=family, **words)


_MIRROR_LOOKS = (
    _look(
        _S.PENDING_SETUP,
        "Active · setting up",
        "hourglass-split",
        Family.BUSY,
        meaning="The topic is being created on the destination and made read-only; copying starts right after.",
        next_step="Nothing to do. If it stays like this, look at the errors below.",
    ),
    _look(
        _S.ACTIVE,
        "Active",
        "check-circle-fill",
        Family.OK,
        meaning="New records of the source topic are copied as they arrive, each at its own offset.",
        next_step="Promote it when producers have moved, or pause it to save bandwidth.",
    ),
    _look(
        _S.PAUSED,
        "Paused",
        "pause-circle-fill",
        Family.IDLE,
        meaning="Nothing is copied until somebody resumes it. The topic stays readable and read-only.",
        next_step="Resume it before the source's retention removes records that were not copied yet.",
    ),
    _look(
        _S.PENDING_SYNCHRONIZE,
        "Synchronizing (reverse)",
        "arrow-left-right",
        Family.BUSY,
        meaning="The direction is being reversed: both sides are read-only until the last record is copied.",
        next_step="Wait until both sides are equal, or fail over to stop waiting.",
    ),
    _look(
        _S.PENDING_MIRROR,
        "Becoming mirror",
        "arrow-left-right",
        Family.BUSY,
        meaning="The direction is being reversed: this topic is becoming the mirror of the other side.",
        next_step="Wait, or fail over to stop waiting.",
    ),
    _look(
        _S.PENDING_SETUP_FOR_RESTORE,
        "Preparing restore",
        "hourglass-split",
        Family.BUSY,
        meaning="Both sides are agreeing on the offset up to which their records are equal.",
        next_step="Wait, or fail over to stop waiting.",
    ),
    _look(
        _S.PENDING_RESTORE_MIRROR,
        "Truncating",
        "scissors",
        Family.BUSY,
        meaning="Records that exist on this side only are being set aside before mirroring starts again.",
        next_step="Wait, or fail over to stop waiting.",
    ),
    _look(
        _S.PENDING_STOPPED,
        "Promoting",
        "arrow-repeat",
        Family.BUSY,
        meaning="The last records, configs and partitions are being brought over; then the topic becomes writable.",
        next_step="Wait until the lag is 0. Failing over stops at once and gives up what was not copied.",
    ),
    _look(
        _S.STOPPED,
        "Stopped · writable",
        "stop-circle-fill",
        Family.DONE,
        meaning="Mirroring has ended. This is an ordinary topic that applications may write to.",
        next_step="Point producers at this topic. Deleting it here deletes the topic itself and what was written since.",
    ),
    _look(
        _S.SOURCE_UNAVAILABLE,
        "Source unreachable",
        "plug-fill",
        Family.WARN,
        meaning="No broker of the source cluster answers. Copying goes on by itself once one does.",
        next_step="Check the source cluster and the network. In a disaster, fail over.",
    ),
    _look(
        _S.LINK_FAILED,
        "Link failed",
        "link-45deg",
        Family.BAD,
        meaning="The source refuses the link's credentials, rights or settings, so nothing can be copied.",
        next_step="Correct the link's configuration; copying then goes on by itself.",
    ),
    _look(
        _S.FAILED,
        "Failed",
        "x-octagon-fill",
        Family.BAD,
        meaning="Mirroring has ended for a reason that does not mend itself.",
        next_step="Read the error. Fail over to keep what was copied as a writable topic, or delete it and begin again.",
    ),
)
MIRROR_LOOKS: Mapping[MirrorState, Look] = MappingProxyType({MirrorState(look.code): look for look in _MIRROR_LOOKS})

_FAILING_OVER = _look(
    _S.PENDING_STOPPED,
    "Failing over",
    "arrow-repeat",
    Family.BUSY,
    meaning="Mirroring is being stopped at the last copied record, without waiting for the source.",
    next_step="Nothing to do: the topic becomes writable within seconds.",
)

LINK_LOOKS: Mapping[LinkState, Look] = MappingProxyType(
    {
        LinkState.ACTIVE: _look(
            LinkState.ACTIVE,
            "Active",
            "check-circle-fill",
            Family.OK,
            meaning="The source cluster answered the last time it was asked.",
            next_step="Add mirror topics.",
        ),
        LinkState.PAUSED: _look(
            LinkState.PAUSED,
            "Paused",
            "pause-circle-fill",
            Family.IDLE,
            meaning="Somebody paused the whole link; none of its mirror topics is copied.",
            next_step="Set cluster.link.paused to false to go on.",
        ),
        LinkState.UNAVAILABLE: _look(
            LinkState.UNAVAILABLE,
            "Source unreachable",
            "plug-fill",
            Family.WARN,
            meaning="No broker of the source cluster answers. The link recovers by itself once one does.",
            next_step="Check the source cluster, the network and bootstrap.servers.",
        ),
        LinkState.FAILED: _look(
            LinkState.FAILED,
            "Failed",
            "x-octagon-fill",
            Family.BAD,
            meaning="The source refuses the link's credentials, rights or settings.",
            next_step="Edit the link's configuration; it is tried again at once.",
        ),
    }
)

CLUSTER_LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        "REACHABLE": _look(
            "REACHABLE", "Reachable", "check-circle-fill", Family.OK, meaning="The cluster answered the last look at it."
        ),
        "UNREACHABLE": _look(
            "UNREACHABLE",
            "Unreachable",
            "plug-fill",
            Family.WARN,
            meaning="The last look at the cluster failed.",
            next_step="Read the error; check network and credentials.",
        ),
        "UNKNOWN": _look(
            "UNKNOWN", "Not looked at yet", "hourglass-split", Family.DONE, meaning="No look at the cluster has finished yet."
        ),
    }
)


def mirror_look(state: str, stop_reason: str = "") -> Look:
    """Answer the look of a mirror; a stop without waiting reads otherwise than a promotion."""
    if state == MirrorState.PENDING_STOPPED and stop_reason == StopReason.FAILOVER:
        return _FAILING_OVER
    return MIRROR_LOOKS[MirrorState(state)]


def link_look(state: str) -> Look:
    return LINK_LOOKS[LinkState(state)]


def cluster_look(*, probed: bool, error_code: str) -> Look:
    """Answer the look of a cluster from its last probe."""
    if error_code:
        return CLUSTER_LOOKS["UNREACHABLE"]
    return CLUSTER_LOOKS["REACHABLE" if probed else "UNKNOWN"]


def needs_attention(look: Look) -> bool:
    return look.family in {Family.WARN, Family.BAD}


# Worst first; within a family by name. Lists of links and mirrors start with what a person should look at.
_RANK = (Family.BAD, Family.WARN, Family.BUSY, Family.IDLE, Family.OK, Family.DONE)


def severity(look: Look) -> int:
    """Answer a sort key: 0 is the worst family."""
    return _RANK.index(look.family)
