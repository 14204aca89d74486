"""What a destination broker's part of the loop asks of the rest, and tells it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from linkengine.copyjob.partition import MirrorPartition
from linkengine.domain.errors import LinkEngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class OutletEvents:
    """What the mirror side asks of and tells the loop."""

    may_write: Callable[[MirrorPartition], bool]
    arm: Callable[[list[MirrorPartition]], None]  # markers will be sent: have the lease know it first
    advanced: Callable[[MirrorPartition], None]  # something was acknowledged, or there is room for another stretch
    interrupted: Callable[[MirrorPartition, LinkEngineError], None]  # resume it
    failed: Callable[[MirrorPartition, LinkEngineError], None]  # for good
    lost: Callable[[list[MirrorPartition], LinkEngineError], None]  # the broker
