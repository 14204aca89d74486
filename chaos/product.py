"""The whole product in a storm: Spark Connect, Redis, web, worker and beat on SQLite, used through its REST API."""

from __future__ import annotations

import base64
import os
import pickle
import signal
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import Any

import psutil

from chaos.copiers import Copiers, freeze, thaw
from chaos.effects import (
    CHANGE_TIMEOUT_S,
    OWNERS_TIMEOUT_S,
    InjectedFault,
    changed_workers,
    connected,
    lease_name,
    mentions,
    until,
)
from chaos.environment import ChaosEnvironment
from chaos.judge import Finding
from chaos.reading import Ends
from chaos.schedule import Fault, ScheduledFault
from chaos.troubles import crashes
from devcluster.demo import services
from devcluster.demo.rest import Rest, RestError, link_path
from devcluster.processes import Process
from devcluster.spark import SparkConnectServer
from devcluster.standalone import StandaloneCluster
from linkengine import jobs
from linkengine.domain.workers import CoordinationUnavailableError, worker_id_for

LINK = "chaos"
POOL = 2  # copy workers
POLL_S = 0.5
START_ATTEMPTS = 3
KILL_TRIES = 3
END_EVERY_S = 0.5  # the order to end is repeated
BESIDE_S = 15.0  # how long another copy worker runs while the others are frozen
SETUP_TIMEOUT_S = 240.0
REST_TIMEOUT_S = 120.0  # with retries: the console itself is hit by the storm
SECRETS = (urlsafe_b64encode(token_bytes(32)).decode(),)  # the product's other workers have another secret
SLOTS = 4  # of each of the two workers of a standalone cluster
LOST_MASTER, RECOVERED = "Waiting for master to reconnect", "Recovery complete"  # in the logs of Spark's worker and master
NOTICE_S, RECOVERY_TIMEOUT_S = 5.0, 120.0


