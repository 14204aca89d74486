"""What ``/api/v1`` answers; these serializers both write the answers and describe them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from console.api.fields import OffsetField
from console.models import GapRange, MirrorPartition, StateTransition, VerifiedRange, VerifyRun
from console.models.mirrors import UNSEEN, is_fresh

Text, Number, Time = serializers.CharField, serializers.IntegerField, serializers.DateTimeField


class RecordDifference(serializers.Serializer[Any]):
    """A record that is not the same on both sides."""

    partition = Number()
    offset = OffsetField()
    kind = Text(help_text="What differs: key, value, headers, timestamp; or missing, or extra.")
    source_value = Text(allow_null=True, help_text="Null without the right to read records (DeveloperManage).")
    mirror_value = Text(allow_null=True, help_text="As source_value.")

    def to_representation(self, instance: Any) -> dict[str, Any]:
        """Leave out what the records hold unless the context says ``reads_records``."""
        values: dict[str, Any] = super().to_representation(instance)
        return values if self.context.get("reads_records") else values | {"source_value": None, "mirror_value": None}


class OffsetRangeData(serializers.Serializer[Any]):
    """Offsets of a partition."""

    partition = Number()
    start = OffsetField()
    end = OffsetField(help_text="Exclusive.")


class VerifyRunData(serializers.ModelSerializer[VerifyRun]):
    """One comparison of a mirror with its source, record by record."""

    status = serializers.ChoiceField(
        choices=VerifyRun.Status.values, help_text="ERROR: the comparison itself failed, which says nothing about the data."
    )
    records_compared = OffsetField(allow_null=True)
    differences = OffsetField(allow_null=True)
    bytes_compared = OffsetField(allow_null=True)
    duration_ms = OffsetField(allow_null=True)
    not_copied = OffsetField(
        allow_null=True,
        help_text="Offsets that the source held when it began and the mirror did not: above 0, they were not compared. Null "
        "where the mirror had been stopped, or where the source ended was not known.",
    )
    first_differences = RecordDifference(many=True)
    ranges = serializers.SerializerMethodField()

    class Meta:
        model = VerifyRun
        fields = (
            "id",
            "status",
            "requested_by",
            "requested_at",
            "started_at",
            "finished_at",
            "records_compared",
            "differences",
            "bytes_compared",
            "duration_ms",
            "not_copied",
            "first_differences",
            "ranges",
            "error_message",
        )

    @extend_schema_field(OffsetRangeData(many=True))
    def get_ranges(self, run: VerifyRun) -> list[dict[str, int]]:
        """Name what the stored triples mean."""
        return [{"partition": partition, "start": start, "end": end} for partition, start, end in run.ranges]


class VerifyRunDataList(serializers.Serializer[Any]):
    """The mirror's verify runs, newest first."""

    data: Any = VerifyRunData(many=True)


class VerifiedRangeData(serializers.ModelSerializer[VerifiedRange]):
    """Offsets that were compared; equal neighbours are one range."""

    start = OffsetField()
    end = OffsetField(help_text="Exclusive.")
    records = OffsetField(allow_null=True, help_text="What the mirror held there; null where a part was compared anew.")
    hash = Text(help_text="128 bits, hexadecimal: the exclusive or of the hashes of all records; empty where it is not known.")
    differences = OffsetField(help_text="Above 0: these offsets are not verified, so many records differ.")
    first_difference = RecordDifference(allow_null=True)

    class Meta:
        model = VerifiedRange
        fields = (
            "partition",
            "start",
            "end",
            "records",
            "hash",
            "differences",
            "first_difference",
            "first_verified_at",
            "verified_at",
        )


class VerifiedRangeDataList(serializers.Serializer[Any]):
    """The ledger of a mirror's comparisons, by partition and offset."""

    data: Any = VerifiedRangeData(many=True)


class CoverageData(serializers.Serializer[Any]):
    """How far a partition was compared and found equal. Unknown is null, never 0."""

    partition = Number()
    start = OffsetField(allow_null=True, help_text="The higher of both sides' first offsets.")
    end = OffsetField(allow_null=True, help_text="The mirror's end, or where it was stopped. Exclusive.")
    verified_to = OffsetField(allow_null=True, help_text="From the start up to here everything was compared and is equal.")
    verified = OffsetField(allow_null=True, help_text="How many offsets between start and end are equal, wherever they lie.")
    unverified = OffsetField(allow_null=True, help_text="How many are not: they differ, or nobody has compared them.")
    differences = OffsetField(help_text="Records that differ.")
    verified_at = Time(allow_null=True, help_text="Last comparison.")


class ContinuousData(serializers.Serializer[Any]):
    """How new records are compared behind the copy."""

    enabled = serializers.BooleanField()
    next_at = Time(allow_null=True)
    finished_at = Time(allow_null=True, help_text="Last attempt.")
    duration_ms = OffsetField(allow_null=True)
    error_message = Text(help_text="Why the last attempt did not come about; this says nothing about the data.")


class VerificationData(serializers.Serializer[Any]):
    """How much of a mirror was compared."""

    continuous = ContinuousData()
    missing_beginnings = OffsetRangeData(
        many=True,
        help_text="What the source holds before the mirror's first offset, as last reported: deleted here, and looked at by no "
        "comparison. Empty where the mirror has a retention of its own, and once it has been stopped.",
    )
    data: Any = CoverageData(many=True)


