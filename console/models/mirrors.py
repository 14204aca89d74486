"""Mirror topics with their partitions, state transitions, errors, config reverts and gap ledger."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar, Self
from uuid import UUID

from django.db import models, transaction
from django.db.models import F, Q
from django.urls import reverse
from django.utils import timezone

from console.models.links import ClusterLink
from linkengine.domain.failover import estimated_bytes
from linkengine.domain.states import GapReason, MirrorState, StopReason
from linkengine.domain.times import AHEAD_MS

RECORDS_LOST = "RECORDS_LOST"  # lasting transition error: retention deleted records before they were copied
RECORDS_DIFFER = "RECORDS_DIFFER"  # lasting transition error: a verification run found records that differ
TOMBSTONES_MISSED = "TOMBSTONES_MISSED"  # lasting transition error: a compacted source may have deleted keys unnoticed
CONFIGS_REFUSED = "CONFIGS_REFUSED"  # the destination refused configs when the mirror was stopped; ends with a retry
DELETION_REFUSED = "DELETION_REFUSED"  # the destination refused to delete the topic; ends with the next operation
STAYING = (RECORDS_LOST, RECORDS_DIFFER, TOMBSTONES_MISSED)  # neither an action nor copying successfully removes these
KEPT = (*STAYING, CONFIGS_REFUSED, DELETION_REFUSED)  # copying successfully does not remove these
UNSEEN = timedelta(seconds=15)  # an older source end is outdated: the lag computed from it would be wrong, perhaps 0
# Tolerated clock skew. A value that was observed further ahead of now (a clock was set back since) counts as unknown: as the
# newest it would show a copy as alive and in sync for as long as the clock was set back.
AHEAD = timedelta(milliseconds=AHEAD_MS)
STATES = [(s.value, s.value) for s in MirrorState]


class MirrorTopicQuerySet(models.QuerySet["MirrorTopic"]):
    """Mirror topics."""

    def listed(self) -> Self:
        """Return those that lists and figures contain: all but the scratch copies of drills."""
        return self.filter(drill=None)

    def unstopped(self) -> Self:
        """Return those that are, or are to become, copies of their sources."""
        return self.exclude(state=MirrorState.STOPPED)

    def stoppable(self) -> Self:
        """Return those that a failover would stop: neither stopped nor being deleted."""
        return self.unstopped().filter(deletion_requested_at=None)

    def with_links(self, links: models.QuerySet[ClusterLink] | None = None) -> Self:
        """Load links, clusters and configs with the mirrors, by two more queries; mirrors of a link share an object.

        An object per mirror, with clusters and secrets to decrypt, would take seconds per thousand. ``links`` may have
        annotations for a reading user (``access.visibility.links_with_sight``).
        """
        links = ClusterLink.objects.all() if links is None else links
        loaded = links.select_related("destination__environment__organization", "source").prefetch_related("configs")
        return self.prefetch_related(models.Prefetch("link", queryset=loaded))


class MirrorTopic(models.Model):
    """A read-only, offset-preserving copy of a source topic, until it is stopped.

    ``state`` controls the mirror and changes only by compare-and-swap (``mirrors.transitions``); ``error_*`` only explain it.
    """

    link = models.ForeignKey(ClusterLink, on_delete=models.PROTECT, related_name="mirrors")
    # The link on which the mirror was created, set once it has moved to another. Leases and producer ids are derived from it
    # permanently, so that a late append of a previous copy worker meets the same producer id and sequence numbers. Null: the
    # mirror never moved.
    first_link_number = models.PositiveBigIntegerField(null=True, editable=False)
    first_link_uuid = models.UUIDField(null=True, editable=False)
    name = models.CharField(max_length=249)  # on the destination
    source_topic = models.CharField(max_length=249)
    source_topic_id = models.CharField(max_length=40, blank=True, default="")  # Kafka Uuid; "" until set up
    mirror_topic_id = models.CharField(max_length=40, blank=True, default="")
    state = models.CharField(max_length=30, choices=STATES, default=MirrorState.PENDING_SETUP)
    prior_state = models.CharField(max_length=30, choices=STATES, blank=True, default="")
    state_since = models.DateTimeField()
    operated_at = models.DateTimeField(null=True)  # last operation on it since its creation (``transitions.OPERATING``)
    stop_reason = models.CharField(max_length=10, choices=[(r.value, r.value) for r in StopReason], blank=True, default="")
    error_code = models.CharField(max_length=60, blank=True, default="")  # mirror_topic_error
    error_message = models.TextField(blank=True, default="")
    error_since = models.DateTimeField(null=True)  # first of an unbroken series of failures; start of the retry timeout
    retry_count = models.PositiveIntegerField(default=0)
    retry_at = models.DateTimeField(null=True)  # not before
    num_partitions = models.PositiveIntegerField(default=0)  # 0 until set up
    replication_factor = models.PositiveIntegerField(null=True)  # requested; null: the destination's default
    config_overrides = models.JSONField(default=dict, blank=True)
    start_spec = models.CharField(max_length=40, default="earliest")  # mirror.start.offset.spec as it was at the creation
    source_configs = models.JSONField(default=dict, blank=True)  # last known; applied when the topic is stopped
    was_compacted = models.BooleanField(
        default=False
    )  # either side was at some time: each may permanently lack records of the other
    # Last time at which the source was, or may have been, compacted or kept tombstones for a shorter time; and how long it kept
    # them.
    cleaned_until = models.DateTimeField(null=True)
    cleaned_kept_ms = models.BigIntegerField(null=True)
    read_only = models.BooleanField(default=True)  # False: the destination cannot deny writes
    drill = models.ForeignKey("Drill", on_delete=models.CASCADE, null=True, related_name="copies")  # a scratch copy, not listed
    auto_created = models.BooleanField(default=False)
    reversal = models.CharField(max_length=20, blank=True, default="")  # the reverse operation under way, on both sides
    holds_copy = models.BooleanField(default=True)  # False: still becoming a mirror, so its ends are not those of a copy
    drained_at = models.DateTimeField(null=True)  # a promotion saw zero lag and ordered the copy worker to release its leases
    fencing_at = models.DateTimeField(null=True)  # from then on no copy worker may write to the topic
    restoring_configs = models.BooleanField(
        default=False
    )  # a stop is to apply the source's configs; a later attempt continues it
    # when verified ranges were last removed: tombstones were missed, or offsets lost; runs that began before do not count
    ranges_removed_at = models.DateTimeField(null=True)
    deletion_requested_at = models.DateTimeField(null=True)  # the topic is being deleted; the row goes with it
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    objects = MirrorTopicQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["link", "name"], name="mirror_is_unique_on_its_link"),
            models.CheckConstraint(condition=Q(state__in=[s.value for s in MirrorState]), name="mirror_state_is_known"),
            models.CheckConstraint(
                condition=~Q(state=MirrorState.PENDING_STOPPED) | ~Q(stop_reason=""), name="stopping_has_a_reason"
            ),
        ]
        indexes = [models.Index(fields=["link", "state"], name="mirror_by_state")]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        """Return the URL of the mirror topic's page."""
        return reverse("pages:mirror", args=self.url_args)

    @property
    def url_args(self) -> tuple[str, str, str]:
        """Return the arguments of the URL patterns of a mirror topic's pages."""
        return (*self.link.url_args, self.name)

    @property
    def setup_trouble(self) -> StateTransitionError | None:
        """The last seen error that delays set-up; None for a mirror that is set up. No query if the errors are prefetched."""
        errors = self.transition_errors.all() if self.state == MirrorState.PENDING_SETUP else ()
        return max(errors, key=lambda error: error.last_seen_at, default=None)

    @property
    def engine_name(self) -> str:
        """The name in assignments, leases and progress reports; it stays when the mirror moves to another link."""
        return engine_name_of(self.pk, first=self.first_link_uuid, link=self.link.link_uuid)

    def ensure_partitions(self) -> list[MirrorPartition]:
        """Return the rows of all partitions. Missing rows are created."""
        rows = {row.partition: row for row in self.partitions.all()}
        missing = [number for number in range(self.num_partitions) if number not in rows]
        if missing:
            fresh = [MirrorPartition(mirror=self, partition=number) for number in missing]
            MirrorPartition.objects.bulk_create(fresh, ignore_conflicts=True)
            rows = {row.partition: row for row in MirrorPartition.objects.filter(mirror=self)}
        return [rows[number] for number in sorted(rows) if number < self.num_partitions]