class ProductUnderTest:
    """The product with a link and a mirror per topic; a context manager."""

    def __init__(self, environment: ChaosEnvironment, topics: Mapping[str, int], *, standalone: bool = False) -> None:
        """Plan everything; nothing is started yet. ``standalone``: executors run on a Spark standalone cluster."""
        self._environment, self._topics = environment, dict(topics)
        directory = environment.directory / "product"
        directory.mkdir(mode=0o700)
        self._directory = directory
        self._standalone = StandaloneCluster(directory / "standalone", cores=SLOTS) if standalone else None
        place = directory / "spark"
        self._spark = (
            SparkConnectServer(directory=place) if self._standalone is None else self._standalone.connect_server(place)
        )
        self._console = services.plan_console(
            directory, redis_url=environment.redis_url, spark_url=self._spark.url, copy_workers=POOL
        )
        self._processes: dict[str, Process] = {}
        self._stack = ExitStack()
        self._beside = 0
        self._failed: dict[str, str] = {}

    def __enter__(self) -> ProductUnderTest:
        """Start the product and wait until every mirror is ACTIVE."""
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything."""
        self._stack.close()

    def inject(self, fault: ScheduledFault) -> InjectedFault | None:
        environment = self._environment
        own: dict[Fault, Callable[[], InjectedFault | None]] = {
            Fault.DRAIN: lambda: environment.moved(partial(self._inside, "drain()")),
            Fault.REBALANCE: lambda: environment.moved(partial(self._inside, "rotate()")),
            Fault.TWO_ASSIGNERS: lambda: self._assign_twice(fault),
            Fault.STALE_ASSIGNMENT: lambda: environment.replayed(partial(self._inside, "rotate()"), self._worker_logs),
            Fault.CUT_REDIS: lambda: self._cut_off_worker(fault),
            Fault.KILL_COPIER: lambda: self._kill_owner(fault),
            Fault.STOP_COPIER: self._freeze_copiers,
            Fault.KILL_CONNECT: lambda: self._inject_spark_fault(fault),
            Fault.STOP_CONNECT: lambda: self._inject_spark_fault(fault),
            Fault.KILL_MASTER: self._kill_master,
            Fault.KILL_WORKER: lambda: environment.once(
                "worker", self._processes["worker"].kill, partial(self._start_service, "worker")
            ),
            Fault.SECOND_COPIER: lambda: self._second_copier(fault),
            Fault.SECOND_OWNER: lambda: self._second_copier(fault),
        }
        return own[fault.kind]() if fault.kind in own else environment.inject(fault)

    def _assign_twice(self, fault: ScheduledFault) -> InjectedFault | None:
        """Run two more reconcilers; effective if the older view was published last, and partitions moved."""
        overwritten: list[int] = []
        call = partial(self._inside, f"assign_twice({fault.lasts_s:.1f})")
        injected = self._environment.contested(lambda: overwritten.append(int(call())))
        return None if injected is None else InjectedFault(proof=lambda: any(overwritten) and injected.proof())

    def _cut_off_worker(self, fault: ScheduledFault) -> InjectedFault | None:
        workers = self._awaited_workers()
        return self._environment.cut_off(workers[int(fault.pick * len(workers))]) if workers else None

    def _kill_master(self) -> InjectedFault | None:
        """Kill the Spark master; effective if a Spark worker notices, which still has its executors then."""
        cluster = self._standalone
        assert cluster is not None
        logs = [worker.log for worker in cluster.workers]
        before = mentions(logs, LOST_MASTER)

        def noticed() -> bool:
            return until(lambda: mentions(logs, LOST_MASTER) > before, NOTICE_S) and bool(self._python_workers())

        return self._environment.once(cluster, cluster.kill_master, self._restart_master, proof=noticed)

    def _restart_master(self) -> None:
        assert self._standalone is not None
        log = [self._directory / "standalone" / "spark-master.log"]
        before = mentions(log, RECOVERED)
        self._standalone.start_master()
        if not until(lambda: mentions(log, RECOVERED) > before, RECOVERY_TIMEOUT_S):
            raise TimeoutError(f"The Spark master did not recover its workers and applications in {RECOVERY_TIMEOUT_S:.0f} s.")

    def _kill_owner(self, fault: ScheduledFault) -> InjectedFault | None:
        """Kill workers that are connected to brokers until a lease expires: some may only wait for their leases."""
        workers = self._awaited_workers()
        first = int(fault.pick * len(workers))
        for pid in (workers[first:] + workers[:first])[:KILL_TRIES]:
            before = self._environment.owners.awaited()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if self._environment.owners.expired(before):
                return InjectedFault()
        return None

    def _freeze_copiers(self) -> InjectedFault | None:
        """Freeze all copy workers while another runs: the reconciler starts new workers only after half a minute."""
        self._copy_beside(BESIDE_S)
        before, workers = self._environment.owners.awaited(), self._python_workers()
        if not before or not workers:
            return None
        freeze(workers)
        return InjectedFault(repair=partial(thaw, workers), proof=partial(self._environment.owners.taken_over, before))

    def settle(self, topics: Collection[str], *, timeout_s: float) -> None:
        wanted = {topic: self._topics[topic] for topic in topics}
        source = Ends(self._environment.source.cluster.client(), wanted)
        mirror = Ends(self._environment.destination.cluster.client(), wanted)

        def equal() -> bool:
            there = source.all()
            return there is not None and there == mirror.all()

        self._wait(equal, "the mirrors are not in sync", timeout_s=timeout_s)

    def fail_over(self, topic: str) -> None:
        self._note_failures()
        self._operate("failover", [topic])

    def promote_during_move(self, topic: str, *, wait_until_drained: Callable[[], object]) -> InjectedFault | None:
        keys = [assignment.key for assignment in self._plan.assignments if assignment.mirror_topic == topic]
        names = [lease_name(key) for key in keys]
        with self._environment.owners.followed() as trails:
            until(lambda: all(name in trails for name in names), OWNERS_TIMEOUT_S)
            undrained = self._inside(f"promote_and_rotate({topic!r})") == str(True)
            moved = until(lambda: changed_workers(trails, names), CHANGE_TIMEOUT_S)
        wait_until_drained()
        return InjectedFault(proof=lambda: undrained and moved)

    def promote(self, topics: Collection[str], *, timeout_s: float) -> None:
        self._operate("promote", list(topics))
        self._wait(lambda: all(self.stopped(topic) for topic in self._topics), "mirrors are not STOPPED", timeout_s=timeout_s)

    def stopped(self, topic: str) -> dict[int, int]:
        mirror = self._rest_get(f"{self._mirrors}/{topic}")
        if mirror["mirror_status"] != "STOPPED":
            return {}
        rows = self._rest_get(f"{self._mirrors.replace('/kafka/v3/', '/api/v1/', 1)}/{topic}/partitions")["data"]
        return {row["partition"]: row["stopped_end"] for row in rows}

    def failures(self) -> Iterator[Finding]:
        self._note_failures()
        for topic, detail in self._failed.items():
            yield Finding(kind="failed", detail=f"mirror {topic}: {detail}")

    def crashes(self) -> Iterator[Finding]:
        for process in self._processes.values():
            yield from crashes(process.log)
            if not process.running():
                yield Finding(kind="crash", detail=f"{process.name} has ended: {process.log_tail()}")
        for log in self._worker_logs():
            yield from crashes(log)
        yield from self._copiers.crashes()

    def log_tails(self) -> str:
        lines = [self._processes[name].log_tail() for name in self._processes]
        with suppress(RestError, TimeoutError):
            lines.append(str(self._rest.get(f"{self._mirrors}?include_state_transition_errors=true")))
        return "\n".join(lines)

    @property
    def _mirrors(self) -> str:
        return "/kafka/v3" + link_path(self._environment.destination.cluster.cluster_id, LINK) + "/mirrors"

    def _start(self) -> None:
        if self._standalone is not None:
            self._stack.callback(self._standalone.stop)
            self._standalone.start(workers=2)
        self._stack.callback(self._spark.stop)
        self._spark.start()
        key = services.prepare(self._console, user="chaos", password=base64.b64encode(os.urandom(12)).decode())
        self._rest = Rest(base_url=self._console.base_url, key=key["api_key"], secret=key["api_secret"])
        self._stack.callback(self._stop_services)
        for name in services.SERVICES:
            self._start_service(name)
        services.wait_ready(self._console, list(self._processes.values()))
        destination = self._environment.destination.cluster
        services.register_cluster(self._console, name="destination", properties=destination.proxied_properties("link"))
        self._environment.create_topics(self._topics)
        self._create_link()
        for topic in self._topics:
            self._rest.post(self._mirrors, {"source_topic_name": topic})
        self._wait(self._all_active, "not all mirrors are ACTIVE", timeout_s=SETUP_TIMEOUT_S)
        self._plan, self._lease_ttl_ms = pickle.loads(base64.b64decode(self._inside("plan()")))
        self._copiers = Copiers(self._directory / "copiers")
        self._stack.callback(self._copiers.close)

    def _restart_spark(self) -> None:
        for left in reversed(range(START_ATTEMPTS)):
            try:
                self._spark.start()
            except Exception:  # whatever its first query met: it is started again
                self._spark.kill()
                if not left:
                    raise
            else:
                return

    def _start_service(self, name: str) -> None:
        self._processes[name] = services.start_service(self._console, name)

    def _stop_services(self) -> None:
        for process in self._processes.values():
            process.kill()

    def _create_link(self) -> None:
        source, destination = self._environment.source.cluster, self._environment.destination.cluster
        configs = [{"name": name, "value": value} for name, value in source.proxied_properties("link").items()]
        path = f"/kafka/v3/clusters/{destination.cluster_id}/links?link_name={LINK}"
        self._rest.post(path, {"source_cluster_id": source.cluster_id, "configs": configs})

    def _all_active(self) -> bool:
        mirrors = self._rest.get(self._mirrors)["data"]
        if any(mirror["mirror_status"] == "FAILED" for mirror in mirrors):
            raise RuntimeError(f"A mirror has FAILED before the storm.\n{self.log_tails()}")
        return all(mirror["mirror_status"] == "ACTIVE" for mirror in mirrors)

    def _inject_spark_fault(self, fault: ScheduledFault) -> InjectedFault | None:
        if fault.kind is Fault.STOP_CONNECT:
            return self._environment.once(self._spark, self._spark.pause, self._spark.resume)
        copied = bool(self._copying_workers())
        return self._environment.once(self._spark, self._spark.kill, self._restart_spark, proof=lambda: copied)

    def _second_copier(self, fault: ScheduledFault) -> InjectedFault:
        pid, worker_id = self._copy_beside(fault.lasts_s)
        if fault.kind is Fault.SECOND_OWNER:
            return InjectedFault(proof=self._environment.owners.end_leases)
        return InjectedFault(
            proof=partial(self._environment.owners.beside, pid, worker_id, self._environment.destination_ports)
        )

    def _copy_beside(self, seconds: float) -> tuple[int, str]:
        """Start a copy worker for all partitions outside the product; return its process id and its name."""
        self._beside += 1
        name, url = worker_id_for(self._beside, uuid.uuid4().hex[:12]), self._environment.redis.url
        setup = jobs.setup_worker(name, redis_url=url, secrets=SECRETS, lease_ttl_ms=self._lease_ttl_ms)
        with suppress(CoordinationUnavailableError):
            jobs.write_assignments(url, self._plan.link_id, {name: self._plan}, secrets=SECRETS)
        began = time.monotonic()
        pid = self._copiers.copy(setup)
        timer = threading.Timer(max(0.0, began + seconds - time.monotonic()), partial(self._end, name, pid))
        timer.daemon = True
        timer.start()
        return pid, name

    def _end(self, name: str, pid: int) -> None:
        """End a worker outside the product: the order may be lost with Redis's data, or removed by the product with it."""
        while psutil.pid_exists(pid):
            with suppress(CoordinationUnavailableError):
                jobs.end_workers(self._environment.redis.url, [name], secrets=SECRETS)
            time.sleep(END_EVERY_S)

    def _inside(self, call: str) -> str:
        """Call a function of `chaos.inside` with the product's settings; return its printed result."""
        code = f"from chaos import inside; print(inside.{call})"
        return services.manage(self._console, "shell", "-v0", "-c", code).splitlines()[-1]

    def _awaited_workers(self) -> list[int]:
        """Return the workers that copy, after waiting for the first; empty after a timeout."""
        until(lambda: bool(self._copying_workers()), OWNERS_TIMEOUT_S)
        return self._copying_workers()

    def _copying_workers(self) -> list[int]:
        return connected(self._python_workers(), self._environment.destination_ports)

    def _python_workers(self) -> list[int]:
        with suppress(psutil.Error, RuntimeError):
            daemons = [daemon for executor in self._executors() for daemon in executor.children()]
            return [worker.pid for daemon in daemons for worker in daemon.children()]
        return []

    def _executors(self) -> list[psutil.Process]:
        cluster = self._standalone
        if cluster is None:
            return [psutil.Process(self._spark.pid)]
        return [executor for worker in cluster.workers for executor in cluster.executors(worker)]

    def _worker_logs(self) -> list[Path]:
        """Return the logs that copy workers write to: the server's, or those of all executors that there were."""
        return [self._spark.log, *sorted((self._directory / "standalone").glob("worker-*/app-*/*/stderr"))]

    def _note_failures(self) -> None:
        for row in self._rest_get(f"{self._mirrors}?include_state_transition_errors=true")["data"]:
            if row["mirror_status"] == "FAILED":
                self._failed[row["mirror_topic_name"]] = str(row)

    def _operate(self, verb: str, topics: list[str]) -> None:
        path = f"{self._mirrors}:{verb}"
        self._wait(lambda: self._accepted(path, topics), f"{verb} is not accepted", timeout_s=REST_TIMEOUT_S)

    def _accepted(self, path: str, topics: list[str]) -> bool:
        try:
            response = self._rest.post(path, {"mirror_topic_names": topics})
        except RestError:
            return False
        return all(row["error_code"] is None for row in response["data"])

    def _rest_get(self, path: str) -> Any:
        found: list[Any] = []

        def get() -> bool:
            with suppress(RestError):
                found.append(self._rest.get(path))
            return bool(found)

        self._wait(get, f"{path} gets no response", timeout_s=REST_TIMEOUT_S)
        return found[0]

    def _wait(self, done: Callable[[], bool], what: str, *, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"Within {timeout_s:.0f} s: {what}.\n{self.log_tails()}")
            time.sleep(POLL_S)
