"""Addresses of clusters: bootstrap servers, security, and the networks that they may lead to. Secrets never appear in ``repr``.

``parse_servers`` is the only parser of ``bootstrap.servers``, compatible with Kafka's Java clients: Kafka splits the list at
commas with white space around them and reads each part with ``Utils.HOST_PORT_PATTERN``: an optional listener name before
``://``, a host with or without brackets, a port. Older clients skip empty parts (4.3 refuses them), and so does this. The
pattern is that of Kafka 4: older clients also accept, and drop, any text before the host.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.messages import gettext_lazy

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OAUTH = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTH)
_PART = re.compile(r"(?:(?P<scheme>[0-9a-zA-Z_.%-]*)://)?\[?(?P<host>[0-9a-zA-Z_.%:-]+)]?:(?P<port>[0-9]{1,9})")


# --- networks ------------------------------------------------------------------------------------------------------------
# As settings name them, whether an address lies within, and which networks this process may connect to. No name is resolved
# here; ``linkengine.kafka.security`` does that.
#
# An IPv6 address that carries an IPv4 address (6to4, NAT64, IPv4-compatible) is denied with that IPv4 address: a gateway
# delivers there what is sent to it. It is not allowed or trusted by it. IPv4-mapped addresses are IPv4 addresses.


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
EVERYWHERE = ("0.0.0.0/0", "::/0")
# Link-local, "this host" (0.0.0.0 connects to loopback), multicast, broadcast, and metadata services of cloud providers outside
# of the link-local networks. Loopback and private networks stay allowed: Kafka is usually there.
DENIED_BY_DEFAULT = (
    "169.254.0.0/16",
    "fe80::/10",
    "0.0.0.0/8",
    "::/128",
    "224.0.0.0/4",
    "ff00::/8",
    "255.255.255.255/32",
    "fd00:ec2::/32",  # AWS
    "100.100.100.200/32",  # Alibaba Cloud
    "168.63.129.16/32",  # Azure
    "192.0.0.192/32",  # Oracle Cloud
)
_CARRYING = tuple(ipaddress.IPv6Network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96"))  # in the last 32 bits
_LOW_32_BITS = 0xFFFFFFFF
_connectable = {"allowed": EVERYWHERE, "denied": DENIED_BY_DEFAULT}


def restrict_connections(*, allowed: Sequence[str], denied: Sequence[str]) -> None:
    """Set which networks the addresses of this process (``ClusterAddress``) may lead to. Called once, at the start."""
    _connectable.update(allowed=tuple(allowed), denied=tuple(denied))


def allowed_networks() -> tuple[str, ...]:
    """Return the networks that may be connected to."""
    return _connectable["allowed"]


def denied_networks() -> tuple[str, ...]:
    """Return the networks that must not be connected to; they count before the allowed networks."""
    return _connectable["denied"]


def parse_network(text: str) -> Network:
    """Return the network, also of a single address. Raise ValueError if it is none or has bits set beyond its length."""
    return ipaddress.ip_network(text.strip())


def parse_address(text: str) -> Address:
    """Return the address without an IPv6 zone, an IPv4-mapped one as IPv4. Raise ValueError if it is none."""
    address = ipaddress.ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def is_within(address: Address, networks: Sequence[str]) -> bool:
    """Return whether the address itself lies in one of the networks."""
    return any(address in network for network in _parsed(tuple(networks)))


def is_permitted(text: str, *, allowed: Sequence[str], denied: Sequence[str]) -> bool:
    """Return whether an address lies in an allowed network and, with an IPv4 address that it carries, in no denied one."""
    address = parse_address(text)
    return is_within(address, allowed) and not any(is_within(found, denied) for found in _meanings(address))


@lru_cache(maxsize=64)
def _parsed(networks: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(parse_network(text) for text in networks)


def _meanings(address: Address) -> list[Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if any(address in network for network in _CARRYING) and int(address) > 1:  # :: and ::1 are addresses of their own
        return [address, ipaddress.IPv4Address(int(address) & _LOW_32_BITS)]
    return [address]


# --- addresses -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """Everything that a client needs to connect to a cluster. PEM fields hold text, not file names.

    With OAUTHBEARER, user and password are the client id and secret for the token endpoint (KIP-768).
    """

    bootstrap_servers: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    oauth_token_url: str = ""
    oauth_scope: str = ""
    oauth_extensions: tuple[tuple[str, str], ...] = ()  # names and values sent to the broker with the token
    ssl_ca_pem: str = field(default="", repr=False)
    ssl_certificate_pem: str = field(default="", repr=False)
    ssl_key_pem: str = field(default="", repr=False)
    ssl_key_password: str = field(default="", repr=False)
    ssl_check_hostname: bool = True
    # Networks that connections may lead to, a policy of the installation: part of the address, so that Spark executors apply it
    allowed_networks: tuple[str, ...] = field(default_factory=allowed_networks, repr=False)
    denied_networks: tuple[str, ...] = field(default_factory=denied_networks, repr=False)
    cluster_id: str = ""  # expected cluster id; requests to another cluster are refused (CLUSTER_ID_MISMATCH)

    def check_identity(self, found: str | None) -> None:
        """Raise CLUSTER_ID_MISMATCH if ``found``, the id that the cluster reported, is not the expected id."""
        if self.cluster_id and found and found != self.cluster_id:
            raise LinkEngineError(
                ErrorCode.CLUSTER_ID_MISMATCH,
                f"The cluster at {self.bootstrap_servers} has the id {found}, expected was {self.cluster_id}. Nothing is read "
                "from it or written to it. Correct bootstrap.servers.",
            )

    def permits(self, ip_address: str) -> bool:
        """Return whether a connection may be opened to an IP address."""
        return is_permitted(ip_address, allowed=self.allowed_networks, denied=self.denied_networks)

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")


class Server(NamedTuple):
    """One bootstrap server. ``scheme`` is what stands before ``://``, in upper case; Kafka's clients ignore it."""

    host: str
    port: int
    scheme: str = ""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_servers(text: str) -> list[Server]:
    """Return the servers, each place once. Raise MISCONFIGURATION_ERROR naming the part that is not a server."""
    found = [_parse(part.strip()) for part in text.split(",") if part.strip()]
    if not found:
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            gettext_lazy("bootstrap.servers is empty. Set host:port, several separated by commas."),
        )
    return list({(server.host.lower(), server.port, server.scheme): server for server in reversed(found)}.values())[::-1]


def join_servers(servers: list[Server]) -> str:
    """Return the servers as every Kafka client takes them: host:port, IPv6 in brackets, separated by commas."""
    return ",".join(dict.fromkeys(str(server) for server in servers))


def _parse(part: str) -> Server:
    found = _PART.fullmatch(part)
    if found is None or not 0 < int(found["port"]) < 1 << 16:
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            gettext_lazy(
                "bootstrap.servers has %(part)s, which is not a server. Write host:port with a port from 1 to "
                "65535, IPv6 addresses as [address]:port, several servers separated by commas.",
                part=repr(part),
            ),
        )
    return Server(found["host"], int(found["port"]), (found["scheme"] or "").upper())
