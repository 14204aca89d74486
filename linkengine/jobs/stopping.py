"""Turn mirrors into ordinary, writable topics: the last step of a promotion and all of a failover.

Steps for each mirror, in this order:

1. The fence, so that no stale copy worker appends after it. The ends are recorded. Ends that an earlier attempt has recorded
   count only if the mirror has not been copied since (``takeover.rewritten_from``).
2. Consumer groups are moved to the end. This comes before producers, because a group beyond the end would skip what they write.
   A refusal or a timeout is returned and does not stop the other steps.
3. DENY WRITE is removed: producers may write.
4. Steps that a cluster may refuse: fillers at the head are removed, the source's configs are restored. Refusals are returned,
   and the caller stores them for a retry (``restore_source_configs``).

Between 3 and 4 the topic still has a mirror's configs: unlimited retention, CreateTime, the largest message limit. So nothing
is deleted early, and nothing is refused that the source would have accepted.
A failover does not contact the source if its configs are known from before.

All functions take a list of mirrors; a single mirror is a list of one. Mirrors go through steps 2 and 3 as soon as all of their
own partitions are fenced, and through step 4 together, after all openings. Steps that may take long for a mirror (a partition
without a leader, a topic that has to be searched for, a log that has to be read) run only if it is the only mirror of the list.
Otherwise the mirror is left out of the result, and the caller stops it in a list of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

import structlog

from linkengine.copyjob.stop.fence import Fence, FenceOrError, fence_partitions
from linkengine.copyjob.stop.takeover import foreign_starts, foreign_write_starts, reads_log, rewritten_from
from linkengine.domain.configs import ConfigChange, has_mirror_configs
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import ClampedOffset
from linkengine.domain.mirrorjobs import FILLERS, MirrorStop, MirrorStopped, RefusedStep
from linkengine.domain.plans import PartitionAssignment, TopicDescription
from linkengine.domain.states import StopReason
from linkengine.jobs.reversing import open_if_closed, open_topic
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from linkengine.sync.offset_clamping import clamp_stopped
from linkengine.sync.topics import (
    find_mirror,
    missing_mirror,
    restore_configs,
    restoring_change,
    was_stopped,
)

_REFUSED = frozenset({ErrorCode.POLICY_VIOLATION_ERROR, ErrorCode.AUTHORIZATION_ERROR, ErrorCode.INVALID_REQUEST_ERROR})
SLOW_S = 2.0  # to move the groups of a mirror; then those of the other mirrors of the list are not moved one after another
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Mirror:
    """A mirror that is being stopped, with the results of the steps so far."""

    stop: MirrorStop
    found: TopicDescription
    restores_configs: bool = False
    fences: dict[int, Fence] = field(default_factory=dict)  # of this attempt, by partition
    stopped: MirrorStopped = field(default_factory=lambda: MirrorStopped(ends=()))
    heads: dict[int, int] = field(default_factory=dict)
    refused: list[RefusedStep] = field(default_factory=list)

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self.found.name

    @property
    def may_hold_head(self) -> bool:
        """Whether the topic may hold part of a head."""
        return self.stop.seeding and has_mirror_configs(self.found.configs)

    @property
    def unfenced(self) -> list[PartitionAssignment]:
        """The partitions without a known fence.

        They have the id of the topic that was found, so that a topic that takes its name in between is not fenced.
        """
        known = dict(self.stop.fenced_ends).keys() | self.fences.keys()
        partitions = (partition for partition in self.stop.assignments if partition.partition not in known)
        return [replace(partition, mirror_topic_id=self.found.topic_id) for partition in partitions]

    @property
    def ends(self) -> dict[int, int]:
        """The known ends by partition."""
        return dict(self.stop.fenced_ends) | {number: fence.end for number, fence in self.fences.items()}


def stop_mirrors(
    stops: Sequence[MirrorStop],
    *,
    on_fenced: Callable[[Mapping[str, MirrorStopped]], None] = lambda _: None,
    on_clamped: Callable[[Mapping[str, Sequence[ClampedOffset]]], None] = lambda _: None,
    on_open: Callable[[Collection[str]], None] = lambda _: None,
    still_owned: Callable[[Collection[str]], Collection[str]] = lambda topics: topics,
) -> dict[str, MirrorStopped | LinkEngineError]:
    """Fence mirrors, move groups to their ends, allow writes, restore the sources' configs. Safe to repeat.

    Returns results by mirror topic. Mirrors are independent: the failure of a mirror neither fails nor delays the others. The
    error of a mirror is returned if it is the only one. Otherwise mirrors that fail, or whose stop may take long, are left out
    of the result, perhaps fenced already; stop each of them in a list of its own.

    ``on_fenced`` records the ends of a mirror before producers may write; if a partition could not be fenced, it records those
    of the other partitions. Once producers have written, the ends can no longer be found in the log: a later attempt needs them
    in ``stop.fenced_ends``, and ``restores_configs`` in ``stop.restoring_configs``. ``on_clamped`` stores which groups were
    moved, since a later attempt finds them in place. ``on_open`` is called when producers may write. ``still_owned`` returns
    the topics whose stop this worker still owns. The others are left out of the result and not changed further, since they may
    be mirrors again, which need their configs and ACLs.

    Configs and groups are not changed if the topic was only to become a mirror and does not have a mirror's configs yet, or if
    it was stopped before, because applications may have used it since. If the topic is not this mirror's own
    (``find_mirror``), it counts as missing: it keeps its records and configs, only the ACLs of the mirror are removed, and the
    error is MIRROR_TOPIC_MISSING. Other errors are those of the destination. Its refusals after step 3 are part of
    ``MirrorStopped``.
    """
    if not stops:
        return {}
    stopping = _Stopping(stops, on_fenced=on_fenced, on_clamped=on_clamped, on_open=on_open, still_owned=still_owned)
    for steps in (stopping.open_fenced, stopping.finish_open):
        try:
            steps()
        except LinkEngineError as error:  # of the whole cluster
            stopping.fail_all(error)
    return stopping.results


class _Stopping:
    """The state of a ``stop_mirrors`` call: the mirrors that are open, and the results so far."""

    def __init__(
        self,
        stops: Sequence[MirrorStop],
        *,
        on_fenced: Callable[[Mapping[str, MirrorStopped]], None],
        on_clamped: Callable[[Mapping[str, Sequence[ClampedOffset]]], None],
        on_open: Callable[[Collection[str]], None],
        still_owned: Callable[[Collection[str]], Collection[str]],
    ) -> None:
        assert len({stop.destination for stop in stops}) == 1
        self._stops, self._alone = stops, len(stops) == 1
        self._address = stops[0].destination
        self._destination = ClusterAdmin(self._address)
        self._on_fenced, self._on_clamped, self._on_open, self._still_owned = on_fenced, on_clamped, on_open, still_owned
        self._opened: list[_Mirror] = []
        self._groups_are_slow = False
        self.results: dict[str, MirrorStopped | LinkEngineError] = {}

    def open_fenced(self) -> None:
        """Carry out steps 1 to 3 for the mirrors as far as possible."""
        confirmed = self._run_step(self._find(), self._drop_outdated_fences)
        mirrors = self._owned(self._run_step(confirmed, self._note_restores_configs))
        by_key = {partition.key: (mirror, partition.partition) for mirror in mirrors for partition in mirror.unfenced}
        self._open_all([mirror for mirror in mirrors if not mirror.unfenced])
        failures: dict[str, LinkEngineError] = {}
        with closing(self._fences(mirrors)) as rounds:
            for found in rounds:
                for key, fence in found.items():
                    mirror, number = by_key[key]
                    if isinstance(fence, Fence):
                        mirror.fences[number] = fence
                    else:
                        failures[mirror.topic] = fence
                seen = {by_key[key][0].topic: by_key[key][0] for key in found}
                self._open_all([mirror for mirror in seen.values() if not mirror.unfenced])
        self._fail_partly_fenced([mirror for mirror in mirrors if mirror.topic in failures], failures)

    def finish_open(self) -> None:
        """Carry out step 4 for all mirrors that are open."""
        if not self._opened:
            return
        for mirror in self._restore_configs(self._run_step(self._opened, self._finish_seeding)):
            stopped = replace(mirror.stopped, refused=tuple(mirror.refused))
            self.results[mirror.topic] = stopped
            names = [step.name for step in stopped.refused]
            log.info("mirror.stopped", topic=mirror.topic, reason=mirror.stop.reason, ends=stopped.ends, refused=names)

    def fail_all(self, error: LinkEngineError) -> None:
        """Note an error for all mirrors without a result."""
        for stop in self._stops:
            if _topic_of(stop) not in self.results:
                self._fail(_topic_of(stop), error)

    def _fail(self, topic: str, error: LinkEngineError) -> None:
        log.warning("mirror.not_stopped", topic=topic, code=error.code, alone=self._alone)
        if self._alone:
            self.results[topic] = error

    def _run_step(self, mirrors: Iterable[_Mirror], step: Callable[[_Mirror], None]) -> list[_Mirror]:
        """Carry out a step for each mirror; return those for which it succeeded."""
        kept: list[_Mirror] = []
        for mirror in mirrors:
            try:
                step(mirror)
            except LinkEngineError as error:
                self._fail(mirror.topic, error)
            else:
                kept.append(mirror)
        return kept

    def _owned(self, mirrors: Sequence[_Mirror]) -> list[_Mirror]:
        owned = set(self._still_owned([mirror.topic for mirror in mirrors])) if mirrors else set()
        return [mirror for mirror in mirrors if mirror.topic in owned]

    # before the fence

    def _find(self) -> list[_Mirror]:
        """Describe the topics, with two requests per 500; if there is only one and it is missing, remove its ACLs."""
        chosen = [stop for stop in self._stops if self._alone or not _takes_long(stop)]
        seen = {topic.name: topic for topic in self._destination.topics([_topic_of(stop) for stop in chosen])}
        mirrors: list[_Mirror] = []
        for stop in chosen:
            found = seen.get(_topic_of(stop))
            if self._alone:
                found = _find_topic(self._destination, stop, seen=found)
            elif found is not None and found.topic_id != stop.mirror_topic_id:
                found = None
            if found is not None:
                mirrors.append(_Mirror(stop=stop, found=found))
            elif self._alone and self._still_owned([_topic_of(stop)]):
                self._fail(_topic_of(stop), _missing(stop))
        return mirrors

    def _drop_outdated_fences(self, mirror: _Mirror) -> None:
        """Remove recorded fences behind which the mirror was copied again; these partitions are fenced anew.

        An ordinary topic is not copied, so its stop does not wait until it can be read.
        """
        stop = mirror.stop
        try:
            rewritten = rewritten_from(self._address, stop.assignments, fences=dict(stop.fenced_ends))
        except LinkEngineError:
            if has_mirror_configs(mirror.found.configs):
                raise
            return
        if rewritten:
            kept = tuple((number, fence) for number, fence in stop.fenced_ends if number not in rewritten)
            copied = tuple(sorted((dict(stop.copied) | rewritten).items()))
            mirror.stop = replace(stop, fenced_ends=kept, copied=copied, restoring_configs=False)

    def _note_restores_configs(self, mirror: _Mirror) -> None:
        mirror.restores_configs = mirror.stop.restoring_configs or _is_mirror(self._destination, mirror.stop, mirror.found)
        if not mirror.restores_configs and not self._alone:
            raise _deferred_error(mirror)

    def _fences(self, mirrors: Sequence[_Mirror]) -> Generator[dict[str, FenceOrError]]:
        unfenced = [(mirror, partition) for mirror in mirrors for partition in mirror.unfenced]
        generations = {partition.key: mirror.stop.generation for mirror, partition in unfenced}
        partitions = [partition for _, partition in unfenced]
        return fence_partitions(self._address, partitions, generations=generations, patient=self._alone)

    def _fail_partly_fenced(self, mirrors: Sequence[_Mirror], failures: Mapping[str, LinkEngineError]) -> None:
        """Record the fences of mirrors of which a partition could not be fenced, and note the error of each mirror.

        The leader of that partition may be unavailable for hours. On a cluster without an authorizer, applications may write
        after the other fences in this time. The next attempt would not recognize these fences then, and write new ones.
        """
        with suppress(LinkEngineError):  # the error that prevents the stop is returned
            self._record(self._run_step([mirror for mirror in mirrors if mirror.fences], self._note_ends))
        for mirror in mirrors:
            self._fail(mirror.topic, failures[mirror.topic])

    # after the fence

    def _open_all(self, fenced: Sequence[_Mirror]) -> None:
        """Record and open mirrors whose partitions are fenced; those without a group to be moved come first."""
        mirrors = self._owned(self._record(self._run_step(fenced, self._note_ends)))
        waiting = {mirror.topic for mirror in mirrors if _has_groups_to_move(mirror)}
        self._open([mirror for mirror in mirrors if mirror.topic not in waiting])
        self._open([mirror for mirror in mirrors if mirror.topic in waiting])

    def _note_ends(self, mirror: _Mirror) -> None:
        """Determine the ends, and the offsets from which the mirror holds records that were not mirrored."""
        ends, epochs = mirror.ends, {number: fence.epoch for number, fence in mirror.fences.items()}
        assignments = [partition for partition in mirror.stop.assignments if partition.partition in ends]
        if not self._alone and reads_log(mirror.stop, assignments, ends):
            raise _deferred_error(mirror)
        foreign = foreign_write_starts(mirror.stop, assignments, ends)
        mirror.stopped = MirrorStopped(
            ends=tuple(sorted(ends.items())),
            foreign=tuple(sorted(foreign.items())),
            epochs=tuple(sorted(epochs.items())),
            restores_configs=mirror.restores_configs,
        )

    def _record(self, mirrors: Sequence[_Mirror]) -> list[_Mirror]:
        owned = self._owned(mirrors)
        if owned:
            self._on_fenced({mirror.topic: mirror.stopped for mirror in owned})
        return owned

    def _open(self, mirrors: Sequence[_Mirror]) -> None:
        prepared: list[_Mirror] = []
        for mirror in mirrors:
            # Moving the groups of the mirrors before it takes time. If another worker has opened this mirror since, its groups
            # may have read new records.
            owned = self._owned([mirror]) if _has_groups_to_move(mirror) else [mirror]
            prepared += self._run_step(owned, self._prepare)
        mirrors = self._owned(prepared)
        moved = {mirror.topic: [offset for offset in mirror.stopped.clamped if not offset.message] for mirror in mirrors}
        if any(moved.values()):
            self._on_clamped(moved)
        mirrors = self._allow_writes(mirrors)
        if not mirrors:
            return
        self._on_open([mirror.topic for mirror in mirrors])
        self._opened += mirrors

    def _prepare(self, mirror: _Mirror) -> None:
        """Move groups, and note where heads end, as long as producers may not write.

        A coordinator that does not respond takes seconds per mirror.
        """
        if self._groups_are_slow and _has_groups_to_move(mirror):
            raise _deferred_error(mirror)
        if mirror.restores_configs:
            began = time.monotonic()
            clamped = clamp_stopped(self._destination, mirror.found, mirror.stop, mirror.stopped)
            mirror.stopped = replace(mirror.stopped, clamped=tuple(clamped))
            self._groups_are_slow |= time.monotonic() - began > SLOW_S
        mirror.heads = _filler_ends(self._destination, mirror.found, mirror.stopped) if mirror.may_hold_head else {}

    def _allow_writes(self, mirrors: Sequence[_Mirror]) -> list[_Mirror]:
        refused = self._destination.allow_many_writes([mirror.topic for mirror in mirrors if mirror.stop.guard])

        def check(mirror: _Mirror) -> None:
            if mirror.topic in refused:
                raise refused[mirror.topic]
            if mirror.stop.was_closed and not mirror.stop.guard:
                open_if_closed(self._address, mirror.topic)

        return self._run_step(mirrors, check)

    def _finish_seeding(self, mirror: _Mirror) -> None:
        if mirror.may_hold_head:
            mirror.refused += _remove_head(self._destination, mirror.stop, mirror.stopped, heads=mirror.heads)

    def _restore_configs(self, mirrors: Sequence[_Mirror]) -> list[_Mirror]:
        topics = [mirror.topic for mirror in mirrors if mirror.restores_configs]
        present = {topic.name: topic.configs for topic in self._destination.topics(topics)} if topics else {}
        changes: dict[str, ConfigChange] = {}

        def note_change(mirror: _Mirror) -> None:
            if not mirror.restores_configs:
                return
            if mirror.topic not in present and not self._alone:
                raise _deferred_error(mirror)
            configs = present.get(mirror.topic)
            configs = self._destination.describe(mirror.topic).configs if configs is None else configs
            changes[mirror.topic] = restoring_change(mirror.stop, configs)

        mirrors = self._owned(self._run_step(mirrors, note_change))
        kept = {mirror.topic for mirror in mirrors}
        refused = restore_configs(self._destination, {topic: change for topic, change in changes.items() if topic in kept})
        for mirror in mirrors:
            mirror.refused += refused.get(mirror.topic, ())
        return mirrors


def _deferred_error(mirror: _Mirror) -> LinkEngineError:
    """Return the error of a mirror that is left out because it would delay the other mirrors of the list."""
    message = f"Mirror topic {mirror.topic!r} is not stopped together with others, since its stop may take long. Retrying."
    return LinkEngineError(ErrorCode.TIMEOUT_ERROR, message)


def _takes_long(stop: MirrorStop) -> bool:
    """Return whether a stop would delay other mirrors.

    It does if its topic has to be searched for, if a head was being seeded, or if it needs a transaction coordinator or the
    source.
    """
    by_transactions = any(partition.transactional_id for partition in stop.assignments)
    contacts_source = stop.reason is not StopReason.FAILOVER or not stop.source_configs
    return not stop.mirror_topic_id or stop.seeding or by_transactions or contacts_source


def _has_groups_to_move(mirror: _Mirror) -> bool:
    ends = dict(mirror.stopped.ends) | dict(mirror.stopped.foreign)
    offsets = mirror.stop.group_offsets if mirror.restores_configs else ()
    return any(offset.partition in ends and not offset.is_in_place(ends[offset.partition]) for offset in offsets)


def restore_source_configs(stop: MirrorStop, *, check_owner: Callable[[], None] = lambda: None) -> tuple[RefusedStep, ...]:
    """Restore the source's configs that a stopped mirror still lacks; return what the destination refuses. Safe to repeat.

    A config with another value than the mirror's is left alone: it was set by a user since. Raises MIRROR_TOPIC_MISSING if
    the topic is gone.
    """
    destination = ClusterAdmin(stop.destination)
    found = _find_topic(destination, stop)
    if found is None:
        raise missing_mirror(_topic_of(stop))
    # the source's values of the time of the stop, not current ones
    known = replace(stop, restoring_configs=True, reason=StopReason.FAILOVER)
    change = restoring_change(known, found.configs)
    check_owner()
    return restore_configs(destination, {found.name: change}).get(found.name, ())


def reopen_mirror(stop: MirrorStop) -> tuple[str, tuple[RefusedStep, ...]]:
    """Undo the late changes of a set-up or takeover that was suspended while the mirror was stopped.

    It changed configs and ACLs of a topic that is an ordinary topic by now. Nothing is fenced or trimmed: applications may have
    written since. Returns the topic's id ("" if there is no topic) and what the destination refused.
    """
    destination = ClusterAdmin(stop.destination)
    found = _find_topic(destination, stop)
    _remove_acls(stop, found)
    refused: tuple[RefusedStep, ...] = ()
    if found is not None and has_mirror_configs(found.configs):
        change = restoring_change(stop, found.configs)
        refused = restore_configs(destination, {found.name: change}).get(found.name, ())
    log.warning("mirror.reopened", topic=_topic_of(stop), found=found is not None, refused=[step.name for step in refused])
    return (found.topic_id if found is not None else "", refused)


def _missing(stop: MirrorStop) -> LinkEngineError:
    """Remove the mirror's ACLs from the name of a topic that is gone, and return the error for the missing topic."""
    error = missing_mirror(_topic_of(stop))
    try:
        _remove_acls(stop, None)
    except LinkEngineError as refusal:
        if refusal.code != ErrorCode.AUTHORIZATION_ERROR:
            raise
        message = f"{error.message} The ACL DENY WRITE on its name could not be removed: {refusal.message}"
        return LinkEngineError(error.code, message)
    return error


