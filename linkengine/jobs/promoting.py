"""What a promotion still waits for: a promoted mirror equals its source in records, partitions and configs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import NEEDED
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import TopicDescription
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.kafka.newest_offsets import TopicEnds, newest_ends
from linkengine.sync.configs import pending_change, read_source_configs
from linkengine.sync.topics import missing_mirror

Blocker = tuple[ErrorCode, str]
_NAMED_AT_MOST = 3  # lagging partitions listed in a message


def promotion_blockers(
    *,
    source: ClusterAddress,
    destination: ClusterAddress,
    source_topic: str,
    mirror_topic: str,
    sync_include: tuple[str, ...] | None = None,
    refused: Collection[str] = (),
) -> list[Blocker]:
    """Return (code, message) of everything the promotion waits for; empty if it may continue. Changes nothing.

    Configs that the destination has just ``refused`` are not waited for, unless the topic needs them: the stop tries them once
    more and reports them.

    Producers must have stopped writing to the source, or the result is outdated at once. Run ``sync_mirror`` first, so that
    configs and partitions need not wait for its next run.
    """
    there, here = ClusterAdmin(source), ClusterAdmin(destination)
    try:
        ends, mirror = newest_ends(source, source_topic), here.find(mirror_topic)
        if mirror is None:
            raise missing_mirror(mirror_topic)
        if len(ends.ends) != mirror.partitions:
            return [_partitions(ends, mirror)]
        values = read_source_configs(there, source_topic, include=sync_include)
        change = pending_change(here, mirror_topic, source_configs=values, include=sync_include)
        pending = [name for name in change.names if name not in refused or name in NEEDED]
        configs = [_configs(pending)] if pending else []
        return [*_lags(ends, here.offsets(mirror_topic, OffsetKind.END, partitions=mirror.partitions)), *configs]
    except LinkEngineError as error:
        return [(error.code, error.message)]


def _lags(source: TopicEnds, mirrored: Mapping[int, int]) -> Iterator[Blocker]:
    stable, ends = source.stable, source.ends
    behind = {partition: stable[partition] - end for partition, end in mirrored.items() if stable[partition] > end}
    if behind:
        yield ErrorCode.WAITING_FOR_LAG, _lag_message(behind)
    ahead = [partition for partition, end in mirrored.items() if end > ends[partition]]
    if ahead:
        yield ErrorCode.UNEXPECTED_TRUNCATION, _ahead_message(ahead[0])
    pending = [partition for partition in stable if stable[partition] < ends[partition]]
    if pending and not behind:
        yield ErrorCode.WAITING_FOR_LAG, _open_transaction_message(pending[0])


def _lag_message(behind: dict[int, int]) -> str:
    worst = sorted(behind, key=lambda partition: -behind[partition])[:_NAMED_AT_MOST]
    named = ", ".join(f"partition {partition}: {behind[partition]}" for partition in worst)
    return f"{sum(behind.values())} offsets are still to be copied from the source ({named}). Mirroring continues until then."


def _ahead_message(partition: int) -> str:
    return (
        f"The mirror is ahead of its source in partition {partition}: the source has lost acknowledged records (an unclean "
        "leader election?), or another producer wrote to the mirror. Fail over to keep the mirror as it is."
    )


def _open_transaction_message(partition: int) -> str:
    return (
        f"A transaction is still open on the source in partition {partition}; its records are copied when it ends. Wait for "
        "its producer or for the transaction timeout."
    )


def _partitions(source: TopicEnds, mirror: TopicDescription) -> Blocker:
    return ErrorCode.WAITING_FOR_PARTITIONS, (
        f"The source topic has {len(source.ends)} partitions, the mirror {mirror.partitions}. The next run adds them."
    )


def _configs(names: Sequence[str]) -> Blocker:
    return ErrorCode.WAITING_FOR_CONFIGS, f"Configs of the mirror do not equal the source's yet: {', '.join(names)}."
