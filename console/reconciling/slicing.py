"""The registry of copy slices: rows in, decision of ``linkengine.domain.slices``, rows out; and the orders to running tasks."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from random import random

from django.db.models import F

from console.models import ClusterLink, CopySlice, MirrorPartition, MirrorTopic
from console.reconciling.phases import Verdict
from console.reconciling.plans import TUNING, mirror_key
from linkengine.domain.errors import ErrorCode
from linkengine.domain.moments import is_due, is_recent
from linkengine.domain.plans import PartitionPhase, PartitionProgress, life_of
from linkengine.domain.slices import START_MS, NewSlice, RunningSlice, decide_slices
from linkengine.domain.states import COPYING, LinkState, MirrorState, StopReason

BACKOFF_S = 1.0  # after the first failure of the copy engine; doubles
LONGEST_BACKOFF_S = 30.0
LONGEST_BACKOFF = timedelta(seconds=1.25 * LONGEST_BACKOFF_S)  # with what is added by chance
SHORT = timedelta(seconds=3)  # a job that is over sooner did not copy; without a pause the next would follow at once
START = timedelta(milliseconds=START_MS)
HELD_AFTER = timedelta(seconds=1)  # what waits for a slice says so in Redis before it takes it; twice sure
RESEND_AFTER_MS = 2_000  # a job that no worker took until then was lost on the way to it
KEEP = timedelta(hours=1)  # rows of finished slices, for people who look into trouble


def is_wanted(mirror: MirrorTopic, link: ClusterLink) -> bool:
    """Tell whether the mirror shall be copied now. A stopping one only while its promotion drains."""
    if link.error_code == ErrorCode.REMOTE_LINK_NOT_FOUND_ERROR:  # whoever opens the connections is not there
        return False
    if link.state == LinkState.PAUSED or mirror.deletion_requested_at is not None or not mirror.num_partitions:
        return False
    state = MirrorState(mirror.state)
    if state is MirrorState.PENDING_STOPPED:
        draining = mirror.drained_at is None and mirror.fencing_at is None
        return mirror.stop_reason == StopReason.PROMOTE and draining
    return state in COPYING


def orders_for(link: ClusterLink, mirrors: Collection[MirrorTopic]) -> dict[str, bool]:
    """Answer, by the engine's name of a mirror, whether running tasks go on."""
    return {mirror_key(mirror): is_wanted(mirror, link) for mirror in mirrors}


def lives_of(mirrors: Collection[MirrorTopic]) -> dict[str, str]:
    """Answer, by the engine's name of a mirror, which topics it joins now: whatever was planned for others ends."""
    return {mirror_key(one): life_of(one.source_topic_id, one.mirror_topic_id) for one in mirrors}


def of_these_lives(mirrors: Collection[MirrorTopic], reports: Iterable[PartitionProgress]) -> list[PartitionProgress]:
    """Leave reports out that tell of topics which a mirror does not join any more: a restore made one anew since."""
    lives = lives_of(mirrors)
    return [one for one in reports if one.life in {"", lives.get(one.key.rpartition("/")[0], "")}]


def hold_of(slice_id: str) -> str:
    """Name what a worker holds (``console.store``) for as long as one of its threads waits for the slice."""
    return f"slice:{slice_id}"


def starting(*, link: ClusterLink, now: datetime) -> list[str]:
    """List the slices that a worker took and that may not have reached Spark yet: what became of it matters."""
    rows = CopySlice.objects.filter(link=link, finished_at=None, started_at__gte=now - START, taken_at__lt=now - HELD_AFTER)
    return list(rows.values_list("slice_id", flat=True))


def next_slices(
    *,
    link: ClusterLink,
    wanted: Collection[str],
    rows: Mapping[str, MirrorPartition],
    now: datetime,
    orphans: Collection[str] = (),
) -> list[CopySlice]:
    """Decide what to submit now, note it, and answer what to send. Call it under the link's lock only.

    ``orphans`` are slices whose worker is gone: it does not wait for them, and may not have brought them to Spark.
    """
    known = list(CopySlice.objects.filter(link=link, finished_at=None))
    decision = decide_slices(
        wanted=wanted,
        running=[_running(one, orphaned=one.slice_id in orphans) for one in known],
        last_seen_ms={key: _ms(row.observed_at) for key, row in rows.items() if row.observed_at is not None},
        released={key: row.slice_id for key, row in rows.items() if row.phase == PartitionPhase.RELEASED},
        revision=link.revision,
        now_ms=_ms(now),
        tuning=TUNING,
    )
    for one in known:
        _note_answering(one, decision.answering[one.slice_id], now=now)
    silent = next((one for one in known if one.slice_id in decision.silent), None)
    if silent is not None:
        _note_failure(link, error=_why_silent(silent), now=now)
    lost = [one for one in known if one.taken_at is None and not _is_young(one, now=now)]
    if not is_due(link.engine_retry_at, now=now, longest=LONGEST_BACKOFF):
        return lost
    return [*lost, *(_create(link, new, now=now) for new in decision.submit)]


