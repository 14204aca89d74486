"""The lag of many partitions in bytes, estimated in the database from the mean size of what each has copied so far.

Unknown is None, never 0: where one partition's lag is not known, or nothing of it was copied yet, nobody can say.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Count, F, FloatField, Q, Sum
from django.db.models.functions import Cast

from console.models.mirrors import unknown_lags


def lag_bytes_columns(now: datetime) -> dict[str, Any]:
    """Answer what to annotate a grouped query of partitions with, for ``lag_bytes`` to read."""
    behind = Q(source_end__gt=F("mirror_end"))
    lag, copied = Cast(F("source_end") - F("mirror_end"), FloatField()), Cast("bytes_copied", FloatField())
    return {
        "sized": Sum(lag * copied / F("records_copied"), filter=behind & Q(records_copied__gt=0)),
        "unsized": Count("pk", filter=unknown_lags(now) | (behind & Q(records_copied=0))),
    }


def lag_bytes(row: Mapping[str, Any]) -> int | None:
    """Answer the estimate of a group; None where it has no partitions."""
    if row.get("unsized", 1):
        return None
    return round(row["sized"] or 0)
