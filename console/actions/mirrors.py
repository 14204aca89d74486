"""Create and delete mirror topics."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from console import audit, dispatch
from console.access import Permission, check_permission, link_words, whole_cluster_names
from console.actions import linkchecks, transitions
from console.actions.namespaces import check_free
from console.actions.rows import lock_clusters
from console.actors import ENGINE, Actor
from console.errors import BadRequestError, ConflictError, InvalidInputError, from_engine
from console.models import ClusterLink, LinkConfig, MirrorTopic, RoleBinding
from console.models.links import LinkMode, show_change
from console.models.mirrors import DELETION_REFUSED
from console.policies import auto_creates, why_not, why_not_deletable
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.rings import Place, find_ring, ring_words
from linkengine.domain.startspec import CONFIG as START_SPEC
from linkengine.domain.startspec import EARLIEST, start_problem
from linkengine.domain.states import LinkState, MirrorEvent, MirrorState

CHECK_TIMEOUT_S = 20.0  # see linkchecks
_MIRRORING = (
    "It is a mirror topic of {link} in state {state}, and stays as it is. There is nothing to do where that is "
    "the mirror you want; for a second copy, use a link with a prefix."
)
_STOPPED = (
    "It was a mirror topic of {link} and is {state}: applications may write to it and rely on it. Use a link "
    "with a prefix; delete the stopped mirror topic, with all its records, only if nobody needs them."
)
_FIELD_OF: dict[str, str | None] = {
    ErrorCode.TOPIC_EXISTS_ERROR: "mirror_topic_name",
    ErrorCode.INVALID_REQUEST_ERROR: None,  # the destination's, of replicas, configs or partitions: its words say which
    ErrorCode.POLICY_VIOLATION_ERROR: None,
}
_NOT_COPYING = {LinkState.FAILED, LinkState.UNAVAILABLE}


def create_mirror(
    *,
    link: ClusterLink,
    source_topic: str,
    mirror_topic: str | None = None,
    replication_factor: int | None = None,
    configs: Mapping[str, str | None] | None = None,
    validate_only: bool = False,
    by: Actor,
    now: datetime,
) -> MirrorTopic:
    """Begin to mirror a topic. Both clusters are asked first; the topic itself is made by the worker (PENDING_SETUP).

    ``configs`` are configs of the new topic; a ``mirror.start.offset.spec`` among them goes before the link's. With
    ``validate_only`` the answer is a row that is not stored.
    """
    name = _mirror_name(link, source_topic, mirror_topic)
    check_permission(by, Permission.MANAGE_MIRROR, link=link, resource_type=RoleBinding.ResourceType.TOPIC, resource_name=name)
    overrides = {key: value for key, value in (configs or {}).items() if value is not None}
    start = _start(link, overrides.pop(START_SPEC, ""))
    if replication_factor is not None and replication_factor < 1:
        raise InvalidInputError("replication_factor must be at least 1.", field="replication_factor")
    mirror = draft(link=link, source_topic=source_topic, by=by, now=now)
    mirror.replication_factor, mirror.config_overrides, mirror.start_spec = replication_factor, overrides, start
    known = _known(link, name)
    if known is not None:  # whatever became of the link since: the first request was taken
        return _check_repeat(known, mirror, by=by, now=now)
    check_link_state(link)
    check_free(cluster=link.destination, topic=name, link=link, by=by)
    check_ring(mirror, by=by)
    _ask_clusters(link, source_topic, name, replication_factor=replication_factor, configs=overrides)
    return mirror if validate_only else _store(mirror, by=by, now=now)


def auto_create(*, link: ClusterLink, source_topic: str, now: datetime) -> MirrorTopic:
    """Mirror a topic that the link's filters choose; the caller has asked both clusters whether it can be."""
    mirror = draft(link=link, source_topic=source_topic, by=ENGINE, now=now)
    mirror.auto_created = True
    return _store(mirror, by=ENGINE, now=now)


def draft(*, link: ClusterLink, source_topic: str, by: Actor, now: datetime) -> MirrorTopic:
    """Answer a mirror with the link's defaults that is not stored yet."""
    return MirrorTopic(
        link=link,
        name=link.prefix + source_topic,
        source_topic=source_topic,
        start_spec=default_start(link),
        state_since=now,
        created_at=now,
        created_by=by.name,
    )