def engine_name_of(pk: int, *, first: UUID | None, link: UUID) -> str:
    """Return ``MirrorTopic.engine_name`` from its parts, without a model instance."""
    return f"{(first or link).hex[:16]}-{pk}"


class MirrorPartition(models.Model):
    """Progress of a partition as last stored; ``console.mirrors.progress`` has the current values. Unknown is null, never 0."""

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="partitions")
    partition = models.PositiveIntegerField()
    source_start = models.BigIntegerField(null=True)
    source_end = models.BigIntegerField(null=True)  # last stable offset; null while the source is unavailable
    last_source_end = models.BigIntegerField(null=True)  # source_end as last seen, and when: for the loss of a failover
    last_source_seen_at = models.DateTimeField(null=True)
    last_high_watermark = models.BigIntegerField(null=True)  # of the source at that time; held back: last_source_end up to it
    mirror_start = models.BigIntegerField(null=True)
    mirror_end = models.BigIntegerField(null=True)
    last_source_fetch_offset = models.BigIntegerField(null=True)
    source_epoch = models.IntegerField(null=True)  # leader epoch of the source under which all below source_epoch_end was read
    source_epoch_end = models.BigIntegerField(null=True)
    last_timestamp_ms = models.BigIntegerField(null=True)
    caught_up_at = models.DateTimeField(null=True)  # when it last held all below the high watermark; the age of the lag
    # Last time at which it had everything that its source, or an earlier source, may clean; initially the start of the copy.
    # Tombstones that were written later were read, or will be read in time (``reconciling.gaps``).
    complete_at = models.DateTimeField(null=True)
    # False: at ``ClusterLink.in_sync_at`` or later it was in sync; that time is stored once for all such partitions of a link
    behind = models.BooleanField(default=True)
    # Span in which records were copied more than ten seconds after the mirror had everything. Whether that was too late is
    # unknown until the source's configs of that time are read.
    late_since = models.DateTimeField(null=True)
    late_until = models.DateTimeField(null=True)
    bytes_per_s = models.FloatField(null=True)
    records_per_s = models.FloatField(null=True)
    bytes_copied = models.BigIntegerField(default=0)  # since the creation of the mirror
    records_copied = models.BigIntegerField(default=0)
    worker_id = models.CharField(max_length=64, blank=True, default="", db_index=True)  # the copy worker it is assigned to
    # the copy run whose reports the next two counters are from; the former run's last report may be late
    copy_run_id = models.CharField(max_length=64, blank=True, default="")
    copy_run_bytes = models.BigIntegerField(default=0)
    copy_run_records = models.BigIntegerField(default=0)
    former_copy_run_id = models.CharField(max_length=64, blank=True, default="")
    former_bytes = models.BigIntegerField(default=0)
    former_records = models.BigIntegerField(default=0)
    phase = models.CharField(max_length=30, blank=True, default="")
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    observed_at = models.DateTimeField(null=True)
    stopped_end = models.BigIntegerField(null=True)  # mirrored end offset recorded at the fence
    fenced_end = models.BigIntegerField(null=True)  # offset of the fence; from stopped_end to it are foreign writes
    fence_epoch = models.IntegerField(null=True)  # leader epoch of the mirror under which the fence was at that offset
    since_ms = 0  # not stored: ``PartitionProgress.since_ms`` of the newest report
    complete_at_is_shared = False  # not stored: ``complete_at`` was taken from ``ClusterLink.in_sync_at``
    failed_again = False  # not stored: a further read of the source failed since the previous report

    class Meta:
        ordering = ["partition"]
        constraints = [
            models.UniqueConstraint(fields=["mirror", "partition"], name="partition_is_unique"),
            models.CheckConstraint(
                condition=Q(mirror_start__isnull=True) | Q(mirror_end__isnull=True) | Q(mirror_start__lte=F("mirror_end")),
                name="mirror_start_is_not_after_its_end",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.mirror_id}/{self.partition}"

    @property
    def lag(self) -> int | None:
        """Offsets the mirror can copy now; None while either end is unknown, or the source's was seen too long ago."""
        return self.lag_at(timezone.now())

    def lag_at(self, now: datetime) -> int | None:
        """Return ``lag`` at a time that the caller uses for other values, too."""
        if self.source_end is None or self.mirror_end is None or not shows_source_end(self.last_source_seen_at, now=now):
            return None
        return max(0, self.source_end - self.mirror_end)

    @property
    def held_back(self) -> int | None:
        """Offsets from the first open transaction on, which cannot be copied before it ends; None while the lag is unknown."""
        if self.lag is None or self.source_end is None or self.last_high_watermark is None:
            return None
        return max(0, self.last_high_watermark - self.source_end)

    @property
    def missing(self) -> int | None:
        """Offsets that a failover now would not copy, including markers and aborted records behind an open transaction."""
        lag = self.lag
        if lag is None or self.source_end is None or self.last_high_watermark is None:
            return None
        return lag + max(0, self.last_high_watermark - self.source_end)

    def behind_ms(self, now: datetime) -> int | None:
        """Return how long ago the mirror held everything its source had; None while that is unknown."""
        if self.caught_up_at is None or self.caught_up_at > now + AHEAD:
            return None
        return max(0, int((now - self.caught_up_at).total_seconds() * 1000))

    @property
    def lag_bytes(self) -> int | None:
        """Estimated bytes that the mirror still has to copy; None while the lag or the size of records is unknown."""
        return estimated_bytes(lag=self.lag, bytes_copied=self.bytes_copied, records_copied=self.records_copied)


def is_fresh(at: datetime | None, *, now: datetime, within: timedelta) -> bool:
    """Return whether ``at`` is at most ``within`` before now; False for a time more than AHEAD after now."""
    return at is not None and -AHEAD <= now - at <= within


def shows_source_end(seen_at: datetime | None, *, now: datetime, stop_at: datetime | None = None) -> bool:
    """Return whether a source end that was read at ``seen_at`` shows what the mirror lacks now, or lacked at ``stop_at``.

    It does if it was read at most ``UNSEEN`` before; not if it was never read, or was read more than AHEAD after now.
    """
    return seen_at is not None and (stop_at or now) - UNSEEN <= seen_at <= now + AHEAD


class StateTransition(models.Model):
    """A change of a mirror's state; written in the same transaction as the change."""

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="transitions")
    from_state = models.CharField(max_length=30, blank=True)  # "" for the creation
    to_state = models.CharField(max_length=30)
    event = models.CharField(max_length=30)
    by = models.CharField(max_length=150)  # a person, an API key or "engine"
    detail = models.TextField(blank=True, default="")
    at = models.DateTimeField()

    class Meta:
        # Not by ``at``: a request takes its time before it waits for the row, so a later request may be applied first.
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.from_state} -> {self.to_state}"


