"""Which operations on a mirror are possible now, and if not, why; topics that match an expression."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import re2
from django.utils.translation import gettext

from console.access import Permission
from console.errors import InvalidInputError
from console.links import pairs
from console.links.pairs import RelatedRows
from console.links.rules import auto_creates
from console.models import ClusterLink, MirrorTopic, StopReport
from linkengine.domain.errors import ErrorCode, IllegalTransitionError
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.mirrorjobs import FILLERS, RefusedStep
from linkengine.domain.states import (
    BIDIRECTIONAL_ONLY,
    OPERATIONS,
    LinkState,
    MirrorEvent,
    MirrorState,
    allowed_operations,
    next_state,
)

# --- possible operations ----------------------------------------------------------------------------------------------
#
# Used by actions, REST and buttons.


_E = MirrorEvent
# In the order of buttons.
OFFERED = (
    _E.PAUSE,
    _E.RESUME,
    _E.PROMOTE,
    _E.FAILOVER,
    _E.REVERSE_AND_START,
    _E.REVERSE_AND_PAUSE,
    _E.RESTORE,
    _E.RECOVER,
    _E.DELETE,
)
_REVERSALS = (_E.REVERSE_AND_START, _E.REVERSE_AND_PAUSE)
# Failures whose cause can be removed, after which the offsets still have the same meaning.
RECOVERABLE = {
    ErrorCode.AUTHORIZATION_ERROR,
    ErrorCode.AUTHENTICATION_ERROR,
    ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED,
    ErrorCode.CORRUPT_RECORDS,  # an intact replica is the leader now
    ErrorCode.UNSUPPORTED_MESSAGE_FORMAT,  # retention has deleted the records from the source
    "",
}


def permission_for(operation: MirrorEvent) -> Permission:
    """Return the permission that an operation requires."""
    return Permission.MANAGE_MIRROR if operation is _E.DELETE else Permission.OPERATE_MIRROR


def why_not(mirror: MirrorTopic, operation: MirrorEvent, *, related: RelatedRows | None = None) -> str:
    """Return why an operation is not possible now, "" if it is. The text is also the hint of a disabled button.

    Translated on pages; workers and REST requests use English, so stored reasons are English. ``related`` are the rows of
    several mirrors of the link, for a page that shows the reasons of all of them.
    """
    related = RelatedRows([mirror]) if related is None else related
    for rule in _RULES:
        reason = rule(mirror, operation, related)
        if reason:
            return reason
    return ""


def refused_steps(mirror: MirrorTopic) -> list[RefusedStep]:
    """Return the steps that the destination refused at the newest stop and no retry has resolved; [] while it is a mirror."""
    if mirror.state != MirrorState.STOPPED:
        return []
    report = StopReport.objects.filter(mirror=mirror).first()
    return report.unresolved if report is not None else []


def why_not_retry(mirror: MirrorTopic) -> str:
    """Return why configs that were refused at the stop cannot be retried now, "" if they can."""
    if mirror.state != MirrorState.STOPPED:
        return gettext("Topic '%(topic)s' is %(state)s: its configs are those of a mirror until it is stopped.") % {
            "topic": mirror.name,
            "state": mirror.state,
        }
    if mirror.deletion_requested_at is not None:
        return gettext("Topic '%(topic)s' is being deleted. Wait until it is gone.") % {"topic": mirror.name}
    if not any(step.name != FILLERS for step in refused_steps(mirror)):
        return gettext("The destination refuses no config of topic '%(topic)s'. Nothing has to be retried.") % {
            "topic": mirror.name
        }
    return ""


def _is_operation(_mirror: MirrorTopic, operation: MirrorEvent, _related: RelatedRows) -> str:
    return "" if operation in OPERATIONS else gettext("%(operation)s cannot be requested by users.") % {"operation": operation}


def _not_deleting(mirror: MirrorTopic, operation: MirrorEvent, _related: RelatedRows) -> str:
    if mirror.deletion_requested_at is None or operation is _E.DELETE:
        return ""
    return gettext("Topic '%(topic)s' is being deleted. Wait until it is gone.") % {"topic": mirror.name}


def _bidirectional(mirror: MirrorTopic, operation: MirrorEvent, _related: RelatedRows) -> str:
    if operation not in BIDIRECTIONAL_ONLY or mirror.link.mode == "BIDIRECTIONAL":
        return ""
    return gettext(
        "%(operation)s needs a bidirectional link; '%(link)s' has mode %(mode)s. Create a bidirectional link instead."
    ) % {
        "operation": operation,
        "link": mirror.link.name,
        "mode": mirror.link.mode,
    }


def _in_table(mirror: MirrorTopic, operation: MirrorEvent, _related: RelatedRows) -> str:
    if mirror.state == MirrorState.STOPPED and operation not in (_E.DELETE, _E.RESTORE):
        return gettext(
            "Topic '%(topic)s' has already stopped its mirror from '%(link)s'. Only RESTORE and DELETE are possible."
        ) % {
            "topic": mirror.name,
            "link": mirror.link.name,
        }
    try:
        next_state(MirrorState(mirror.state), operation)
    except IllegalTransitionError:
        text = gettext("Cannot %(operation)s a mirror topic in state %(state)s.")
        return f"{text % {'operation': operation, 'state': mirror.state}} {allowed_now(mirror)}"
    return ""


def allowed_now(mirror: MirrorTopic) -> str:
    """Return the operations that the mirror's state allows, in a sentence."""
    names = ", ".join(allowed_operations(MirrorState(mirror.state))) or gettext("nothing")
    return gettext("Allowed now: %(names)s.") % {"names": names}


