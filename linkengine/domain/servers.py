"""Parser of ``bootstrap.servers``, compatible with Kafka's Java clients. No other code parses it.

Kafka splits the list at commas with white space around them and reads each part with ``Utils.HOST_PORT_PATTERN``: an optional
listener name before ``://``, a host with or without brackets, a port. Older clients skip empty parts (4.3 refuses them), and so
does this. The pattern is that of Kafka 4: older clients also accept, and drop, any text before the host.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from linkengine.domain.errors import ErrorCode, LinkEngineError

_PART = re.compile(r"(?:(?P<scheme>[0-9a-zA-Z_.%-]*)://)?\[?(?P<host>[0-9a-zA-Z_.%:-]+)]?:(?P<port>[0-9]{1,9})")


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
            ErrorCode.MISCONFIGURATION_ERROR, "bootstrap.servers is empty. Set host:port, several separated by commas."
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
            f"bootstrap.servers has {part!r}, which is not a server. Write host:port with a port from 1 to 65535, IPv6 "
            "addresses as [address]:port, several servers separated by commas.",
        )
    return Server(found["host"], int(found["port"]), (found["scheme"] or "").upper())
