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
from secrets import token_bytes
from typing import Any

import psutil

from chaos.copiers import Copiers, freeze, thaw
from chaos.effects import OWNERS_TIMEOUT_S, Blow, connected, until
from chaos.ground import Ground
from chaos.judge import Finding
from chaos.reading import Ends
from chaos.schedule import Fault, Strike
from chaos.troubles import crashes
from devcluster.demo import services
from devcluster.demo.rest import Rest, RestError, link_path
from devcluster.processes import Process
from devcluster.spark import SparkConnectServer
from linkengine import jobs
from linkengine.domain.leases import CoordinationUnavailableError
from linkengine.domain.workers import worker_id_for

LINK = "chaos"
POOL = 2  # copy workers
POLL_S = 0.5
START_ATTEMPTS = 3
KILL_TRIES = 3
BESIDE_S = 15.0  # how long another copy worker runs while the others are frozen
SETUP_TIMEOUT_S = 240.0
REST_TIMEOUT_S = 120.0  # with retries: the console itself is hit by the storm
SECRETS = (urlsafe_b64encode(token_bytes(32)).decode(),)  # the product's other workers have another secret
# Run inside the product: prints a plan of all partitions, as a copy worker would get it.
_PLAN = """
import base64, pickle
from console.models import ClusterLink
from console.reconciling import plans
from console.tasks.observing import ensure_rows
from console.reconciling.isolation import Failures
link = ClusterLink.objects.select_related("destination", "source").get()
mirrors = list(link.mirrors.select_related("link"))
rows = ensure_rows(mirrors, Failures())
for row in rows.values():
    row.worker_id = "by hand"
plan = plans.copy_plans(link, mirrors, rows)["by hand"]
print(base64.b64encode(pickle.dumps((plan, plans.TUNING.lease_ttl_ms))).decode())
"""
# The next reconcile pass starts other workers for all numbers and drains the present ones.
_DRAIN = """
from console.models import CopyWorker
for row in CopyWorker.objects.all():
    CopyWorker.objects.filter(pk=row.pk).update(worker_id=f"{row.number:04d}-nobody", left_at=None)
"""
# Every partition moves to the next worker.
_TURN = """
from console.models import CopyWorker, MirrorPartition
names = sorted(CopyWorker.objects.values_list("worker_id", flat=True))
for row in MirrorPartition.objects.exclude(worker_id=""):
    if row.worker_id in names:
        row.worker_id = names[(names.index(row.worker_id) + 1) % len(names)]
        row.save(update_fields=["worker_id"])
"""
_MOVES = {
    Fault.DRAIN: _DRAIN,
    Fault.REBALANCE: _TURN,
    Fault.TWO_ASSIGNERS: _TURN,
    Fault.STALE_ASSIGNMENT: _TURN,
}