def _is_mirror(destination: ClusterAdmin, stop: MirrorStop, found: TopicDescription) -> bool:
    """Return whether the topic's configs and groups are a mirror's, so that the stop changes them."""
    if not stop.was_mirror:
        return has_mirror_configs(found.configs)
    return not was_stopped(destination, found, guard=stop.guard, failed=stop.failed)


def _topic_of(stop: MirrorStop) -> str:
    return stop.mirror_topic or stop.assignments[0].mirror_topic


def _find_topic(
    destination: ClusterAdmin, stop: MirrorStop, *, seen: TopicDescription | None = None
) -> TopicDescription | None:
    return find_mirror(destination, _topic_of(stop), topic_id=stop.mirror_topic_id, contested=stop.contested, seen=seen)


def _remove_acls(stop: MirrorStop, found: TopicDescription | None) -> None:
    """Remove the mirror's ACLs from its name, unless they guard another mirror there."""
    if found is None and stop.contested:
        return
    if stop.guard:
        open_topic(stop.destination, _topic_of(stop))
    elif stop.was_closed:
        open_if_closed(stop.destination, _topic_of(stop))


def _filler_ends(destination: ClusterAdmin, found: TopicDescription, stopped: MirrorStopped) -> dict[int, int]:
    """Return, by partition, the end of the fillers of a topic that never held a record; to be called while writes are denied.

    The fillers end with the fence. A partition without a fence, because its set-up did not get that far, is all fillers up to
    its log end; it is left out if an earlier attempt has allowed writes.
    """
    fences = {number: fence + 1 for number, fence in stopped.ends}
    if len(fences) >= found.partitions or not destination.denies_writes(found.name):
        return fences
    return destination.offsets(found.name, OffsetKind.END, partitions=found.partitions) | fences


