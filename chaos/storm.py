"""A storm: faults by schedule, then repair, promotion and the comparison by the judge."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

import structlog
from confluent_kafka import KafkaException

from chaos import judge
from chaos.effects import InjectedFault
from chaos.engine import Engine
from chaos.environment import ARCHIVE, COMPACTED, KEPT_MS, PLAIN, TOPICS, TRANSACTIONS, ChaosEnvironment, Side
from chaos.history import Entry, Journal, Outcome
from chaos.judge import Finding
from chaos.reading import Ends, Record, read_topic
from chaos.schedule import REPAIRED, Fault, ScheduledFault
from chaos.watch import EndSampler
from chaos.writers import ArchiveWriter, KeyedWriter, PlainWriter, TransactionalWriter, Writer, open_transaction

_log = structlog.get_logger(__name__)
REPAIR_TIMEOUT_S = 240.0
SETTLE_TIMEOUT_S = 240.0
ENDS_TIMEOUT_S = 60.0
KEPT_TIMEOUT_S = 180.0


@dataclass(kw_only=True)
class Verdict:
    """Counts and findings of a storm."""

    seed: int
    effective: Counter[Fault] = field(default_factory=Counter)  # of ``injected``, those with an observed effect
    injected: Counter[Fault] = field(default_factory=Counter)
    kept: int = 0  # records of the compacted topic that the mirror must have even if its source has compacted them away since
    judged: dict[str, int] = field(default_factory=dict)  # records by mirror, as committed readers see them
    acked: int = 0
    aborted: int = 0
    unknown: int = 0
    samples: int = 0
    findings: list[Finding] = field(default_factory=list)
    watch_error: str = ""  # why sampling ended early

    @property
    def records(self) -> int:
        """Number of records that were judged."""
        return sum(self.judged.values())

    @property
    def faults(self) -> int:
        """Number of faults that were injected."""
        return self.injected.total()

    @property
    def hits(self) -> int:
        """Number of injected faults that had a proven effect."""
        return self.effective.total()

    def idle(self) -> str:
        """Name the faults that broke nothing."""
        return (
            ", ".join(f"{count} x {fault.name}" for fault, count in sorted((self.injected - self.effective).items())) or "none"
        )

    def unchecked(self) -> list[str]:
        """Return what was not checked. If the list is not empty, a run without findings proves nothing."""
        empty = [f"no record of topic {topic!r} was judged" for topic in TOPICS if not self.judged.get(topic)]
        no_effect = ["no fault broke anything"] if self.faults and not self.hits else []
        no_samples = [] if self.samples else ["no sample was taken during the storm"]
        ended = [f"the watch ended before its time: {self.watch_error}"] if self.watch_error else []
        cleaned = [] if self.kept else [f"no record of topic {COMPACTED!r} was copied before it could be cleaned"]
        return [*empty, *no_effect, *no_samples, *ended, *cleaned]

    def line(self) -> str:
        """Return the verdict as a line of text."""
        gaps = "" if self.findings else "; ".join(self.unchecked())
        return (
            f"chaos: seed {self.seed}, {self.records} records judged ({self.acked} acknowledged, {self.aborted} aborted, "
            f"{self.unknown} unknown), {self.hits} effective faults of {self.faults}, {self.samples} samples, "
            + (f"no verdict: {gaps}" if gaps else f"{len(self.findings)} findings")
        )

    def status(self) -> int:
        """Return the exit status: 0 if everything was judged and nothing found, else 1."""
        return 1 if self.findings or self.unchecked() else 0


class Storm:
    """Runs a schedule of faults against an engine, while writers write and both sides are sampled."""

    def __init__(
        self, environment: ChaosEnvironment, engine: Engine, *, seed: int, spare: Mapping[str, int], pause_s: float = 0.1
    ) -> None:
        """Create the writers and the sampling thread; nothing is started yet."""
        self._environment, self._engine = environment, engine
        self._topics = {**TOPICS, **spare}
        self._spare = iter(spare)
        self._stopped_early: dict[str, Collection[Entry]] = {}  # mirrors, and which records a promotion must not leave behind
        self.journal = Journal()
        self.verdict = Verdict(seed=seed)
        self._writers = self._make_writers(seed, spare, pause_s)
        self._watch = EndSampler(environment, self._topics)
        self._pool = ThreadPoolExecutor(16, thread_name_prefix="storm")
        self._running: list[Future[None]] = []
        self._counting = Lock()  # faults are injected by many threads

    def run(self, scheduled: Sequence[ScheduledFault], *, seconds: float, repeats: int = 0, kept: int = 0) -> Verdict:
        """Inject faults for some seconds, wait until everything is repaired and copied, promote, and compare.

        Faults without effect are injected again, in turn, up to ``repeats`` times. Then the writers continue until
        ``kept`` records of the compacted topic were copied before they could be compacted: during faults a slow machine may
        be later than that with all of them. An error on the way becomes a finding and does not end the storm.
        """
        with ExitStack() as stack:
            stack.callback(self._pool.shutdown, wait=False, cancel_futures=True)
            stack.callback(self._watch.stop)
            for writer in self._writers:
                stack.callback(writer.stop)
                writer.start()
            self._watch.start()
            self._run_schedule(scheduled, seconds=seconds)
            self._await_faults()
            self._repeat(scheduled, repeats)
            self._wait_until_kept(kept)
            self._calm()
            self._settle()
            self._judge()
        return self.verdict

    def _run_schedule(self, scheduled: Sequence[ScheduledFault], *, seconds: float) -> None:
        began = time.monotonic()
        for fault in scheduled:
            time.sleep(max(0.0, began + fault.at_s - time.monotonic()))
            _log.info(
                "fault.injected",
                at_s=round(time.monotonic() - began, 1),
                fault=fault.kind.value,
                lasts_s=round(fault.lasts_s, 1),
            )
            self._submit(fault)
        time.sleep(max(0.0, began + seconds - time.monotonic()))

    def _repeat(self, scheduled: Sequence[ScheduledFault], repeats: int) -> None:
        for _ in range(repeats):
            for fault in scheduled:
                if fault.kind not in self.verdict.effective:
                    _log.info("fault.repeated", fault=fault.kind.value)
                    self._submit(fault)
                    self._await_faults()

    def _wait_until_kept(self, least: int) -> None:
        deadline = time.monotonic() + KEPT_TIMEOUT_S
        while len(self._kept()) < least and time.monotonic() < deadline:
            time.sleep(1.0)

    def _kept(self) -> set[Entry]:
        """Return the records of the compacted topic that were copied before the source could compact them."""
        offsets, sent_s = self.journal.offsets(COMPACTED), self.journal.sent_s(COMPACTED)
        return judge.copied_in_time(offsets, sent_s, self._watch.passed, KEPT_MS / 1000)

    def _submit(self, fault: ScheduledFault) -> None:
        self._running.append(self._pool.submit(self._inject, fault))
        self.verdict.injected[fault.kind] += 1

    def _await_faults(self) -> None:
        while self._running:
            self._attempt("fault", partial(self._running.pop().result, REPAIR_TIMEOUT_S))

    def _inject(self, fault: ScheduledFault) -> None:
        stops = {Fault.FAILOVER: self._fail_over, Fault.REBALANCE_PROMOTION: self._promote_during_move}
        injected = stops[fault.kind]() if fault.kind in stops else self._engine.inject(fault)
        if injected is None:
            _log.info("fault.without_target", fault=fault.kind.value)
            return
        try:
            if fault.kind in REPAIRED:
                time.sleep(fault.lasts_s)
            if injected.proof():
                self._hit(fault)
            else:
                _log.info("fault.broke_nothing", fault=fault.kind.value)
        finally:
            injected.repair()

    def _fail_over(self) -> InjectedFault | None:
        topic = next(self._spare, None)
        if topic is None:
            return None
        self._stop_early(topic)
        self._engine.fail_over(topic)
        return InjectedFault()

    def _promote_during_move(self) -> InjectedFault | None:
        """Promote a spare mirror whose lag cannot be zero before its partition has moved: a transaction is open until then.

        The spare remains an ordinary mirror if the source accepts no transaction now.
        """
        topic = next(self._spare, None)
        if topic is None:
            return None
        transaction = ExitStack()
        try:
            transaction.enter_context(open_transaction(self._environment.source.cluster.client("app"), topic))
        except KafkaException as error:
            _log.info("fault.no_transaction", reason=str(error))
            return None
        try:
            self._stop_early(topic, self._acked(topic))
            return self._engine.promote_during_move(topic, wait_until_drained=partial(_close, transaction))
        finally:
            _close(transaction)

    def _acked(self, topic: str) -> set[Entry]:
        return {entry for entry, outcome in self.journal.of_topic(topic).items() if outcome is Outcome.ACKED}

    def _stop_early(self, topic: str, acked: Collection[Entry] = ()) -> None:
        self._stopped_early[topic] = acked
        self._watch.forget(topic)

    def _hit(self, fault: ScheduledFault) -> None:
        with self._counting:
            self.verdict.effective[fault.kind] += 1

    def _calm(self) -> None:
        _log.info("storm.over")
        self._environment.heal()
        for cluster in (self._environment.source.cluster, self._environment.destination.cluster):
            self._attempt("broker", cluster.wait_ready)
        _log.info("all.repaired")
        dead = [writer for writer in self._writers if writer.ended_early()]
        for writer in self._writers:
            writer.stop()
        for writer in self._writers:
            self._attempt("writer", writer.join)
        self._find(_ended_early(writer) for writer in self._writers if writer in dead or writer.error)

    def _settle(self) -> None:
        mirrored = [topic for topic in self._topics if topic not in self._stopped_early]
        _log.info("writers.ended")
        settled = self._attempt("unsettled", lambda: self._engine.settle(mirrored, timeout_s=SETTLE_TIMEOUT_S))
        self._watch.stop()
        self._attempt("unsettled", lambda: self._find(self._engine.failures()))
        if settled:  # else a promotion would only wait again
            _log.info("mirrors.caught_up")
            self._attempt("unsettled", lambda: self._engine.promote(mirrored, timeout_s=SETTLE_TIMEOUT_S))

    def _attempt(self, kind: str, work: Callable[[], object]) -> bool:
        """Call ``work``, whose failure does not end the storm; return whether it succeeded."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - becomes a finding; the rest is compared nevertheless
            self._find([Finding(kind=kind, detail=f"{type(error).__name__}: {error}")])
            return False
        return True

    def _find(self, findings: Iterable[Finding]) -> None:
        for finding in findings:  # appended singly, so that those before an exception count
            self.verdict.findings.append(finding)

    # --- judgement ---------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        self._find(self._watch.findings)
        self.verdict.samples, self.verdict.watch_error = self._watch.samples, self._watch.error
        for outcome, name in ((Outcome.ACKED, "acked"), (Outcome.ABORTED, "aborted"), (Outcome.UNKNOWN, "unknown")):
            setattr(self.verdict, name, self.journal.count(outcome))
        for topic in self._topics:
            check_source_topic = self._judge_compacted if topic == COMPACTED else self._judge_strict
            self._attempt("unjudged", partial(self._find, check_source_topic(topic)))
        self._attempt("unjudged", lambda: self._find(self._judge_all_ends()))
        self._attempt("unjudged", lambda: self._find(self._engine.crashes()))

    def _judge_compacted(self, topic: str) -> Iterator[Finding]:
        source, mirror = (
            self._read(side, topic, committed=True) for side in (self._environment.source, self._environment.destination)
        )
        self.verdict.judged[topic] = len(mirror)
        history, offsets = self.journal.of_topic(topic), self.journal.offsets(topic)
        yield from judge.compare_compacted(topic, source, mirror)
        for side in (source, mirror):
            yield from judge.check_newest(topic, side, history)
            yield from judge.check_places(topic, side, history, offsets)
        kept = self._kept()
        self.verdict.kept = len(kept)
        yield from judge.check_kept(topic, mirror, kept)

    def _judge_strict(self, topic: str) -> Iterator[Finding]:
        source, mirror = (
            self._read(side, topic, committed=True) for side in (self._environment.source, self._environment.destination)
        )
        self.verdict.judged[topic] = len(mirror)
        history = self.journal.of_topic(topic)
        yield from judge.compare(topic, source, mirror, ends=self._engine.stopped(topic) or None)
        yield from judge.check_unchanged(mirror, self._read(self._environment.destination, topic, committed=False), topic=topic)
        yield from judge.check_places(topic, mirror, history, self.journal.offsets(topic))
        yield from judge.check_history(topic, source, history)
        yield from judge.check_promoted(topic, mirror, self._stopped_early.get(topic, ()))
        if topic not in self._stopped_early:
            yield from judge.check_history(topic, mirror, history)

    def _judge_all_ends(self) -> Iterator[Finding]:
        source, mirror = (self._ends(side) for side in (self._environment.source, self._environment.destination))
        for topic, partitions in self._topics.items():
            yield from self._judge_ends(topic, partitions, source, mirror)

    def _judge_ends(
        self,
        topic: str,
        partitions: int,
        source: Mapping[judge.TopicPartition, int],
        mirror: Mapping[judge.TopicPartition, int],
    ) -> Iterator[Finding]:
        """Check that a stopped mirror ends with its fence, and that a promoted mirror equals its source."""
        ends = {(topic, number): end for number, end in self._engine.stopped(topic).items()}
        if not ends:
            yield Finding(kind="end", detail=f"mirror {topic} was not stopped")
            return
        yield from judge.check_ends({place: end + 1 for place, end in ends.items()}, mirror)
        if topic not in self._stopped_early:
            yield from judge.check_ends({(topic, number): source[topic, number] for number in range(partitions)}, ends)

    def _read(self, side: Side, topic: str, *, committed: bool) -> list[Record]:
        return read_topic(side.cluster.client(), topic, partitions=self._topics[topic], committed=committed)

    def _ends(self, side: Side) -> dict[judge.TopicPartition, int]:
        ends = Ends(side.cluster.client(), self._topics)
        deadline = time.monotonic() + ENDS_TIMEOUT_S
        while (found := ends.all()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"The ends of {side.cluster.name} cannot be read.")
        return found

    def _make_writers(self, seed: int, spare: Mapping[str, int], pause_s: float) -> list[Writer]:
        client = self._environment.source.cluster.client("app")
        kinds: tuple[tuple[type[Writer], str, Mapping[str, int]], ...] = (
            (PlainWriter, "plain", {PLAIN: TOPICS[PLAIN]}),
            (KeyedWriter, "keyed", {COMPACTED: TOPICS[COMPACTED]}),
            (TransactionalWriter, "transactional", {TRANSACTIONS: TOPICS[TRANSACTIONS], **spare}),
            (ArchiveWriter, "archive", {ARCHIVE: TOPICS[ARCHIVE]}),
        )
        return [
            kind(name, client=client, topics=topics, journal=self.journal, seed=seed, pause_s=pause_s)
            for kind, name, topics in kinds
        ]


def _close(transaction: ExitStack) -> None:
    """End a transaction. Safe to repeat; a coordinator that does not respond ends it after its timeout."""
    with suppress(KafkaException):
        transaction.close()


def _ended_early(writer: Writer) -> Finding:
    return Finding(
        kind="writer", detail=f"writer {writer.name} ended before it was stopped: {writer.error or 'no error was recorded'}"
    )
