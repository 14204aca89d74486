"""IP networks as settings name them, whether an address lies within, and which networks this process may connect to.

No name is resolved here; ``linkengine.kafka.security`` does that.

An IPv6 address that carries an IPv4 address (6to4, NAT64, IPv4-compatible) is denied with that IPv4 address: a gateway delivers
there what is sent to it. It is not allowed or trusted by it. IPv4-mapped addresses are IPv4 addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache

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
