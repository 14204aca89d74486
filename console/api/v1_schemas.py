"""Responses of ``/api/v1``. The serializers render the responses and describe them in the OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from console.api.schema import OffsetField, list_of
from console.models import GapRange, MirrorPartition, StateTransition, VerifiedRange, VerifyRun
from console.models.mirrors import UNSEEN, is_fresh

Text, Number, Time = serializers.CharField, serializers.IntegerField, serializers.DateTimeField


class RecordDifference(serializers.Serializer[Any]):
    """A record that differs between mirror and source."""

    partition = Number()
    offset = OffsetField()
    kind = Text(help_text="What differs: key, value, headers, timestamp; or missing, or extra.")
    source_value = Text(allow_null=True, help_text="Null without the permission to read records (role DeveloperManage).")
    mirror_value = Text(allow_null=True, help_text="As source_value.")

    def to_representation(self, instance: Any) -> dict[str, Any]:
        """Set the record's contents to null unless the context has ``reads_records``."""
        values: dict[str, Any] = super().to_representation(instance)
        return values if self.context.get("reads_records") else values | {"source_value": None, "mirror_value": None}


class OffsetRangeData(serializers.Serializer[Any]):
    """A range of offsets of a partition."""

    partition = Number()
    start = OffsetField()
    end = OffsetField(help_text="Exclusive.")