class StateTransitionErrorQuerySet(models.QuerySet["StateTransitionError"]):
    """Errors of mirrors."""

    def end(self, *, now: datetime) -> bool:
        """Delete the errors and keep them as ended errors. Return whether there were any.

        One statement if there are none, otherwise at most six for any number of mirrors. An error that ends again within
        ``EndedError.REPEATED`` extends its row, so a mirror that fails and recovers all the time fills no table.
        """
        if not self.exists():
            return False
        with transaction.atomic(savepoint=False):
            errors = list(self.order_by("pk").select_for_update())  # two workers that end an error keep it once
            ended = {
                (row.mirror_id, row.code): EndedError(
                    mirror_id=row.mirror_id, code=row.code, message=row.message, since=row.since, until=max(row.since, now)
                )
                for row in errors
            }
            recent = EndedError.objects.filter(mirror__in={mirror for mirror, _ in ended}, until__gt=now - EndedError.REPEATED)
            repeated = [row.pk for row in recent if ended.pop((row.mirror_id, row.code), None)]
            EndedError.objects.filter(pk__in=repeated).update(until=now)
            EndedError.objects.bulk_create(ended.values())
            self.model.objects.filter(pk__in=[row.pk for row in errors]).delete()
        return bool(errors)


class StateTransitionError(models.Model):
    """An error that delays a transition, for a person to resolve. ``end`` removes the row when the cause is gone."""

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="transition_errors")
    code = models.CharField(max_length=60)
    message = models.TextField()
    since = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    count = models.PositiveIntegerField(default=1)
    until: ClassVar[None] = None  # not ended
    objects = StateTransitionErrorQuerySet.as_manager()

    class Meta:
        ordering = ["since"]
        constraints = [models.UniqueConstraint(fields=["mirror", "code"], name="transition_error_code_is_unique")]

    def __str__(self) -> str:
        return self.code


