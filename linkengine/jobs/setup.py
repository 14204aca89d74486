"""Make a mirror topic: check that it can be made, create it read-only, seed its head.

Order of the steps, so that nobody can write to the topic or read unfinished offsets at any moment, and a crash after any of
them is mended by running the job again: DENY WRITE (and DENY READ where a head must be seeded) before the topic exists; topic
with the mirror's configs; seeding; the mirror's final configs; DENY READ away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog

from linkengine.copyjob.seed import seed_head
from linkengine.domain.configs import check_overrides, is_compacted, looks_like_mirror, mirror_configs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorCreated, MirrorSetup
from linkengine.domain.naming import check_topic_name, is_internal
from linkengine.domain.plans import PartitionAssignment, TopicDescription
from linkengine.domain.startspec import EARLIEST, check_start, start_time_ms
from linkengine.jobs.reversing import open_topic
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.newestends import count_partitions
from linkengine.sync.configs import read_source_configs, sync_configs
from linkengine.sync.topics import follow_partitions

# partitions of the source, id of the source topic -> one assignment per partition
AssignmentsFactory = Callable[[int, str], Sequence[PartitionAssignment]]
log = structlog.get_logger(__name__)


def check_mirror(setup: MirrorSetup) -> TopicDescription:
    """Check that the mirror can be created and answer the source topic; changes nothing, about six requests.

    Raises UNKNOWN_TOPIC_OR_PARTITION_ERROR, TOPIC_EXISTS_ERROR, INVALID_TOPIC, AUTHORIZATION_ERROR (READ, DESCRIBE_CONFIGS),
    MISCONFIGURATION_ERROR (overrides), what the destination says to a topic like this (INVALID_REQUEST_ERROR for replicas or
    configs it cannot have, POLICY_VIOLATION_ERROR), and whatever keeps us from either cluster.
    """
    check_topic_name(setup.mirror_topic)
    check_overrides(setup.configs, include=setup.sync_include)
    check_start(setup.start)
    if is_internal(setup.source_topic):
        raise LinkEngineError(
            ErrorCode.INVALID_TOPIC, f"{setup.source_topic!r} is an internal topic of its cluster and cannot be mirrored."
        )
    source = ClusterAdmin(setup.source)
    topic = source.describe(setup.source_topic)
    _check_readable(source, setup)
    values = read_source_configs(source, setup.source_topic, include=setup.sync_include)
    destination = ClusterAdmin(setup.destination)
    # without the patience of ``find``: hundreds are checked in turn, and the set-up looks again
    if destination.topics([setup.mirror_topic], with_configs=False):
        raise _exists(setup.mirror_topic)
    configs = _first_configs(setup, values, seeding=False)
    factor = setup.replication_factor
    destination.check_creation(setup.mirror_topic, partitions=topic.partitions, replication_factor=factor, configs=configs)
    return topic


def setup_mirror(
    setup: MirrorSetup, *, assignments_factory: AssignmentsFactory, check_ours: Callable[[], None] = lambda: None
) -> MirrorCreated:
    """Create, guard and seed the mirror topic. Run it again after a crash or an error: it goes on where it stopped.

    ``check_ours``, called before every step that leaves a trace, raises where the mirror was stopped or is to be deleted:
    producers may be in the topic by now, and what becomes of it is that task's to do.
    """
    source, destination = ClusterAdmin(setup.source), ClusterAdmin(setup.destination)
    topic = source.describe(setup.source_topic)
    values = read_source_configs(source, setup.source_topic, include=setup.sync_include)
    starts = {partition: offset for partition, offset in _wanted_starts(source, topic, setup.start).items() if offset}
    to_seed = _still_to_seed(destination, setup, _glance(destination, setup.mirror_topic), starts=starts)
    check_ours()
    guarded = setup.guard and _guard(destination, setup.mirror_topic, hide=bool(to_seed))
    check_ours()
    if not _create(destination, setup, topic, wanted=_first_configs(setup, values, seeding=bool(to_seed))):
        to_seed = _still_to_seed(destination, setup, destination.describe(setup.mirror_topic), starts=starts)
        check_ours()
        _adopt(destination, setup, topic, wanted=_first_configs(setup, values, seeding=bool(to_seed)))
    _check_writable(destination, setup)
    _seed(setup, assignments_factory(topic.partitions, topic.topic_id), starts=to_seed, check_ours=check_ours)
    check_ours()
    sync_configs(destination, setup.mirror_topic, source_configs=values, include=setup.sync_include)
    check_ours()
    if guarded and (starts or destination.denies_reads(setup.mirror_topic)):  # an earlier attempt may have had a head to hide
        destination.allow_reads(setup.mirror_topic)
    return MirrorCreated(
        source_topic_id=topic.topic_id,
        mirror_topic_id=destination.describe(setup.mirror_topic).topic_id,
        partitions=topic.partitions,
        read_only=guarded,
        seeded=tuple(sorted(starts.items())),
        source_configs=values,
    )


def _glance(destination: ClusterAdmin, mirror_topic: str) -> TopicDescription | None:
    """Look for the topic once: mostly there is none, and if one broker has not heard of it yet the creation tells."""
    return next(iter(destination.topics([mirror_topic])), None)


def _still_to_seed(
    destination: ClusterAdmin, setup: MirrorSetup, present: TopicDescription | None, *, starts: Mapping[int, int]
) -> dict[int, int]:
    """Pick the heads no earlier attempt has finished; raise TOPIC_EXISTS_ERROR for a topic that is no mirror of ours.

    The rules that this attempt has put on its name, or one that died right after that, are taken off it before.
    """
    if present is None:
        return dict(starts)
    if looks_like_mirror(present.configs):
        return _unseeded(destination, present, starts)
    if setup.guard and not setup.contested:
        open_topic(destination.address, present.name)
    raise _exists(present.name)


def _seed(
    setup: MirrorSetup,
    assignments: Sequence[PartitionAssignment],
    *,
    starts: Mapping[int, int],
    check_ours: Callable[[], None],
) -> None:
    for one in assignments:
        if one.partition in starts:
            log.info("seeding_head", topic=one.mirror_topic, partition=one.partition, start=starts[one.partition])
            seed_head(setup.destination, one, start=starts[one.partition], check_ours=check_ours)


def _starts(admin: ClusterAdmin, topic: TopicDescription) -> dict[int, int]:
    return admin.offsets(topic.name, OffsetKind.START, partitions=topic.partitions)


def _wanted_starts(source: ClusterAdmin, topic: TopicDescription, spec: str) -> dict[int, int]:
    """Answer where each partition begins; "latest" is before the first open transaction, so that none is split."""
    starts = _starts(source, topic)
    if spec == EARLIEST:
        return starts
    ends = source.offsets(topic.name, OffsetKind.STABLE_END, partitions=topic.partitions)
    moment_ms = start_time_ms(spec)
    found = {} if moment_ms is None else source.offsets_at(topic.name, moment_ms, partitions=topic.partitions)
    chosen = {partition: end if found.get(partition, -1) < 0 else found[partition] for partition, end in ends.items()}
    return {partition: max(offset, starts[partition]) for partition, offset in chosen.items()}


def _unseeded(destination: ClusterAdmin, mirror: TopicDescription, starts: Mapping[int, int]) -> dict[int, int]:
    """Pick the partitions an earlier attempt left unseeded or untrimmed; raise where it lifted one beyond where it begins."""
    begins = _starts(destination, mirror)
    ends = destination.offsets(mirror.name, OffsetKind.END, partitions=mirror.partitions)
    _check_lifted(mirror.name, ends, starts=starts)
    return {
        partition: start
        for partition, start in starts.items()
        if ends.get(partition, 0) < start or (ends[partition] == start and begins[partition] < start)
    }


def _check_lifted(mirror_topic: str, ends: Mapping[int, int], *, starts: Mapping[int, int]) -> None:
    """Where one topic begins only grows, and nothing is copied before the set-up is over."""
    for partition, end in sorted(ends.items()):
        if end > starts.get(partition, 0):
            raise LinkEngineError(
                ErrorCode.SOURCE_TOPIC_ID_CHANGED,
                f"An attempt to set up {mirror_topic!r} has made it begin at offset {end} of partition {partition}, and its "
                f"source begins at {starts.get(partition, 0)} now: it was deleted and created again meanwhile, or has lost "
                "records. What lies between would be left out. Delete the mirror topic here and create it again.",
            )


def _guard(destination: ClusterAdmin, topic: str, *, hide: bool) -> bool:
    if not destination.has_authorizer():
        return False
    destination.deny_writes(topic)
    if hide:
        destination.deny_reads(topic)
    return True


def _first_configs(setup: MirrorSetup, values: Mapping[str, str], *, seeding: bool) -> dict[str, str]:
    wanted = mirror_configs(values, include=setup.sync_include, overrides=setup.configs)
    if seeding and is_compacted(wanted):
        wanted["cleanup.policy"] = "delete"  # a compacted topic refuses the keyless fillers; the policy follows after them
    return wanted


def _create(destination: ClusterAdmin, setup: MirrorSetup, topic: TopicDescription, *, wanted: Mapping[str, str]) -> bool:
    """Create the topic; answer False where there is one of its name."""
    try:
        destination.create_topic(
            setup.mirror_topic, partitions=topic.partitions, replication_factor=setup.replication_factor, configs=wanted
        )
    except LinkEngineError as error:
        if error.code is not ErrorCode.TOPIC_EXISTS_ERROR:
            raise
        return False
    return True


def _adopt(destination: ClusterAdmin, setup: MirrorSetup, topic: TopicDescription, *, wanted: Mapping[str, str]) -> None:
    """Go on with the topic of an earlier attempt."""
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
            f"User {setup.destination.sasl_username!r} may not write to mirror topic {setup.mirror_topic!r}: the DENY WRITE "
            "that makes it read-only holds for everybody but super users. Add it to super.users of the destination brokers.",
        )


def _exists(topic: str) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.TOPIC_EXISTS_ERROR,
        f"Topic {topic!r} already exists on the destination cluster and is no mirror. Delete it, or use a link with a prefix.",
    )
