"""The environment of a storm: two clusters and Redis behind proxies, the topics, and the faults of these parts.

Every fault returns how to repair it and a check of its effect. A part that is down already is not broken again, so that a
schedule never breaks more than it lists; only brokers that lead a partition of the storm are broken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from urllib.parse import urlsplit

import psutil
import redis
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.assignments import REFUSED, FormerAssignments
from chaos.effects import CHANGE_TIMEOUT_S, InjectedFault, Owners, Repair, came_back, local_ports, mentions, until
from chaos.proxy import Proxy
from chaos.schedule import Fault, ScheduledFault
from devcluster.kafka import KafkaCluster
from devcluster.ports import LOOPBACK, free_port
from devcluster.redis import RedisServer

BROKER_SETTINGS: Mapping[str, object] = {"min.insync.replicas": 2, "unclean.leader.election.enable": "false"}
# Brokers expire producer state with old timestamps at the next check (every ten minutes by default); requests that the network
# delays arrive before that. The cleaner is off, so that the judge sees all records that were ever copied of a compacted topic.
DESTINATION: Mapping[str, object] = {"producer.id.expiration.check.interval.ms": 15_000, "log.cleaner.enable": "false"}
HEAP = "384m"
REQUEST_TIMEOUT_S = 30.0
SLOW_S = 0.05  # delay per forwarded chunk
LEADERS_TIMEOUT_S, FULL_TIMEOUT_S = 5.0, 12.0
KEPT_MS = 10_000  # age before which the source's log cleaner does not compact a record
CLOCK_JUMP_MS = 3_600_000
PLAIN, TRANSACTIONS, ARCHIVE, COMPACTED = "chaos-events", "chaos-orders", "chaos-archive", "chaos-state"
TOPICS: Mapping[str, int] = {PLAIN: 2, TRANSACTIONS: 2, ARCHIVE: 1, COMPACTED: 1}  # name -> partitions
CONFIGS: Mapping[str, dict[str, str]] = {
    ARCHIVE: {"retention.ms": "-1"},
    COMPACTED: {
        "cleanup.policy": "compact", "segment.ms": "5000", "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": str(KEPT_MS), "max.compaction.lag.ms": str(KEPT_MS),
    },
}  # fmt: skip


def spares(count: int) -> dict[str, int]:
    """Return the topics whose mirrors are failed over during the storm."""
    return {f"chaos-spare-{number}": 1 for number in range(count)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A cluster and the proxy through which the product connects to it."""

    cluster: KafkaCluster
    proxy: Proxy


def _known_topics(client: Mapping[str, str]) -> set[str]:
    """Return the topics in the metadata of a broker: a new client gets its first metadata from its bootstrap server."""
    seen = AdminClient({**client}).list_topics(timeout=REQUEST_TIMEOUT_S).topics.values()
    return {str(topic.topic) for topic in seen if all(part.leader >= 0 for part in topic.partitions.values())}