class EndedError(models.Model):
    """An error of a mirror that is gone, for charts. Kept as long as the samples (``history.actions.forget_old``)."""

    REPEATED: ClassVar = timedelta(minutes=2)  # as long as a sample counts in a chart

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="ended_errors")
    code = models.CharField(max_length=60)
    message = models.TextField()
    since = models.DateTimeField()
    until = models.DateTimeField(db_index=True)
    last_seen_at: ClassVar[None] = None  # when it was gone is known
    count: ClassVar = 1

    class Meta:
        ordering = ["since"]
        indexes = [models.Index(fields=["mirror", "until"], name="ended_error_by_time")]

    def __str__(self) -> str:
        return self.code


class ConfigRevert(models.Model):
    """A config that was changed on the mirror topic and then set back, since it follows the source."""

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="config_reverts")
    name = models.CharField(max_length=249)
    found = models.TextField(null=True)  # noqa: DJ001 - null: it had been deleted, which differs from an empty value
    restored = models.TextField(blank=True)
    at = models.DateTimeField()

    class Meta:
        ordering = ["-at", "-id"]

    def __str__(self) -> str:
        return self.name


class GapRange(models.Model):
    """A gap: ``filled`` offsets within ``[start, end)`` of the mirror hold a filler for ``reason``; the others hold records.

    For LOST, ``before_ms`` and ``after_ms`` are the timestamps of the records before and after the gap.
    """

    mirror = models.ForeignKey(MirrorTopic, on_delete=models.CASCADE, related_name="gaps")
    partition = models.PositiveIntegerField()
    start = models.BigIntegerField()
    end = models.BigIntegerField()
    reason = models.CharField(max_length=30, choices=[(r.value, r.value) for r in GapReason])
    filled = models.BigIntegerField()
    before_ms = models.BigIntegerField(null=True)
    after_ms = models.BigIntegerField(null=True)
    noted_at = models.DateTimeField()  # last time the gap grew

    class Meta:
        ordering = ["partition", "start"]
        constraints = [
            models.UniqueConstraint(fields=["mirror", "partition", "start", "reason"], name="gap_is_noted_once"),
            models.CheckConstraint(condition=Q(start__lt=F("end")), name="gap_is_not_empty"),
            models.CheckConstraint(condition=Q(filled__gte=1) & Q(filled__lte=F("end") - F("start")), name="gap_is_filled"),
        ]

    def __str__(self) -> str:
        return f"{self.reason} [{self.start}, {self.end})"
