"""The display of states, results and reasons: label, icon, colour family and texts. theme.css defines the colours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from django.template import Library
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import get_script_prefix, reverse
from django.utils.html import format_html
from django.utils.translation import get_language, gettext_noop

from console.web.numbers import UNKNOWN, Moment
from linkengine.domain.states import GapReason, LinkState, MirrorState, StopReason

if TYPE_CHECKING:
    from console.web.health_presenters import HealthView

# --- colour families and badges ---------------------------------------------------------------------------------------


class Family(StrEnum):
    """A colour family; ``static/css/states.css`` has a light and a dark pair for each, checked for contrast."""

    OK = "ok"  # works
    IDLE = "idle"  # paused by a user
    BUSY = "busy"  # in transition to another state
    DONE = "done"  # final
    WARN = "warn"  # needs attention; may recover automatically
    BAD = "bad"  # needs an action by a user


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """The label, icon and family of a code, with its meaning and the next step for the user. Pages translate the texts."""

    code: str
    label: str
    icon: str  # a name of static/icons.txt
    family: Family
    meaning: str
    next_step: str = ""


# --- tags for all templates -------------------------------------------------------------------------------------------
#
# A list has a hundred badges of a few kinds. To draw one from its template takes a tenth of a millisecond, so each kind is
# drawn once. Times, which are all different, are drawn without a template.


register = Library()


@register.simple_tag(name="badge")
def draw_badge(badge: Badge) -> str:
    """Return a badge in the language of the page."""
    return _drawn("parts/badge.html", get_language(), badge=badge)


@register.simple_tag(name="state_tag")
def draw_state_tag(badge: Badge) -> str:
    """Return the small neutral tag of a state, which stands beside a health, in the language of the page."""
    return _drawn("parts/state_tag.html", get_language(), badge=badge)


@register.simple_tag(name="health_state")
def draw_health_state(health: HealthView | None, badge: Badge) -> str:
    """Return a health and the state beside it, with a sentence if the health needs attention; without health the state only."""
    return _drawn("parts/health_state.html", get_language(), health=health, badge=badge)


@lru_cache(maxsize=1_000)
def _drawn(template: str, _language: str | None, **context: object) -> str:
    return render_to_string(template, context)


@register.simple_tag(name="time")
def draw_time(at: Moment | None) -> str:
    """Return a time, relative and exact; a dash for None."""
    if not at:
        return UNKNOWN
    return format_html('<time datetime="{}">{} <span class="exact">({})</span></time>', at.iso, at.relative, at.exact)


@register.simple_tag
def row_url(pattern: str, *args: object) -> str:
    """Return the URL of a pattern, as ``reverse`` and the tag ``url`` do. For rows of lists: polls need the same URLs again."""
    return _row_url(get_script_prefix(), pattern, args)


@lru_cache(maxsize=10_000)
def _row_url(_prefix: str, pattern: str, args: tuple[object, ...]) -> str:
    return reverse(pattern, args=args)


@register.simple_tag
@cache
def icons() -> str:
    """Return the address of the file with all icons."""
    return static("vendor/icons.svg")


# --- gap reasons, results and phases ----------------------------------------------------------------------------------


GAP_BADGES: Mapping[GapReason, Badge] = MappingProxyType(
    {
        GapReason.TRANSACTION_MARKER: Badge(
            code=GapReason.TRANSACTION_MARKER,
            label=gettext_noop("Transaction marker"),
            icon="check-circle-fill",
            family=Family.DONE,
            meaning=gettext_noop("The source has a commit or abort marker at this offset, not a record. No data is missing."),
        ),
        GapReason.ABORTED: Badge(
            code=GapReason.ABORTED,
            label=gettext_noop("Aborted transaction"),
            icon="check-circle-fill",
            family=Family.DONE,
            meaning=gettext_noop(
                "The source has records of an aborted transaction at these offsets. Consumers never see them."
            ),
        ),
        GapReason.COMPACTED: Badge(
            code=GapReason.COMPACTED,
            label=gettext_noop("Compacted"),
            icon="check-circle-fill",
            family=Family.DONE,
            meaning=gettext_noop("Log compaction on the source removed older values of a key."),
        ),
        GapReason.HEAD: Badge(
            code=GapReason.HEAD,
            label=gettext_noop("Before the start"),
            icon="check-circle-fill",
            family=Family.DONE,
            meaning=gettext_noop(
                "These offsets are below the start of the mirror: the source's first record, or the configured start."
            ),
        ),
        GapReason.LOST: Badge(
            code=GapReason.LOST,
            label=gettext_noop("Lost"),
            icon="exclamation-triangle-fill",
            family=Family.BAD,
            meaning=gettext_noop(
                "The retention of the source deleted these records before they were copied. The mirror does not have them."
            ),
            next_step=gettext_noop("Set the source's retention longer than the longest outage or pause you expect."),
        ),
    }
)

VERIFY_BADGES: Mapping[str, Badge] = MappingProxyType(
    {
        "QUEUED": Badge(
            code="QUEUED",
            label=gettext_noop("Queued"),
            icon="hourglass-split",
            family=Family.BUSY,
            meaning=gettext_noop("The verification run waits for a free worker."),
        ),
        "RUNNING": Badge(
            code="RUNNING",
            label=gettext_noop("Comparing"),
            icon="arrow-repeat",
            family=Family.BUSY,
            meaning=gettext_noop("Spark reads both topics and compares each record."),
        ),
        "EQUAL": Badge(
            code="EQUAL",
            label=gettext_noop("Equal"),
            icon="check-circle-fill",
            family=Family.OK,
            meaning=gettext_noop("All compared records have the same offset, key, value, headers and timestamp."),
        ),
        "NOTHING": Badge(
            code="NOTHING",
            label=gettext_noop("Nothing to compare"),
            icon="dash-circle",
            family=Family.DONE,
            meaning=gettext_noop("No records were compared: source and mirror had no records in common."),
        ),
        "DIFFERENT": Badge(
            code="DIFFERENT",
            label=gettext_noop("Different"),
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning=gettext_noop("At least one record differs. The first differences are listed below."),
            next_step=gettext_noop("Do not change either topic. Examine the listed offsets first."),
        ),
        "ERROR": Badge(
            code="ERROR",
            label=gettext_noop("Error"),
            icon="exclamation-triangle-fill",
            family=Family.WARN,
            meaning=gettext_noop("The verification run failed. This does not mean that records differ."),
            next_step=gettext_noop("Read the error, then run the verification again."),
        ),
    }
)

AUDIT_BADGES: Mapping[str, Badge] = MappingProxyType(
    {
        "SUCCESS": Badge(
            code="SUCCESS",
            label=gettext_noop("Success"),
            icon="check-circle-fill",
            family=Family.OK,
            meaning=gettext_noop("The change was made."),
        ),
        "DENIED": Badge(
            code="DENIED",
            label=gettext_noop("Denied"),
            icon="shield-lock",
            family=Family.WARN,
            meaning=gettext_noop("The actor's roles do not allow it."),
        ),
        "FAILURE": Badge(
            code="FAILURE",
            label=gettext_noop("Failed"),
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning=gettext_noop("The change could not be made."),
        ),
        "UNKNOWN": Badge(
            code="UNKNOWN",
            label=gettext_noop("Unknown"),
            icon="question-circle",
            family=Family.WARN,
            meaning=gettext_noop("The change may or may not have been made: the worker did not respond."),
            next_step=gettext_noop("Check the cluster before you repeat the change."),
        ),
    }
)

# The phases of a partition on a copy worker, for the partitions table.
PHASE_LABELS: Mapping[str, str] = MappingProxyType(
    {
        "": UNKNOWN,  # not reported yet
        "WAITING": gettext_noop("Waiting"),
        "COPYING": gettext_noop("Copying"),
        "SOURCE_UNREACHABLE": gettext_noop("Source unreachable"),
        "DESTINATION_UNREACHABLE": gettext_noop("Destination unreachable"),
        "LINK_BROKEN": gettext_noop("Link rejected by source"),
        "FAILED": gettext_noop("Failed"),
        "RELEASED": gettext_noop("Handed over"),
    }
)


# --- states -----------------------------------------------------------------------------------------------------------
#
# Label, icon, colour family, meaning and next step of each mirror, link and cluster state.
#
# This table is the only source of state texts for badges, the help page and the tests. The wording follows Confluent's
# documentation of cluster linking; the codes are those of the REST API.


_S = MirrorState


def _badge(code: str, label: str, icon: str, family: Family, **words: str) -> Badge:
    return Badge(code=code, label=label, icon=icon, family=family, **words)


_MIRROR_BADGES = (
    _badge(
        _S.PENDING_SETUP,
        gettext_noop("Active · setting up"),
        "hourglass-split",
        Family.BUSY,
        meaning=gettext_noop("The topic is being created on the destination and made read-only. Copying starts afterwards."),
        next_step=gettext_noop("No action needed. If this state persists, check the errors below."),
    ),
    _badge(
        _S.ACTIVE,
        gettext_noop("Active"),
        "check-circle-fill",
        Family.OK,
        meaning=gettext_noop("New records of the source topic are copied continuously, with the same offsets."),
        next_step=gettext_noop("Promote it after you stop the producers on the source, or pause it to save bandwidth."),
    ),
    _badge(
        _S.PAUSED,
        gettext_noop("Paused"),
        "pause-circle-fill",
        Family.IDLE,
        meaning=gettext_noop("Copying is paused. The topic remains readable and read-only."),
        next_step=gettext_noop("Resume it before the retention of the source deletes records that are not copied yet."),
    ),
    _badge(
        _S.PENDING_SYNCHRONIZE,
        gettext_noop("Synchronizing (reverse)"),
        "arrow-left-right",
        Family.BUSY,
        meaning=gettext_noop("The direction is being reversed. Both topics are read-only until the last record is copied."),
        next_step=gettext_noop("Wait until both topics are in sync, or fail over to stop waiting."),
    ),
    _badge(
        _S.PENDING_MIRROR,
        gettext_noop("Becoming mirror"),
        "arrow-left-right",
        Family.BUSY,
        meaning=gettext_noop(
            "The direction is being reversed. This topic is becoming a mirror of the topic on the other cluster."
        ),
        next_step=gettext_noop("Wait, or fail over to stop waiting."),
    ),
    _badge(
        _S.PENDING_SETUP_FOR_RESTORE,
        gettext_noop("Preparing restore"),
        "hourglass-split",
        Family.BUSY,
        meaning=gettext_noop("The offset up to which both topics have the same records is being determined."),
        next_step=gettext_noop("Wait, or fail over to stop waiting."),
    ),
    _badge(
        _S.PENDING_RESTORE_MIRROR,
        gettext_noop("Truncating"),
        "scissors",
        Family.BUSY,
        meaning=gettext_noop("Diverged records of this topic are being exported before mirroring starts again."),
        next_step=gettext_noop("Wait, or fail over to stop waiting."),
    ),
    _badge(
        _S.PENDING_STOPPED,
        gettext_noop("Promoting"),
        "arrow-repeat",
        Family.BUSY,
        meaning=gettext_noop("The last records, configs and partitions are being copied. The topic then becomes writable."),
        next_step=gettext_noop(
            "Wait until the lag is 0. A failover stops immediately and loses records that are not copied yet."
        ),
    ),
    _badge(
        _S.STOPPED,
        gettext_noop("Stopped · writable"),
        "stop-circle-fill",
        Family.DONE,
        meaning=gettext_noop("Mirroring has stopped. This is an ordinary, writable topic."),
        next_step=gettext_noop(
            "Point producers to this topic. Deleting it also deletes all records written since mirroring stopped."
        ),
    ),
    _badge(
        _S.SOURCE_UNAVAILABLE,
        gettext_noop("Source unreachable"),
        "plug-fill",
        Family.WARN,
        meaning=gettext_noop("No broker of the source cluster responds. Copying resumes automatically when one responds."),
        next_step=gettext_noop("Check the source cluster and the network. In a disaster, fail over."),
    ),
    _badge(
        _S.LINK_FAILED,
        gettext_noop("Link failed"),
        "link-45deg",
        Family.BAD,
        meaning=gettext_noop(
            "The source rejects the link's credentials, permissions or configuration, so nothing can be copied."
        ),
        next_step=gettext_noop("Correct the link's configuration. Copying then resumes automatically."),
    ),
    _badge(
        _S.FAILED,
        gettext_noop("Failed"),
        "x-octagon-fill",
        Family.BAD,
        meaning=gettext_noop("Mirroring has stopped because of an error that needs your action."),
        next_step=gettext_noop(
            "Read the error. Fail over to keep the copied records in a writable topic, or delete it and create it again."
        ),
    ),
)
MIRROR_BADGES: Mapping[MirrorState, Badge] = MappingProxyType({MirrorState(badge.code): badge for badge in _MIRROR_BADGES})

_FAILING_OVER = _badge(
    _S.PENDING_STOPPED,
    gettext_noop("Failing over"),
    "arrow-repeat",
    Family.BUSY,
    meaning=gettext_noop("Mirroring is being stopped at the last copied record. The source is not contacted."),
    next_step=gettext_noop("No action needed. The topic becomes writable within seconds."),
)

LINK_BADGES: Mapping[LinkState, Badge] = MappingProxyType(
    {
        LinkState.ACTIVE: _badge(
            LinkState.ACTIVE,
            gettext_noop("Active"),
            "check-circle-fill",
            Family.OK,
            meaning=gettext_noop("The source cluster is reachable."),
            next_step=gettext_noop("Add mirror topics."),
        ),
        LinkState.PAUSED: _badge(
            LinkState.PAUSED,
            gettext_noop("Paused"),
            "pause-circle-fill",
            Family.IDLE,
            meaning=gettext_noop("The link is paused. None of its mirror topics is copied."),
            next_step=gettext_noop("To resume it, set cluster.link.paused to false."),
        ),
        LinkState.UNAVAILABLE: _badge(
            LinkState.UNAVAILABLE,
            gettext_noop("Source unreachable"),
            "plug-fill",
            Family.WARN,
            meaning=gettext_noop(
                "No broker of the source cluster responds. The link recovers automatically when one responds."
            ),
            next_step=gettext_noop("Check the source cluster, the network and bootstrap.servers."),
        ),
        LinkState.FAILED: _badge(
            LinkState.FAILED,
            gettext_noop("Failed"),
            "x-octagon-fill",
            Family.BAD,
            meaning=gettext_noop("The source rejects the link's credentials, permissions or configuration."),
            next_step=gettext_noop("Edit the link's configuration. The link is then retried immediately."),
        ),
    }
)

CLUSTER_BADGES: Mapping[str, Badge] = MappingProxyType(
    {
        "REACHABLE": _badge(
            "REACHABLE",
            gettext_noop("Reachable"),
            "check-circle-fill",
            Family.OK,
            meaning=gettext_noop("The last connection to the cluster succeeded."),
        ),
        "UNREACHABLE": _badge(
            "UNREACHABLE",
            gettext_noop("Unreachable"),
            "plug-fill",
            Family.WARN,
            meaning=gettext_noop("The last connection to the cluster failed."),
            next_step=gettext_noop("Read the error. Check the network and the credentials."),
        ),
        "UNKNOWN": _badge(
            "UNKNOWN",
            gettext_noop("Not checked yet"),
            "hourglass-split",
            Family.DONE,
            meaning=gettext_noop("The cluster has not been checked yet."),
        ),
    }
)


def mirror_badge(state: str, stop_reason: str = "") -> Badge:
    """Return the display of a mirror state. PENDING_STOPPED reads "Failing over" or "Promoting", by the stop reason."""
    if state == MirrorState.PENDING_STOPPED and stop_reason == StopReason.FAILOVER:
        return _FAILING_OVER
    return MIRROR_BADGES[MirrorState(state)]


def link_badge(state: str) -> Badge:
    return LINK_BADGES[LinkState(state)]


def cluster_badge(*, probed: bool, error_code: str) -> Badge:
    """Return the display of a cluster by the result of its last probe."""
    if error_code:
        return CLUSTER_BADGES["UNREACHABLE"]
    return CLUSTER_BADGES["REACHABLE" if probed else "UNKNOWN"]
