"""What the codes of results and reasons look like: gaps, verify runs, audit results, partition phases."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from console.presenters.looks import Family, Look
from console.presenters.numbers import UNKNOWN
from linkengine.domain.states import GapReason

GAP_LOOKS: Mapping[GapReason, Look] = MappingProxyType(
    {
        GapReason.TRANSACTION_MARKER: Look(
            code=GapReason.TRANSACTION_MARKER,
            label="Transaction marker",
            icon="check-circle-fill",
            family=Family.DONE,
            meaning="The source holds a commit or abort marker at this offset, not a record. No data is missing.",
        ),
        GapReason.ABORTED: Look(
            code=GapReason.ABORTED,
            label="Aborted transaction",
            icon="check-circle-fill",
            family=Family.DONE,
            meaning="The source holds data of a transaction that was aborted; consumers never see it.",
        ),
        GapReason.COMPACTED: Look(
            code=GapReason.COMPACTED,
            label="Compacted away",
            icon="check-circle-fill",
            family=Family.DONE,
            meaning="Compaction removed an older value of a key on the source.",
        ),
        GapReason.HEAD: Look(
            code=GapReason.HEAD,
            label="Before the start",
            icon="check-circle-fill",
            family=Family.DONE,
            meaning="These offsets lie below where the mirror began: the source's first record, or the start it was given.",
        ),
        GapReason.LOST: Look(
            code=GapReason.LOST,
            label="Lost",
            icon="exclamation-triangle-fill",
            family=Family.BAD,
            meaning="Retention removed these records on the source before they were copied. The mirror does not have them.",
            next_step="Raise the source's retention above the longest outage or pause you expect.",
        ),
    }
)

VERIFY_LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        "QUEUED": Look(
            code="QUEUED",
            label="Queued",
            icon="hourglass-split",
            family=Family.BUSY,
            meaning="The comparison waits for a free worker.",
        ),
        "RUNNING": Look(
            code="RUNNING",
            label="Comparing",
            icon="arrow-repeat",
            family=Family.BUSY,
            meaning="Spark reads both topics and compares every record.",
        ),
        "EQUAL": Look(
            code="EQUAL",
            label="Equal",
            icon="check-circle-fill",
            family=Family.OK,
            meaning="Every compared record has the same offset, key, value, headers and timestamp on both sides.",
        ),
        "NOTHING": Look(
            code="NOTHING",
            label="Nothing to compare",
            icon="dash-circle",
            family=Family.DONE,
            meaning="No record was compared: the source had none that the mirror could hold, or the mirror had none yet.",
        ),
        "DIFFERENT": Look(
            code="DIFFERENT",
            label="Different",
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning="At least one record differs; the first ones are listed below.",
            next_step="Keep both topics as they are and look at the listed offsets before anything else is changed.",
        ),
        "ERROR": Look(
            code="ERROR",
            label="Could not compare",
            icon="exclamation-triangle-fill",
            family=Family.WARN,
            meaning="The comparison itself failed; this says nothing about the data.",
            next_step="Read the message, then verify again.",
        ),
    }
)

AUDIT_LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        "SUCCESS": Look(
            code="SUCCESS", label="Done", icon="check-circle-fill", family=Family.OK, meaning="The change was made."
        ),
        "DENIED": Look(
            code="DENIED", label="Denied", icon="shield-lock", family=Family.WARN, meaning="The actor's roles do not allow it."
        ),
        "FAILURE": Look(
            code="FAILURE", label="Failed", icon="x-octagon-fill", family=Family.BAD, meaning="The change could not be made."
        ),
        "UNKNOWN": Look(
            code="UNKNOWN",
            label="Unknown",
            icon="question-circle",
            family=Family.WARN,
            meaning="It is not known whether the change was made: the worker did not report.",
            next_step="Look at the cluster before you repeat the change.",
        ),
    }
)

# What a copy task does with a partition, for the partitions table.
PHASE_LABELS: Mapping[str, str] = MappingProxyType(
    {
        "": UNKNOWN,  # no task has reported yet
        "WAITING": "Waiting for its turn",
        "COPYING": "Copying",
        "SOURCE_UNREACHABLE": "Source does not answer",
        "DESTINATION_UNREACHABLE": "Destination does not answer",
        "LINK_BROKEN": "Source refuses the link",
        "FAILED": "Failed",
        "RELEASED": "Handed over",
    }
)
