"""The configs of a cluster link as one table; ``linkrules`` has the rules that values must keep.

Names, defaults and the read-only and sensitive marks follow what Confluent's Kafka REST v3 lists for a link, so that its
clients see no difference; descriptions are ours. ``bootstrap.servers`` and everything about security are the *connection* of a
link (``is_connection``): the caller keeps them encrypted. What the table knows but this product does not act upon yet says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from linkengine.domain.addresses import MECHANISMS
from linkengine.domain.linkconfigspec import ConfigKind, LinkConfigSpec
from linkengine.domain.linksecurity import security_rows

_N, _F, _J = ConfigKind.NUMBER, ConfigKind.FLAG, ConfigKind.FILTERS
_DAY_MS = 86_400_000


def _fixed(name: str, default: int, description: str) -> LinkConfigSpec:
    return LinkConfigSpec(name=name, kind=_N, default=str(default), read_only=True, description=description)


def _listed(name: str, default: int, description: str) -> LinkConfigSpec:
    """A row that clients look for; the engine has measured values of its own."""
    return _fixed(name, default, f"{description} Listed for clients; the engine has a value of its own.")


_ROWS: tuple[LinkConfigSpec, ...] = (
    LinkConfigSpec(name="acl.filters", kind=_J, description="Which ACLs to carry over."),
    LinkConfigSpec(name="acl.sync.enable", kind=_F, default="false", description="Carry ACLs over from the source."),
    LinkConfigSpec(
        name="acl.sync.ms",
        kind=_N,
        default="5000",
        lowest=1000,
        highest=_DAY_MS,
        description="How often ACLs are carried over.",
    ),
    LinkConfigSpec(
        name="auto.create.mirror.topics.enable",
        kind=_F,
        default="false",
        description="Mirror source topics that match the filters by themselves; switching it off clears the filters.",
    ),
    LinkConfigSpec(
        name="auto.create.mirror.topics.filters",
        kind=_J,
        description='Which source topics those are: {"topicFilters": [{"name", "patternType", "filterType"}]}; EXCLUDE wins.',
    ),
    LinkConfigSpec(
        name="bootstrap.servers",
        default=None,
        description="First brokers to ask on the source: host:port, separated by commas; [address]:port for IPv6.",
    ),
    LinkConfigSpec(
        name="client.dns.lookup",
        default="use_all_dns_ips",
        choices=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        description="Taken and not used: all addresses of a name are always tried.",
    ),
    LinkConfigSpec(
        name="cluster.link.paused",
        kind=_F,
        default="false",
        description="Stops copying on the whole link; its mirrors stay read-only. Set where the mirror topics are: the "
        "source's side refuses it, and each side of a bidirectional link pauses its own.",
    ),
    LinkConfigSpec(
        name="cluster.link.prefix",
        default=None,
        immutable=True,
        description="Put before the name of every mirror topic; up to 12 characters.",
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
        description="Which side opens connections. INBOUND reaches the source with the settings of its registered cluster.",
    ),
    _listed("connections.max.idle.ms", 600_000, "When idle connections are closed."),
    LinkConfigSpec(
        name="consumer.group.prefix.enable",
        kind=_F,
        default="false",
        description="Prefix the names of consumer groups too. Groups that were carried over before keep the names they have.",
    ),
    LinkConfigSpec(name="consumer.offset.group.filters", kind=_J, description="Which consumer groups to carry over."),
    LinkConfigSpec(
        name="consumer.offset.sync.enable",
        kind=_F,
        default="false",
        description="Carry committed offsets of consumer groups over.",
    ),
    LinkConfigSpec(
        name="consumer.offset.sync.ms",
        kind=_N,
        default="30000",
        lowest=1000,
        highest=_DAY_MS,
        description="How often offsets are carried over.",
    ),
    LinkConfigSpec(
        name="link.mode",
        default="DESTINATION",
        immutable=True,
        choices=("DESTINATION", "SOURCE", "BIDIRECTIONAL"),
        description="What this side of the link is.",
    ),
    LinkConfigSpec(
        name="link.throughput.limit.bytes.per.second",
        kind=_N,
        default="-1",
        lowest=-1,
        zero=False,
        description="Most bytes per second, as stored, that all mirrors of the link copy together; -1: no limit. Our own.",
    ),
    LinkConfigSpec(
        name="remote.link.connection.mode",
        default=None,
        immutable=True,
        choices=("OUTBOUND", "INBOUND"),
        description="Which side opens connections, as the other side of a bidirectional link has it.",
    ),
    # GSSAPI is Kafka's default, which clients send back; ``address_from_properties`` refuses it
    *security_rows("local.", "the local cluster", ("GSSAPI", *MECHANISMS)),
    *security_rows("", "the source", ("GSSAPI", *MECHANISMS)),
    LinkConfigSpec(
        name="metadata.max.age.ms",
        kind=_N,
        default="300000",
        lowest=1000,
        highest=_DAY_MS,
        description="How often mirrors of new source topics are created; each look lists the topics of both sides.",
    ),
    LinkConfigSpec(
        name="migration.gate.enable",
        kind=_F,
        default="false",
        description="Promote only what its migration gate has found green, or what a person has overridden with a reason.",
    ),
    LinkConfigSpec(
        name="migration.gate.max.age.ms",
        kind=_N,
        default="900000",
        lowest=1000,
        highest=_DAY_MS,
        description="How long a green gate stays open.",
    ),
    LinkConfigSpec(
        name="mirror.start.offset.spec",
        default="earliest",
        description="Where new mirror topics start: earliest, latest, a time (ISO 8601) or Unix milliseconds.",
    ),
    _listed("num.cluster.link.fetchers", 1, "Fetchers per broker."),
    _listed("replica.fetch.backoff.ms", 1000, "Wait after a failed fetch."),
    _listed("replica.fetch.max.bytes", 5_242_880, "Most bytes per partition and fetch."),
    _fixed("replica.fetch.min.bytes", 1, "Least bytes per fetch."),
    _listed("replica.fetch.response.max.bytes", 10_485_760, "Most bytes per fetch."),
    _fixed("replica.fetch.wait.max.ms", 500, "Longest wait of a fetch without data."),
    LinkConfigSpec(
        name="replica.socket.receive.buffer.bytes",
        kind=_N,
        default="-1",
        lowest=-1,
        description="Receive buffer. Taken and not used: the system's own choice was measured to be faster.",
    ),
    _listed("replica.socket.timeout.ms", 30_000, "Longest wait for a socket."),
    _listed("request.timeout.ms", 30_000, "Longest wait for an answer."),
    _listed("retry.backoff.ms", 100, "Wait before a request is repeated."),
    _listed("socket.connection.setup.timeout.max.ms", 30_000, "Longest wait for a connection, at most."),
    _listed("socket.connection.setup.timeout.ms", 10_000, "Longest wait for a connection, at first."),
    LinkConfigSpec(
        name="topic.config.sync.include",
        kind=ConfigKind.NAMES,
        default=None,
        description="Which configs of the source topic the mirror follows, beside those it always does; empty: the default. "
        "Any topic config can be named. Without both retention configs in it, mirrors keep a retention and a log start of "
        "their own.",
    ),
    LinkConfigSpec(
        name="topic.config.sync.ms",
        kind=_N,
        default="5000",
        lowest=1000,
        highest=_DAY_MS,
        description="How often topic configs are carried over.",
    ),
    LinkConfigSpec(
        name="verify.continuous.enable",
        kind=_F,
        default="true",
        description="Compare new records of the mirrors with the source, some at a time.",
    ),
    LinkConfigSpec(
        name="verify.interval.ms",
        kind=_N,
        default="60000",
        lowest=1000,
        highest=_DAY_MS,
        description="How long after one comparison of a mirror the next one begins; a slow one is followed by four times its "
        "own duration.",
    ),
    LinkConfigSpec(
        name="verify.max.records.per.run",
        kind=_N,
        default="500000",
        lowest=1000,
        highest=100_000_000,
        description="How many offsets of a mirror are compared at a time, at most.",
    ),
)
# Names that Confluent's documents use for a config of the table.
ALIASES: Mapping[str, str] = MappingProxyType({"link.prefix": "cluster.link.prefix"})
LINK_CONFIGS: Mapping[str, LinkConfigSpec] = MappingProxyType(
    {row.name: row for row in sorted(_ROWS, key=lambda row: row.name)}
)


def canonical_name(name: str) -> str:
    """Return the name of a config in the table, for a name that documents use for it."""
    return ALIASES.get(name, name)


def is_set(name: str, value: str | None) -> bool:
    """Tell whether a value says something. Empty is the default, but for the comparison of host names, where it means none."""
    return bool(value) or (value == "" and name.endswith("ssl.endpoint.identification.algorithm"))


def is_connection(name: str) -> bool:
    """Tell whether a config says how to reach and sign in to a cluster; kept encrypted, sensitive or not."""
    plain = name.removeprefix("local.")
    return plain == "bootstrap.servers" or plain.startswith(("security.", "sasl.", "ssl."))
