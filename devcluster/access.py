"""Users of a development cluster: their client properties and ACLs.

Three users: `admin` (super user), `link` (super user, the principal with which a cluster link writes) and `app` (an ordinary
client: reads everything, writes and creates any topic that no DENY protects). A fourth, `broker`, is used by the brokers.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from devcluster.broker_settings import BROKER_USER, Security
from devcluster.tls import Certificates

ADMIN = "admin"
LINK = "link"
APP = "app"
USERS = (ADMIN, LINK, APP, BROKER_USER)
REQUEST_TIMEOUT_S = 10.0
PROBE_TIMEOUT_S = 2.0
IN_FORCE_TIMEOUT_S = 60.0
IN_FORCE_POLL_S = 0.02

_APP_MAY: tuple[tuple[ResourceType, str, tuple[AclOperation, ...]], ...] = (
    (ResourceType.TOPIC, "*", (
        AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.WRITE, AclOperation.CREATE,
    )),
    (ResourceType.GROUP, "*", (AclOperation.READ, AclOperation.DESCRIBE)),
    (ResourceType.TRANSACTIONAL_ID, "*", (AclOperation.WRITE, AclOperation.DESCRIBE)),
    (ResourceType.BROKER, "kafka-cluster", (AclOperation.IDEMPOTENT_WRITE,)),
)  # fmt: skip
_ANY: Any = None  # the value for any name, principal or host of a filter; the client's type hints allow only strings
_EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, _ANY, ResourcePatternType.ANY, _ANY, _ANY, AclOperation.ANY, AclPermissionType.ANY
)


class Cluster(Protocol):
    """The attributes of a cluster that these functions use."""

    security: Security
    users: dict[str, str]
    certificates: Certificates

    def client(self, user: str = ADMIN, *, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
        """Return librdkafka properties."""


def scram_arguments(users: Mapping[str, str]) -> list[str]:
    """Return the arguments of the storage tool that create the SCRAM users."""
    return [
        f'"--add-scram={mechanism}=[name={user},password={password}]"'
        for user, password in users.items()
        if user != BROKER_USER
        for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256")
    ]


def client_security(cluster: Cluster, *, user: str, mechanism: str) -> dict[str, str]:
    """Return librdkafka's security properties for a user."""
    settings: dict[str, str] = {"security.protocol": cluster.security}
    if cluster.security.startswith("SASL"):
        settings |= {
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": cluster.users[user],
        }
    if "SSL" in cluster.security:
        settings["ssl.ca.location"] = str(cluster.certificates.authority)
    return settings


def java_security(cluster: Cluster, *, user: str, mechanism: str) -> dict[str, str]:
    """Return the Java clients' security properties for a user."""
    settings: dict[str, str] = {"security.protocol": cluster.security}
    if cluster.security.startswith("SASL"):
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        login = f'username="{user}" password="{cluster.users[user]}"'
        settings["sasl.mechanism"] = mechanism
        settings["sasl.jaas.config"] = f"org.apache.kafka.common.security.{module} required {login};"
    if "SSL" in cluster.security:
        authority = cluster.certificates.authority.read_text()  # as text, since the client may not be able to read our files
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    return settings


def admin_client(cluster: Cluster, *, user: str = ADMIN) -> AdminClient:
    """Return an admin client that soon finds brokers that are still starting."""
    return AdminClient({**cluster.client(user), "reconnect.backoff.max.ms": 200})


def known_brokers(cluster: Cluster) -> set[int]:
    """Return the ids of the brokers that the cluster reports; none while it does not respond."""
    try:
        return set(admin_client(cluster).list_topics(timeout=PROBE_TIMEOUT_S).brokers)
    except KafkaException:
        return set()


def grant_app(cluster: Cluster) -> None:
    """Create the ACLs of the ordinary client."""
    admin = admin_client(cluster)  # kept in a variable: librdkafka drops the requests of a client that is collected
    create_acls(admin, list(_bindings(_APP_MAY)))


def create_acls(admin: AdminClient, rules: Sequence[AclBinding]) -> None:
    """Create ACLs and wait until a broker shows them: brokers apply what the controller has confirmed with a delay.

    Raises TimeoutError if no broker does within `IN_FORCE_TIMEOUT_S`.
    """
    for created in admin.create_acls(list(rules)).values():
        created.result(REQUEST_TIMEOUT_S)
    deadline = time.monotonic() + IN_FORCE_TIMEOUT_S
    while not set(rules) <= set(admin.describe_acls(_EVERY_ACL).result(REQUEST_TIMEOUT_S)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"The broker does not show all of {len(rules)} new ACLs after {IN_FORCE_TIMEOUT_S:.0f} s.")
        time.sleep(IN_FORCE_POLL_S)


def _bindings(rules: Iterable[tuple[ResourceType, str, tuple[AclOperation, ...]]]) -> Iterable[AclBinding]:
    for kind, name, operations in rules:
        for operation in operations:
            yield AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{APP}", "*", operation, AclPermissionType.ALLOW)
