"""One storm from its first fault to the judgement."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Lock

import structlog

from chaos import judge
from chaos.engine import Engine
from chaos.ground import ARCHIVE, COMPACTED, PLAIN, TOPICS, TRANSACTIONS, Ground, Side
from chaos.history import Journal, Outcome
from chaos.judge import Finding
from chaos.reading import Ends, Record, read_topic
from chaos.schedule import MENDED, Fault, Strike
from chaos.watch import Watch
from chaos.writers import ArchiveWriter, KeyedWriter, PlainWriter, TransactionalWriter, Writer

_log = structlog.get_logger(__name__)
TICK_S = 0.1
MEND_TIMEOUT_S = 240.0
SETTLE_TIMEOUT_S = 240.0
ENDS_TIMEOUT_S = 60.0


@dataclass(kw_only=True)
class Verdict:
    """What came of a storm."""

    seed: int
    faults: int = 0
    hits: int = 0  # of these, what found something to break
    judged: dict[str, int] = field(default_factory=dict)  # records by mirror, as committed readers see them
    acked: int = 0
    aborted: int = 0
    unknown: int = 0
    samples: int = 0
    findings: list[Finding] = field(default_factory=list)
    kinds: set[Fault] = field(default_factory=set)  # of the hits
    watch_error: str = ""  # what ended the watch before its time

    @property
    def records(self) -> int:
        """Answer how many records were judged."""
        return sum(self.judged.values())

    def gaps(self) -> list[str]:
        """Answer what was not looked at: with any of it, no findings prove nothing."""
        empty = [f"no record of topic {topic!r} was judged" for topic in TOPICS if not self.judged.get(topic)]
        still = ["no fault found anything to break"] if self.faults and not self.hits else []
        blind = [] if self.samples else ["nobody looked on during the storm"]
        ended = [f"the watch ended before its time: {self.watch_error}"] if self.watch_error else []
        return [*empty, *still, *blind, *ended]

    def line(self) -> str:
        """The one line that counts."""
        gaps = "" if self.findings else "; ".join(self.gaps())
        return (
            f"chaos: seed {self.seed}, {self.records} records judged ({self.acked} acknowledged, {self.aborted} aborted, "
            f"{self.unknown} unknown), {self.faults} faults ({self.hits} found something to break), {self.samples} samples, "
            + (f"no verdict: {gaps}" if gaps else f"{len(self.findings)} findings")
        )

    def status(self) -> int:
        """Answer the exit status: 0 where everything was judged and nothing found, else 1."""
        return 1 if self.findings or self.gaps() else 0


class Storm:
    """Runs a schedule over an engine while writers write and a watch looks on."""

    def __init__(self, ground: Ground, engine: Engine, *, seed: int, spare: Mapping[str, int], pause_s: float = 0.1) -> None:
        """Plan writers and watch; nothing begins yet."""
        self._ground, self._engine = ground, engine
        self._topics = {**TOPICS, **spare}
        self._spare = iter(spare)
        self._failed_over: list[str] = []
        self.journal = Journal()
        self.verdict = Verdict(seed=seed)
        self._writers = self._make_writers(seed, spare, pause_s)
        self._watch = Watch(ground, self._topics)
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="storm")
        self._mending: list[Future[None]] = []
        self._counting = Lock()  # faults strike from many threads

    def run(self, strikes: Sequence[Strike], *, seconds: float) -> Verdict:
        """Blow for some seconds, let everything settle, promote, judge."""
        with ExitStack() as stack:
            stack.callback(self._pool.shutdown, wait=False, cancel_futures=True)
            stack.callback(self._watch.stop)
            for writer in self._writers:
                stack.callback(writer.stop)
                writer.start()
            self._watch.start()
            self._blow(strikes, seconds=seconds)
            self._calm()
            self._settle()
            self.verdict.findings.extend(self._judge())
        return self.verdict

    def _blow(self, strikes: Sequence[Strike], *, seconds: float) -> None:
        began = time.monotonic()
        for strike in strikes:
            time.sleep(max(0.0, began + strike.at_s - time.monotonic()))
            _log.info(
                "strike", at_s=round(time.monotonic() - began, 1), fault=strike.fault.value, lasts_s=round(strike.lasts_s, 1)
            )
            self._mending.append(self._pool.submit(self._strike, strike))
            self.verdict.faults += 1
        time.sleep(max(0.0, began + seconds - time.monotonic()))

    def _strike(self, strike: Strike) -> None:
        if strike.fault is Fault.FAILOVER:
            topic = next(self._spare, None)
            if topic is not None:
                self._hit(strike)
                self._failed_over.append(topic)
                self._watch.forget(topic)
                self._engine.fail_over(topic)
            return
        mend = self._engine.strike(strike)
        if mend is not None or strike.fault not in MENDED:
            self._hit(strike)
        if mend is not None:
            time.sleep(strike.lasts_s)
            mend()

    def _hit(self, strike: Strike) -> None:
        with self._counting:
            self.verdict.hits += 1
            self.verdict.kinds.add(strike.fault)

    def _calm(self) -> None:
        _log.info("storm.over")
        for one in self._mending:
            one.result(MEND_TIMEOUT_S)
        self._ground.heal()
        for cluster in (self._ground.source.cluster, self._ground.destination.cluster):
            cluster.wait_ready()
        _log.info("all.mended")
        for writer in self._writers:
            writer.stop()
        for writer in self._writers:
            writer.join()

    def _settle(self) -> None:
        mirrored = [topic for topic in self._topics if topic not in self._failed_over]
        _log.info("writers.ended")
        self._engine.settle(mirrored, timeout_s=SETTLE_TIMEOUT_S)
        self._watch.stop()
        _log.info("mirrors.caught_up")
        self._engine.promote(mirrored, timeout_s=SETTLE_TIMEOUT_S)

    # --- judgement ---------------------------------------------------------------------------------------------------

    def _judge(self) -> Iterator[Finding]:
        yield from self._watch.findings
        self.verdict.samples, self.verdict.watch_error = self._watch.samples, self._watch.error
        for outcome, name in ((Outcome.ACKED, "acked"), (Outcome.ABORTED, "aborted"), (Outcome.UNKNOWN, "unknown")):
            setattr(self.verdict, name, self.journal.count(outcome))
        source_ends, mirror_ends = (self._ends(side) for side in (self._ground.source, self._ground.destination))
        for topic, partitions in self._topics.items():
            yield from self._judge_topic(topic, partitions)
            yield from self._judge_ends(topic, partitions, source_ends, mirror_ends)

    def _judge_topic(self, topic: str, partitions: int) -> Iterator[Finding]:
        source = self._read(self._ground.source, topic, committed=True)
        mirror = self._read(self._ground.destination, topic, committed=True)
        self.verdict.judged[topic] = len(mirror)
        history = self.journal.of_topic(topic)
        if topic == COMPACTED:
            yield from judge.compare_compacted(topic, source, mirror)
            yield from judge.check_newest(topic, source, history)
            yield from judge.check_newest(topic, mirror, history)
            return
        ends = self._engine.stopped(topic)
        yield from judge.compare(topic, source, mirror, ends=ends)
        yield from judge.check_unchanged(mirror, self._read(self._ground.destination, topic, committed=False), topic=topic)
        yield from judge.check_history(topic, source, history)
        if topic not in self._failed_over:
            yield from judge.check_history(topic, mirror, history)

    def _judge_ends(
        self, topic: str, partitions: int, source: Mapping[judge.Place, int], mirror: Mapping[judge.Place, int]
    ) -> Iterator[Finding]:
        """A stopped mirror holds one offset more: the fence. Nothing comes after it, and a promoted one equals its source."""
        ends = {(topic, number): end for number, end in self._engine.stopped(topic).items()}
        yield from judge.check_ends({place: end + 1 for place, end in ends.items()}, mirror)
        if topic not in self._failed_over:
            yield from judge.check_ends({(topic, number): source[topic, number] for number in range(partitions)}, ends)

    def _read(self, side: Side, topic: str, *, committed: bool) -> list[Record]:
        return read_topic(side.cluster.client(), topic, partitions=self._topics[topic], committed=committed)

    def _ends(self, side: Side) -> dict[judge.Place, int]:
        ends = Ends(side.cluster.client(), self._topics)
        deadline = time.monotonic() + ENDS_TIMEOUT_S
        while (found := ends.all()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"The ends of {side.cluster.name} cannot be read.")
        return found

    def _make_writers(self, seed: int, spare: Mapping[str, int], pause_s: float) -> list[Writer]:
        client = self._ground.source.cluster.client("app")
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
