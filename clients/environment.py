"""The environment of the scenarios: two clusters with topics, Redis, Spark Connect and the product, with start and stop."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from devcluster.demo import services
from devcluster.kafka import KafkaCluster
from devcluster.parts import ROOT, VAR
from devcluster.redis import RedisServer
from devcluster.spark import SparkConnectServer
from devcluster.tls import write_certificates

__all__ = ["ROOT", "VAR", "ClientEnvironment", "StepFailedError", "run_program"]
RECORDS = 1000
PROGRAM_TIMEOUT_S = 900.0  # the first build of a client takes minutes
REPLICA_TIMEOUT_S = 30
ODD_PASSWORD = 'a "quoted" \\ ${x} %{y} $HOME word'  # noqa: S105 - local; of PLAIN user `odd` of the public cluster


def _odd_login() -> Mapping[str, str]:
    """Return the PLAIN login of that cluster's client listener, with backslashes doubled as in any properties file."""
    quoted = ODD_PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    line = f'{module} required user_odd="{quoted}";'
    return {
        "listener.name.client.plain.sasl.jaas.config": line.replace("\\", "\\\\"),
        "super.users": "User:admin;User:broker;User:odd",
    }


class StepFailedError(RuntimeError):
    """A client did not get the expected result; the message has its output."""


class ClientEnvironment:
    """The running product; a context manager that stops everything."""

    def __init__(self, directory: Path) -> None:
        """Plan all parts in an emptied directory."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, mode=0o700)
        self.directory = directory
        self.source = KafkaCluster("source", directory=directory / "source")
        self.destination = KafkaCluster("destination", directory=directory / "destination")
        self._redis = RedisServer(directory=directory / "redis")
        self._spark = SparkConnectServer(directory=directory / "spark")
        console = services.plan_console(directory, redis_url=self._redis.url, spark_url=self._spark.url)
        # The product trusts the authority of this cluster like a public one. A scenario that needs the cluster starts it.
        self.public = KafkaCluster("public", directory=directory / "public", security="SASL_SSL", extra=_odd_login())
        write_certificates(self.public.certificates.authority.parent)
        trust = {"SSL_CERT_FILE": str(self.public.certificates.authority)}
        self.console = replace(console, environment={**console.environment, **trust})
        self.user, self.password = "admin", secrets.token_urlsafe(16)
        self.key: dict[str, str] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Start everything and register both clusters."""
        with ExitStack() as starting:
            starting.callback(self._stack.close)
            for part in (self.source, self.destination, self._redis, self._spark):
                part.start()
                self._stack.callback(part.stop)
            self.key = services.prepare(self.console, user=self.user, password=self.password)
            running = services.start_services(self.console, reload=False)
            for process in running:
                self._stack.callback(process.stop)
            services.wait_ready(self.console, running)
            for cluster in (self.source, self.destination):
                self.register(cluster)
            starting.pop_all()
        return self

    def register(self, cluster: KafkaCluster) -> None:
        """Register a cluster with the credentials of its link user."""
        services.register_cluster(self.console, name=cluster.name, properties=cluster.client_properties("link"))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop everything."""
        self._stack.close()

    def make_topic(self, name: str) -> str:
        """Create a source topic with records."""
        admin = AdminClient(self.source.client("admin"))
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(REPLICA_TIMEOUT_S)
        producer = Producer(self.source.client("admin"))
        for number in range(RECORDS):
            producer.produce(name, f"value {number}", partition=number % 2)
        if producer.flush(REPLICA_TIMEOUT_S):
            raise StepFailedError(f"Topic {name} could not be filled.")
        return name


def run_program(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str], expect: Sequence[int] = (0,)
) -> subprocess.CompletedProcess[str]:
    """Run a client; raise StepFailedError with its output if its exit code is not expected."""
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    if done.returncode not in expect:
        took = time.monotonic() - began
        raise StepFailedError(f"{' '.join(command)} ended with {done.returncode} after {took:.0f} s:\n{done.stdout}")
    return done
