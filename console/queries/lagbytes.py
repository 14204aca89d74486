"""Lag of many partitions in bytes, estimated in the database from the mean size of the records that each has copied so far.

Unknown is None, never 0. A group is unknown if any of its partitions has an unknown lag, or lags and has copied
nothing yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Count, F, FloatField, Q, Sum
from django.db.models.functions import Cast

from console.models.mirrors import unknown_lags


def lag_bytes_columns(now: datetime) -> dict[str, Any]:
    """Return the annotations of a grouped query of partitions that ``lag_bytes`` reads."""
    behind = Q(source_end__gt=F("mirror_end"))
    lag, copied = Cast(F("source_end") - F("mirror_end"), FloatField()), Cast("bytes_copied", FloatField())
    return {
        "sized": Sum(lag * copied / F("records_copied"), filter=behind & Q(records_copied__gt=0)),
        "unsized": Count("pk", filter=unknown_lags(now) | (behind & Q(records_copied=0))),
    }


def lag_bytes(row: Mapping[str, Any]) -> int | None:
    """Return the estimate of a group; None if it is unknown or the group has no partitions."""
    if row.get("unsized", 1):
        return None
    return round(row["sized"] or 0)
