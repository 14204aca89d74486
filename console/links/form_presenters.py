"""View models for creating a link: directions, round trips to the source brokers, connection tests, texts of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType

from django.utils.translation import gettext, gettext_noop, ngettext

from console.web import numbers
from console.web.badges import Family
from console.web.numbers import Moment, moment
from linkengine.domain.connectionchecks import CheckStatus, ConnectionCheck, ConnectionCheckCode
from linkengine.domain.plans import BrokerDistance

# --- directions to choose from ----------------------------------------------------------------------------------------
#
# Each sets link.mode and connection.mode.
#
# A source-initiated connection consists of two links with the same name, as in Confluent Platform: the source side
# (SOURCE/OUTBOUND) and the destination side (DESTINATION/INBOUND).


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """A direction, from the perspective of the cluster on which the link is created."""

    key: str
    title: str
    hint: str
    lede: str
    own: str  # role of the cluster on which the link is created
    own_hint: str
    other: str  # role of the other cluster
    next_step: str  # after the creation
    mode: str = "DESTINATION"
    connection_mode: str = "OUTBOUND"
    own_first: bool = False  # the step of the own cluster comes first
    needs_registered: bool = False  # the other cluster must be a registered cluster
    remote_field: str = "source_cluster_id"  # name of the other cluster in the REST API

    @property
    def has_mirrors(self) -> bool:
        """Return True if mirror topics can be added to this link."""
        return self.mode != "SOURCE"

    def translated(self) -> Direction:
        """Return the direction with its texts in the active language."""
        return replace(
            self,
            title=gettext(self.title),
            hint=gettext(self.hint),
            lede=gettext(self.lede),
            own=gettext(self.own),
            own_hint=gettext(self.own_hint),
            other=gettext(self.other),
            next_step=gettext(self.next_step),
        )

    def configs(self) -> dict[str, str]:
        """Return link.mode and connection.mode if they differ from their defaults."""
        mode = {"link.mode": self.mode} if self.mode != "DESTINATION" else {}
        return mode | ({"connection.mode": self.connection_mode} if self.connection_mode != "OUTBOUND" else {})


RECEIVE = Direction(
    key="receive",
    title=gettext_noop("Mirror topics from another cluster"),
    hint=gettext_noop("A link on the destination cluster that reads from the source cluster. Recommended."),
    lede=gettext_noop(
        "Mirrors topics from the source cluster to the destination cluster. Copying starts when you add mirror topics."
    ),
    own=gettext_noop("Destination cluster"),
    own_hint=gettext_noop("The link and its mirror topics are created on this cluster."),
    other=gettext_noop("Source cluster"),
    next_step=gettext_noop("Next step: add mirror topics."),
)
SEND = Direction(
    key="send",
    title=gettext_noop("Send topics to another cluster"),
    hint=gettext_noop("The source side of a source-initiated connection. The source cluster opens the connections."),
    lede=gettext_noop(
        "Creates the source side of a source-initiated connection. Mirror topics are added on the destination side."
    ),
    own=gettext_noop("Source cluster"),
    own_hint=gettext_noop("The cluster whose topics are sent. This link is created on it."),
    other=gettext_noop("Destination cluster"),
    next_step=gettext_noop("Next step: create the paired link on the destination cluster with the values below."),
    mode="SOURCE",
    own_first=True,
    remote_field="destination_cluster_id",
)
ACCEPT = Direction(
    key="accept",
    title=gettext_noop("Receive topics from a source-initiated link"),
    hint=gettext_noop("The destination side of a source-initiated connection. Mirror topics are added to it."),
    lede=gettext_noop(
        "Creates the destination side of a source-initiated connection. The source side needs the same link name."
    ),
    own=gettext_noop("Destination cluster"),
    own_hint=gettext_noop("This link and its mirror topics are created on this cluster."),
    other=gettext_noop("Source cluster"),
    next_step=gettext_noop("Next step: create the paired link on the source cluster with the values below."),
    connection_mode="INBOUND",
    needs_registered=True,
)
BOTH = Direction(
    key="both",
    title=gettext_noop("Bidirectional"),
    hint=gettext_noop("Topics of each cluster can be mirrored to the other, reversed, and restored after a failover."),
    lede=gettext_noop(
        "A bidirectional connection has a link on each cluster, with the same name. Mirror topics can be added to both."
    ),
    own=gettext_noop("This cluster"),
    own_hint=gettext_noop("This link and its mirror topics are created on this cluster."),
    other=gettext_noop("Other cluster"),
    next_step=gettext_noop("Next step: add mirror topics. To reverse or restore them, create the paired link."),
    mode="BIDIRECTIONAL",
    own_first=True,
    remote_field="remote_cluster_id",
)
DIRECTIONS: Mapping[str, Direction] = MappingProxyType(
    {direction.key: direction for direction in (RECEIVE, SEND, ACCEPT, BOTH)}
)
_OPPOSITE = {"SOURCE": ACCEPT, "BIDIRECTIONAL": BOTH, "DESTINATION": SEND}


def opposite(mode: str) -> Direction:
    """Return the direction of the paired link of a link with this mode."""
    return _OPPOSITE[mode]


# --- round trips to the source brokers --------------------------------------------------------------------------------
#
# Shown after the validation of a link.


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceRow:
    """The round trip to a source broker."""

    broker: int
    address: str
    round_trip: str
    limit: str


def distance_rows(distances: Sequence[BrokerDistance]) -> list[DistanceRow]:
    """Return one row per broker."""
    return [
        DistanceRow(
            broker=distance.broker,
            address=distance.address,
            round_trip=_round_trip(distance),
            limit=limit_of(distance),
        )
        for distance in distances
    ]


def _round_trip(distance: BrokerDistance) -> str:
    return gettext("unknown") if distance.round_trip_ms is None else f"{distance.round_trip_ms:,.1f} ms"


def limit_of(distance: BrokerDistance) -> str:
    """Return what limits the throughput of a connection to a broker, and what to do about it."""
    if distance.error:
        return distance.error
    if not distance.is_long:
        return gettext("Not limited by socket buffers: the round trip is short.")
    if distance.limited_by:
        if distance.limited_by == "socket.send.buffer.bytes":
            size = distance.send_buffer_bytes
            text = gettext(
                "Limited by %(config)s = %(size)s of the broker: about %(rate)s per connection. A backlog is fetched over "
                "up to 64 connections. To increase the limit, increase the buffer size."
            )
        else:
            size = distance.receive_buffer_bytes
            text = gettext(
                "Limited by %(config)s = %(size)s of the worker host: about %(rate)s per connection. A backlog is fetched over "
                "up to 64 connections. To increase the limit, increase the buffer size."
            )
        return text % {"config": distance.limited_by, "size": f"{size:,}", "rate": numbers.byte_rate(distance.bytes_per_s)}
    if distance.send_buffer_bytes is None:
        return gettext(
            "Unknown: the link's principal may not read socket.send.buffer.bytes of the broker. Grant it DESCRIBE_CONFIGS on "
            "the cluster."
        )
    return gettext("Not limited: the operating systems adjust the socket buffers automatically.")


# --- the checklist of a connection test -------------------------------------------------------------------------------


_C = ConnectionCheckCode
CHECK_LABELS: Mapping[ConnectionCheckCode, str] = MappingProxyType(
    {
        _C.DNS: gettext_noop("Name resolution (DNS)"),
        _C.TCP: gettext_noop("TCP connection"),
        _C.TLS: gettext_noop("TLS"),
        _C.PROTOCOL: gettext_noop("Kafka protocol"),
        _C.AUTHENTICATION: gettext_noop("Authentication"),
        _C.CLUSTER_ID: gettext_noop("Cluster ID"),
        _C.VERSION: gettext_noop("Kafka version"),
        _C.BROKERS: gettext_noop("Advertised brokers"),
        _C.DESCRIBE_TOPICS: gettext_noop("DESCRIBE on topics"),
        _C.READ_TOPICS: gettext_noop("READ on topics"),
        _C.DESCRIBE_CONFIGS: gettext_noop("DESCRIBE_CONFIGS on topics"),
        _C.READ_GROUPS: gettext_noop("DESCRIBE on consumer groups"),
        _C.DESCRIBE_CLUSTER: gettext_noop("DESCRIBE on the cluster"),
        _C.AUTHORIZER: gettext_noop("Authorizer"),
        _C.CREATE_TOPICS: gettext_noop("CREATE on the cluster"),
        _C.ALTER_CLUSTER: gettext_noop("ALTER on the cluster"),
    }
)
_BADGES: Mapping[CheckStatus, tuple[str, str, Family]] = MappingProxyType(
    {
        CheckStatus.PASSED: ("check-circle-fill", gettext_noop("passed"), Family.OK),
        CheckStatus.WARNING: ("exclamation-triangle-fill", gettext_noop("warning"), Family.WARN),
        CheckStatus.FAILED: ("x-octagon-fill", gettext_noop("failed"), Family.BAD),
        CheckStatus.NOT_TESTED: ("dash-circle", gettext_noop("not tested"), Family.IDLE),
    }
)
if set(CHECK_LABELS) != set(ConnectionCheckCode) or set(_BADGES) != set(CheckStatus):
    raise AssertionError("each check and each status needs a label")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """A row of the checklist."""

    name: str
    icon: str
    word: str
    family: Family
    finding: str
    fix: str
    error_code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checklist:
    """The checklist with its summary."""

    title: str
    family: Family
    icon: str
    summary: str
    rows: Sequence[CheckRow]
    at: Moment | None = None  # None: just now


def checklist(checks: Sequence[ConnectionCheck], *, tested_at: datetime | None = None, now: datetime) -> Checklist:
    """Return the view of a connection test."""
    failed = sum(check.status is CheckStatus.FAILED for check in checks)
    warnings = sum(check.status is CheckStatus.WARNING for check in checks)
    if failed:
        title, status = gettext("Connection test failed"), CheckStatus.FAILED
        summary = ngettext("%(count)s check failed.", "%(count)s checks failed.", failed) % {"count": numbers.count(failed)}
    elif warnings:
        title, status = gettext("Connection works, with warnings"), CheckStatus.WARNING
        summary = ngettext(
            "%(count)s check with a warning: not every feature works.",
            "%(count)s checks with a warning: not every feature works.",
            warnings,
        ) % {"count": numbers.count(warnings)}
    else:
        title, status, summary = gettext("Connection successful"), CheckStatus.PASSED, gettext("Every check passed.")
    icon, _, family = _BADGES[status]
    rows = [_row(check) for check in checks]
    at = moment(tested_at, now=now)
    return Checklist(title=title, family=family, icon=icon, summary=summary, rows=rows, at=at)


def _row(check: ConnectionCheck) -> CheckRow:
    icon, word, family = _BADGES[check.status]
    return CheckRow(
        name=gettext(CHECK_LABELS[check.code]),
        icon=icon,
        word=gettext(word),
        family=family,
        finding=gettext(check.finding),
        fix=gettext(check.fix),
        error_code=check.error_code,
    )


# --- texts of the engine ----------------------------------------------------------------------------------------------
#
# The engine does not use Django, so its texts are marked for translation here. Tests compare them with those of the engine.


# The findings and fixes of ``linkengine.domain.connectionchecks`` that have no values. Findings with values, such as names of
# topics, are shown in English.
ENGINE_TEXTS = (
    gettext_noop("Not tested, because an earlier check failed."),
    gettext_noop("Not tested, because no topic is visible."),
    gettext_noop("Not used with PLAINTEXT: nothing is encrypted."),
    gettext_noop("Not used with SASL_PLAINTEXT: nothing is encrypted."),
    gettext_noop("Not used with PLAINTEXT."),
    gettext_noop("Not used with SSL."),
    gettext_noop("The names resolve, and the addresses are in permitted networks."),
    gettext_noop("The servers accept connections."),
    gettext_noop("The certificates are trusted and valid for the names of the servers."),
    gettext_noop("The servers respond as Kafka brokers."),
    gettext_noop("The brokers accept the login."),
    gettext_noop("Correct the host name, or use an address that the worker can resolve and may connect to."),
    gettext_noop("Check the port, the firewall between worker and brokers, and that the brokers are running."),
    gettext_noop(
        "Check that the port is a TLS listener. Enter the CA certificate that signed the brokers' certificates, and use the "
        "host names in them. If the brokers require client certificates, enter certificate and key."
    ),
    gettext_noop("Check that the port is a listener of Kafka, and choose its security protocol."),
    gettext_noop(
        "Enter user name and password again, and choose the mechanism that the listener offers. With OAUTHBEARER, check the "
        "token endpoint, client ID and secret."
    ),
    gettext_noop("Test the connection again."),
    gettext_noop("Test the connection again. If that fails too, check the load and the release of the brokers."),
    gettext_noop("Correct the bootstrap servers, or enter the ID of the cluster at that address."),
    gettext_noop("Enter the bootstrap servers of another cluster: a link needs two."),
    gettext_noop("The brokers are older than Kafka 3.1."),
    gettext_noop("Upgrade the brokers to Kafka 3.1 or newer."),
    gettext_noop("Kafka 3.1 or newer; the brokers do not report the exact release."),
    gettext_noop("The addresses that the brokers advertise could not be read."),
    gettext_noop("Correct advertised.listeners of the brokers, or make these addresses reachable for the worker."),
    gettext_noop("The cluster has no authorizer, so writes to mirror topics cannot be denied."),
    gettext_noop("Set authorizer.class.name on the brokers, or make sure that no producer writes to mirror topics."),
    gettext_noop("Everything is allowed: the cluster has no authorizer."),
    gettext_noop("The cluster has an authorizer: mirror topics can be made read-only."),
    gettext_noop("No topic is visible. The cluster has none, or the principal may not describe any."),
    gettext_noop("READ on all visible topics."),
    gettext_noop("DESCRIBE_CONFIGS on all visible topics."),
    gettext_noop("No consumer group is visible. The cluster has none, or the principal may not describe any."),
    gettext_noop("DESCRIBE on the cluster."),
    gettext_noop("CREATE on the cluster."),
    gettext_noop("ALTER on the cluster."),
    gettext_noop(
        "No DESCRIBE on the cluster. Without it ACLs cannot be read, and only consumer groups that an ACL names are visible."
    ),
    gettext_noop(
        "No CREATE on the cluster. Without it mirror topics are created only where an ACL on the topic's name allows it."
    ),
    gettext_noop(
        "No ALTER on the cluster. Without it mirror topics cannot be made read-only and ACLs cannot be synced, and gaps are "
        "filled by transactions."
    ),
    gettext_noop(
        "Unknown: the brokers do not report the rights on the cluster. Without it ACLs cannot be read, and only consumer "
        "groups that an ACL names are visible."
    ),
    gettext_noop(
        "Unknown: the brokers do not report the rights on the cluster. Without it mirror topics are created only where an ACL "
        "on the topic's name allows it."
    ),
    gettext_noop(
        "Unknown: the brokers do not report the rights on the cluster. Without it mirror topics cannot be made read-only and "
        "ACLs cannot be synced, and gaps are filled by transactions."
    ),
)
# The descriptions of the configs in ``linkengine.domain.linkconfigs``. REST returns them in English.
CONFIG_DESCRIPTIONS = (
    gettext_noop("Which ACLs to sync."),
    gettext_noop("Sync ACLs from the source."),
    gettext_noop("How often ACLs are synced."),
    gettext_noop("Auto-create mirror topics for source topics that match the filters; switching it off clears the filters."),
    gettext_noop('Which source topics to mirror: {"topicFilters": [{"name", "patternType", "filterType"}]}; EXCLUDE wins.'),
    gettext_noop("Brokers of the source to connect to first: host:port, separated by commas; [address]:port for IPv6."),
    gettext_noop("Accepted without effect: all addresses of a name are always tried."),
    gettext_noop(
        "Stops copying on the whole link; its mirrors stay read-only. Set it where the mirror topics are: the source side "
        "refuses it, and each side of a bidirectional link pauses its own mirrors."
    ),
    gettext_noop("Prefix of the names of all mirror topics; up to 12 characters."),
    gettext_noop("How long a missing source topic, missing rights or corrupt records are retried before a mirror is FAILED."),
    gettext_noop("Which side opens connections. INBOUND connects to the source with the settings of its registered cluster."),
    gettext_noop("Time after which idle connections are closed. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Prefix the names of consumer groups too. Groups that were synced before keep their names."),
    gettext_noop("Which consumer groups to sync."),
    gettext_noop("Sync committed offsets of consumer groups."),
    gettext_noop("How often consumer offsets are synced."),
    gettext_noop("Role of this side of the link."),
    gettext_noop(
        "Time lag in milliseconds beyond which the health of a mirror is Degraded; -1: no objective. Has no effect on "
        "copying. Not a Confluent config."
    ),
    gettext_noop("Bytes per second, as stored, that all mirrors of the link may copy; -1: no limit. Not a Confluent config."),
    gettext_noop(
        "User name and password for the local cluster, as JAAS text; with OAUTHBEARER clientId, clientSecret and scope."
    ),
    gettext_noop("OAuthBearerLoginCallbackHandler with OAUTHBEARER for the local cluster. No other class is supported."),
    gettext_noop("SASL mechanism for the local cluster."),
    gettext_noop("Token endpoint for the local cluster; OAUTHBEARER only."),
    gettext_noop("Security protocol for the local cluster."),
    gettext_noop("Cipher suites: OpenSSL's defaults; restrict them at the brokers, for the local cluster."),
    gettext_noop("TLS versions; restrict them at the brokers, for the local cluster."),
    gettext_noop("How the broker's host name is verified against its certificate; empty: not verified, for the local cluster."),
    gettext_noop("Password of the private key, for the local cluster."),
    gettext_noop("Client certificate chain (PEM), for the local cluster."),
    gettext_noop("Private key of the client (PEM), for the local cluster."),
    gettext_noop("Format of the key store; PEM is used in any case, for the local cluster."),
    gettext_noop("Preferred TLS version, for the local cluster."),
    gettext_noop("Trusted certificates (PEM), for the local cluster."),
    gettext_noop("Format of the trust store; PEM is used in any case, for the local cluster."),
    gettext_noop("How often mirrors of new source topics are created. Each run lists the topics of both sides."),
    gettext_noop("Promote a mirror only if its migration gate has passed, or was overridden by a user with a reason."),
    gettext_noop("How long a passed gate stays open."),
    gettext_noop("Where new mirror topics start: earliest, latest, a time (ISO 8601) or Unix milliseconds."),
    gettext_noop("Fetchers per broker. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Which side opens connections, as configured on the other side of a bidirectional link."),
    gettext_noop("Wait after a failed fetch. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Maximum bytes per partition and fetch. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Minimum bytes per fetch."),
    gettext_noop("Maximum bytes per fetch. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Maximum wait of a fetch without data."),
    gettext_noop("Receive buffer. Accepted without effect: the operating system's own choice was measured to be faster."),
    gettext_noop("Maximum wait for a socket. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Maximum wait for a response. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Wait before a request is repeated. Listed for clients; the engine uses a value of its own."),
    gettext_noop("User name and password for the source, as JAAS text; with OAUTHBEARER clientId, clientSecret and scope."),
    gettext_noop("OAuthBearerLoginCallbackHandler with OAUTHBEARER for the source. No other class is supported."),
    gettext_noop("SASL mechanism for the source."),
    gettext_noop("Token endpoint for the source; OAUTHBEARER only."),
    gettext_noop("Security protocol for the source."),
    gettext_noop("Largest timeout of a connection attempt. Listed for clients; the engine uses a value of its own."),
    gettext_noop("First timeout of a connection attempt. Listed for clients; the engine uses a value of its own."),
    gettext_noop("Cipher suites: OpenSSL's defaults; restrict them at the brokers, for the source."),
    gettext_noop("TLS versions; restrict them at the brokers, for the source."),
    gettext_noop("How the broker's host name is verified against its certificate; empty: not verified, for the source."),
    gettext_noop("Password of the private key, for the source."),
    gettext_noop("Client certificate chain (PEM), for the source."),
    gettext_noop("Private key of the client (PEM), for the source."),
    gettext_noop("Format of the key store; PEM is used in any case, for the source."),
    gettext_noop("Preferred TLS version, for the source."),
    gettext_noop("Trusted certificates (PEM), for the source."),
    gettext_noop("Format of the trust store; PEM is used in any case, for the source."),
    gettext_noop(
        "Which configs of the source topic are synced besides those that always are; empty: the default list. Any topic "
        "config can be named. Without both retention configs in it, mirrors have their own retention and log start "
        "offset."
    ),
    gettext_noop("How often topic configs are synced."),
    gettext_noop("Verify new records of the mirrors against the source, some at a time."),
    gettext_noop("Pause between two verification runs of a mirror; after a slow run, four times its duration."),
    gettext_noop("Maximum number of offsets of a mirror that one verification run compares."),
)
