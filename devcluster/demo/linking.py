"""The demo's main job through the REST API: link, mirrors, waiting until nothing lags, verification.

Answers plain figures for the report; the console's answers are read, never guessed.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from devcluster.demo.flights import TOPICS
from devcluster.demo.rest import Rest, link_path
from devcluster.kafka import KafkaCluster

LINK = "new-york"
MIRROR_TIMEOUT_S = 180.0
VERIFY_TIMEOUT_S = 300.0
POLL_S = 0.3
UNFINISHED = ("QUEUED", "RUNNING")

Tick = Callable[[str], None]


class DemoFailedError(RuntimeError):
    """A step did not end as it should; the message says which and what the console knows about it."""


@dataclass(kw_only=True)
class MirrorFigures:
    """What the report tells about one mirror."""

    topic: str
    seconds: float = 0.0  # from its creation until its lag was 0 for the first time
    bytes_copied: int = 0
    records_copied: int = 0
    lag: int | None = None
    gaps: dict[str, int] = field(default_factory=dict)  # reason → offsets
    verify: dict[str, Any] = field(default_factory=dict)


class Linking:
    """One link of the demo and its mirrors."""

    def __init__(self, rest: Rest, *, source: KafkaCluster, destination: KafkaCluster) -> None:
        """Name both sides; nothing is created yet."""
        self._rest = rest
        self._source = source
        self._destination = destination
        self.kafka_path = "/kafka/v3" + link_path(destination.cluster_id, LINK)
        self.own_path = "/api/v1" + link_path(destination.cluster_id, LINK)
        self.figures = {topic: MirrorFigures(topic=topic) for topic in TOPICS}
        self.copy_seconds = 0.0

    def create_link(self) -> None:
        """Create the link with the source's credentials."""
        configs = [{"name": name, "value": value} for name, value in self._source.client_properties("link").items()]
        path = f"/kafka/v3/clusters/{self._destination.cluster_id}/links?link_name={LINK}"
        self._rest.post(path, {"source_cluster_id": self._source.cluster_id, "configs": configs})

    def create_mirrors(self) -> None:
        """Create one mirror topic for each source topic."""
        for topic in TOPICS:
            self._rest.post(f"{self.kafka_path}/mirrors", {"source_topic_name": topic})

    def wait_mirrored(self, tick: Tick) -> None:
        """Wait until every mirror has been ACTIVE with lag 0 once; the live stream makes later lags come and go."""
        began = time.monotonic()
        waiting = set(TOPICS)
        for _ in _until(MIRROR_TIMEOUT_S, lambda: f"These mirrors never reached lag 0: {self._explain(waiting)}"):
            for mirror in self._rest.get(f"{self.kafka_path}/mirrors")["data"]:
                name, status = mirror["mirror_topic_name"], mirror["mirror_status"]
                if status in ("FAILED", "LINK_FAILED"):
                    raise DemoFailedError(f"The mirror {name} is {status}: {self._explain({name})}")
                if status == "ACTIVE" and name in waiting and self._caught_up(name):
                    self.figures[name].seconds = time.monotonic() - began
                    waiting.discard(name)
            copied = sum(figures.records_copied for figures in self.figures.values())
            tick(f"mirrors: {len(TOPICS) - len(waiting)} of {len(TOPICS)} ACTIVE with lag 0, {copied:,} records copied")
            if not waiting:
                break
        self.copy_seconds = time.monotonic() - began

    def _caught_up(self, topic: str) -> bool:
        partitions = self._rest.get(f"{self.own_path}/mirrors/{topic}/partitions")["data"]
        figures = self.figures[topic]
        figures.bytes_copied = sum(row["bytes_copied"] for row in partitions)
        figures.records_copied = sum(row["records_copied"] for row in partitions)
        lags = [row["lag"] for row in partitions]
        figures.lag = None if None in lags else sum(lags)
        return bool(lags) and figures.lag == 0

    def verify(self, tick: Tick) -> None:
        """Compare every mirror with its source, one run after the other."""
        for topic, figures in self.figures.items():
            figures.verify = self._compare(topic, tick)
            totals = self._rest.get(f"{self.own_path}/mirrors/{topic}/gaps?limit=1")["totals"]
            figures.gaps = {total["reason"]: total["offsets"] for total in totals}

    def _compare(self, topic: str, tick: Tick) -> dict[str, Any]:
        runs = f"{self.own_path}/mirrors/{topic}/verify-runs"
        run: dict[str, Any] = self._rest.post(runs, {})
        for _ in _until(VERIFY_TIMEOUT_S, lambda: f"The comparison of {topic} has not ended."):
            run = self._rest.get(f"{runs}/{run['id']}")
            if run["status"] not in UNFINISHED:
                break
            tick(f"comparing {topic} with its source, record by record: {run['status'].lower()}")
        return run

    def equal(self) -> bool:
        """Tell whether every comparison found both sides equal."""
        return all(figures.verify.get("status") == "EQUAL" for figures in self.figures.values())

    def _explain(self, topics: set[str]) -> str:
        told = []
        for topic in sorted(topics):
            mirror = self._rest.get(f"{self.kafka_path}/mirrors/{topic}?include_state_transition_errors=true")
            told.append(f"{topic} {mirror['mirror_status']} {mirror['mirror_state_transition_errors']}")
        return "; ".join(told)


def _until(timeout_s: float, story: Callable[[], str]) -> Iterator[None]:
    """Yield again and again until the time is over, then raise with the story."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        yield
        time.sleep(POLL_S)
    raise DemoFailedError(f"{story()} (after {timeout_s:.0f} s)")
