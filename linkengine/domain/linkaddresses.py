"""How a link reaches its source: by what the link says, or by what is known about the registered cluster behind it."""

from __future__ import annotations

from collections.abc import Mapping

from linkengine.domain.linkconfigs import is_connection


def source_properties(given: Mapping[str, str], registered: Mapping[str, str] | None) -> dict[str, str]:
    """Answer the properties with which a link reaches its source.

    What the link says counts. The registered cluster's own address stands in for a part the link leaves out, and for security
    that cannot work at the listener named: Confluent's Terraform provider always sends SASL_SSL with PLAIN, whatever the broker
    speaks. A different listener, or the same protocol and mechanism with other credentials, is taken at its word.
    """
    own = {name: value for name, value in given.items() if is_connection(name) and not name.startswith("local.")}
    if registered is None or (_is_complete(own) and not _contradicts(own, registered)):
        return own
    servers = own.get("bootstrap.servers") or registered["bootstrap.servers"]
    return {**registered, "bootstrap.servers": servers.rpartition("://")[2]}


def uses_registered_security(given: Mapping[str, str], registered: Mapping[str, str] | None) -> bool:
    """Tell whether ``source_properties`` would sign in with the registered cluster's credentials."""
    if registered is None:
        return False
    return not _is_complete(given) or _contradicts(given, registered)


def _is_complete(own: Mapping[str, str]) -> bool:
    protocol = own.get("security.protocol", "")
    if not own.get("bootstrap.servers") or not protocol:
        return False
    return not protocol.startswith("SASL") or bool(own.get("sasl.jaas.config"))


def _contradicts(own: Mapping[str, str], registered: Mapping[str, str]) -> bool:
    same_listener = _servers(own) & _servers(registered)
    return bool(same_listener) and _way_in(own) != _way_in(registered)


def _servers(properties: Mapping[str, str]) -> set[str]:
    listed = properties.get("bootstrap.servers", "").rpartition("://")[2]
    return {one.strip() for one in listed.split(",") if one.strip()}


def _way_in(properties: Mapping[str, str]) -> tuple[str, str]:
    protocol = properties.get("security.protocol", "PLAINTEXT")
    return protocol, properties.get("sasl.mechanism", "") if protocol.startswith("SASL") else ""
