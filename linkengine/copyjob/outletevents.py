"""The callbacks that a destination broker's producer uses to reach the rest of the copy loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from linkengine.copyjob.partition import MirrorPartition
from linkengine.domain.errors import LinkEngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class OutletEvents:
    """Callbacks of ``MirrorBroker`` and its fillers."""

    may_write: Callable[[MirrorPartition], bool]  # whether the lease is valid now
    arm: Callable[[list[MirrorPartition]], None]  # record in the lease that markers will be sent, before they are
    advanced: Callable[[MirrorPartition], None]  # an append was acknowledged, or the next records can be fetched
    interrupted: Callable[[MirrorPartition, LinkEngineError], None]  # the partition has to resume
    failed: Callable[[MirrorPartition, LinkEngineError], None]  # permanently
    lost: Callable[[list[MirrorPartition], LinkEngineError], None]  # the connection to the broker
