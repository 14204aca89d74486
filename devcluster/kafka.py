"""Kafka clusters in KRaft mode on this machine: start, stop, kill, pause, and credentials for three kinds of users.

Each broker is also a controller. Clients connect over SASL with SCRAM or PLAIN (or without any security); brokers and
controllers authenticate to each other as the user `broker` over SASL PLAIN, so that there is no super user without a password.
Everything that no ACL allows is denied. Must not know links and mirrors.
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
from typing import Any, Self

from devcluster import access, parts
from devcluster.broker_settings import BrokerPlan, Security, broker_properties
from devcluster.listeners import EXTRA_LISTENERS, ExtraListener, jvm_flags, listener_security
from devcluster.ports import LOOPBACK, free_port
from devcluster.processes import STOP_TIMEOUT_S, Process
from devcluster.tls import certificates_in, write_certificates

# The installed brokers; `make test KAFKA=4.4.0` runs the suite against a version other than the newest.
NEWEST, OLDEST = os.environ.get("KAFKA_VERSION") or "4.3.1", "3.9.1"
START_TIMEOUT_S = 240.0  # about 5 s on two idle cores; a loaded machine needs much longer
FORMAT_TIMEOUT_S = 180.0
LOG_SETTINGS = Path(__file__).with_name("conf") / "log4j2.properties"
OLD_LOG_SETTINGS = LOG_SETTINGS.with_name("log4j.properties")  # of brokers before Kafka 4
# A small heap and shared class data: brokers start fast and leave memory for each other.
JVM_FLAGS = ("-Xshare:auto", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")


class KafkaCluster:
    """A local Kafka cluster; also a context manager that starts and stops it."""

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
        """Plan a cluster without starting it. Without `directory` the data is in a temporary directory, deleted on stop.

        `authorizer` defaults to True for clients with names (SASL) and to False otherwise.
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

    def with_listeners(self, *, jwks_url: str) -> Self:
        """Add all listeners of `listeners.py` to every broker, before it starts; `jwks_url` has the keys that verify tokens."""
        self._plans = [
            replace(plan, listeners={listener: free_port() for listener in EXTRA_LISTENERS}, jwks_url=jwks_url)
            for plan in self._plans
        ]
        return self

    def with_classes(self, folder: Path) -> Self:
        """Add compiled classes of this folder, such as a policy, to the brokers' class path, before they start."""
        self._classes = folder
        return self

    def behind_proxy(self) -> Self:
        """Add a listener to every broker, before it starts, for clients that connect through the caller's proxy (`routes`)."""
        self._plans = [replace(plan, proxied_port=free_port(), proxy_port=free_port()) for plan in self._plans]
        return self

    @property
    def bootstrap(self) -> str:
        """The client addresses of all brokers, for `bootstrap.servers`."""
        return ",".join(f"{LOOPBACK}:{plan.client_port}" for plan in self._plans)

    @property
    def routes(self) -> list[tuple[int, int]]:
        """Pairs of ports, one per broker of a proxied cluster: where a proxy has to listen, and where it connects to."""
        return [(plan.proxy_port, plan.proxied_port) for plan in self._plans if plan.proxied_port]

    @property
    def has_authorizer(self) -> bool:
        """True if ACLs are enforced."""
        return self._plans[0].authorizer

    @property
    def brokers(self) -> list[int]:
        """The node ids."""
        return [plan.node for plan in self._plans]

    def client(self, user: str = access.ADMIN, *, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
        """Return librdkafka properties for `user`; its log is off, since brokers are stopped here on purpose."""
        security = access.client_security(self, user=user, mechanism=mechanism)
        return {"bootstrap.servers": self.bootstrap, "log_level": "0", **security}

    def client_properties(self, user: str = access.ADMIN, *, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Return the properties of the Java clients for `user`."""
        return {"bootstrap.servers": self.bootstrap, **access.java_security(self, user=user, mechanism=mechanism)}

    def listener_properties(self, listener: ExtraListener) -> dict[str, str]:
        """Return the Java clients' properties for an additional listener, without the SASL login."""
        servers = ",".join(f"{LOOPBACK}:{plan.listeners[listener]}" for plan in self._plans)
        return {"bootstrap.servers": servers, **listener_security(listener, certificates=self.certificates)}

    def proxied_properties(self, user: str = access.ADMIN, *, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Return properties of the Java clients with which `user` connects through the proxy."""
        bootstrap = ",".join(f"{LOOPBACK}:{port}" for port, _ in self.routes)
        return {**self.client_properties(user, mechanism=mechanism), "bootstrap.servers": bootstrap}

    def start(self) -> Self:
        """Format the storage, start all brokers, wait until they respond, and create the ACLs of `app`. About 5 s."""
        if "SSL" in self.security or self._plans[0].listeners:
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
        """Wait until every broker is in the cluster's metadata and responds to an admin client."""
        for process in self._processes.values():
            process.wait_until(lambda: access.known_brokers(self) == set(self.brokers), timeout_s=timeout_s)

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop all brokers and delete the data of a temporary cluster. Safe to repeat."""
        for process in self._processes.values():
            process.resume()
        if len(self._processes) > 1:
            self.kill_all()  # a clean stop of a whole quorum would wait for a majority that is stopping too
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
        """Kill a broker with SIGKILL, as a power failure would."""
        self._processes[broker].kill()

    def pause(self, broker: int = 0) -> None:
        """Freeze a broker (SIGSTOP): connections stay open, but it does not respond."""
        self._processes[broker].pause()

    def resume(self, broker: int = 0) -> None:
        """Continue a frozen broker (SIGCONT)."""
        self._processes[broker].resume()

    def fill_disk(self, broker: int = 0) -> None:
        """Prevent all files of a broker from growing, like a full disk, until `restart`. The broker then shuts down."""
        _, most = resource.prlimit(self.pid(broker), resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid(broker), resource.RLIMIT_FSIZE, (0, most))

    def running(self, broker: int = 0) -> bool:
        """Return whether a broker's process is running."""
        return self._processes[broker].running()

    def restart(self, broker: int = 0, *, wait: bool = True) -> None:
        """Stop a broker if it is running and start it on the same port and data."""
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
        if self._classes is not None:  # after the jars: a class data archive requires their path as prefix
            classpath = f"{classpath}:{self._classes}"
        return [java, *JVM_FLAGS, *archive, *flags, "-cp", classpath]

    def _format(self, plan: BrokerPlan) -> Process:
        plan.directory.mkdir(parents=True, exist_ok=True)
        plan.settings_file.touch(mode=0o600)
        plan.settings_file.write_text(broker_properties(plan))
        # Passwords go through a private file: every user can read the arguments of a process.
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
