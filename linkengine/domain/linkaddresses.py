"""How a link connects to its source: with its own credentials, or with those of the registered source cluster.

Four rules keep stored secrets from being used or sent by a person who was not given them:

1. A link uses the credentials of the registered source only where its row says so (``uses_cluster_credentials``). The decision
   is made when the link is created or changed, by a person who may use them, and is not derived again when a copy starts.
2. Registered credentials go to registered addresses only (``registered_properties``).
3. A stored secret goes only where it was meant to go when it was entered: a change of the address, of the protocol, or of what
   the connection trusts needs the secret again (``secrets_to_repeat``).
4. The ``local.*`` secrets of a link go to the address with which the link's own cluster is registered. A registration that
   would send them elsewhere is refused while they are stored (``redirected_by``).
"""

from __future__ import annotations

from collections.abc import Mapping

from linkengine.domain.addresses import TOKEN_URL, parse_servers, protocol_of
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linkconfigs import is_connection

LOCAL = "local."
SECRETS = ("sasl.jaas.config", "ssl.keystore.key")
_HOST_NAMES = "ssl.endpoint.identification.algorithm"
# What decides where secrets are sent and how they are protected in transit. Configs of linksecurity not listed here have no
# effect.
RECIPIENT = (
    "bootstrap.servers",
    "security.protocol",
    "sasl.mechanism",
    TOKEN_URL,
    "ssl.truststore.certificates",
    _HOST_NAMES,
)
_IDENTITY = ("sasl.jaas.config", "ssl.keystore.", "ssl.key.")  # prefixes of the configs that identify the client


def own_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the connection to the source out of all properties of a link."""
    return {name: value for name, value in given.items() if is_connection(name) and not name.startswith(LOCAL)}


def local_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the connection to the link's own cluster (``local.*``) out of all properties of a link, without the prefix."""
    return {name.removeprefix(LOCAL): v for name, v in given.items() if is_connection(name) and name.startswith(LOCAL)}


def uses_registered_security(given: Mapping[str, str], registered: Mapping[str, str]) -> bool:
    """Return whether a link with these configs needs the registered cluster's credentials to work.

    True if the link leaves a part out, or if its security cannot work at the listener that it names: Confluent's
    Terraform provider always sends SASL_SSL with PLAIN, whatever the broker speaks. False for another listener, and for other
    credentials with the same protocol and mechanism.
    """
    own = own_properties(given)
    if not is_complete(own):
        return True
    same_listeners = set(_servers(own)) <= set(_servers(registered))
    return same_listeners and _security_of(own) != _security_of(registered)


def registered_properties(given: Mapping[str, str], registered: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with which a link reaches its source with the registered cluster's credentials.

    The link may name some of the registered servers; its other properties are ignored. Raises LinkEngineError
    (MISCONFIGURATION_ERROR) if it names another server, which would receive these credentials.
    """
    named = _servers(given)
    others = [server for server in named if server not in _servers(registered)]
    if others:
        raise LinkEngineError(
            ErrorCode.MISCONFIGURATION_ERROR,
            f"bootstrap.servers names {', '.join(others)}, which is not an address of the registered source cluster, and the "
            "link has no complete security settings. Registered credentials are sent to registered addresses only. Set "
            "security.protocol and sasl.jaas.config as well, or name only addresses with which the source is registered.",
        )
    return {**registered, "bootstrap.servers": ",".join(named) or registered.get("bootstrap.servers", "")}


def inbound_properties(source_side: Mapping[str, str], registered: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with which an INBOUND link reaches its source.

    ``source_side`` are the properties of the link's other side, which is at the source. Its ``local.*`` configs replace the
    registered credentials as a whole: nothing that signs in is taken from the registration as soon as any of them is set.
    """
    local = local_properties(source_side)
    if not local:
        return dict(registered)
    return {**{name: value for name, value in registered.items() if not name.startswith(_IDENTITY)}, **local}


def is_complete(given: Mapping[str, str]) -> bool:
    """Return whether the properties suffice to sign in: servers, a protocol and, with SASL, credentials."""
    protocol = protocol_of(given)
    if not _servers(given) or not protocol:
        return False
    return not protocol.startswith("SASL") or bool(given.get("sasl.jaas.config"))


def differs_in_recipient(before: Mapping[str, str], after: Mapping[str, str], *, prefix: str = "") -> tuple[str, ...]:
    """Return the names, of those that decide where secrets go, whose values differ."""
    names = (prefix + name for name in RECIPIENT)
    return tuple(name for name in names if _value(before, name) != _value(after, name))


def secrets_to_repeat(stored: Mapping[str, str], changes: Mapping[str, str | None]) -> tuple[tuple[str, str], ...]:
    """Return (secret, config) for each stored secret that a change of that config would send elsewhere.

    None as a value stands for the default. A secret that the changes set again, or remove, is not returned. Whether the secret
    is in use does not count: otherwise it could be switched off, redirected and switched on in three harmless steps.
    """
    merged = {**stored, **changes}
    after = {name: value for name, value in merged.items() if value is not None}
    found = []
    for prefix in ("", LOCAL):
        moved = differs_in_recipient(stored, after, prefix=prefix)
        kept = [prefix + name for name in SECRETS if stored.get(prefix + name) and after.get(prefix + name)]
        found += [(name, moved[0]) for name in kept if moved and not changes.get(name)]
    return tuple(found)


def redirected_by(given: Mapping[str, str], before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return the configs through which another registration of a link's own cluster would send its stored secrets elsewhere.

    ``given`` are the properties of the link, ``before`` and ``after`` those of the registration. What the link itself sets with
    ``local.*`` does not change with the registration. Empty if the link stores no ``local.*`` secret.
    """
    if not any(given.get(LOCAL + name) for name in SECRETS):
        return ()
    return differs_in_recipient(inbound_properties(given, before), inbound_properties(given, after))


def _value(properties: Mapping[str, str], name: str) -> str:
    default = "https" if name.endswith(_HOST_NAMES) else ""  # empty means that names are not compared
    return "\n".join(properties.get(name, default).split("\r\n")).strip()


def _servers(properties: Mapping[str, str]) -> list[str]:
    """Return the servers as host:port in lower case; if any cannot be parsed, all as they are written."""
    text = properties.get("bootstrap.servers", "").lower()
    try:
        return list(dict.fromkeys(str(server) for server in parse_servers(text)))
    except LinkEngineError:
        return [part.strip() for part in text.split(",") if part.strip()]


def _security_of(properties: Mapping[str, str]) -> tuple[str, str]:
    protocol = protocol_of(properties) or "PLAINTEXT"
    return protocol, properties.get("sasl.mechanism", "").upper() if protocol.startswith("SASL") else ""
