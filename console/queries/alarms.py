"""What needs a person, as figures for Prometheus: alarms that stand on mirrors, and copiers that have fallen silent."""

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
    """Answer how many mirrors of each link show each alarm that stays until a person ends it, be it 0. One query."""
    columns = {code: Count("mirrors__transition_errors", filter=_shows(code)) for code in KEPT}
    named = ClusterLink.objects.order_by().values("name", cluster=F("destination__cluster_id"))
    rows: list[Any] = list(named.annotate(**columns))
    samples: list[Sample] = [
        ({"cluster": row["cluster"], "link": row["name"], "code": code}, row[code]) for row in rows for code in KEPT
    ]
    return [("clusterlink_alarms", "gauge", "Mirror topics that show an alarm which does not end by itself.", samples)]


def silence_samples() -> list[_Metric]:
    """Answer for how long the most silent partition of each link was not heard of; no sample where none is to be copied.

    What was never heard of counts from when it was to be copied, so that a copy that never begins is noticed. One query.
    """
    samples: list[Sample] = [
        ({"cluster": cluster, "link": link}, silence_s) for (cluster, link), silence_s in silences(now=timezone.now()).items()
    ]
    text = "How long the most silent partition was not heard of; no sample where none is to be copied."
    return [("clusterlink_copy_silence_seconds", "gauge", text, samples)]


def silences(*, now: datetime) -> dict[tuple[str, str], float]:
    """Return by (cluster id, link) for how long the most silent partition to copy has not reported."""
    copied = MirrorPartition.objects.filter(mirror__in=_copied()).order_by().values(**_PLACE)
    rows: list[Any] = list(copied.annotate(since=Min(_heard(now))))
    return {(row["cluster"], row["link"]): max(0.0, (now - row["since"]).total_seconds()) for row in rows}


def _shows(code: str) -> Q:
    return Q(mirrors__drill=None, mirrors__transition_errors__code=code)


def _copied() -> QuerySet[MirrorTopic]:
    """Choose as the engine does (``reconciling.placing.is_wanted``); a link that is unavailable or failed says so itself."""
    absent = Q(link__error_code=ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR)
    return MirrorTopic.objects.filter(EXPECTED & ~absent, link__state=LinkState.ACTIVE)


def _heard(now: datetime) -> Greatest:
    """Answer when a partition was last told of, else since when it is to be copied; a time ahead of now tells nothing."""
    began = Greatest("mirror__state_since", "mirror__link__state_since")
    told = Case(When(observed_at__lte=now + AHEAD, then=F("observed_at")))
    return Greatest(Coalesce(told, began), began)