class VerifyRunData(serializers.ModelSerializer[VerifyRun]):
    """A verification run: a comparison of a mirror with its source, record by record."""

    status = serializers.ChoiceField(
        choices=VerifyRun.Status.values, help_text="ERROR: the run itself failed; the data may be equal or different."
    )
    records_compared = OffsetField(allow_null=True)
    differences = OffsetField(allow_null=True)
    bytes_compared = OffsetField(allow_null=True)
    duration_ms = OffsetField(allow_null=True)
    not_copied = OffsetField(
        allow_null=True,
        help_text="Offsets that the source had when the run started and the mirror had not; they were not compared. Null if "
        "the mirror was stopped or the source's end was unknown.",
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
        """Return the stored triples as objects."""
        return [{"partition": partition, "start": start, "end": end} for partition, start, end in run.ranges]


VerifyRunDataList = list_of(VerifyRunData, "The mirror's verification runs, newest first.")


class VerifiedRangeData(serializers.ModelSerializer[VerifiedRange]):
    """A range of offsets that were compared; adjacent equal ranges are merged."""

    start = OffsetField()
    end = OffsetField(help_text="Exclusive.")
    records = OffsetField(
        allow_null=True, help_text="Number of records of the mirror in the range; null if a part of it was compared again."
    )
    hash = Text(help_text="128 bits, hexadecimal: the exclusive or of the hashes of all records; empty if unknown.")
    differences = OffsetField(help_text="Number of records that differ. Above 0, the range is not verified.")
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


VerifiedRangeDataList = list_of(VerifiedRangeData, "The mirror's verified ranges, by partition and offset.")


class CoverageData(serializers.Serializer[Any]):
    """How much of a partition is verified. Unknown is null, never 0."""

    partition = Number()
    start = OffsetField(allow_null=True, help_text="The higher of the log start offsets of source and mirror.")
    end = OffsetField(
        allow_null=True, help_text="The mirror's log end offset, or its mirrored end if it is stopped. Exclusive."
    )
    verified_to = OffsetField(allow_null=True, help_text="All offsets from start up to here were compared and are equal.")
    verified = OffsetField(allow_null=True, help_text="Number of offsets between start and end that were found equal.")
    unverified = OffsetField(
        allow_null=True, help_text="Number of offsets between start and end that differ or were not compared."
    )
    differences = OffsetField(help_text="Number of records that differ.")
    verified_at = Time(allow_null=True, help_text="Time of the last comparison.")


class ContinuousData(serializers.Serializer[Any]):
    """Continuous verification: new records are compared after they were copied."""

    enabled = serializers.BooleanField()
    next_at = Time(allow_null=True)
    finished_at = Time(allow_null=True, help_text="End of the last attempt.")
    duration_ms = OffsetField(allow_null=True)
    error_message = Text(help_text="Why the last attempt failed; the data may be equal or different.")


class VerificationData(serializers.Serializer[Any]):
    """How much of a mirror is verified."""

    continuous = ContinuousData()
    missing_beginnings = OffsetRangeData(
        many=True,
        help_text="Offsets that the source has below the mirror's log start offset, as last reported: they were deleted from "
        "the mirror and cannot be compared. Empty if the mirror has its own retention or is stopped.",
    )
    data: Any = CoverageData(many=True)


class GapData(serializers.ModelSerializer[GapRange]):
    """A range of offsets of the mirror that hold fillers instead of records."""

    start = OffsetField()
    end = OffsetField(help_text="Exclusive.")
    reason = Text(help_text="TRANSACTION_MARKER, ABORTED, COMPACTED, HEAD or LOST.")
    offsets = OffsetField(
        source="filled",
        help_text="Number of filled offsets. It is smaller than the range if records lie between fillers: ranges of a "
        "partition with many gaps are merged.",
    )
    before_ms = OffsetField(allow_null=True, help_text="LOST: timestamp of the last record before the range; null if unknown.")
    after_ms = OffsetField(allow_null=True, help_text="LOST: timestamp of the first record after the range; null if unknown.")

    class Meta:
        model = GapRange
        fields = ("partition", "start", "end", "offsets", "reason", "before_ms", "after_ms", "noted_at")


class GapTotal(serializers.Serializer[Any]):
    """The number of offsets that were filled for a reason."""

    reason = Text()
    ranges = Number()
    offsets = OffsetField()


class GapDataList(serializers.Serializer[Any]):
    """The mirror's gap ledger. ``totals`` count all gaps, ``data`` is a page of the ranges."""

    totals = GapTotal(many=True)
    data: Any = GapData(many=True)


class TransitionData(serializers.ModelSerializer[StateTransition]):
    """A state transition of a mirror."""

    class Meta:
        model = StateTransition
        fields = ("from_state", "to_state", "event", "by", "detail", "at")


TransitionDataList = list_of(TransitionData, "The mirror's state transitions, newest first.")


class MirrorPartitionData(serializers.ModelSerializer[MirrorPartition]):
    """The progress of a partition. Unknown is null, never 0."""

    source_start = OffsetField(allow_null=True)
    source_end = OffsetField(allow_null=True, help_text="The source's last stable offset.")
    source_seen_at = serializers.DateTimeField(
        source="last_source_seen_at",
        allow_null=True,
        help_text="When the partition's leader returned source_end. If that is too long ago, the lag is null.",
    )
    mirror_start = OffsetField(allow_null=True)
    mirror_end = OffsetField(allow_null=True)
    last_source_fetch_offset = OffsetField(allow_null=True)
    last_timestamp_ms = OffsetField(allow_null=True)
    bytes_copied = OffsetField()
    records_copied = OffsetField()
    lag = OffsetField(allow_null=True, help_text="Offsets up to the source's last stable offset, which can be copied now.")
    held_back = OffsetField(
        allow_null=True,
        help_text="Offsets after an open transaction on the source. They are not part of the lag and are copied when it ends.",
    )
    lag_bytes = OffsetField(allow_null=True, help_text="Estimated from the mean size of the records copied so far.")
    lag_ms = serializers.SerializerMethodField(help_text="Time since the mirror last had all records of the source.")
    bytes_per_s = serializers.SerializerMethodField(help_text="Null if the last report is too old.")
    records_per_s = serializers.SerializerMethodField(help_text="Null if the last report is too old.")
    stopped_end = OffsetField(
        allow_null=True, help_text="The mirrored end: up to here the stopped mirror has the source's records."
    )

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
        """Return the time lag in milliseconds: 0 if no record is missing, None if the lag is unknown."""
        now: datetime = self.context["now"]
        if row.missing == 0:
            return 0
        return None if row.lag is None else row.behind_ms(now)

    @extend_schema_field(serializers.FloatField(allow_null=True))
    def get_bytes_per_s(self, row: MirrorPartition) -> float | None:
        """Return the current rate, or None if the last report is too old."""
        return row.bytes_per_s if self._is_fresh(row) else None

    @extend_schema_field(serializers.FloatField(allow_null=True))
    def get_records_per_s(self, row: MirrorPartition) -> float | None:
        """Return the current rate in records, or None if the last report is too old."""
        return row.records_per_s if self._is_fresh(row) else None

    def _is_fresh(self, row: MirrorPartition) -> bool:
        return is_fresh(row.observed_at, now=self.context["now"], within=UNSEEN)


MirrorPartitionDataList = list_of(MirrorPartitionData, "The mirror's partitions.")


class LinkRates(serializers.Serializer[Any]):
    """Throughput and lag of a link. Unknown is null, never 0."""

    link_name = Text()
    link_state = Text()
    gap_filler = Text(help_text="How gaps are filled on the destination: markers or transactions.")
    mirrors = serializers.DictField(child=Number(), help_text="Number of mirror topics by status.")
    bytes_per_s = serializers.FloatField(allow_null=True)
    records_per_s = serializers.FloatField(allow_null=True)
    max_lag = OffsetField(allow_null=True)
    unknown_lag_partitions = Number(help_text="Number of partitions whose lag is unknown; above 0, max_lag is null.")
    lag_bytes = OffsetField(
        allow_null=True,
        help_text="Estimated sum of all partitions; null if the lag of a partition is unknown or it has copied nothing yet.",
    )
    oldest_lag_ms = OffsetField(allow_null=True, help_text="The largest time lag: the RPO of a failover now.")
