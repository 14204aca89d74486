"""View models for creating a link: directions, round trips to the source brokers, curl commands, connection tests."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

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

    def configs(self) -> dict[str, str]:
        """Return link.mode and connection.mode if they differ from their defaults."""
        mode = {"link.mode": self.mode} if self.mode != "DESTINATION" else {}
        return mode | ({"connection.mode": self.connection_mode} if self.connection_mode != "OUTBOUND" else {})


RECEIVE = Direction(
    key="receive",
    title="Mirror topics from another cluster",
    hint="A link on the destination cluster that reads from the source cluster. Recommended.",
    lede="Mirrors topics from the source cluster to the destination cluster. Copying starts when you add mirror topics.",
    own="Destination cluster",
    own_hint="The link and its mirror topics are created on this cluster.",
    other="Source cluster",
    next_step="Next step: add mirror topics.",
)
SEND = Direction(
    key="send",
    title="Send topics to another cluster",
    hint="The source side of a source-initiated connection. The source cluster opens the connections.",
    lede="Creates the source side of a source-initiated connection. Mirror topics are added on the destination side.",
    own="Source cluster",
    own_hint="The cluster whose topics are sent. This link is created on it.",
    other="Destination cluster",
    next_step="Next step: create the paired link on the destination cluster with the values below.",
    mode="SOURCE",
    own_first=True,
    remote_field="destination_cluster_id",
)
ACCEPT = Direction(
    key="accept",
    title="Receive topics from a source-initiated link",
    hint="The destination side of a source-initiated connection. Mirror topics are added to it.",
    lede="Creates the destination side of a source-initiated connection. The source side needs the same link name.",
    own="Destination cluster",
    own_hint="This link and its mirror topics are created on this cluster.",
    other="Source cluster",
    next_step="Next step: create the paired link on the source cluster with the values below.",
    connection_mode="INBOUND",
    needs_registered=True,
)
BOTH = Direction(
    key="both",
    title="Bidirectional",
    hint="Topics of each cluster can be mirrored to the other, reversed, and restored after a failover.",
    lede="A bidirectional connection has a link on each cluster, with the same name. Mirror topics can be added to both.",
    own="This cluster",
    own_hint="This link and its mirror topics are created on this cluster.",
    other="Other cluster",
    next_step="Next step: add mirror topics. To reverse or restore them, create the paired link.",
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
    return "unknown" if distance.round_trip_ms is None else f"{distance.round_trip_ms:,.1f} ms"


def limit_of(distance: BrokerDistance) -> str:
    """Return what limits the throughput of a connection to a broker, and what to do about it."""
    if distance.error:
        return distance.error
    if not distance.is_long:
        return "Not limited by socket buffers: the round trip is short."
    if distance.limited_by:
        where = "the broker" if distance.limited_by == "socket.send.buffer.bytes" else "the worker host"
        size = distance.send_buffer_bytes if where == "the broker" else distance.receive_buffer_bytes
        return (
            f"Limited by {distance.limited_by} = {size:,} of {where}: about {numbers.byte_rate(distance.bytes_per_s)} per "
            "connection. A backlog is fetched over up to 64 connections. To increase the limit, increase the buffer size."
        )
    if distance.send_buffer_bytes is None:
        return (
            "Unknown: the link's principal may not read socket.send.buffer.bytes of the broker. Grant it DESCRIBE_CONFIGS on "
            "the cluster."
        )
    return "Not limited: the operating systems adjust the socket buffers automatically."


# --- curl commands ----------------------------------------------------------------------------------------------------
#
# The API key comes from shell variables.


_CREDENTIALS = '-u "$API_KEY:$API_SECRET"'


def curl(method: str, url: str, body: Mapping[str, object] | None = None) -> str:
    """Return a request as a curl command."""
    lines = [f"curl {_CREDENTIALS} -X {method} {shlex.quote(url)}"]
    if body is not None:
        lines.append("  -H 'Content-Type: application/json'")
        lines.append(f"  -d {shlex.quote(json.dumps(body, indent=2))}")
    return " \\\n".join(lines)


# --- the checklist of a connection test -------------------------------------------------------------------------------


_C = ConnectionCheckCode
CHECK_LABELS: Mapping[ConnectionCheckCode, str] = MappingProxyType(
    {
        _C.DNS: "Name resolution (DNS)",
        _C.TCP: "TCP connection",
        _C.TLS: "TLS",
        _C.PROTOCOL: "Kafka protocol",
        _C.AUTHENTICATION: "Authentication",
        _C.CLUSTER_ID: "Cluster ID",
        _C.VERSION: "Kafka version",
        _C.BROKERS: "Advertised brokers",
        _C.DESCRIBE_TOPICS: "DESCRIBE on topics",
        _C.READ_TOPICS: "READ on topics",
        _C.DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS on topics",
        _C.READ_GROUPS: "DESCRIBE on consumer groups",
        _C.DESCRIBE_CLUSTER: "DESCRIBE on the cluster",
        _C.AUTHORIZER: "Authorizer",
        _C.CREATE_TOPICS: "CREATE on the cluster",
        _C.ALTER_CLUSTER: "ALTER on the cluster",
    }
)
_BADGES: Mapping[CheckStatus, tuple[str, str, Family]] = MappingProxyType(
    {
        CheckStatus.PASSED: ("check-circle-fill", "passed", Family.OK),
        CheckStatus.WARNING: ("exclamation-triangle-fill", "warning", Family.WARN),
        CheckStatus.FAILED: ("x-octagon-fill", "failed", Family.BAD),
        CheckStatus.NOT_TESTED: ("dash-circle", "not tested", Family.IDLE),
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
        title, status, summary = "Connection test failed", CheckStatus.FAILED, f"{numbers.plural(failed, 'check')} failed."
    elif warnings:
        title, status = "Connection works, with warnings", CheckStatus.WARNING
        summary = f"{numbers.plural(warnings, 'check')} with a warning: not every feature works."
    else:
        title, status, summary = "Connection successful", CheckStatus.PASSED, "Every check passed."
    icon, _, family = _BADGES[status]
    rows = [_row(check) for check in checks]
    at = moment(tested_at, now=now)
    return Checklist(title=title, family=family, icon=icon, summary=summary, rows=rows, at=at)


def _row(check: ConnectionCheck) -> CheckRow:
    icon, word, family = _BADGES[check.status]
    return CheckRow(
        name=CHECK_LABELS[check.code],
        icon=icon,
        word=word,
        family=family,
        finding=check.finding,
        fix=check.fix,
        error_code=check.error_code,
    )
