"""The table of all configs of a cluster link; ``linkrules`` validates values.

Names, defaults and the read-only and sensitive flags follow what Confluent's Kafka REST v3 lists for a link, so that its
clients see no difference; the descriptions are original. ``bootstrap.servers`` and all security configs are the *connection* of
a link (``is_connection``), which the caller stores encrypted. Configs that have no effect say so in their description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from linkengine.domain.addresses import MECHANISMS, PROTOCOLS
from linkengine.domain.client_properties import DEFAULTS_TAKEN

_NO_CIPHERS = "OpenSSL's default suites are used. Restrict them at the brokers."
_DAY_MS = 86_400_000
RPO_OBJECTIVE = "link.rpo.objective.ms"


class ConfigKind(StrEnum):
    """How a value's text is parsed."""

    TEXT = "text"
    NUMBER = "whole number"
    FLAG = "true or false"
    NAMES = "names separated by commas"
    FILTERS = "JSON document"


_N, _F, _J = ConfigKind.NUMBER, ConfigKind.FLAG, ConfigKind.FILTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfigSpec:
    """One row of the table. ``lowest`` and ``highest`` are inclusive."""

    name: str
    description: str
    kind: ConfigKind = ConfigKind.TEXT
    default: str | None = ""
    read_only: bool = False  # cannot be set
    sensitive: bool = False  # write-only
    immutable: bool = False  # can only be set when the link is created
    lowest: int | None = None
    highest: int | None = None
    choices: tuple[str, ...] = ()
    zero: bool = True  # whether 0 is allowed
    refusal: str = ""  # why no value is accepted; "": values are


def _tls_rows(prefix: str, where: str) -> tuple[LinkConfigSpec, ...]:
    rows = (
        ("ssl.cipher.suites", None, False, "Cipher suites: OpenSSL's defaults; restrict them at the brokers"),
        ("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", False, "TLS versions; restrict them at the brokers"),
        (
            "ssl.endpoint.identification.algorithm",
            "https",
            False,
            "How the broker's host name is verified against its certificate; empty: not verified",
        ),
        ("ssl.key.password", None, True, "Password of the private key"),
        ("ssl.keystore.certificate.chain", None, True, "Client certificate chain (PEM)"),
        ("ssl.keystore.key", None, True, "Private key of the client (PEM)"),
        ("ssl.keystore.type", "JKS", False, "Format of the key store; PEM is used in any case"),
        ("ssl.protocol", "TLSv1.3", False, "Preferred TLS version"),
        ("ssl.truststore.certificates", None, True, "Trusted certificates (PEM)"),
        ("ssl.truststore.type", "JKS", False, "Format of the trust store; PEM is used in any case"),
    )
    return tuple(
        LinkConfigSpec(
            name=prefix + name,
            default=default,
            sensitive=sensitive,
            choices=DEFAULTS_TAKEN.get(name, ()),
            refusal=_NO_CIPHERS if name == "ssl.cipher.suites" else "",
            description=f"{text}, for {where}.",
        )
        for name, default, sensitive, text in rows
    )


def security_rows(prefix: str, where: str) -> tuple[LinkConfigSpec, ...]:
    return (
        LinkConfigSpec(
            name=f"{prefix}security.protocol",
            default="PLAINTEXT",
            choices=PROTOCOLS,
            description=f"Security protocol for {where}.",
        ),
        LinkConfigSpec(
            name=f"{prefix}sasl.mechanism",
            default="GSSAPI",
            choices=("GSSAPI", *MECHANISMS),
            description=f"SASL mechanism for {where}.",
        ),
        LinkConfigSpec(
            name=f"{prefix}sasl.jaas.config",
            default=None,
            sensitive=True,
            description=f"User name and password for {where}, as JAAS text; with OAUTHBEARER clientId, clientSecret and scope.",
        ),
        LinkConfigSpec(
            name=f"{prefix}sasl.login.callback.handler.class",
            default=None,
            description=f"OAuthBearerLoginCallbackHandler with OAUTHBEARER for {where}. No other class is supported.",
        ),
        LinkConfigSpec(
            name=f"{prefix}sasl.oauthbearer.token.endpoint.url",
            default=None,
            description=f"Token endpoint for {where}; OAUTHBEARER only.",
        ),
        *_tls_rows(prefix, where),
    )


def _fixed(name: str, default: int, description: str) -> LinkConfigSpec:
    return LinkConfigSpec(name=name, kind=_N, default=str(default), read_only=True, description=description)


