"""The demo's main job through the REST API: create a link and mirrors, wait until the lag is zero, verify.

Collects figures for the report from the console's responses.
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
    """A step failed; the message has the step and the console's information about it."""


@dataclass(kw_only=True)
class MirrorFigures:
    """The figures of a mirror in the report."""

    topic: str
    seconds: float = 0.0  # from its creation until its lag was 0 for the first time
    bytes_copied: int = 0
    records_copied: int = 0
    lag: int | None = None
    gaps: dict[str, int] = field(default_factory=dict)  # reason → offsets
    verify: dict[str, Any] = field(default_factory=dict)


class Linking:
    """The demo's link and its mirrors."""

    def __init__(self, rest: Rest, *, source: KafkaCluster, destination: KafkaCluster) -> None:
        """Set both sides; nothing is created yet."""
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
        """Create a mirror topic for each source topic."""
        for topic in TOPICS:
            self._rest.post(f"{self.kafka_path}/mirrors", {"source_topic_name": topic})

    def wait_mirrored(self, tick: Tick) -> None:
        """Wait until every mirror has been ACTIVE with lag 0 once; the live stream causes new lag afterwards."""
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
        """Verify every mirror against its source, in sequence."""
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
        """Return whether every verification run found both sides equal."""
        return all(figures.verify.get("status") == "EQUAL" for figures in self.figures.values())

    def _explain(self, topics: set[str]) -> str:
        descriptions = []
        for topic in sorted(topics):
            mirror = self._rest.get(f"{self.kafka_path}/mirrors/{topic}?include_state_transition_errors=true")
            descriptions.append(f"{topic} {mirror['mirror_status']} {mirror['mirror_state_transition_errors']}")
        return "; ".join(descriptions)


def _until(timeout_s: float, message: Callable[[], str]) -> Iterator[None]:
    """Yield repeatedly until the time is over, then raise DemoFailedError with the message."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        yield
        time.sleep(POLL_S)
    raise DemoFailedError(f"{message()} (after {timeout_s:.0f} s)")
