"""The display of gap reasons, verification results, audit results and partition phases."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from console.presenters.badges import Badge, Family
from console.presenters.numbers import UNKNOWN
from linkengine.domain.states import GapReason

GAP_LOOKS: Mapping[GapReason, Badge] = MappingProxyType(
    {
        GapReason.TRANSACTION_MARKER: Badge(
            code=GapReason.TRANSACTION_MARKER,
            label="Transaction marker",
            icon="check-circle-fill",
            family=Family.DONE,
            meaning="The source has a commit or abort marker at this offset, not a record. No data is missing.",
        ),
        GapReason.ABORTED: Badge(
            code=GapReason.ABORTED,
            label="Aborted transaction",
            icon="check-circle-fill",
            family=Family.DONE,
            meaning="The source has records of an aborted transaction at these offsets. Consumers never see them.",
        ),
        GapReason.COMPACTED: Badge(
            code=GapReason.COMPACTED,
            label="Compacted",
            icon="check-circle-fill",
            family=Family.DONE,
            meaning="Log compaction on the source removed older values of a key.",
        ),
        GapReason.HEAD: Badge(
            code=GapReason.HEAD,
            label="Before the start",
            icon="check-circle-fill",
            family=Family.DONE,
            meaning="These offsets are below the start of the mirror: the source's first record, or the configured start.",
        ),
        GapReason.LOST: Badge(
            code=GapReason.LOST,
            label="Lost",
            icon="exclamation-triangle-fill",
            family=Family.BAD,
            meaning="The retention of the source deleted these records before they were copied. The mirror does not have them.",
            next_step="Set the source's retention longer than the longest outage or pause you expect.",
        ),
    }
)

VERIFY_LOOKS: Mapping[str, Badge] = MappingProxyType(
    {
        "QUEUED": Badge(
            code="QUEUED",
            label="Queued",
            icon="hourglass-split",
            family=Family.BUSY,
            meaning="The verification run waits for a free worker.",
        ),
        "RUNNING": Badge(
            code="RUNNING",
            label="Comparing",
            icon="arrow-repeat",
            family=Family.BUSY,
            meaning="Spark reads both topics and compares each record.",
        ),
        "EQUAL": Badge(
            code="EQUAL",
            label="Equal",
            icon="check-circle-fill",
            family=Family.OK,
            meaning="All compared records have the same offset, key, value, headers and timestamp.",
        ),
        "NOTHING": Badge(
            code="NOTHING",
            label="Nothing to compare",
            icon="dash-circle",
            family=Family.DONE,
            meaning="No records were compared: source and mirror had no records in common.",
        ),
        "DIFFERENT": Badge(
            code="DIFFERENT",
            label="Different",
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning="At least one record differs. The first differences are listed below.",
            next_step="Do not change either topic. Examine the listed offsets first.",
        ),
        "ERROR": Badge(
            code="ERROR",
            label="Error",
            icon="exclamation-triangle-fill",
            family=Family.WARN,
            meaning="The verification run failed. This does not mean that records differ.",
            next_step="Read the error, then run the verification again.",
        ),
    }
)

AUDIT_LOOKS: Mapping[str, Badge] = MappingProxyType(
    {
        "SUCCESS": Badge(
            code="SUCCESS", label="Success", icon="check-circle-fill", family=Family.OK, meaning="The change was made."
        ),
        "DENIED": Badge(
            code="DENIED", label="Denied", icon="shield-lock", family=Family.WARN, meaning="The actor's roles do not allow it."
        ),
        "FAILURE": Badge(
            code="FAILURE", label="Failed", icon="x-octagon-fill", family=Family.BAD, meaning="The change could not be made."
        ),
        "UNKNOWN": Badge(
            code="UNKNOWN",
            label="Unknown",
            icon="question-circle",
            family=Family.WARN,
            meaning="The change may or may not have been made: the worker did not respond.",
            next_step="Check the cluster before you repeat the change.",
        ),
    }
)

# The phases of a partition on a copy worker, for the partitions table.
PHASE_LABELS: Mapping[str, str] = MappingProxyType(
    {
        "": UNKNOWN,  # not reported yet
        "WAITING": "Waiting",
        "COPYING": "Copying",
        "SOURCE_UNREACHABLE": "Source unreachable",
        "DESTINATION_UNREACHABLE": "Destination unreachable",
        "LINK_BROKEN": "Link rejected by source",
        "FAILED": "Failed",
        "RELEASED": "Handed over",
    }
)
