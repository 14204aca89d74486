"""Maps states and ids of this product to those of the Kafka REST interface. The tables are checked at import."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from linkengine.domain.states import LinkState, MirrorState

LINK_PAUSED = "LINK_PAUSED"
_S = MirrorState
# The interface has no PENDING_SETUP, so such a mirror is ACTIVE, and its name for PENDING_RESTORE_MIRROR differs.
MIRROR_STATUS: Mapping[MirrorState, str] = {
    **{state: state.value for state in MirrorState},
    _S.PENDING_SETUP: "ACTIVE",
    _S.PENDING_RESTORE_MIRROR: "PENDING_RESTORE",
}
MIRROR_STATUSES: tuple[str, ...] = tuple(dict.fromkeys([*MIRROR_STATUS.values(), LINK_PAUSED]))
# Mirrors in these states have the status LINK_PAUSED while the link is paused; the other states are more specific.
_PAUSED_WITH_THE_LINK = frozenset({_S.PENDING_SETUP, _S.ACTIVE, _S.SOURCE_UNAVAILABLE, _S.LINK_FAILED})

CATEGORY: Mapping[str, str] = {
    "ACTIVE": "ACTIVE",
    "PAUSED": "PAUSED",
    LINK_PAUSED: "PAUSED",
    "PENDING_SYNCHRONIZE": "PENDING",
    "PENDING_MIRROR": "PENDING",
    "PENDING_SETUP_FOR_RESTORE": "PENDING",
    "PENDING_RESTORE": "PENDING",
    "PENDING_STOPPED": "PENDING",
    "STOPPED": "NOT_APPLICABLE",
    "SOURCE_UNAVAILABLE": "IN_ERROR",
    "LINK_FAILED": "IN_ERROR",
    "FAILED": "IN_ERROR",
}
if set(CATEGORY) != set(MIRROR_STATUSES):
    raise AssertionError("every status needs a category")


def mirror_status(state: str, *, link_state: str) -> str:
    """Return the status of a mirror in the Kafka REST interface."""
    own = MirrorState(state)
    if link_state == LinkState.PAUSED and own in _PAUSED_WITH_THE_LINK:
        return LINK_PAUSED
    return MIRROR_STATUS[own]


def short_id(link_uuid: UUID) -> str:
    """Return an id as Kafka's Uuid class does: 22 characters of base64url."""
    return base64.urlsafe_b64encode(link_uuid.bytes).decode().rstrip("=")


def unix_ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
