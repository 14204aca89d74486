"""How a link reaches its source: by what the link says, or by what is known about the registered cluster behind it."""

from __future__ import annotations

from collections.abc import Mapping

from linkengine.domain.addresses import protocol_of
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linkconfigs import is_connection
from linkengine.domain.servers import parse_servers


def source_properties(given: Mapping[str, str], registered: Mapping[str, str] | None) -> dict[str, str]:
    """Answer the properties with which a link reaches its source.

    What the link says counts. The registered cluster's own address stands in for a part the link leaves out, and for security
    that cannot work at the listener named: Confluent's Terraform provider always sends SASL_SSL with PLAIN, whatever the broker
    speaks. A different listener, or the same protocol and mechanism with other credentials, is taken at its word.

    Raises LinkEngineError (MISCONFIGURATION_ERROR) where the security is left out and a server is named that is not among the
    registered ones: whoever names it would be sent the registered cluster's credentials.
    """
    own = _connection(given)
    if registered is None or not _borrows(own, registered):
        return own
    named = _servers(own)
    strangers = [one for one in named if one not in _servers(registered)]
    if strangers:
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"bootstrap.servers names {', '.join(strangers)}, which is not an address of the registered source cluster, and "
            "the link has no complete security of its own. Registered credentials go to registered addresses only. Set "
            "security.protocol and sasl.jaas.config as well, or name only addresses with which the source is registered.",
        )
    return {**registered, "bootstrap.servers": ",".join(named) or registered["bootstrap.servers"]}


def uses_registered_security(given: Mapping[str, str], registered: Mapping[str, str] | None) -> bool:
    """Tell whether ``source_properties`` would sign in with the registered cluster's credentials."""
    return registered is not None and _borrows(_connection(given), registered)


def _connection(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if is_connection(name) and not name.startswith("local.")}


def _borrows(own: Mapping[str, str], registered: Mapping[str, str]) -> bool:
    if not _is_complete(own):
        return True
    same_listeners = set(_servers(own)) <= set(_servers(registered))
    return same_listeners and _way_in(own) != _way_in(registered)


def _is_complete(own: Mapping[str, str]) -> bool:
    protocol = protocol_of(own)
    if not _servers(own) or not protocol:
        return False
    return not protocol.startswith("SASL") or bool(own.get("sasl.jaas.config"))


def _servers(properties: Mapping[str, str]) -> list[str]:
    """Return the servers as host:port in lower case; where one cannot be read, all as they are written."""
    text = properties.get("bootstrap.servers", "").lower()
    try:
        return list(dict.fromkeys(str(server) for server in parse_servers(text)))
    except LinkEngineError:
        return [part.strip() for part in text.split(",") if part.strip()]


def _way_in(properties: Mapping[str, str]) -> tuple[str, str]:
    protocol = protocol_of(properties) or "PLAINTEXT"
    return protocol, properties.get("sasl.mechanism", "").upper() if protocol.startswith("SASL") else ""