def take(*, slice_id: str, now: datetime) -> CopySlice | None:
    """Take a slice to Spark; answer None if it is somebody else's or over already."""
    rows = CopySlice.objects.filter(slice_id=slice_id, finished_at=None, taken_at=None, ends_at__gt=now)
    if not rows.update(taken_at=now):
        return None
    found = CopySlice.objects.select_related("link__destination", "link__source").filter(slice_id=slice_id)
    return found.prefetch_related("link__configs").first()


def note_finished(*, row: CopySlice, error: str, now: datetime) -> None:
    """Keep what came of a slice. A failure of the engine is shown on the link and makes the next job wait."""
    CopySlice.objects.filter(pk=row.pk).update(finished_at=now, error=error)
    links = ClusterLink.objects.filter(pk=row.link_id)
    if not error:
        links.exclude(engine_error="").update(engine_error="", sequence=F("sequence") + 1)
        links.update(engine_failures=0, engine_retry_at=now + SHORT if now - row.started_at < SHORT else None)
        return
    _note_failure(row.link, error=error, now=now)


def note_copying(
    *, link: ClusterLink, heard: Collection[tuple[Verdict | None, Iterable[MirrorPartition]]], now: datetime
) -> bool:
    """Forget that the engine failed once records flow again; answer whether it had. ``heard``: of all mirrors to be copied.

    One that is copied says nothing of a job for others, which may fail again and again. Nor do the last reports of a dead job.
    """
    if not link.engine_error or not is_due(link.engine_retry_at, now=now, longest=LONGEST_BACKOFF):
        return False
    if not any(verdict and verdict.phase is PartitionPhase.COPYING for verdict, _ in heard):
        return False
    living = set(CopySlice.objects.filter(link=link, finished_at=None).values_list("slice_id", flat=True))
    if any(verdict is None or any(row.slice_id not in living for row in rows) for verdict, rows in heard):
        return False
    values = {"engine_error": "", "engine_failures": 0, "engine_retry_at": None}
    return bool(ClusterLink.objects.filter(pk=link.pk).update(**values))


def forget_old(*, now: datetime) -> None:
    """Delete rows of slices that ended long ago, and whose endings were taken in."""
    CopySlice.objects.filter(ends_at__lt=now - KEEP, endings="").delete()


def _note_answering(row: CopySlice, keys: frozenset[str], *, now: datetime) -> None:
    if not keys:
        CopySlice.objects.filter(pk=row.pk, finished_at=None).update(keys=[], finished_at=now)
    elif keys != set(row.keys):
        CopySlice.objects.filter(pk=row.pk).update(keys=sorted(keys))


def _create(link: ClusterLink, new: NewSlice, *, now: datetime) -> CopySlice:
    return CopySlice.objects.create(
        link=link,
        slice_id=uuid.uuid4().hex,
        revision=link.revision,
        keys=list(new.keys),
        started_at=now,
        ends_at=datetime.fromtimestamp(new.ends_at_ms / 1000, tz=UTC),
    )


def _note_failure(link: ClusterLink, *, error: str, now: datetime) -> None:
    links = ClusterLink.objects.filter(pk=link.pk)
    link.engine_failures = (links.values_list("engine_failures", flat=True).first() or 0) + 1
    longest_s = min(LONGEST_BACKOFF_S, BACKOFF_S * 2 ** (link.engine_failures - 1))
    link.engine_retry_at = now + timedelta(seconds=longest_s * (0.75 + random() / 2))  # noqa: S311 - spreads retries
    link.engine_error = f"Copy engine unavailable: {error}"
    links.update(
        engine_error=link.engine_error,
        engine_failures=link.engine_failures,
        engine_retry_at=link.engine_retry_at,
        sequence=F("sequence") + 1,
    )


def _is_young(row: CopySlice, *, now: datetime) -> bool:
    return is_recent(_ms(row.started_at), now_ms=_ms(now), within_ms=RESEND_AFTER_MS)


def _why_silent(row: CopySlice) -> str:
    if row.taken_at is None:
        return "No thread of a worker has taken the copy job. Start another worker, or raise CLUSTERLINK_WORKER_THREADS."
    return (
        f"Nothing has been heard of copy job {row.slice_id} for too long. Spark may hang, or have no free task slots: "
        "look at its server, and restart it if it answers nothing."
    )


def _running(row: CopySlice, *, orphaned: bool) -> RunningSlice:
    return RunningSlice(
        slice_id=row.slice_id,
        revision=row.revision,
        started_at_ms=_ms(row.started_at),
        ends_at_ms=_ms(row.ends_at),
        keys=frozenset(row.keys),
        orphaned=orphaned,
    )


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
