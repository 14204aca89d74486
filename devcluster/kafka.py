"""Kafka clusters in KRaft mode on this machine: start, stop, kill, pause, and credentials for three kinds of users.

Each broker is also a controller. Clients come in over SASL with SCRAM or PLAIN (or without any security); brokers and
controllers talk to each other as the user `broker` over SASL PLAIN, so that nobody is a super user without a password.
Nothing is allowed that no ACL allows. Knows nothing of links and mirrors.
"""

import os
import resource
import secrets
import shutil
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from devcluster import access, parts
from devcluster.broker_settings import BrokerPlan, Security, broker_properties
from devcluster.doors import DOORS, Door, door_security, jvm_flags
from devcluster.ports import LOOPBACK, free_port
from devcluster.processes import STOP_TIMEOUT_S, Process
from devcluster.tls import certificates_in, write_certificates

# the brokers that are installed; `make test KAFKA=4.4.0` runs the suite against others than the usual newest ones
NEWEST, OLDEST = os.environ.get("KAFKA_VERSION") or "4.3.1", "3.9.1"
START_TIMEOUT_S = 240.0  # about 5 s on two idle cores; a loaded machine needs much longer
FORMAT_TIMEOUT_S = 180.0
LOG_SETTINGS = Path(__file__).with_name("conf") / "log4j2.properties"
OLD_LOG_SETTINGS = LOG_SETTINGS.with_name("log4j.properties")  # of brokers before Kafka 4
# a small heap and shared class data: a broker that starts quickly and leaves room for its neighbours
JVM_FLAGS = ("-Xshare:auto", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")


class KafkaCluster:
    """One local Kafka cluster; also a context manager that starts and stops it."""

    def __init__(
        self,
        name: str = "cluster",
        *,
        brokers: int = 1,
        directory: Path | None = None,
        version: str = NEWEST,
        security: Security = "SASL_PLAINTEXT",
        authorizer: bool | None = None,
        heap: str = "512m",
        extra: Mapping[str, object] | None = None,
    ) -> None:
        """Plan a cluster; nothing starts yet. Without `directory` the data lies in a temporary one and goes on stop.

        `authorizer` defaults to yes where clients have names (SASL) and to no where they have none.
        """
        named = security.startswith("SASL")
        if authorizer and not named:
            raise ValueError("An authorizer needs named users: use security='SASL_PLAINTEXT' or authorizer=False.")
        self.name = name
        self.version = version
        self.security = security
        self.cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.users = {user: secrets.token_hex(16) for user in access.USERS}
        self._heap = heap
        self._classes: Path | None = None
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix=f"kafka-{name}-"))
        self.certificates = certificates_in(self.directory / "tls")
        self._plans = self._plan(brokers=brokers, authorizer=named if authorizer is None else authorizer, extra=extra or {})
        self._processes: dict[int, Process] = {}

    def _plan(self, *, brokers: int, authorizer: bool, extra: Mapping[str, object]) -> list[BrokerPlan]:
        nodes = [(free_port(), free_port(), free_port()) for _ in range(brokers)]
        voters = ",".join(f"{node}@{LOOPBACK}:{ports[2]}" for node, ports in enumerate(nodes))
        return [
            BrokerPlan(
                node=node, client_port=ports[0], internal_port=ports[1], controller_port=ports[2], voters=voters,
                directory=self.directory / f"broker-{node}", security=self.security, authorizer=authorizer,
                brokers=brokers, users=self.users, certificates=self.certificates, extra=extra,
            )
            for node, ports in enumerate(nodes)
        ]  # fmt: skip

    def with_doors(self, *, jwks_url: str) -> Self:
        """Open all doors of `doors.py` on every broker, before it starts; tokens are checked with the keys at `jwks_url`."""
        self._plans = [replace(plan, doors={door: free_port() for door in DOORS}, jwks_url=jwks_url) for plan in self._plans]
        return self

    def with_classes(self, folder: Path) -> Self:
        """Let the brokers load compiled classes of this folder besides Kafka's, such as a policy; before they start."""
        self._classes = folder
        return self

    def behind_proxy(self) -> Self:
        """Add a listener to every broker, before it starts, whose clients come through a proxy of the caller's (`routes`)."""
        self._plans = [replace(plan, proxied_port=free_port(), proxy_port=free_port()) for plan in self._plans]
        return self

    @property
    def bootstrap(self) -> str:
        """The client addresses of all brokers, for `bootstrap.servers`."""
        return ",".join(f"{LOOPBACK}:{plan.client_port}" for plan in self._plans)

    @property
    def routes(self) -> list[tuple[int, int]]:
        """Where a proxy has to listen, and where it leads, one pair of ports per broker; only of a proxied cluster."""
        return [(plan.proxy_port, plan.proxied_port) for plan in self._plans if plan.proxied_port]

    @property
    def has_authorizer(self) -> bool:
        """Whether ACLs are enforced."""
        return self._plans[0].authorizer

    @property
    def brokers(self) -> list[int]:
        """The node ids."""
        return [plan.node for plan in self._plans]

    def client(self, user: str = access.ADMIN, *, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Return librdkafka properties with which `user` connects; quiet, since brokers come and go here on purpose."""
        security = access.client_security(self, user=user, mechanism=mechanism)
        return {"bootstrap.servers": self.bootstrap, "log_level": "0", **security}

    def client_properties(self, user: str = access.ADMIN, *, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Return the same as properties of the Java clients."""
        return {"bootstrap.servers": self.bootstrap, **access.java_security(self, user=user, mechanism=mechanism)}

    def door_properties(self, door: Door) -> dict[str, str]:
        """Return the Java clients' properties for a door, without what signs in over SASL."""
        servers = ",".join(f"{LOOPBACK}:{plan.doors[door]}" for plan in self._plans)
        return {"bootstrap.servers": servers, **door_security(door, certificates=self.certificates)}

    def proxied_properties(self, user: str = access.ADMIN, *, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Return properties of the Java clients with which `user` connects through the proxy."""
        bootstrap = ",".join(f"{LOOPBACK}:{port}" for port, _ in self.routes)
        return {**self.client_properties(user, mechanism=mechanism), "bootstrap.servers": bootstrap}

    def start(self) -> Self:
        """Format the storage, start all brokers, wait until they answer, and give `app` its ACLs. About 5 s."""
        if "SSL" in self.security or self._plans[0].doors:
            write_certificates(self.directory / "tls")
        try:
            fresh = [self._format(plan) for plan in self._plans if not plan.formatted()]
            for process in fresh:
                self._wait_formatted(process)
            for plan in self._plans:
                self._launch(plan)
            self.wait_ready()
            if fresh and self.has_authorizer:
                access.grant_app(self)
        except BaseException:
            self.stop()
            raise
        return self

    def wait_ready(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until every broker is known to the cluster and answers an administrator."""
        for process in self._processes.values():
            process.wait_until(lambda: access.known_brokers(self) == set(self.brokers), timeout_s=timeout_s)

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop all brokers, the data of a temporary cluster goes too. Safe to repeat."""
        for process in self._processes.values():
            process.resume()
        if len(self._processes) > 1:
            self.kill_all()  # an orderly stop of a whole quorum waits for a majority that goes away
        for process in self._processes.values():
            process.stop(timeout_s=timeout_s)
        self._processes.clear()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill_all(self) -> None:
        """Kill every broker with SIGKILL; the data stays."""
        for node in list(self._processes):
            self.kill(node)

    def kill(self, broker: int = 0) -> None:
        """Kill one broker with SIGKILL, as a power cut would."""
        self._processes[broker].kill()

    def pause(self, broker: int = 0) -> None:
        """Freeze one broker (SIGSTOP): connections stay open, nothing answers."""
        self._processes[broker].pause()

    def resume(self, broker: int = 0) -> None:
        """Let a frozen broker go on (SIGCONT)."""
        self._processes[broker].resume()

    def fill_disk(self, broker: int = 0) -> None:
        """Let no file of a broker grow any more, as if its disk were full, until `restart`. It closes the disk and ends."""
        _, most = resource.prlimit(self.pid(broker), resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid(broker), resource.RLIMIT_FSIZE, (0, most))

    def running(self, broker: int = 0) -> bool:
        """Tell whether a broker's process has not ended."""
        return self._processes[broker].running()

    def restart(self, broker: int = 0, *, wait: bool = True) -> None:
        """Stop one broker if it still runs and start it on the same port and data."""
        self._processes[broker].stop()
        self._launch(self._plans[broker])
        if wait:
            self.wait_ready()

    def log_tail(self, broker: int = 0) -> str:
        """Return the last lines of a broker's log."""
        return self._processes[broker].log_tail()

    def pid(self, broker: int = 0) -> int:
        """Return the process id of a broker."""
        return self._processes[broker].pid

    def __enter__(self) -> Self:
        """Start the cluster."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop the cluster."""
        self.stop()

    def _java(self, *flags: str) -> list[str]:
        java = parts.program("java", package="openjdk-17-jre-headless")
        archive = parts.archive_flags(parts.KAFKA_ARCHIVE) if self.version == NEWEST else []
        classpath = parts.kafka_classpath(version=self.version)
        if self._classes is not None:  # behind the jars: a class archive holds their path as its prefix
            classpath = f"{classpath}:{self._classes}"
        return [java, *JVM_FLAGS, *archive, *flags, "-cp", classpath]

    def _format(self, plan: BrokerPlan) -> Process:
        plan.directory.mkdir(parents=True, exist_ok=True)
        plan.settings_file.touch(mode=0o600)
        plan.settings_file.write_text(broker_properties(plan))
        # passwords go through a private file: the arguments of a process are for everybody to read
        arguments = plan.directory / "format.args"
        arguments.touch(mode=0o600)
        words = ["kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id}", "-c", str(plan.settings_file)]
        arguments.write_text("\n".join(words + access.scram_arguments(self.users)))
        command = [*self._java("-Xmx128m", "-XX:TieredStopAtLevel=1"), f"@{arguments}"]
        return Process(command, name=f"format {self.name}-{plan.node}", log=plan.directory / "format.log")

    def _wait_formatted(self, process: Process) -> None:
        process.wait_until_ended(timeout_s=FORMAT_TIMEOUT_S)
        (process.log.parent / "format.args").unlink()

    def _launch(self, plan: BrokerPlan) -> None:
        logging = (f"-Dlog4j2.configurationFile={LOG_SETTINGS}", f"-Dlog4j.configuration=file:{OLD_LOG_SETTINGS}")
        command = [
            *self._java(f"-Xmx{self._heap}", *logging, *jvm_flags(plan.jwks_url)),
            "kafka.Kafka",
            str(plan.settings_file),
        ]
        self._processes[plan.node] = Process(command, name=f"{self.name}-{plan.node}", log=plan.directory / "broker.log")
