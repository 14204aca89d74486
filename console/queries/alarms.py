"""Prometheus metrics of conditions that need a person: lasting alarms of mirrors, and copy workers that no longer report."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Case, Count, F, Min, Q, QuerySet, When
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone

from console.models import ClusterLink, MirrorPartition, MirrorTopic
from console.models.mirrors import AHEAD, KEPT
from console.queries.linktasks import EXPECTED
from linkengine.domain.errors import ErrorCode
from linkengine.domain.states import LinkState

Sample = tuple[dict[str, str], float]
_Metric = tuple[str, str, str, list[Sample]]
_PLACE = {"link": F("mirror__link__name"), "cluster": F("mirror__link__destination__cluster_id")}


def alarm_samples() -> list[_Metric]:
    """Return, by link and lasting alarm (``KEPT``), the number of mirrors that show it, also if it is 0. One query."""
    columns = {code: Count("mirrors__transition_errors", filter=_shows(code)) for code in KEPT}
    named = ClusterLink.objects.order_by().values("name", cluster=F("destination__cluster_id"))
    rows: list[Any] = list(named.annotate(**columns))
    samples: list[Sample] = [
        ({"cluster": row["cluster"], "link": row["name"], "code": code}, row[code]) for row in rows for code in KEPT
    ]
    return [("clusterlink_alarms", "gauge", "Mirror topics that show an alarm which does not end automatically.", samples)]


def silence_samples() -> list[_Metric]:
    """Return the longest time without a report of any partition of each link; no sample if no partition is to be copied.

    A partition without any report counts from when it was to be copied, so that a copy that never begins is noticed. One query.
    """
    samples: list[Sample] = [
        ({"cluster": cluster, "link": link}, silence_s) for (cluster, link), silence_s in silences(now=timezone.now()).items()
    ]
    text = "Longest time without a report of any partition; no sample while no partition is to be copied."
    return [("clusterlink_copy_silence_seconds", "gauge", text, samples)]


def silences(*, now: datetime) -> dict[tuple[str, str], float]:
    """Return, by (cluster id, link), the longest time in seconds without a report of any partition to copy."""
    copied = MirrorPartition.objects.filter(mirror__in=_copied()).order_by().values(**_PLACE)
    rows: list[Any] = list(copied.annotate(since=Min(_last_report(now))))
    return {(row["cluster"], row["link"]): max(0.0, (now - row["since"]).total_seconds()) for row in rows}


def _shows(code: str) -> Q:
    return Q(mirrors__drill=None, mirrors__transition_errors__code=code)


def _copied() -> QuerySet[MirrorTopic]:
    """Return the mirrors to copy, as ``reconciling.placing.is_wanted``, of ACTIVE links: other link states are visible."""
    absent = Q(link__error_code=ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR)
    return MirrorTopic.objects.filter(EXPECTED & ~absent, link__state=LinkState.ACTIVE)


def _last_report(now: datetime) -> Greatest:
    """Return when a partition last reported, or else since when it is to be copied; a time ahead of now does not count."""
    began = Greatest("mirror__state_since", "mirror__link__state_since")
    reported = Case(When(observed_at__lte=now + AHEAD, then=F("observed_at")))
    return Greatest(Coalesce(reported, began), began)