class Product:
    """The product with a link and a mirror per topic; a context manager."""

    def __init__(self, ground: Ground, topics: Mapping[str, int]) -> None:
        """Plan everything; nothing is started yet."""
        self._ground, self._topics = ground, dict(topics)
        directory = ground.directory / "product"
        directory.mkdir(mode=0o700)
        self._directory = directory
        self._spark = SparkConnectServer(directory=directory / "spark")
        self._console = services.plan_console(
            directory, redis_url=ground.redis.url, spark_url=self._spark.url, copy_workers=POOL
        )
        self._processes: dict[str, Process] = {}
        self._stack = ExitStack()
        self._beside = 0
        self._failed: dict[str, str] = {}

    @property
    def faults(self) -> Collection[Fault]:
        return tuple(fault for fault in Fault if fault is not Fault.CUT_REDIS)  # workers and services share the path to Redis

    def __enter__(self) -> Product:
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

    def strike(self, strike: Strike) -> Blow | None:
        match strike.fault:
            case Fault.KILL_COPIER | Fault.STOP_COPIER:
                return self._kill_owner(strike) if strike.fault is Fault.KILL_COPIER else self._freeze_copiers()
            case Fault.KILL_CONNECT | Fault.STOP_CONNECT:
                return self._strike_spark(strike)
            case Fault.KILL_WORKER:
                return self._ground.once("worker", self._processes["worker"].kill, partial(self._start_service, "worker"))
            case Fault.SECOND_COPIER | Fault.SECOND_OWNER:
                return self._second_copier(strike)
            case _ if strike.fault in _MOVES:
                return self._moved(_MOVES[strike.fault])
            case _:
                return self._ground.strike(strike)

    def _kill_owner(self, strike: Strike) -> Blow | None:
        """Kill workers that are connected to brokers until a lease expires: some may only wait for their leases."""
        workers = self._awaited_workers()
        first = int(strike.pick * len(workers))
        for pid in (workers[first:] + workers[:first])[:KILL_TRIES]:
            before = self._ground.owners.awaited()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if self._ground.owners.died(before):
                return Blow()
        return None

    def _freeze_copiers(self) -> Blow | None:
        """Freeze all copy workers while another runs: the reconciler starts new workers only after half a minute."""
        self._copy_beside(BESIDE_S)
        before, workers = self._ground.owners.awaited(), self._python_workers()
        if not before or not workers:
            return None
        freeze(workers)
        return Blow(mend=partial(thaw, workers), proof=partial(self._ground.owners.taken_over, before))

    def settle(self, topics: Collection[str], *, timeout_s: float) -> None:
        wanted = {topic: self._topics[topic] for topic in topics}
        source = Ends(self._ground.source.cluster.client(), wanted)
        mirror = Ends(self._ground.destination.cluster.client(), wanted)

        def equal() -> bool:
            there = source.all()
            return there is not None and there == mirror.all()

        self._wait(equal, "the mirrors are not in sync", timeout_s=timeout_s)

    def fail_over(self, topic: str) -> None:
        self._note_failures()
        self._operate("failover", [topic])

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
        yield from crashes(self._spark.log)
        yield from self._copiers.crashes()

    def story(self) -> str:
        lines = [self._processes[name].log_tail() for name in self._processes]
        with suppress(RestError, TimeoutError):
            lines.append(str(self._rest.get(f"{self._mirrors}?include_state_transition_errors=true")))
        return "\n".join(lines)

    @property
    def _mirrors(self) -> str:
        return "/kafka/v3" + link_path(self._ground.destination.cluster.cluster_id, LINK) + "/mirrors"

    def _start(self) -> None:
        self._stack.callback(self._spark.stop)
        self._spark.start()
        key = services.prepare(self._console, user="chaos", password=base64.b64encode(os.urandom(12)).decode())
        self._rest = Rest(base_url=self._console.base_url, key=key["api_key"], secret=key["api_secret"])
        self._stack.callback(self._stop_services)
        for name in services.SERVICES:
            self._start_service(name)
        services.wait_ready(self._console, list(self._processes.values()))
        destination = self._ground.destination.cluster
        services.register_cluster(self._console, name="destination", properties=destination.proxied_properties("link"))
        self._ground.create_topics(self._topics)
        self._create_link()
        for topic in self._topics:
            self._rest.post(self._mirrors, {"source_topic_name": topic})
        self._wait(self._all_active, "not all mirrors are ACTIVE", timeout_s=SETUP_TIMEOUT_S)
        plan = services.manage(self._console, "shell", "-v0", "-c", _PLAN)
        self._plan, self._lease_ttl_ms = pickle.loads(base64.b64decode(plan.splitlines()[-1]))
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
        source, destination = self._ground.source.cluster, self._ground.destination.cluster
        configs = [{"name": name, "value": value} for name, value in source.proxied_properties("link").items()]
        path = f"/kafka/v3/clusters/{destination.cluster_id}/links?link_name={LINK}"
        self._rest.post(path, {"source_cluster_id": source.cluster_id, "configs": configs})

    def _all_active(self) -> bool:
        mirrors = self._rest.get(self._mirrors)["data"]
        if any(mirror["mirror_status"] == "FAILED" for mirror in mirrors):
            raise RuntimeError(f"A mirror has FAILED before the storm.\n{self.story()}")
        return all(mirror["mirror_status"] == "ACTIVE" for mirror in mirrors)

    def _strike_spark(self, strike: Strike) -> Blow | None:
        if strike.fault is Fault.STOP_CONNECT:
            return self._ground.once(self._spark, self._spark.pause, self._spark.resume)
        copied = bool(self._copying_workers())
        return self._ground.once(self._spark, self._spark.kill, self._restart_spark, proof=lambda: copied)

    def _second_copier(self, strike: Strike) -> Blow:
        pid, worker_id = self._copy_beside(strike.lasts_s)
        if strike.fault is Fault.SECOND_OWNER:
            return Blow(proof=self._ground.owners.end_leases)
        return Blow(proof=partial(self._ground.owners.beside, pid, worker_id, self._ground.destination_ports))

    def _copy_beside(self, seconds: float) -> tuple[int, str]:
        """Start a copy worker for all partitions outside the product; return its process id and its name."""
        self._beside += 1
        name, url = worker_id_for(self._beside, uuid.uuid4().hex[:12]), self._ground.redis.url
        setup = jobs.setup_worker(name, redis_url=url, secrets=SECRETS, lease_ttl_ms=self._lease_ttl_ms)
        with suppress(CoordinationUnavailableError):
            jobs.write_assignments(url, self._plan.link_id, {name: self._plan}, secrets=SECRETS)
        timer = threading.Timer(seconds, partial(self._end, name))
        timer.daemon = True
        timer.start()
        return self._copiers.copy(setup), name

    def _end(self, name: str) -> None:
        with suppress(CoordinationUnavailableError):
            jobs.end_workers(self._ground.redis.url, [name], secrets=SECRETS)

    def _moved(self, code: str) -> Blow | None:
        """Move partitions by code that runs inside the product."""
        before = self._ground.owners.awaited()
        if not before:
            return None
        services.manage(self._console, "shell", "-v0", "-c", code)
        return Blow(proof=partial(self._ground.owners.taken_over, before))

    def _awaited_workers(self) -> list[int]:
        """Return the workers that copy, after waiting for the first; empty after a timeout."""
        until(lambda: bool(self._copying_workers()), OWNERS_TIMEOUT_S)
        return self._copying_workers()

    def _copying_workers(self) -> list[int]:
        return connected(self._python_workers(), self._ground.destination_ports)

    def _python_workers(self) -> list[int]:
        with suppress(psutil.Error, RuntimeError):
            daemons = psutil.Process(self._spark.pid).children()
            return [worker.pid for daemon in daemons for worker in daemon.children()]
        return []

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
                raise TimeoutError(f"Within {timeout_s:.0f} s: {what}.\n{self.story()}")
            time.sleep(POLL_S)