def _listed(name: str, default: int, description: str) -> LinkConfigSpec:
    """Return a row that clients expect; the engine uses a measured value instead."""
    return _fixed(name, default, f"{description} Listed for clients; the engine uses a value of its own.")


_ROWS: tuple[LinkConfigSpec, ...] = (
    LinkConfigSpec(name="acl.filters", kind=_J, description="Which ACLs to sync."),
    LinkConfigSpec(name="acl.sync.enable", kind=_F, default="false", description="Sync ACLs from the source."),
    LinkConfigSpec(
        name="acl.sync.ms",
        kind=_N,
        default="5000",
        lowest=1000,
        highest=_DAY_MS,
        description="How often ACLs are synced.",
    ),
    LinkConfigSpec(
        name="auto.create.mirror.topics.enable",
        kind=_F,
        default="false",
        description="Auto-create mirror topics for source topics that match the filters; switching it off clears the filters.",
    ),
    LinkConfigSpec(
        name="auto.create.mirror.topics.filters",
        kind=_J,
        description='Which source topics to mirror: {"topicFilters": [{"name", "patternType", "filterType"}]}; EXCLUDE wins.',
    ),
    LinkConfigSpec(
        name="bootstrap.servers",
        default=None,
        description="Brokers of the source to connect to first: host:port, separated by commas; [address]:port for IPv6.",
    ),
    LinkConfigSpec(
        name="client.dns.lookup",
        default="use_all_dns_ips",
        choices=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        description="Accepted without effect: all addresses of a name are always tried.",
    ),
    LinkConfigSpec(
        name="cluster.link.paused",
        kind=_F,
        default="false",
        description="Stops copying on the whole link; its mirrors stay read-only. Set it where the mirror topics are: the "
        "source side refuses it, and each side of a bidirectional link pauses its own mirrors.",
    ),
    LinkConfigSpec(
        name="cluster.link.prefix",
        default=None,
        immutable=True,
        description="Prefix of the names of all mirror topics; up to 12 characters.",
    ),
    LinkConfigSpec(
        name="cluster.link.retry.timeout.ms",
        kind=_N,
        default="300000",
        lowest=1000,
        highest=7 * _DAY_MS,
        description="How long a missing source topic, missing rights or corrupt records are retried before a mirror is FAILED.",
    ),
    LinkConfigSpec(
        name="connection.mode",
        default="OUTBOUND",
        immutable=True,
        choices=("OUTBOUND", "INBOUND"),
        description="Which side opens connections. INBOUND connects to the source with the settings of its registered cluster.",
    ),
    _listed("connections.max.idle.ms", 600_000, "Time after which idle connections are closed."),
    LinkConfigSpec(
        name="consumer.group.prefix.enable",
        kind=_F,
        default="false",
        description="Prefix the names of consumer groups too. Groups that were synced before keep their names.",
    ),
    LinkConfigSpec(name="consumer.offset.group.filters", kind=_J, description="Which consumer groups to sync."),
    LinkConfigSpec(
        name="consumer.offset.sync.enable",
        kind=_F,
        default="false",
        description="Sync committed offsets of consumer groups.",
    ),
    LinkConfigSpec(
        name="consumer.offset.sync.ms",
        kind=_N,
        default="30000",
        lowest=1000,
        highest=_DAY_MS,
        description="How often consumer offsets are synced.",
    ),
    LinkConfigSpec(
        name="link.mode",
        default="DESTINATION",
        immutable=True,
        choices=("DESTINATION", "SOURCE", "BIDIRECTIONAL"),
        description="Role of this side of the link.",
    ),
    LinkConfigSpec(
        name=RPO_OBJECTIVE,
        kind=_N,
        default="-1",
        lowest=-1,
        highest=7 * _DAY_MS,
        zero=False,
        description="Time lag in milliseconds beyond which the health of a mirror is Degraded; -1: no objective. Has no effect "
        "on copying. Not a Confluent config.",
    ),
    LinkConfigSpec(
        name="link.throughput.limit.bytes.per.second",
        kind=_N,
        default="-1",
        lowest=-1,
        zero=False,
        description="Bytes per second, as stored, that all mirrors of the link may copy; -1: no limit. Not a Confluent config.",
    ),
    LinkConfigSpec(
        name="remote.link.connection.mode",
        default=None,
        immutable=True,
        choices=("OUTBOUND", "INBOUND"),
        description="Which side opens connections, as configured on the other side of a bidirectional link.",
    ),
    # GSSAPI is Kafka's default, which clients send back; ``address_from_properties`` refuses it if SASL is used
    *security_rows("local.", "the local cluster"),
    *security_rows("", "the source"),
    LinkConfigSpec(
        name="metadata.max.age.ms",
        kind=_N,
        default="300000",
        lowest=1000,
        highest=_DAY_MS,
        description="How often mirrors of new source topics are created. Each run lists the topics of both sides.",
    ),
    LinkConfigSpec(
        name="migration.gate.enable",
        kind=_F,
        default="false",
        description="Promote a mirror only if its migration gate has passed, or was overridden by a user with a reason.",
    ),
    LinkConfigSpec(
        name="migration.gate.max.age.ms",
        kind=_N,
        default="900000",
        lowest=1000,
        highest=_DAY_MS,
        description="How long a passed gate stays open.",
    ),
    LinkConfigSpec(
        name="mirror.start.offset.spec",
        default="earliest",
        description="Where new mirror topics start: earliest, latest, a time (ISO 8601) or Unix milliseconds.",
    ),
    _listed("num.cluster.link.fetchers", 1, "Fetchers per broker."),
    _listed("replica.fetch.backoff.ms", 1000, "Wait after a failed fetch."),
    _listed("replica.fetch.max.bytes", 5_242_880, "Maximum bytes per partition and fetch."),
    _fixed("replica.fetch.min.bytes", 1, "Minimum bytes per fetch."),
    _listed("replica.fetch.response.max.bytes", 10_485_760, "Maximum bytes per fetch."),
    _fixed("replica.fetch.wait.max.ms", 500, "Maximum wait of a fetch without data."),
    LinkConfigSpec(
        name="replica.socket.receive.buffer.bytes",
        kind=_N,
        default="-1",
        lowest=-1,
        description="Receive buffer. Accepted without effect: the operating system's own choice was measured to be faster.",
    ),
    _listed("replica.socket.timeout.ms", 30_000, "Maximum wait for a socket."),
    _listed("request.timeout.ms", 30_000, "Maximum wait for a response."),
    _listed("retry.backoff.ms", 100, "Wait before a request is repeated."),
    _listed("socket.connection.setup.timeout.max.ms", 30_000, "Largest timeout of a connection attempt."),
    _listed("socket.connection.setup.timeout.ms", 10_000, "First timeout of a connection attempt."),
    LinkConfigSpec(
        name="topic.config.sync.include",
        kind=ConfigKind.NAMES,
        default=None,
        description="Which configs of the source topic are synced besides those that always are; empty: the default list. "
        "Any topic config can be named. Without both retention configs in it, mirrors have their own retention and log start "
        "offset.",
    ),
    LinkConfigSpec(
        name="topic.config.sync.ms",
        kind=_N,
        default="5000",
        lowest=1000,
        highest=_DAY_MS,
        description="How often topic configs are synced.",
    ),
    LinkConfigSpec(
        name="verify.continuous.enable",
        kind=_F,
        default="true",
        description="Verify new records of the mirrors against the source, some at a time.",
    ),
    LinkConfigSpec(
        name="verify.interval.ms",
        kind=_N,
        default="60000",
        lowest=1000,
        highest=_DAY_MS,
        description="Pause between two verification runs of a mirror; after a slow run, four times its duration.",
    ),
    LinkConfigSpec(
        name="verify.max.records.per.run",
        kind=_N,
        default="500000",
        lowest=1000,
        highest=100_000_000,
        description="Maximum number of offsets of a mirror that one verification run compares.",
    ),
)
# Names that Confluent's documentation uses for a config of the table.
ALIASES: Mapping[str, str] = MappingProxyType({"link.prefix": "cluster.link.prefix"})
LINK_CONFIGS: Mapping[str, LinkConfigSpec] = MappingProxyType(
    {row.name: row for row in sorted(_ROWS, key=lambda row: row.name)}
)


def canonical_name(name: str) -> str:
    """Return a config's name in the table for a name that Confluent's documentation uses."""
    return ALIASES.get(name, name)


def is_set(name: str, value: str | None) -> bool:
    """Return whether a value is set. Empty is the default, except for the host name check, where it means no check."""
    return bool(value) or (value == "" and name.endswith("ssl.endpoint.identification.algorithm"))


def is_connection(name: str) -> bool:
    """Return whether a config says how to connect and sign in to a cluster; such configs are stored encrypted."""
    plain = name.removeprefix("local.")
    return plain == "bootstrap.servers" or plain.startswith(("security.", "sasl.", "ssl."))