class ChaosEnvironment:
    """Clusters, proxies, Redis; a context manager."""

    def __init__(self, directory: Path, *, brokers: int = 3) -> None:
        """Plan everything; nothing is started yet."""
        self.directory = directory
        self._stack = ExitStack()
        self._clusters = [
            KafkaCluster(
                name, brokers=brokers, directory=directory / name, heap=HEAP,
                extra={**(BROKER_SETTINGS if brokers > 1 else {}), **extra},
            ).behind_proxy()
            for name, extra in (("source", {}), ("destination", DESTINATION))
        ]  # fmt: skip
        self.redis = RedisServer(directory=directory / "redis", append_only=True)
        self.owners = Owners(self.redis.url)
        self._redis_port = free_port()  # of the proxy in front of Redis
        self._topics: set[str] = set()
        self._down: set[object] = set()
        self._breaking = Lock()

    def __enter__(self) -> ChaosEnvironment:
        """Start everything."""
        try:
            self._start_redis()
            for cluster in self._clusters:  # one after the other: six JVMs at once are slow on two cores
                self._stack.enter_context(cluster)
            self.source, self.destination = (self._side(cluster) for cluster in self._clusters)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything."""
        self._stack.close()

    def inject(self, fault: ScheduledFault) -> InjectedFault | None:
        """Cause a fault; return None if there is nothing to break."""
        side = self.source if fault.kind.name.endswith("_SOURCE") else self.destination
        match fault.kind:
            case (
                Fault.KILL_SOURCE | Fault.KILL_DESTINATION
                | Fault.STOP_SOURCE | Fault.STOP_DESTINATION
                | Fault.FILL_SOURCE | Fault.FILL_DESTINATION
            ):  # fmt: skip
                return self._inject_broker_fault(side, fault)
            case (
                Fault.CUT_SOURCE | Fault.CUT_DESTINATION
                | Fault.SLOW_SOURCE | Fault.SLOW_DESTINATION
                | Fault.HOLD_SOURCE | Fault.HOLD_DESTINATION
            ):  # fmt: skip
                return self._inject_network_fault(side.proxy, fault.kind)
            case _:
                return self._inject_redis_fault(fault)

    def client(self) -> redis.Redis:
        """Return a client of Redis for the harness."""
        return redis.Redis.from_url(self.redis.url, socket_timeout=2.0, decode_responses=True)

    @property
    def redis_url(self) -> str:
        """The address of Redis for the product, through a proxy."""
        address = urlsplit(self.redis.url)
        return address._replace(netloc=f":{address.password}@{LOOPBACK}:{self._redis_port}").geturl()

    @property
    def destination_ports(self) -> list[int]:
        """Ports on which the engine connects to the destination's brokers."""
        return [port for port, _ in self.destination.cluster.routes]

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create the source topics and wait until every broker has their metadata."""
        self._topics |= topics.keys()
        cluster = self.source.cluster
        replicas = min(3, len(cluster.brokers))
        new = [NewTopic(name, count, replicas, config=CONFIGS.get(name, {})) for name, count in topics.items()]
        admin = AdminClient(cluster.client())
        for future in admin.create_topics(new).values():
            future.result(REQUEST_TIMEOUT_S)
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        for server in cluster.bootstrap.split(","):
            while not topics.keys() <= _known_topics({**cluster.client(), "bootstrap.servers": server}):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"Broker {server} does not return the new topics.")

    def heal(self) -> None:
        """Repair all networks."""
        for proxy in (self.source.proxy, self.destination.proxy, self._redis_proxy):
            proxy.heal()

    # --- faults of the coordination, which engines cause with parts of their own -----------------------------------------

    def moved(self, move: Repair) -> InjectedFault | None:
        """Move partitions; effective if a lease gets another owner."""
        before = self.owners.awaited()
        if not before:
            return None
        move()
        return InjectedFault(proof=partial(self.owners.taken_over, before))

    def contested(self, assign: Repair) -> InjectedFault | None:
        """Run a second assigner for a while; effective if a partition was handed over and back."""
        if not self.owners.awaited():
            return None
        with self.owners.followed() as trails:
            assign()
            back = until(lambda: came_back(trails), CHANGE_TIMEOUT_S)
        return InjectedFault(proof=lambda: back)

    def replayed(self, move: Repair, logs: Callable[[], Iterable[Path]]) -> InjectedFault | None:
        """Move partitions, then publish the former assignments again; effective if a copy worker has refused one.

        ``logs``: of the copy workers.
        """
        before = self.owners.awaited()
        if not before:
            return None
        with suppress(redis.RedisError), self.client() as client:
            former = FormerAssignments(client)
            move()
            self.owners.taken_over(before)  # until then the workers may not have read the newer ones
            refused = mentions(logs(), REFUSED)
            if former.publish():
                return InjectedFault(proof=lambda: until(lambda: mentions(logs(), REFUSED) > refused, CHANGE_TIMEOUT_S))
        return None

    def cut_off(self, pid: int) -> InjectedFault | None:
        """Silence the connections between a copy worker and Redis, and no other.

        Effective if its lease expires although it runs, and another copy worker takes the partition while it is cut off.
        """
        held, proxy = self.owners.awaited(), self._redis_proxy
        if not held:
            return None

        def lost_a_partition() -> bool:
            return self.owners.expired(held) and psutil.pid_exists(pid) and self.owners.taken_over(held)

        silence = partial(proxy.silence, partial(local_ports, pid))
        return self.once((proxy, "silenced"), silence, proxy.end_silence, proof=lost_a_partition)

    def _start_redis(self) -> None:
        self._stack.enter_context(self.redis)
        self._redis_proxy = self._proxy([(self._redis_port, self.redis.port)])

    def _side(self, cluster: KafkaCluster) -> Side:
        return Side(cluster=cluster, proxy=self._proxy(cluster.routes))

    def _proxy(self, routes: Iterable[tuple[int, int]]) -> Proxy:
        proxy = Proxy(routes)
        self._stack.callback(proxy.close)
        return proxy

    def _inject_broker_fault(self, side: Side, fault: ScheduledFault) -> InjectedFault | None:
        cluster, leaders = side.cluster, self._leaders(side)
        if not leaders:
            return None
        node = leaders[int(fault.pick * len(leaders))]
        restart = partial(cluster.restart, node, wait=False)
        match fault.kind:
            case Fault.STOP_SOURCE | Fault.STOP_DESTINATION:
                return self.once(side, partial(cluster.pause, node), partial(cluster.resume, node))
            case Fault.FILL_SOURCE | Fault.FILL_DESTINATION:
                ended = partial(until, lambda: not cluster.running(node), FULL_TIMEOUT_S)
                return self.once(side, partial(cluster.fill_disk, node), restart, proof=ended)
            case _:
                return self.once(side, partial(cluster.kill, node), restart)

    def _leaders(self, side: Side) -> list[int]:
        """Return the running brokers that lead a partition of the storm; brokers that are starting lead none yet."""
        if side in self._down:
            return []
        found: list[int] = []

        def has_leaders() -> bool:
            found[:] = sorted(node for node in _leading(side.cluster.client(), self._topics) if side.cluster.running(node))
            return bool(found)

        until(has_leaders, LEADERS_TIMEOUT_S)
        return found

    def _inject_network_fault(self, proxy: Proxy, fault: Fault) -> InjectedFault | None:
        ended, slowed = proxy.ended, proxy.slowed
        match fault:
            case Fault.CUT_SOURCE | Fault.CUT_DESTINATION:
                return self.once((proxy, "cut"), proxy.cut, proxy.repair, proof=lambda: proxy.ended > ended)
            case Fault.SLOW_SOURCE | Fault.SLOW_DESTINATION:
                return self.once(
                    (proxy, "slow"), partial(proxy.slow, SLOW_S), proxy.hasten, proof=lambda: proxy.slowed > slowed
                )
            case _:
                return self.once((proxy, "held"), proxy.hold, proxy.release, proof=lambda: proxy.held_bytes > 0)

    def _inject_redis_fault(self, fault: ScheduledFault) -> InjectedFault | None:
        match fault.kind:
            case Fault.KILL_REDIS:
                return self.once(self.redis, self.redis.kill, self.redis.start)
            case Fault.LOSE_REDIS:
                return self.once(self.redis, self._lose_redis, self.redis.start)
        held = self.owners.awaited()
        if not held:
            return None
        match fault.kind:
            case Fault.FLUSH_REDIS:
                done = self.owners.forget_all()
            case Fault.CLOCK_FORWARD:
                done = self.owners.set_expiry(held, 1) > 0
            case _:
                done = self.owners.set_expiry(held, CLOCK_JUMP_MS) > 0
        return InjectedFault() if done else None

    def _lose_redis(self) -> None:
        self.redis.kill()
        self.redis.forget()

    def once(
        self, part: object, break_it: Repair, repair: Repair, *, proof: Callable[[], bool] = lambda: True
    ) -> InjectedFault | None:
        """Break a part that works; None if it is broken already. A side's brokers count as a single part."""
        with self._breaking:
            if part in self._down:
                return None
            self._down.add(part)
        break_it()

        def repair_part() -> None:
            repair()
            self._down.discard(part)

        return InjectedFault(repair=repair_part, proof=proof)


def _leading(client: Mapping[str, str], topics: Set[str]) -> set[int]:
    with suppress(KafkaException):
        seen = AdminClient({**client}).list_topics(timeout=LEADERS_TIMEOUT_S).topics
        return {part.leader for name in topics & seen.keys() for part in seen[name].partitions.values()}
    return set()