def _not_half_reversed(mirror: MirrorTopic, operation: MirrorEvent, related: RelatedRows) -> str:
    """Refuse to promote a mirror that was paused in a reversal: the other side waits, so it would complete the reversal."""
    if operation is not _E.PROMOTE or not mirror.reversal:
        return ""
    other = related.counterpart(mirror)
    if other is None or other.state != MirrorState.PENDING_MIRROR:
        return ""
    return gettext(
        "Topic '%(topic)s' was paused in the middle of %(reversal)s, and its source is closed. Resume it to continue "
        "the reversal, or fail over either side to end it."
    ) % {"topic": mirror.name, "reversal": mirror.reversal}


def _link_is_on(mirror: MirrorTopic, operation: MirrorEvent, _related: RelatedRows) -> str:
    if operation is _E.RESUME and mirror.link.state == LinkState.PAUSED:
        return gettext("Cluster link '%(link)s' is paused. Set cluster.link.paused to false, then resume the topic.") % {
            "link": mirror.link.name
        }
    if operation is _E.PROMOTE and mirror.link.state == LinkState.PAUSED:
        return gettext("Cluster link '%(link)s' is paused, so the lag cannot drain. Resume the link or fail over.") % {
            "link": mirror.link.name
        }
    return ""


def _not_recreated(mirror: MirrorTopic, operation: MirrorEvent, related: RelatedRows) -> str:
    """Refuse to delete a topic that auto-create would create again, unless its source topic is gone."""
    link = mirror.link
    if operation is not _E.DELETE or link.deletion_requested_at is not None or mirror.deletion_requested_at is not None:
        return ""
    if not auto_creates(link, mirror.source_topic):
        return ""
    if mirror.error_code == ErrorCode.SOURCE_TOPIC_MAY_BE_DELETED or _is_gone(mirror, related):
        return ""
    return gettext(
        "Topic '%(topic)s' matches the auto-create filters of link '%(link)s', which would create it again. Delete "
        "the source topic first, or add an EXCLUDE filter for it, or set auto.create.mirror.topics.enable to false."
    ) % {"topic": mirror.name, "link": link.name}


def _is_gone(mirror: MirrorTopic, related: RelatedRows) -> bool:
    return mirror.link.topics_at is not None and mirror.source_topic not in related.listed_sources


def _can_be_deleted(mirror: MirrorTopic, operation: MirrorEvent, _related: RelatedRows) -> str:
    """Refuse to delete a topic of a cluster that deletes no topics: it would keep the topic, and so the mirror."""
    if operation is not _E.DELETE or mirror.deletion_requested_at is not None:
        return ""
    return why_not_deletable(mirror)


def why_not_deletable(mirror: MirrorTopic) -> str:
    """Return why the destination will not delete the mirror's topic; "" if it will, or if there is no topic, or if unknown."""
    cluster = mirror.link.destination
    has_topic = bool(mirror.mirror_topic_id or mirror.num_partitions) and mirror.error_code != ErrorCode.MIRROR_TOPIC_MISSING
    if cluster.deletes_topics is not False or not has_topic:
        return ""
    return gettext(
        "Cluster '%(cluster)s' deletes no topics (delete.topic.enable=false), so topic '%(topic)s' cannot be "
        "deleted. Fail the mirror over to keep it as an ordinary topic; it is listed until the link is deleted. Or "
        "set delete.topic.enable=true on the brokers and controllers; the setting is read again every minute."
    ) % {"cluster": cluster.name, "topic": mirror.name}


def _stays_for_the_other_side(mirror: MirrorTopic, operation: MirrorEvent, related: RelatedRows) -> str:
    if operation is not _E.DELETE or mirror.state != MirrorState.STOPPED:
        return ""
    return _needed_by(related.dependent(mirror))