class GapData(serializers.ModelSerializer[GapRange]):
    """Offsets of the mirror that hold a filler instead of a record."""

    start = OffsetField()
    end = OffsetField(help_text="Exclusive.")
    reason = Text(help_text="TRANSACTION_MARKER, ABORTED, COMPACTED, HEAD or LOST.")
    offsets = OffsetField(
        source="filled",
        help_text="How many are filled; fewer than the range has where records lie between, since a busy ledger gets coarser.",
    )
    before_ms = OffsetField(allow_null=True, help_text="LOST: timestamp of the last record before it, null while unknown.")
    after_ms = OffsetField(allow_null=True, help_text="LOST: timestamp of the first record after it, null while unknown.")

    class Meta:
        model = GapRange
        fields = ("partition", "start", "end", "offsets", "reason", "before_ms", "after_ms", "noted_at")


class GapTotal(serializers.Serializer[Any]):
    """How many offsets were filled for one reason."""

    reason = Text()
    ranges = Number()
    offsets = OffsetField()


class GapDataList(serializers.Serializer[Any]):
    """What was filled instead of copied; totals count all, ``data`` is one page of the ranges."""

    totals = GapTotal(many=True)
    data: Any = GapData(many=True)


class TransitionData(serializers.ModelSerializer[StateTransition]):
    """One step of a mirror's life."""

    class Meta:
        model = StateTransition
        fields = ("from_state", "to_state", "event", "by", "detail", "at")


class TransitionDataList(serializers.Serializer[Any]):
    """The mirror's history, newest first."""

    data: Any = TransitionData(many=True)


class MirrorPartitionData(serializers.ModelSerializer[MirrorPartition]):
    """How far one partition is. Unknown is null, never 0."""

    source_start = OffsetField(allow_null=True)
    source_end = OffsetField(allow_null=True, help_text="The source's last stable offset.")
    source_seen_at = serializers.DateTimeField(
        source="last_source_seen_at",
        allow_null=True,
        help_text="When its leader told that offset. The lag is null where it is old.",
    )
    mirror_start = OffsetField(allow_null=True)
    mirror_end = OffsetField(allow_null=True)
    last_source_fetch_offset = OffsetField(allow_null=True)
    last_timestamp_ms = OffsetField(allow_null=True)
    bytes_copied = OffsetField()
    records_copied = OffsetField()
    lag = OffsetField(allow_null=True, help_text="Up to the source's last stable offset: what can be copied now.")
    held_back = OffsetField(
        allow_null=True, help_text="Offsets behind an open transaction on the source, not part of the lag: copied once it ends."
    )
    lag_bytes = OffsetField(allow_null=True, help_text="Estimated from the mean size of the records copied so far.")
    lag_ms = serializers.SerializerMethodField(help_text="How long ago the mirror last held all the source had.")
    bytes_per_s = serializers.SerializerMethodField(help_text="Null where the report is old.")
    records_per_s = serializers.SerializerMethodField(help_text="Null where the report is old.")
    stopped_end = OffsetField(allow_null=True, help_text="Where the mirror ended when it was stopped.")

    class Meta:
        model = MirrorPartition
        fields = (
            "partition",
            "source_start",
            "source_end",
            "source_seen_at",
            "mirror_start",
            "mirror_end",
            "lag",
            "held_back",
            "lag_bytes",
            "lag_ms",
            "last_source_fetch_offset",
            "last_timestamp_ms",
            "caught_up_at",
            "bytes_per_s",
            "records_per_s",
            "bytes_copied",
            "records_copied",
            "phase",
            "observed_at",
            "stopped_end",
            "error_code",
            "error_message",
        )

    @extend_schema_field(serializers.IntegerField(allow_null=True))
    def get_lag_ms(self, row: MirrorPartition) -> int | None:
        """Answer 0 where nothing is missing, null while the lag is not known."""
        now: datetime = self.context["now"]
        if row.missing == 0:
            return 0
        return None if row.lag is None else row.behind_ms(now)

    @extend_schema_field(serializers.FloatField(allow_null=True))
    def get_bytes_per_s(self, row: MirrorPartition) -> float | None:
        """Answer the rate of now: what a copier said that has fallen silent since is none."""
        return row.bytes_per_s if self._is_heard(row) else None

    @extend_schema_field(serializers.FloatField(allow_null=True))
    def get_records_per_s(self, row: MirrorPartition) -> float | None:
        """Answer the same of records."""
        return row.records_per_s if self._is_heard(row) else None

    def _is_heard(self, row: MirrorPartition) -> bool:
        return is_fresh(row.observed_at, now=self.context["now"], within=UNSEEN)


class MirrorPartitionDataList(serializers.Serializer[Any]):
    """The mirror's partitions."""

    data: Any = MirrorPartitionData(many=True)


class LinkRates(serializers.Serializer[Any]):
    """How fast a link copies and how far it is behind. Unknown is null, never 0."""

    link_name = Text()
    link_state = Text()
    gap_filler = Text(help_text="How offsets without a record are filled at the destination: markers or transactions.")
    mirrors = serializers.DictField(child=Number(), help_text="Number of mirror topics by status.")
    bytes_per_s = serializers.FloatField(allow_null=True)
    records_per_s = serializers.FloatField(allow_null=True)
    max_lag = OffsetField(allow_null=True)
    unknown_lag_partitions = Number(help_text="Partitions whose lag nobody knows now; above 0, max_lag is null.")
    lag_bytes = OffsetField(
        allow_null=True, help_text="All partitions together, estimated; null while one is unknown or has copied nothing yet."
    )
    oldest_lag_ms = OffsetField(allow_null=True, help_text="The RPO that a failover would have now.")
