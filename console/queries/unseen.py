"""Mirrors whose set-up has not created their partitions yet. They have no partition rows, and their lag is unknown.

A sum over partitions counts each of these mirrors as a further partition with unknown figures. Otherwise a link would show no
lag while a topic is still to be created.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Exists, OuterRef, Q

from console.models import MirrorPartition
from linkengine.domain.states import MirrorState

UNSEEN = Q(~Exists(MirrorPartition.objects.filter(mirror=OuterRef("pk")))) & ~Q(state=MirrorState.STOPPED)
_UNKNOWN = ("hidden", "lacking", "never", "held_unknown", "unsized")  # columns that count unknown values


def with_unseen(total: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return the sums of partitions with ``count`` unseen mirrors added to the numbers of unknown values."""
    return {**total, **{name: total.get(name, 0) + count for name in _UNKNOWN if count}}