def why_needed(cluster_id: str, topic: str) -> str:
    """Return why an ordinary topic cannot be deleted, "" if it can: a restore on the other side may make it the only copy."""
    return _needed_by(pairs.that_needs_records(pairs.copies_of(cluster_id, [topic]).get(topic, ())))


def _needed_by(there: MirrorTopic | None) -> str:
    if there is None:
        return ""
    return gettext(
        "Topic '%(there)s' on the other side is %(state)s: it is becoming the mirror of '%(topic)s', which may have "
        "the only copy of its records now. Wait until it is ACTIVE, or fail it over first."
    ) % {"there": there.name, "state": there.state, "topic": there.source_topic}


def _can_be_saved(mirror: MirrorTopic, operation: MirrorEvent, _related: RelatedRows) -> str:
    if operation is not _E.RECOVER:
        return ""
    if not mirror.num_partitions or not mirror.holds_copy:
        return gettext("Topic '%(topic)s' failed before it was a mirror. Delete it here and create it again.") % {
            "topic": mirror.name
        }
    if mirror.error_code == ErrorCode.MIRROR_TOPIC_MISSING:
        return gettext(
            "The mirror topic '%(topic)s' was deleted, so copying cannot resume. Delete the mirror and create it again."
        ) % {"topic": mirror.name}
    if mirror.error_code not in RECOVERABLE:
        return gettext(
            "Topic '%(topic)s' failed with %(code)s: its offsets no longer mean the same as the source's. Fail over to "
            "keep what was copied, or delete it and create it again."
        ) % {"topic": mirror.name, "code": mirror.error_code}
    return ""


def _other_side_takes_part(mirror: MirrorTopic, operation: MirrorEvent, related: RelatedRows) -> str:
    if operation not in BIDIRECTIONAL_ONLY:
        return ""
    other = related.other_side
    if other is None:
        return gettext(
            "The other side of cluster link '%(link)s' is missing: create a bidirectional link of this name on cluster "
            "%(source)s, with remote_cluster_id %(destination)s."
        ) % {
            "link": mirror.link.name,
            "source": mirror.link.source_cluster_id,
            "destination": mirror.link.destination.cluster_id,
        }
    for side in (mirror.link, other):
        if side.state != LinkState.ACTIVE:
            place = side.destination.cluster_id
            return gettext(
                "Cluster link '%(link)s' on cluster %(cluster)s is %(state)s; this needs both "
                "clusters. Make the link ACTIVE, then retry."
            ) % {
                "link": side.name,
                "cluster": place,
                "state": side.state,
            }
    if operation in _REVERSALS:
        return _source_can_take_over(mirror, other, related)
    return _can_be_restored(mirror, related)


def _source_can_take_over(mirror: MirrorTopic, other: ClusterLink, related: RelatedRows) -> str:
    if not other.destination.has_authorizer:
        return gettext(
            "Cluster %(cluster)s has no authorizer, so the source topic cannot be made read-only. Set "
            "authorizer.class.name on its brokers, or promote instead."
        ) % {"cluster": other.destination.cluster_id}
    if not mirror.read_only:
        return gettext(
            "Topic '%(topic)s' is not read-only, since its cluster has no authorizer; it "
            "cannot be reversed safely. Promote it instead."
        ) % {"topic": mirror.name}
    name = mirror.source_topic
    there = related.counterpart(mirror)
    if there is not None and there.deletion_requested_at is not None:
        return gettext("Topic '%(topic)s' on the other side is being deleted. Wait until it is gone.") % {"topic": name}
    taken = related.owner_there(mirror)
    if taken is None:
        return _holds_others(mirror, related) or _loses_older_records(mirror, related)
    if taken.link_id == other.pk and taken.source_topic == mirror.name:
        return gettext("Topic '%(topic)s' on the other side is %(state)s itself. Wait until it is STOPPED, then retry.") % {
            "topic": name,
            "state": taken.state,
        }
    return gettext(
        "Topic '%(topic)s' on the other side is a mirror topic of another link, so it "
        "cannot be reversed. Promote this topic instead."
    ) % {"topic": name}


def _holds_others(mirror: MirrorTopic, related: RelatedRows) -> str:
    if not related.differs(mirror):
        return ""
    return gettext(
        "A verification run found records of '%(topic)s' that differ from its source's, and each side would keep its "
        "own. Verify the whole mirror first, which ends RECORDS_DIFFER if no record differs; or fail over, then "
        "restore the other side."
    ) % {"topic": mirror.name}


