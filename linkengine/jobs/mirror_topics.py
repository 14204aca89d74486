"""Sets up mirror topics (validates, creates them read-only, seeds their heads), deletes them, and clears Redis of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import structlog

from linkengine.coordination import lease, losses, progress
from linkengine.copyjob.destination.head_seed import seed_head
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import check_overrides, has_mirror_configs, is_compacted, mirror_configs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linkrules import EARLIEST, check_start, start_time_ms
from linkengine.domain.mirrorjobs import MirrorCreated, MirrorSetup
from linkengine.domain.names import check_topic_name, is_internal
from linkengine.domain.plans import PartitionAssignment, TopicDescription
from linkengine.jobs.reversing import log_ranges, open_topic
from linkengine.kafka import admin_topics
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.offsets import count_partitions, newest_ends
from linkengine.sync.topics import find_mirror, follow_partitions, read_source_configs, sync_configs

# --- set-up --------------------------------------------------------------------------------------------------------------
# The order of the steps ensures that clients can neither write to the topic nor read unfinished offsets at any time, and that
# running the job again after a crash completes it: DENY WRITE (and DENY READ if a head must be seeded) before the topic exists;
# the topic with the mirror's configs; seeding; the mirror's final configs; removal of DENY READ.


# (number of partitions, topic id) of the source -> assignments
AssignmentsFactory = Callable[[int, str], Sequence[PartitionAssignment]]
log = structlog.get_logger(__name__)


def check_mirror_topic(setup: MirrorSetup) -> TopicDescription:
    """Check that the mirror can be created and return the source topic; changes nothing, about six requests.

    Raises UNKNOWN_TOPIC_OR_PARTITION_ERROR, TOPIC_EXISTS_ERROR, INVALID_TOPIC, AUTHORIZATION_ERROR (READ, DESCRIBE_CONFIGS),
    MISCONFIGURATION_ERROR (overrides), the destination's refusal of such a topic (INVALID_REQUEST_ERROR for replicas or
    configs that it does not support, POLICY_VIOLATION_ERROR), and connection errors of either cluster.
    """
    check_topic_name(setup.mirror_topic)
    check_overrides(setup.configs, include=setup.sync_include)
    check_start(setup.start)
    if is_internal(setup.source_topic):
        raise LinkEngineError(
            ErrorCode.INVALID_TOPIC, f"{setup.source_topic!r} is an internal topic. Internal topics are not mirrored."
        )
    source = ClusterAdmin(setup.source)
    topic = source.describe(setup.source_topic)
    _check_readable(source, setup)
    values = read_source_configs(source, setup.source_topic, include=setup.sync_include)
    destination = ClusterAdmin(setup.destination)
    # without the retries of ``find``: hundreds of topics are checked in turn, and the set-up checks again
    if destination.topics([setup.mirror_topic], with_configs=False):
        raise _exists_error(setup.mirror_topic)
    configs = _first_configs(setup, values, seeding=False)
    factor = setup.replication_factor
    destination.check_creation(setup.mirror_topic, partitions=topic.partitions, replication_factor=factor, configs=configs)
    return topic


def set_up_mirror_topic(
    setup: MirrorSetup, *, assignments_factory: AssignmentsFactory, check_owner: Callable[[], None] = lambda: None
) -> MirrorCreated:
    """Create the mirror topic, deny writes to it and seed its heads. Safe to repeat after a crash or an error.

    ``check_owner`` is called before every step that changes the destination. It raises if the mirror was stopped or is to be
    deleted: producers may use the topic by then, and the task that stops or deletes it decides what happens to it.
    """
    source, destination = ClusterAdmin(setup.source), ClusterAdmin(setup.destination)
    topic = source.describe(setup.source_topic)
    values = read_source_configs(source, setup.source_topic, include=setup.sync_include)
    starts = {partition: offset for partition, offset in _start_offsets(source, topic, setup.start).items() if offset}
    to_seed = _unseeded_heads(destination, setup, _find_once(destination, setup.mirror_topic), starts=starts)
    check_owner()
    guarded = setup.guard and _deny_access(destination, setup.mirror_topic, hide=bool(to_seed))
    check_owner()
    created = _create(destination, setup, topic, wanted=_first_configs(setup, values, seeding=bool(to_seed)))
    with _retried_while_unknown(setup.mirror_topic):
        if not created:
            to_seed = _unseeded_heads(destination, setup, destination.describe(setup.mirror_topic), starts=starts)
            check_owner()
            _continue_earlier_attempt(destination, setup, topic, wanted=_first_configs(setup, values, seeding=bool(to_seed)))
        _check_writable(destination, setup)
        _seed(setup, assignments_factory(topic.partitions, topic.topic_id), starts=to_seed, check_owner=check_owner)
        check_owner()
        sync_configs(destination, setup.mirror_topic, source_configs=values, include=setup.sync_include)
        check_owner()
        if guarded and (starts or destination.denies_reads(setup.mirror_topic)):  # an earlier attempt may have hidden a head
            destination.allow_reads(setup.mirror_topic)
        mirror_topic_id = destination.describe(setup.mirror_topic).topic_id
    return MirrorCreated(
        source_topic_id=topic.topic_id,
        mirror_topic_id=mirror_topic_id,
        partitions=topic.partitions,
        read_only=guarded,
        seeded=tuple(sorted(starts.items())),
        source_configs=values,
    )


@contextmanager
def _retried_while_unknown(mirror_topic: str) -> Iterator[None]:
    """Turn "unknown topic" for the mirror topic into an error after which the set-up is retried.

    The destination has confirmed that the topic exists. A busy broker shows a new topic seconds later; if the topic was deleted
    in between, the next attempt creates it again.
    """
    try:
        yield
    except LinkEngineError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR:
            raise
        raise LinkEngineError(
            ErrorCode.TIMEOUT_ERROR,
            f"The destination has created mirror topic {mirror_topic!r}, but does not show it yet: its brokers are busy, or "
            "the topic was deleted since. The set-up is retried automatically.",
        ) from error


def _find_once(destination: ClusterAdmin, mirror_topic: str) -> TopicDescription | None:
    """Return the topic, None if the response does not contain it. One request, without retries.

    A topic that exists but is not shown yet is found when it is to be created (``_create``).
    """
    return next(iter(destination.topics([mirror_topic])), None)


def _unseeded_heads(
    destination: ClusterAdmin, setup: MirrorSetup, present: TopicDescription | None, *, starts: Mapping[int, int]
) -> dict[int, int]:
    """Return the heads that no earlier attempt has finished; raise TOPIC_EXISTS_ERROR for a topic that is not a mirror.

    Before it raises, it removes the ACLs that this attempt or an earlier attempt, which crashed, has set on the topic's name.
    """
    if present is None:
        return dict(starts)
    if has_mirror_configs(present.configs):
        return _unseeded(destination, present, starts)
    if setup.guard and not setup.contested:
        open_topic(destination.address, present.name)
    raise _exists_error(present.name)


def _seed(
    setup: MirrorSetup,
    assignments: Sequence[PartitionAssignment],
    *,
    starts: Mapping[int, int],
    check_owner: Callable[[], None],
) -> None:
    for assignment in assignments:
        if assignment.partition in starts:
            start = starts[assignment.partition]
            log.info("mirror.seeding_head", topic=assignment.mirror_topic, partition=assignment.partition, start=start)
            seed_head(setup.destination, assignment, start=start, check_owner=check_owner)


def _starts(admin: ClusterAdmin, topic: TopicDescription) -> dict[int, int]:
    return admin.offsets(topic.name, OffsetKind.START, partitions=topic.partitions)


def _start_offsets(source: ClusterAdmin, topic: TopicDescription, spec: str) -> dict[int, int]:
    """Return the first offset to copy of each partition.

    For "latest" this is the last stable offset, so that no transaction is split.

    Everything is read twice and the lower offset is used: an offset that is too high in a damaged response would skip records.
    """
    first, second = (_start_offsets_once(source, topic, spec) for _ in range(2))
    return {partition: min(start, second[partition]) for partition, start in first.items()}


def _start_offsets_once(source: ClusterAdmin, topic: TopicDescription, spec: str) -> dict[int, int]:
    starts = _starts(source, topic)
    if spec == EARLIEST:
        return starts
    ends = source.offsets(topic.name, OffsetKind.STABLE_END, partitions=topic.partitions)
    moment_ms = start_time_ms(spec)
    found = {} if moment_ms is None else source.offsets_at(topic.name, moment_ms, partitions=topic.partitions)
    chosen = {partition: end if found.get(partition, -1) < 0 else found[partition] for partition, end in ends.items()}
    return {partition: max(offset, starts[partition]) for partition, offset in chosen.items()}


def _unseeded(destination: ClusterAdmin, mirror: TopicDescription, starts: Mapping[int, int]) -> dict[int, int]:
    """Return the partitions whose head is not seeded or not trimmed yet; raise if a partition begins beyond its start."""
    begins = _starts(destination, mirror)
    ends = destination.offsets(mirror.name, OffsetKind.END, partitions=mirror.partitions)
    _check_not_beyond_start(mirror.name, ends, starts=starts)
    return {
        partition: start
        for partition, start in starts.items()
        if ends.get(partition, 0) < start or (ends[partition] == start and begins[partition] < start)
    }


def _check_not_beyond_start(mirror_topic: str, ends: Mapping[int, int], *, starts: Mapping[int, int]) -> None:
    """Raise if a partition was seeded beyond its start.

    A later attempt cannot find a lower start in the same log, since log starts only grow; and nothing else is in the partition,
    since copying begins after the set-up.
    """
    for partition, end in sorted(ends.items()):
        if end > starts.get(partition, 0):
            raise LinkEngineError(
                ErrorCode.SOURCE_TOPIC_ID_CHANGED,
                f"An earlier attempt to set up {mirror_topic!r} made partition {partition} begin at offset {end}, but the "
                f"source now begins at {starts.get(partition, 0)}: it was deleted and created again, or has lost records. The "
                "offsets in between would be missing. Delete the mirror topic and create it again.",
            )


def _deny_access(destination: ClusterAdmin, topic: str, *, hide: bool) -> bool:
    if not destination.has_authorizer():
        return False
    destination.deny_writes(topic)
    if hide:
        destination.deny_reads(topic)
    return True


def _first_configs(setup: MirrorSetup, values: Mapping[str, str], *, seeding: bool) -> dict[str, str]:
    wanted = mirror_configs(values, include=setup.sync_include, overrides=setup.configs)
    if seeding and is_compacted(wanted):
        wanted["cleanup.policy"] = "delete"  # a compacted topic refuses keyless fillers; the policy is set after seeding
    return wanted


def _create(destination: ClusterAdmin, setup: MirrorSetup, topic: TopicDescription, *, wanted: Mapping[str, str]) -> bool:
    """Create the topic; return False if a topic of this name exists."""
    try:
        destination.create_topic(
            setup.mirror_topic, partitions=topic.partitions, replication_factor=setup.replication_factor, configs=wanted
        )
    except LinkEngineError as error:
        if error.code is not ErrorCode.TOPIC_EXISTS_ERROR:
            raise
        return False
    return True


def _continue_earlier_attempt(
    destination: ClusterAdmin, setup: MirrorSetup, topic: TopicDescription, *, wanted: Mapping[str, str]
) -> None:
    """Continue with the topic of an earlier attempt."""
    destination.set_configs(setup.mirror_topic, wanted)
    recount = partial(count_partitions, setup.source, topic.name)
    follow_partitions(destination, setup.mirror_topic, partitions=topic.partitions, recount=recount)


def _check_readable(source: ClusterAdmin, setup: MirrorSetup) -> None:
    if "READ" not in source.rights(setup.source_topic):
        raise LinkEngineError(
            ErrorCode.AUTHORIZATION_ERROR,
            f"User {setup.source.sasl_username!r} may not READ source topic {setup.source_topic!r}. Grant it READ, DESCRIBE "
            "and DESCRIBE_CONFIGS on the topic.",
        )


def _check_writable(destination: ClusterAdmin, setup: MirrorSetup) -> None:
    if "WRITE" not in destination.rights(setup.mirror_topic):
        raise LinkEngineError(
            ErrorCode.AUTHORIZATION_ERROR,
            f"User {setup.destination.sasl_username!r} may not write to mirror topic {setup.mirror_topic!r}: ACL DENY WRITE, "
            "which makes it read-only, applies to all but super users. Add it to super.users of the destination brokers.",
        )


def _exists_error(topic: str) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.TOPIC_EXISTS_ERROR,
        f"Topic {topic!r} already exists on the destination cluster and is not a mirror. Delete it or use a prefix.",
    )


# --- deletion ------------------------------------------------------------------------------------------------------------
# Deletes a mirror topic with its ACLs, or a diverged topic that is to become a mirror again.


def delete_mirror_topic(
    *, destination: ClusterAddress, mirror_topic: str, mirror_topic_id: str = "", guard: bool = True, contested: bool = False
) -> bool:
    """Delete the topic, wait until it is gone, remove its ACLs; return False if there was no topic. Safe to repeat.

    Only the mirror's own topic is deleted (``find_mirror``); from another topic of its name only the mirror's ACLs are removed.
    ACLs are removed last: while the topic exists, clients must not write to it. They stay on a ``contested`` name, where they
    belong to another mirror. Without ``guard`` none were set.
    """
    admin = ClusterAdmin(destination)
    found = find_mirror(admin, mirror_topic, topic_id=mirror_topic_id, contested=contested)
    deleted = found is not None and admin.delete_topic_by_id(found)
    if guard and not contested:
        open_topic(destination, mirror_topic)
    return deleted


def delete_diverged(
    *, destination: ClusterAddress, topic: str, topic_id: str, check_owner: Callable[[], None] = lambda: None
) -> bool:
    """Delete the topic of this id and wait until it is gone; return whether a topic was deleted. ACLs stay.

    A topic of the same name with another id is deleted only if it is empty and not a mirror: a client's metadata request may
    have created it. ``check_owner`` is called directly before the request and raises if the deletion was reverted.
    """
    admin = ClusterAdmin(destination)
    found = admin.find(topic)
    if found is None:
        return False
    if found.topic_id != topic_id and (has_mirror_configs(found.configs) or not _is_empty(destination, found)):
        return False
    return admin.delete_topic_by_id(found, check_owner=check_owner)


def _is_empty(destination: ClusterAddress, topic: TopicDescription) -> bool:
    """Return whether nothing was ever written to a topic, as two readings of its ends show.

    Both read from the newest leaders: a leader that was cut off may lack what producers have written since. The second raises
    if a leader has records that its followers do not have yet (``log_ranges``).
    """
    found = newest_ends(destination, topic.name)
    same = found.topic_id == topic.topic_id
    return same and not any(found.ends.values()) and not any(part.end for part in log_ranges(destination, topic.name))


def deletes_topics(address: ClusterAddress) -> bool | None:
    """Return whether the cluster deletes topics (``delete.topic.enable``); None if that cannot be read."""
    try:
        return admin_topics.deletes_topics(address)
    except LinkEngineError:
        return None


def clear_mirror(redis_url: str, link_id: str, *, mirror_id: str, keys: Iterable[str] = ()) -> None:
    """Remove the reports and losses of a deleted mirror, and the leases of its partitions (``keys``)."""
    progress.clear_mirror(redis_url, link_id, mirror_id=mirror_id)
    losses.clear_mirror(redis_url, link_id, mirror_id=mirror_id)
    lease.forget_leases(redis_url, keys)


def clear_link(redis_url: str, link_id: str, *, keys: Iterable[str] = ()) -> None:
    """Remove the reports and losses of a deleted link, and the leases of its mirrors' partitions (``keys``)."""
    progress.clear_link(redis_url, link_id)
    losses.clear_losses(redis_url, link_id)
    lease.forget_leases(redis_url, keys)
