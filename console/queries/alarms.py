"""Prometheus metrics of conditions that need a person: lasting alarms of mirrors, and copy workers that no longer report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Q, QuerySet

from console.mirrors import progress
from console.mirrors.progress import EXPECTED, CurrentMirror
from console.models import ClusterLink, MirrorTopic
from console.models.mirrors import KEPT
from linkengine.domain.errors import ErrorCode
from linkengine.domain.states import LinkState

Sample = tuple[dict[str, str], float]
_Metric = tuple[str, str, str, list[Sample]]


def alarm_samples() -> list[_Metric]:
    """Return, by link and lasting alarm (``KEPT``), the number of mirrors that show it, also if it is 0. One query."""
    columns = {code: Count("mirrors__transition_errors", filter=_shows(code)) for code in KEPT}
    named = ClusterLink.objects.order_by().values("name", cluster=F("destination__cluster_id"))
    rows: list[Any] = list(named.annotate(**columns))
    samples: list[Sample] = [
        ({"cluster": row["cluster"], "link": row["name"], "code": code}, row[code]) for row in rows for code in KEPT
    ]
    return [("clusterlink_alarms", "gauge", "Mirror topics that show an alarm which does not end automatically.", samples)]


def silence_samples(mirrors: Sequence[CurrentMirror], *, now: datetime) -> list[_Metric]:
    """Return the longest time without a report of any partition of each link; no sample if no partition is to be copied.

    A partition without any report counts from when it was to be copied, so that a copy that never begins is noticed. One query.
    """
    copied = set(_copied().values_list("pk", flat=True))
    found = _silences([mirror for mirror in mirrors if mirror.pk in copied], now=now)
    samples: list[Sample] = [({"cluster": cluster, "link": link}, silence_s) for (cluster, link), silence_s in found.items()]
    text = "Longest time without a report of any partition; no sample while no partition is to be copied."
    return [("clusterlink_copy_silence_seconds", "gauge", text, samples)]


def silences(*, now: datetime) -> dict[tuple[str, str], float]:
    """Return, by (cluster id, link), the longest time in seconds without a report of any partition to copy."""
    return _silences(progress.current(_copied(), now=now), now=now)


def _silences(mirrors: Iterable[CurrentMirror], *, now: datetime) -> dict[tuple[str, str], float]:
    since: dict[tuple[str, str], datetime] = {}
    for mirror in mirrors:
        place, began = (mirror.cluster_id, mirror.link), max(mirror.state_since, mirror.link_since)
        for row in mirror.partitions:
            # ``progress`` has set a time ahead of now to None.
            reported_at = began if row.observed_at is None else max(began, row.observed_at)
            since[place] = min(since.get(place, reported_at), reported_at)
    return {place: max(0.0, (now - at).total_seconds()) for place, at in since.items()}


def _shows(code: str) -> Q:
    return Q(mirrors__drill=None, mirrors__transition_errors__code=code)


def _copied() -> QuerySet[MirrorTopic]:
    """Return the mirrors to copy, as ``reconciling.placing.is_wanted``, of ACTIVE links: other link states are visible."""
    absent = Q(link__error_code=ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR)
    return MirrorTopic.objects.filter(EXPECTED & ~absent, link__state=LinkState.ACTIVE)