def _loses_older_records(mirror: MirrorTopic, related: RelatedRows) -> str:
    """Refuse a reversal if the source has records below the mirror's first offset (``mirror.start.offset.spec``)."""
    known = {row.partition: row.source_start for row in mirror.partitions.all()}
    begins = [(known.get(number), begin) for number, begin in related.first_offsets(mirror).items()]
    if any(start is None for start, _ in begins):
        return gettext(
            "It is not known yet whether topic '%(source_topic)s' on the other side holds older records than '%(topic)s' "
            "ever had. Try again once the mirror has reported."
        ) % {"source_topic": mirror.source_topic, "topic": mirror.name}
    if not any(start is not None and start < begin for start, begin in begins):
        return ""
    return gettext(
        "Topic '%(source_topic)s' on the other side holds older records than '%(topic)s' ever had, and would lose "
        "them as its mirror. Promote instead, then restore the other side: records that only it has are exported "
        "first."
    ) % {"source_topic": mirror.source_topic, "topic": mirror.name}


def _can_be_restored(mirror: MirrorTopic, related: RelatedRows) -> str:
    there = related.counterpart(mirror)
    if there is not None and (there.state != MirrorState.STOPPED or there.deletion_requested_at is not None):
        return gettext(
            "Topic '%(there)s' on the other side is %(state)s; it has to be STOPPED before it can be "
            "mirrored. Promote or fail over that topic first."
        ) % {
            "there": there.name,
            "state": there.state,
        }
    if there is None and related.owner_there(mirror) is not None:
        return gettext(
            "Topic '%(source_topic)s' on the other side is a mirror topic of another link. Promote that mirror topic first."
        ) % {"source_topic": mirror.source_topic}
    if not pairs.have_common_part(mirror, there):
        return gettext(
            "Neither '%(topic)s' nor the topic on the other side was a mirror of the other, so it is unknown where they "
            "diverge. To mirror one side, delete its topic if its records are not needed, and create it as a mirror topic."
        ) % {"topic": mirror.name}
    taken = related.owner_here(mirror)
    if taken is not None:
        return gettext(
            "Topic '%(topic)s' is a mirror topic of another link, in state %(state)s. Promote that mirror topic first."
        ) % {
            "topic": mirror.name,
            "state": taken.state,
        }
    return ""


_RULES: tuple[Callable[[MirrorTopic, MirrorEvent, RelatedRows], str], ...] = (
    _is_operation,
    _not_deleting,
    _bidirectional,
    _in_table,
    _link_is_on,
    _not_half_reversed,
    _not_recreated,
    _can_be_deleted,
    _stays_for_the_other_side,
    _can_be_saved,
    _other_side_takes_part,
)


# --- topics by a regular expression -----------------------------------------------------------------------------------
#
# The engine is RE2: matching takes linear time in the length of the name, and memory is bounded. An engine with backtracking or
# recursion must not run expressions from users: ``(?:(?R)|a)*`` took 650 MB in an engine that has both.


FIELD = "mirror_topic_name_pattern"
MOST_CHARACTERS = 4_000
MOST_MEMORY = 2 << 20  # bytes of the compiled expression and of its cached states
MOST_S = 1.0  # for all names together: a name takes at most 50 ms with an expression that fits into MOST_MEMORY
_SYNTAX = gettext_lazy(
    "RE2 syntax applies: no back references, no look-around, no atomic groups or possessive quantifiers, no recursion, and at "
    "most 1,000 repetitions, nested ones multiplied."
)


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """Return the names that match as a whole. Raise InvalidInputError if the expression is invalid, too long or too slow."""
    if len(pattern) > MOST_CHARACTERS:
        raise InvalidInputError(
            gettext_lazy(
                "The pattern has %(count)s characters; the maximum is %(most)s. List the topics instead.",
                count=f"{len(pattern):,}",
                most=f"{MOST_CHARACTERS:,}",
            ),
            field=FIELD,
        )
    deadline = time.monotonic() + MOST_S
    expression = _compile(pattern)
    found = []
    for name in names:
        if expression.fullmatch(name):
            found.append(name)
        if time.monotonic() > deadline:
            raise InvalidInputError(
                gettext_lazy(
                    "Matching the pattern takes longer than %(seconds)s s. Use a simpler one, without nested repetitions.",
                    seconds=f"{MOST_S:.0f}",
                ),
                field=FIELD,
            )
    return found


def _compile(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MOST_MEMORY
    options.never_capture = True  # RE2 without groups needs no NFA pass to find their positions
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise InvalidInputError(
            gettext_lazy("The pattern is not a regular expression: %(reason)s. %(syntax)s", reason=reason, syntax=_SYNTAX),
            field=FIELD,
        ) from None
    except UnicodeEncodeError:  # JSON can carry half of a surrogate pair
        raise InvalidInputError(
            gettext_lazy("The pattern is not valid Unicode text. Topic names are ASCII."), field=FIELD
        ) from None
    finally:
        re2.purge()  # the module would cache 128 expressions, each with up to MOST_MEMORY
