"""Change the direction between two topics: close the present source to producers, take a topic over as the new mirror.

Never both sides writable: the source is closed on every broker before its mirror drains, and stays closed until a person fails
it over. A Produce that passed the authorizer before the rule came is over within moments; whoever drains looks twice, and
``turn_mirror`` proves with a marker at the agreed offset that nobody came between.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import partial

import structlog

from linkengine.copyjob.adopt import adopt_partitions, claimed_partitions
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import follows_start
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorCreated, MirrorTurn
from linkengine.domain.plans import LogRange
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.closing import brokers_that_let_write
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.codes import BrokerError, UnreplicatedError
from linkengine.kafka.newestends import count_partitions, kept_under, newest_view, read_ends, read_offsets
from linkengine.kafka.offsets import EARLIEST, log_ends
from linkengine.kafka.topicviews import TopicView
from linkengine.sync.configs import read_source_configs, sync_configs
from linkengine.sync.topics import follow_partitions, observe_source

log = structlog.get_logger(__name__)


def close_topic(address: ClusterAddress, topic: str) -> None:
    """Make an ordinary topic read-only on every broker; raise TIMEOUT_ERROR while one has not heard of it. Safe to repeat."""
    admin = ClusterAdmin(address)
    if not admin.has_authorizer():
        raise LinkEngineError(
            ErrorCode.SECURITY_DISABLED_ERROR,
            f"The cluster of topic {topic!r} has no authorizer, so its producers cannot be kept out. Set authorizer.class.name "
            "on its brokers, or stop the producers and promote instead.",
        )
    if not admin.denies_writes(topic):
        admin.deny_writes(topic)
        log.info("topic_closed", topic=topic)
    cluster = Cluster(address)
    try:
        late = brokers_that_let_write(cluster, topic)
    finally:
        cluster.close()
    if late:
        raise LinkEngineError(
            ErrorCode.TIMEOUT_ERROR, f"Broker {late[0]} does not refuse writes to topic {topic!r} yet. Asked again shortly."
        )


def open_topic(address: ClusterAddress, topic: str) -> None:
    """Take the rules away that close a topic or hide it. Safe to repeat, also where there is no topic."""
    admin = ClusterAdmin(address)
    admin.allow_writes(topic)
    admin.allow_reads(topic)


def open_if_closed(address: ClusterAddress, topic: str) -> None:
    """Do the same for whoever may not set rules, perhaps: then there are none of ours. Safe to repeat."""
    admin = ClusterAdmin(address)
    try:
        if admin.has_authorizer() and admin.denies_writes(topic):
            admin.allow_writes(topic)
    except LinkEngineError as error:
        if error.code != ErrorCode.AUTHORIZATION_ERROR:
            raise
        log.info("topic_not_opened", topic=topic, code=error.code)


def log_ranges(address: ClusterAddress, topic: str, *, closed: bool = True) -> tuple[LogRange, ...]:
    """Answer what each partition of a topic holds; raise while one has no leader, or a broker is silent (``newest_view``).

    Of a ``closed`` topic this is final, so it also raises while the leader holds what its followers do not have.
    """
    with closing(Cluster(address)) as cluster:
        view = newest_view(cluster, topic)
        starts, found = read_offsets(cluster, topic, view, timestamp=EARLIEST), read_ends(cluster, topic, view)
        if closed:
            _check_replicated(cluster, topic, view, visible=found.ends)
    return tuple(
        LogRange(partition=number, start=starts[number], end=end, stable_end=found.stable[number])
        for number, end in sorted(found.ends.items())
    )


def kept_up_to(address: ClusterAddress, topic: str, *, epochs: Mapping[int, int]) -> dict[int, int]:
    """Answer, by partition, up to which offset a topic still holds what was read of it under these leader epochs.

    0 where that cannot be told; see ``kept_under``. Raises while one has no leader, or a broker is silent (``newest_view``).
    """
    with closing(Cluster(address)) as cluster:
        return kept_under(cluster, topic, newest_view(cluster, topic), epochs=epochs)


def _check_replicated(cluster: Cluster, topic: str, view: TopicView, *, visible: Mapping[int, int]) -> None:
    """Records beyond the high watermark may have been acknowledged (acks=1) although nobody can read them yet."""
    for broker, epochs in view.by_leader().items():
        places = {(topic, number): epoch for number, epoch in epochs.items()}
        for (_, number), (error, end) in log_ends(cluster, broker, places).items():
            if error:
                raise BrokerError(error, f"The end of {topic}-{number} cannot be seen")
            if end > visible.get(number, end):
                raise UnreplicatedError(topic, number)


def turn_mirror(turn: MirrorTurn) -> MirrorCreated:
    """Take a closed topic over as a mirror and give it a mirror's configs; safe to repeat.

    Raises SIDES_DIVERGED where it holds records the other side lacks, or never had and would take from it, or is another topic
    than was agreed; SOURCE_TOPIC_ID_CHANGED where the other side's is.
    """
    source, here = ClusterAdmin(turn.source), ClusterAdmin(turn.destination)
    topic = observe_source(source, turn.source_topic, topic_id=turn.source_topic_id)
    _check_same(here, turn)
    close_topic(turn.destination, turn.mirror_topic)
    _check_beginning(here, turn)
    adopt_partitions(turn.destination, turn.assignments, ends=dict(turn.ends), generation=turn.generation)
    values = read_source_configs(source, turn.source_topic, include=turn.sync_include)
    recount = partial(count_partitions, turn.source, topic.name)
    partitions = follow_partitions(here, turn.mirror_topic, partitions=topic.partitions, recount=recount)
    sync_configs(here, turn.mirror_topic, source_configs=values, include=turn.sync_include)
    log.info("mirror_turned", topic=turn.mirror_topic, ends=turn.ends)
    return MirrorCreated(
        source_topic_id=topic.topic_id,
        mirror_topic_id=turn.mirror_topic_id,
        partitions=partitions,
        read_only=True,
        source_configs=values,
    )


def claimed_before(turn: MirrorTurn) -> frozenset[int]:
    """List the partitions that an earlier attempt has claimed, since which nobody wrote."""
    return claimed_partitions(turn.destination, turn.assignments, ends=dict(turn.ends))


def _check_same(here: ClusterAdmin, turn: MirrorTurn) -> None:
    """A topic that was created again may be shorter than the copy, and would pass for its beginning."""
    if here.describe(turn.mirror_topic).topic_id == turn.mirror_topic_id:
        return
    raise LinkEngineError(
        ErrorCode.SIDES_DIVERGED,
        f"Topic {turn.mirror_topic!r} was deleted and created again, so what it holds is not the other side's and it cannot "
        "become its mirror as it is. Fail over here to make it writable again; truncate-and-restore then sets its records "
        "aside.",
    )


def _check_beginning(here: ClusterAdmin, turn: MirrorTurn) -> None:
    """A mirror is cut to where its source begins; nothing may go that the other side has never held."""
    if not turn.begins or not follows_start(turn.sync_include):
        return
    starts = here.offsets(turn.mirror_topic, OffsetKind.START)
    older = [(number, starts[number], begin) for number, begin in turn.begins if starts.get(number, begin) < begin]
    if older:
        partition, start, begin = older[0]
        raise LinkEngineError(
            ErrorCode.SIDES_DIVERGED,
            f"Topic {turn.mirror_topic!r} holds older records than the other side ever had (partition {partition} from offset "
            f"{start} on, the other side from {begin} on), and would lose them as its mirror. Fail over here to make it "
            "writable again; truncate-and-restore then sets these records aside.",
        )
