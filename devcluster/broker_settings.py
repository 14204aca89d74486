"""The `server.properties` of a development broker.

Creates text only, starts nothing. The intervals that tests wait for are short, so that they see retention, compaction and lost
sessions within seconds; nothing changes how records are stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from devcluster.listeners import PRINCIPALS, ExtraListener, listener_properties
from devcluster.ports import LOOPBACK
from devcluster.tls import Certificates

Security = Literal["SASL_PLAINTEXT", "PLAINTEXT", "SASL_SSL", "SSL"]

_MODULES = "org.apache.kafka.common.security"
_PLAIN = f"{_MODULES}.plain.PlainLoginModule required"
_SCRAM = f"{_MODULES}.scram.ScramLoginModule required;"
BROKER_USER = "broker"

_FAST: Mapping[str, object] = {
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 2,
    "num.partitions": 1,
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "log.initial.task.delay.ms": 500,  # delay of retention and compaction; 30 s by default
    "log.retention.check.interval.ms": 1000,
    "log.segment.delete.delay.ms": 1000,
    "log.cleaner.backoff.ms": 500,
    # 10 MB by default. The files are mapped and sparse: the first write to each fills megabytes of page cache with zeros.
    "log.index.size.max.bytes": 256 * 1024,
    "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,  # 128 MB by default: a quarter of the heap
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "group.min.session.timeout.ms": 1000,
    "broker.heartbeat.interval.ms": 500,
    "metadata.max.idle.interval.ms": 5000,  # by default an idle controller writes and replicates a record every 500 ms
    "initial.broker.registration.timeout.ms": 240_000,  # without controllers, a broker ends after 60 s by default
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """All values that a broker's settings depend on."""

    node: int
    client_port: int
    internal_port: int
    controller_port: int
    voters: str
    directory: Path
    security: Security
    authorizer: bool
    brokers: int
    users: Mapping[str, str]
    certificates: Certificates
    extra: Mapping[str, object]
    listeners: Mapping[ExtraListener, int] = field(default_factory=dict)  # ports of the additional listeners
    jwks_url: str = ""
    proxied_port: int = 0  # a second listener for clients, 0 for none
    proxy_port: int = 0  # where a proxy listens for it: the advertised port of that listener

    @property
    def settings_file(self) -> Path:
        """The settings file; readable by its owner only, since it contains passwords."""
        return self.directory / "server.properties"

    @property
    def data(self) -> Path:
        """The log directory."""
        return self.directory / "data"

    def formatted(self) -> bool:
        """Return whether the storage is formatted."""
        return (self.data / "meta.properties").exists()


def broker_properties(plan: BrokerPlan) -> str:
    """Return the text of `server.properties`; `extra` overrides everything."""
    settings = {
        **_FAST, **_identity(plan), **_listeners(plan), **_session(plan.brokers), **_replication(plan.brokers),
        **_internal_login(plan), **_client_login(plan), **_encryption(plan), **_authorization(plan),
    }  # fmt: skip
    if plan.listeners:
        settings |= listener_properties(plan.listeners, certificates=plan.certificates, known=settings, jwks_url=plan.jwks_url)
    settings |= plan.extra
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _identity(plan: BrokerPlan) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": plan.node,
        "controller.quorum.voters": plan.voters,
        "log.dirs": plan.data,
    }


def _listeners(plan: BrokerPlan) -> dict[str, object]:
    own = f"INTERNAL://{LOOPBACK}:{plan.internal_port},CONTROLLER://{LOOPBACK}:{plan.controller_port}"
    broker = f"CLIENT://{LOOPBACK}:{plan.client_port},{own}"
    protocols = f"CLIENT:{plan.security},INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
    proxied = plan.proxied_port > 0
    return {
        "listeners": broker + (f",PROXIED://{LOOPBACK}:{plan.proxied_port}" if proxied else ""),
        "advertised.listeners": broker + (f",PROXIED://{LOOPBACK}:{plan.proxy_port}" if proxied else ""),
        "listener.security.protocol.map": protocols + (f",PROXIED:{plan.security}" if proxied else ""),
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
    }


def _session(brokers: int) -> dict[str, object]:
    """Return the broker session timeout: long for a single broker, which must not be fenced because the machine was stalled.

    A killed broker can restart only after this time.
    """
    return {"broker.session.timeout.ms": 4000 if brokers > 1 else 9000}


def _replication(brokers: int) -> dict[str, object]:
    copies = min(brokers, 3)
    return {
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "share.coordinator.state.topic.replication.factor": copies,
        "transaction.state.log.min.isr": max(1, copies - 1),
        "share.coordinator.state.topic.min.isr": max(1, copies - 1),
    }


def _internal_login(plan: BrokerPlan) -> dict[str, object]:
    password = plan.users[BROKER_USER]
    own = f'username="{BROKER_USER}" password="{password}" user_{BROKER_USER}="{password}"'
    return {
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.internal.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.internal.plain.sasl.jaas.config": f"{_PLAIN} {own};",
        "listener.name.controller.plain.sasl.jaas.config": f"{_PLAIN} {own};",
    }


def _client_login(plan: BrokerPlan) -> dict[str, object]:
    if not plan.security.startswith("SASL"):
        return {}
    known = " ".join(f'user_{user}="{password}"' for user, password in plan.users.items() if user != BROKER_USER)
    login = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
        "scram-sha-512.sasl.jaas.config": _SCRAM,
        "scram-sha-256.sasl.jaas.config": _SCRAM,
        "plain.sasl.jaas.config": f"{_PLAIN} {known};",
    }
    listeners = ("client", "proxied") if plan.proxied_port else ("client",)
    return {f"listener.name.{listener}.{key}": value for listener in listeners for key, value in login.items()}


def _encryption(plan: BrokerPlan) -> dict[str, object]:
    if "SSL" not in plan.security:
        return {}
    return {
        "listener.name.client.ssl.keystore.type": "PEM",
        "listener.name.client.ssl.keystore.location": plan.certificates.broker,
    }


def _authorization(plan: BrokerPlan) -> dict[str, object]:
    if not plan.authorizer:
        return {}
    principals = ("User:admin", "User:link", f"User:{BROKER_USER}", *(PRINCIPALS if plan.listeners else ()))
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(principals),
        "allow.everyone.if.no.acl.found": "false",
    }