def default_start(link: ClusterLink) -> str:
    """Answer ``mirror.start.offset.spec`` of the link, for mirrors that say nothing."""
    return LinkConfig.objects.filter(link=link, name=START_SPEC).values_list("value", flat=True).first() or EARLIEST


def delete_mirror(*, mirror: MirrorTopic, by: Actor, now: datetime) -> None:
    """Delete the mirror topic on the destination, and with it its row; until the topic is gone the row says so.

    Refused while auto-create would bring the topic back, where the destination deletes no topics, and while it, or the other
    side's topic by it, is only becoming a mirror. Asking twice is as good as asking once.
    """
    check_permission(by, Permission.MANAGE_MIRROR, mirror=mirror)
    refusal = "" if mirror.deletion_requested_at is not None else why_not_deletable(mirror)
    if refusal:
        raise ConflictError(refusal, code=ErrorCode.TOPIC_DELETION_DISABLED)
    with transaction.atomic():
        if not MirrorTopic.objects.filter(pk=mirror.pk, deletion_requested_at=None).update(deletion_requested_at=now):
            return
        # only now: a restore of the other side may have had this row
        reason = "" if mirror.drill_id else why_not(mirror, MirrorEvent.DELETE)
        if reason:
            raise ConflictError(reason, code="MIRROR_WOULD_RETURN")
        transitions.apply_event(mirror=mirror, event=MirrorEvent.DELETE, by=by, now=now, deletion_requested_at=now)
        mirror.transition_errors.filter(code=DELETION_REFUSED).delete()
        audit.record(by=by, action="DeleteMirrorTopic", resource=audit.path_of(mirror), now=now)
    dispatch.send("reconcile_link", link_id=mirror.link_id)


def _store(mirror: MirrorTopic, *, by: Actor, now: datetime) -> MirrorTopic:
    """Store the mirror; where an equal request was quicker, the answer is that one's row."""
    try:
        with transaction.atomic():
            _reserve(mirror, by=by)
            known = _known(mirror.link, mirror.name)
            if known is not None:
                return _check_repeat(known, mirror, by=by, now=now)
            mirror.save(force_insert=True)
            transitions.note_creation(mirror=mirror, by=by, now=now)
            audit.record(
                by=by,
                action="CreateMirrorTopic",
                resource=audit.path_of(mirror),
                now=now,
                detail={"source_topic": mirror.source_topic, "start": mirror.start_spec, "configs": mirror.config_overrides},
            )
            show_change(mirror.link_id)
    except IntegrityError:  # somebody was quicker who did not look
        raise _exists(mirror.name) from None
    dispatch.send("setup_mirror", mirror_id=mirror.pk)
    return mirror


def _reserve(mirror: MirrorTopic, *, by: Actor) -> None:
    """Look again, and let nobody else look until this row is there: two links would copy into one topic.

    The link too: one that is to go fails over the mirrors it has, and knows of no other.
    """
    lock_clusters(mirror.link.destination.cluster_id)
    link = ClusterLink.objects.select_for_update(of=("self",)).filter(pk=mirror.link_id).first()
    if link is None:
        raise ConflictError(f"Cluster link '{mirror.link.name}' has been deleted.")
    check_link_state(link)
    check_free(cluster=mirror.link.destination, topic=mirror.name, link=link, by=by)
    if mirror.auto_created and not auto_creates(link, mirror.source_topic):
        raise ConflictError(
            f"The auto-create filters of cluster link '{link.name}' do not choose '{mirror.source_topic}' any more."
        )


def _mirror_name(link: ClusterLink, source_topic: str, mirror_topic: str | None) -> str:
    if not source_topic:
        raise InvalidInputError("source_topic_name must not be empty.", field="source_topic_name")
    expected = link.prefix + source_topic
    if mirror_topic in (None, "", expected):
        return expected
    if not link.prefix:
        message = (
            f"Topic renaming for mirroring is not supported: without a link prefix the mirror of '{source_topic}' has its name."
        )
    else:
        message = (
            f"The mirror of '{source_topic}' on this link must be named '{expected}', because its prefix is '{link.prefix}'."
        )
    raise BadRequestError(message, code="INVALID_MIRROR_NAME", field="mirror_topic_name")


