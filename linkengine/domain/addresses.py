"""How to reach a cluster: bootstrap servers and security, read from and written as Kafka client properties.

Property names are those of Kafka's Java clients (the names link configs use). Secrets never appear in ``repr``. Turning an
address into a library's own settings is the job of ``linkengine.kafka``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from linkengine.domain.errors import ErrorCode, LinkEngineError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OAUTH = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTH)
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a property
_JAAS_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    OAUTH: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_EXTENSION = "extension_"
_HOST_AND_PORT = re.compile(r"([^@]*@)?(\[[0-9A-Fa-f:.]+\]|[\w.~-]+)(:\d+)?")
_JAAS_FIELD = re.compile(r"""(?P<name>[A-Za-z_][\w.]*)\s*=\s*(?P<quote>["'])(?P<value>(?:\\.|(?!(?P=quote)).)*)(?P=quote)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """Everything a client needs to reach one cluster. PEM fields hold text, not file names.

    With OAUTHBEARER user and password are the client's id and secret at the token endpoint (KIP-768).
    """

    bootstrap_servers: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    oauth_token_url: str = ""
    oauth_scope: str = ""
    oauth_extensions: tuple[tuple[str, str], ...] = ()  # names and values sent to the broker beside the token
    ssl_ca_pem: str = field(default="", repr=False)
    ssl_certificate_pem: str = field(default="", repr=False)
    ssl_key_pem: str = field(default="", repr=False)
    ssl_key_password: str = field(default="", repr=False)
    ssl_check_hostname: bool = True
    cluster_id: str = ""  # whom to expect there; nothing is asked of another cluster (CLUSTER_ID_MISMATCH)

    def check_identity(self, found: str | None) -> None:
        """Raise CLUSTER_ID_MISMATCH where ``found``, if the cluster tells it, is not the id that is expected."""
        if self.cluster_id and found and found != self.cluster_id:
            raise LinkEngineError(
                ErrorCode.CLUSTER_ID_MISMATCH,
                f"The cluster behind {self.bootstrap_servers} has the id {found}, expected was {self.cluster_id}. Nothing "
                "is read from it or written to it. Correct bootstrap.servers.",
            )

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")


def address_from_properties(properties: Mapping[str, str | None]) -> ClusterAddress:
    """Read Kafka client properties; raise MISCONFIGURATION_ERROR, naming the property, for what cannot work."""
    values = {name: value for name, value in properties.items() if value}
    servers = values.get("bootstrap.servers", "")
    scheme, _, rest = servers.rpartition("://")
    protocol = (values.get("security.protocol") or scheme or "PLAINTEXT").upper()
    mechanism = values.get("sasl.mechanism", "PLAIN").upper()
    _check(protocol in PROTOCOLS, f"security.protocol is {protocol!r}; use one of {', '.join(PROTOCOLS)}.")
    _check(bool(rest.strip()), "bootstrap.servers is empty; give host:port, several separated by commas.")
    login = _login(mechanism, values) if protocol.startswith("SASL") else {}
    return ClusterAddress(
        bootstrap_servers=rest.strip(),
        security_protocol=protocol,
        sasl_mechanism=mechanism,
        **login,
        ssl_ca_pem=values.get("ssl.truststore.certificates", ""),
        ssl_certificate_pem=values.get("ssl.keystore.certificate.chain", ""),
        ssl_key_pem=values.get("ssl.keystore.key", ""),
        ssl_key_password=values.get("ssl.key.password", ""),
        ssl_check_hostname=properties.get("ssl.endpoint.identification.algorithm", "https") != "",
    )


def properties_of(address: ClusterAddress) -> dict[str, str]:
    """Write ``address`` as properties of Kafka's Java clients; contains the secrets."""
    properties = {"bootstrap.servers": address.bootstrap_servers, "security.protocol": address.security_protocol}
    if address.uses_sasl:
        properties["sasl.mechanism"] = address.sasl_mechanism
        properties["sasl.jaas.config"] = jaas_config(address)
        if address.sasl_mechanism == OAUTH:
            properties |= {TOKEN_URL: address.oauth_token_url, "sasl.login.callback.handler.class": _OAUTH_HANDLER}
    if address.uses_tls:
        properties |= _tls_properties(address)
    return properties


def check_token_url(url: str) -> None:
    """Raise MISCONFIGURATION_ERROR for what is not an http or https URL that a request can be sent to."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(_HOST_AND_PORT.fullmatch(parts.netloc)) and parts.port != 0
    except ValueError:  # a bracket or a port that is none
        fine = False
    _check(
        fine and url.isascii() and url.isprintable() and not any(letter in url for letter in ' "<>\\^`{|}'),
        f"{TOKEN_URL} is {url!r}; OAUTHBEARER needs an http or https URL such as https://idp.example.org/token.",
    )


def jaas_config(address: ClusterAddress) -> str:
    """Write the ``sasl.jaas.config`` line of ``address``; contains the password."""
    if address.sasl_mechanism == OAUTH:
        scope = {"scope": address.oauth_scope} if address.oauth_scope else {}
        extensions = {f"{_EXTENSION}{name}": value for name, value in address.oauth_extensions}
        fields = {"clientId": address.sasl_username, "clientSecret": address.sasl_password, **scope, **extensions}
    else:
        fields = {"username": address.sasl_username, "password": address.sasl_password}
    words = " ".join(f'{name}="{_escape(value)}"' for name, value in fields.items())
    return f"{_JAAS_MODULES[address.sasl_mechanism]} required {words};"


def credentials_from_jaas(jaas: str) -> tuple[str, str]:
    """Answer (user, password) of a JAAS line; raise MISCONFIGURATION_ERROR if it holds none (the line is never repeated)."""
    found = _jaas_fields(jaas)
    _check("username" in found and "password" in found, 'sasl.jaas.config has no username="…" and password="…".')
    return found["username"], found["password"]


def _login(mechanism: str, values: Mapping[str, str]) -> dict[str, Any]:
    _check(mechanism in MECHANISMS, f"sasl.mechanism is {mechanism!r}; use one of {', '.join(MECHANISMS)}.")
    jaas = values.get("sasl.jaas.config", "")
    if mechanism == OAUTH:
        return _oauth_login(_jaas_fields(jaas), token_url=values.get(TOKEN_URL, ""))
    username, password = credentials_from_jaas(jaas)
    return {"sasl_username": username, "sasl_password": password}


def _oauth_login(found: Mapping[str, str], *, token_url: str) -> dict[str, Any]:
    _check("clientId" in found and "clientSecret" in found, 'sasl.jaas.config has no clientId="…" and clientSecret="…".')
    check_token_url(token_url)
    extensions = {name.removeprefix(_EXTENSION): value for name, value in found.items() if name.startswith(_EXTENSION)}
    return {
        "sasl_username": found["clientId"],
        "sasl_password": found["clientSecret"],
        "oauth_token_url": token_url,
        "oauth_scope": found.get("scope", ""),
        "oauth_extensions": tuple(sorted(extensions.items())),
    }


def _jaas_fields(jaas: str) -> dict[str, str]:
    return {match["name"]: re.sub(r"\\(.)", r"\1", match["value"]) for match in _JAAS_FIELD.finditer(jaas)}


def _tls_properties(address: ClusterAddress) -> dict[str, str]:
    optional = {
        "ssl.truststore.certificates": address.ssl_ca_pem,
        "ssl.keystore.certificate.chain": address.ssl_certificate_pem,
        "ssl.keystore.key": address.ssl_key_pem,
        "ssl.key.password": address.ssl_key_password,
    }
    properties = {name: value for name, value in optional.items() if value}
    if address.ssl_ca_pem:
        properties["ssl.truststore.type"] = "PEM"
    if address.ssl_key_pem:
        properties["ssl.keystore.type"] = "PEM"
    if not address.ssl_check_hostname:
        properties["ssl.endpoint.identification.algorithm"] = ""
    return properties


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _check(fine: bool, message: str) -> None:  # noqa: FBT001 - reads as an assertion with a sentence
    if not fine:
        raise LinkEngineError(ErrorCode.MISCONFIGURATION_ERROR, message)