def _remove_head(
    destination: ClusterAdmin, stop: MirrorStop, stopped: MirrorStopped, *, heads: Mapping[int, int]
) -> list[RefusedStep]:
    """Delete the fillers of a head that is not fully seeded, and make the (empty) topic readable.

    Call it only for a topic that never held a record: on other topics, an ACL that denies reads may have been set by a user or
    synced from the source. Producers may have written after the fence by now. Fillers that cannot be deleted stay visible, as
    records without key and value. Raises if the cluster does not respond, for another attempt.
    """
    topic, refused = _topic_of(stop), list[RefusedStep]()
    guarded = stop.guard and destination.has_authorizer()
    if guarded and not destination.denies_reads(topic):
        return []
    try:
        destination.trim(topic, heads if guarded else _open_heads(destination, stop, stopped))
    except LinkEngineError as error:
        if error.code not in _REFUSED:
            raise
        refused.append(RefusedStep(name=FILLERS, value=None, code=error.code, message=error.message))
    if guarded:
        destination.allow_reads(topic)
    return refused


def _open_heads(destination: ClusterAdmin, stop: MirrorStop, stopped: MirrorStopped) -> dict[int, int]:
    """Return, by partition, the end of the fillers if producers could not be denied: the offset after the fence.

    Left out are partitions without fillers, and partitions with a foreign write below the fence, which must not be deleted.
    """
    fences, starts = dict(stopped.ends), destination.offsets(_topic_of(stop), OffsetKind.START)
    filled = {number: starts[number] for number, fence in fences.items() if starts.get(number, fence) < fence}
    others = foreign_starts(stop.destination, stop.assignments, fences=fences, copied=filled)
    return {number: fences[number] + 1 for number in filled if number not in others}