def _start(link: ClusterLink, asked: str) -> str:
    """Answer where the mirror shall begin: as asked, else as the link says; checked."""
    spec = asked or default_start(link)
    problem = start_problem(spec)
    if problem:
        raise InvalidInputError(problem, code="INVALID_CONFIG", field=START_SPEC)
    return spec


def check_link_state(link: ClusterLink) -> None:
    """Refuse a link that takes no mirrors now."""
    if link.mode == LinkMode.SOURCE:
        raise ConflictError(
            f"Cluster link '{link.name}' begins here; its mirror topics are created on cluster {link.source_cluster_id}."
        )
    if link.deletion_requested_at is not None:
        raise ConflictError(f"Cluster link '{link.name}' is being deleted.")
    if link.state == LinkState.PAUSED:
        raise ConflictError(f"Cluster link '{link.name}' is paused. Set cluster.link.paused to false first.")
    if link.state in _NOT_COPYING:
        raise ConflictError(f"Cluster link '{link.name}' is {link.state.lower()}: {link.error_message} Mend that first.")


def _known(link: ClusterLink, name: str) -> MirrorTopic | None:
    return (
        MirrorTopic.objects.filter(link__destination=link.destination_id, name=name).select_related("link__destination").first()
    )


def _check_repeat(known: MirrorTopic, wanted: MirrorTopic, *, by: Actor, now: datetime) -> MirrorTopic:
    """Let a client ask again that never heard of its success: the same mirror, asked for by the same actor a moment ago."""
    fields = ("link_id", "source_topic", "start_spec", "replication_factor", "config_overrides")
    same = all(getattr(known, name) == getattr(wanted, name) for name in fields)
    if same and linkchecks.is_recent(known, by=by, now=now):
        return known
    raise _taken(known, by=by)


def check_ring(mirror: MirrorTopic, *, by: Actor) -> None:
    """Refuse a mirror whose records would come back to the cluster they come from.

    The message shows the way of the records as far as ``by`` may see it.
    """
    link = mirror.link
    place = Place(link.destination.cluster_id, mirror.name)
    ring = find_ring(_source_of, source=Place(link.source_cluster_id, mirror.source_topic), mirror=place)
    if ring:
        way = ring_words(ring, names=whole_cluster_names(by))
        message = (
            f"'{mirror.name}' would be fed by its own cluster: {way}. Mirror the topic that they come from, or stop one of "
            "the mirrors of this ring first."
        )
        raise BadRequestError(message, code="MIRROR_RING", field="source_topic_name")


def _source_of(place: Place) -> Place | None:
    rows = MirrorTopic.objects.filter(link__destination__cluster_id=place.cluster, name=place.topic)
    found = rows.exclude(state=MirrorState.STOPPED).values_list("link__source_cluster_id", "source_topic").first()
    return Place(*found) if found else None


def _ask_clusters(link: ClusterLink, source_topic: str, name: str, **asked: Any) -> None:
    try:
        dispatch.call(
            "check_mirror", timeout_s=CHECK_TIMEOUT_S, link_id=link.pk, source_topic=source_topic, mirror_topic=name, **asked
        )
    except LinkEngineError as error:
        raise from_engine(error, field=_FIELD_OF.get(error.code, "source_topic_name")) from error


def _taken(known: MirrorTopic, *, by: Actor) -> BadRequestError:
    """Say whose it is: the advice for an ordinary topic of the name, to delete it, would cost a copy."""
    what = _STOPPED if known.state == MirrorState.STOPPED else _MIRRORING
    words = link_words(by, known.link.destination)(known.link.name)
    said = f"Topic '{known.name}' already exists. {what.format(link=words, state=known.state)}"
    return BadRequestError(said, code=ErrorCode.MIRROR_EXISTS_ERROR, field="mirror_topic_name")


def _exists(name: str) -> BadRequestError:
    return BadRequestError(f"Topic '{name}' already exists.", code="TOPIC_EXISTS_ERROR", field="mirror_topic_name")
