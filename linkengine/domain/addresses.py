"""Addresses of clusters: bootstrap servers and security, parsed from and written as Kafka client properties.

Property names are those of Kafka's Java clients (the names link configs use). Secrets never appear in ``repr``.
``linkengine.kafka`` converts an address to the settings of a client library.

``parse_servers`` is the only parser of ``bootstrap.servers``, compatible with Kafka's Java clients: Kafka splits the list at
commas with white space around them and reads each part with ``Utils.HOST_PORT_PATTERN``: an optional listener name before
``://``, a host with or without brackets, a port. Older clients skip empty parts (4.3 refuses them), and so does this. The
pattern is that of Kafka 4: older clients also accept, and drop, any text before the host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.jaas import LoginLine, parse_jaas, write_jaas
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.networks import allowed_networks, denied_networks, is_permitted

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OAUTH = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTH)
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a property
HOSTNAME_CHECK = "ssl.endpoint.identification.algorithm"
LOGIN_HANDLER = "sasl.login.callback.handler.class"
_JAAS_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    OAUTH: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_OAUTH_HANDLERS = (_OAUTH_HANDLER, _OAUTH_HANDLER.replace("oauthbearer.OAuth", "oauthbearer.secured.OAuth"))
_EXTENSION = "extension_"
_PASSWORD_OPTIONS = frozenset({"username", "password"})
_OAUTH_OPTIONS = frozenset({"clientId", "clientSecret", "scope"})
_READ = frozenset(
    {"bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.jaas.config", TOKEN_URL, HOSTNAME_CHECK, LOGIN_HANDLER}
    | {"ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.key.password"}
)
STORES = ("JKS", "PEM")  # the default that clients send, and the format that is read
# Values that change nothing; accepted because clients that list all properties send them.
DEFAULTS_TAKEN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ssl.enabled.protocols": ("TLSv1.2,TLSv1.3", "TLSv1.3,TLSv1.2"),
        "ssl.keystore.type": STORES,
        "ssl.protocol": ("TLSv1.3",),
        "ssl.truststore.type": STORES,
    }
)
_SECURITY = ("security.", "sasl.", "ssl.")
_PEM_ONLY = (
    "Files and key stores are not supported. Set PEM text in ssl.truststore.certificates, ssl.keystore.certificate.chain and "
    "ssl.keystore.key."
)
_ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "ssl.truststore.": _PEM_ONLY,
        "ssl.keystore.": _PEM_ONLY,
        "ssl.cipher.suites": "OpenSSL's default suites are used. Restrict them at the brokers.",
        "ssl.": "Restrict TLS at the brokers.",
        "sasl.kerberos.": "Kerberos is not supported.",
        "sasl.oauthbearer.": f"Tokens come from {TOKEN_URL} by clientId, clientSecret and scope in sasl.jaas.config.",
    }
)
_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.~-]+)(:\d+)?")
_PART = re.compile(r"(?:(?P<scheme>[0-9a-zA-Z_.%-]*)://)?\[?(?P<host>[0-9a-zA-Z_.%:-]+)]?:(?P<port>[0-9]{1,9})")


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


def address_from_properties(properties: Mapping[str, str | None]) -> ClusterAddress:
    """Return the address that Kafka client properties describe.

    Raise MISCONFIGURATION_ERROR, naming the property, for invalid values and for security properties that are not supported: a
    property that has no effect must not look effective. Properties that do not concern security are ignored.
    """
    values = {name: value for name, value in properties.items() if value}
    servers = parse_servers(values.get("bootstrap.servers", ""))
    _check_supported(values)
    protocol = _protocol(values, servers)
    mechanism = values.get("sasl.mechanism", "PLAIN").upper()
    login = _login(values) if protocol.startswith("SASL") else {"sasl_mechanism": mechanism}
    return ClusterAddress(
        bootstrap_servers=join_servers(servers),
        security_protocol=protocol,
        **login,
        ssl_ca_pem=values.get("ssl.truststore.certificates", ""),
        ssl_certificate_pem=values.get("ssl.keystore.certificate.chain", ""),
        ssl_key_pem=values.get("ssl.keystore.key", ""),
        ssl_key_password=values.get("ssl.key.password", ""),
        ssl_check_hostname=properties.get(HOSTNAME_CHECK, "https") != "",
    )


def properties_of(address: ClusterAddress) -> dict[str, str]:
    """Return ``address`` as properties of Kafka's Java clients, including the secrets."""
    properties = {"bootstrap.servers": address.bootstrap_servers, "security.protocol": address.security_protocol}
    if address.uses_sasl:
        properties["sasl.mechanism"] = address.sasl_mechanism
        properties["sasl.jaas.config"] = jaas_config(address)
        if address.sasl_mechanism == OAUTH:
            properties |= {TOKEN_URL: address.oauth_token_url, "sasl.login.callback.handler.class": _OAUTH_HANDLER}
    if address.uses_tls:
        properties |= _tls_properties(address)
    return properties


class TokenUrl(NamedTuple):
    """The parts of a token endpoint's URL that a request needs."""

    tls: bool
    host: str
    port: int
    path: str


def parse_token_url(url: str) -> TokenUrl:
    """Return the parts; raise MISCONFIGURATION_ERROR for anything but an http or https URL of an endpoint."""
    try:
        parts = urlsplit(url)
        host, port, tls = parts.hostname or "", parts.port, parts.scheme == "https"
    except ValueError:
        host, port, parts, tls = "", None, urlsplit(""), False
    plain = url.isascii() and url.isprintable() and not any(letter in url for letter in ' "<>\\^`{|}') and port != 0
    fine = (
        plain and parts.scheme in ("http", "https") and bool(_HOST_AND_PORT.fullmatch(parts.netloc)) and parts.username is None
    )
    _check(
        bool(fine), f"{TOKEN_URL} is {url!r}. {OAUTH} needs the http or https URL of a token endpoint, without user and spaces."
    )
    return TokenUrl(tls, host, port or (443 if tls else 80), (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


def jaas_config(address: ClusterAddress) -> str:
    """Return the ``sasl.jaas.config`` line of ``address``; contains the password."""
    if address.sasl_mechanism == OAUTH:
        scope = {"scope": address.oauth_scope} if address.oauth_scope else {}
        extensions = {f"{_EXTENSION}{name}": value for name, value in address.oauth_extensions}
        options = {"clientId": address.sasl_username, "clientSecret": address.sasl_password, **scope, **extensions}
    else:
        options = {"username": address.sasl_username, "password": address.sasl_password}
    return write_jaas(_JAAS_MODULES[address.sasl_mechanism], options)


def protocol_of(properties: Mapping[str, str]) -> str:
    """Return security.protocol, or else the protocol before ``://`` in the servers, in upper case; "" if neither is set."""
    given = properties.get("security.protocol", "").upper()
    try:
        schemes = {server.scheme for server in parse_servers(properties.get("bootstrap.servers", ""))}
    except LinkEngineError:
        return given
    return given or next((name for name in PROTOCOLS if name in schemes), "")


def _protocol(values: Mapping[str, str], servers: list[Server]) -> str:
    """Return the security protocol; raise for two different protocols.

    Kafka's Java clients ignore the text before ``://`` (``Utils.HOST_PORT_PATTERN``). Here a contradiction is refused: with
    SASL_SSL:// before a server and security.protocol=SASL_PLAINTEXT, they send the password without encryption.
    """
    given = values.get("security.protocol", "").upper()
    _check(
        not given or given in PROTOCOLS,
        gettext_lazy("security.protocol is %(given)s. Use one of %(names)s.", given=repr(given), names=", ".join(PROTOCOLS)),
    )
    named = {server.scheme: server for server in servers if server.scheme}
    if not given:
        for scheme, server in named.items():
            known = f"bootstrap.servers has {scheme}://{server}. Before :// write one of {', '.join(PROTOCOLS)}"
            _check(scheme in PROTOCOLS, f"{known}, or set security.protocol.")
    protocols = {scheme: server for scheme, server in named.items() if scheme in PROTOCOLS}
    protocol = given or next(iter(protocols), "PLAINTEXT")
    for scheme, server in protocols.items():
        other = f"security.protocol is {given}" if given else f"another server has {protocol}://"
        _check(
            scheme == protocol,
            f"bootstrap.servers has {scheme}://{server}, but {other}. Kafka's Java clients ignore the protocol before ://. "
            "Here a contradiction is refused, because the wrong one of two protocols may send a password without encryption. "
            "Use one protocol for all servers.",
        )
    return protocol


def _check_supported(values: Mapping[str, str]) -> None:
    """Raise for a security property that has no effect here, and for a value that is not supported."""
    for name, value in values.items():
        if name in _READ or not name.startswith(_SECURITY):
            continue
        advice = next((text for start, text in _ADVICE.items() if name.startswith(start)), "Leave it out.")
        taken = DEFAULTS_TAKEN.get(name)
        if taken is None:
            _check(False, f"{name} is not supported. {advice}")  # noqa: FBT003
        elif value.replace(" ", "") not in taken:
            _check(False, f"{name} cannot be {value!r}. Only {' and '.join(taken)} are accepted, without effect. {advice}")  # noqa: FBT003
    mechanism, check = values.get("sasl.mechanism", ""), values.get(HOSTNAME_CHECK, "https")
    _check(
        not mechanism or mechanism.upper() in MECHANISMS,
        gettext_lazy(
            "sasl.mechanism %(mechanism)s is not supported. Use one of %(names)s.",
            mechanism=repr(mechanism),
            names=", ".join(MECHANISMS),
        ),
    )
    _check(check.lower() == "https", f"{HOSTNAME_CHECK} {check!r} is not supported. Use https, or an empty value for no check.")
    if LOGIN_HANDLER in values:
        fine = values[LOGIN_HANDLER] in _OAUTH_HANDLERS and mechanism.upper() == OAUTH
        _check(fine, f"{LOGIN_HANDLER} is not supported, except {_OAUTH_HANDLER} with {OAUTH}. Leave it out.")
    if "sasl.jaas.config" in values:
        _check_options(parse_jaas(values["sasl.jaas.config"]))


def _check_options(login: LoginLine) -> None:
    """Raise for a login module that is not supported, and for an option that would have no effect."""
    modules = {name.rpartition(".")[2] for name in _JAAS_MODULES.values()}
    known = f"use one of {', '.join(sorted(modules))}"
    _check(
        login.module in modules, f"sasl.jaas.config names the login module {login.module!r}, which is not supported; {known}."
    )
    for name, value in login.options.items():
        if name == "tokenauth":
            _check(
                value.lower() != "true",
                'sasl.jaas.config has tokenauth="true": delegation tokens are not supported. Use a user name and a password.',
            )
        elif login.module != _module(OAUTH):
            _check(
                name in _PASSWORD_OPTIONS, f"sasl.jaas.config has the option {name!r}, which is not supported. Leave it out."
            )
        else:
            fine = name in _OAUTH_OPTIONS or name.startswith(_EXTENSION)
            _check(fine, f"sasl.jaas.config has the option {name!r}, which is not supported with {OAUTH}. Leave it out.")


def _login(values: Mapping[str, str]) -> dict[str, Any]:
    line = values.get("sasl.jaas.config", "")
    _check(
        bool(line),
        gettext_lazy(
            "sasl.jaas.config is not set. The security protocol needs user and password, or clientId and clientSecret."
        ),
    )
    login = parse_jaas(line)
    mechanism = values.get("sasl.mechanism", "").upper() or _mechanism_of(login)
    found = _oauth_login(login.options, token_url=values.get(TOKEN_URL, "")) if mechanism == OAUTH else _password_login(login)
    for name in ("sasl_username", "sasl_password", "oauth_scope"):
        _check_text(name, found.get(name, ""))
    _check(
        not mechanism.startswith("SCRAM") or found["sasl_username"].isascii(),
        gettext_lazy(
            "The user name in sasl.jaas.config has characters beyond ASCII, which Kafka's brokers refuse with "
            "SCRAM (class ScramMessages). Use another user name. Passwords may have any character."
        ),
    )
    return {"sasl_mechanism": mechanism, **found}


def _mechanism_of(login: LoginLine) -> str:
    """Return the mechanism of the login module. SCRAM has two, and must be given: PLAIN would send the password itself."""
    fitting = [mechanism for mechanism in MECHANISMS if _module(mechanism) == login.module]
    _check(
        len(fitting) == 1,
        gettext_lazy("sasl.mechanism is not set. %(module)s needs %(names)s.", module=login.module, names=" or ".join(fitting)),
    )
    return fitting[0]


def _module(mechanism: str) -> str:
    return _JAAS_MODULES[mechanism].rpartition(".")[2]


def _password_login(login: LoginLine) -> dict[str, Any]:
    options = login.options
    _check(options.keys() >= _PASSWORD_OPTIONS, gettext_lazy('sasl.jaas.config has no username="…" and password="…".'))
    return {"sasl_username": options["username"], "sasl_password": options["password"]}


def _oauth_login(found: Mapping[str, str], *, token_url: str) -> dict[str, Any]:
    _check(
        "clientId" in found and "clientSecret" in found,
        gettext_lazy('sasl.jaas.config has no clientId="…" and clientSecret="…".'),
    )
    parse_token_url(token_url)
    extensions = {name.removeprefix(_EXTENSION): value for name, value in found.items() if name.startswith(_EXTENSION)}
    return {
        "sasl_username": found["clientId"],
        "sasl_password": found["clientSecret"],
        "oauth_token_url": token_url,
        "oauth_scope": found.get("scope", ""),
        "oauth_extensions": tuple(sorted(extensions.items())),
    }


def _check_text(name: str, value: str) -> None:
    what = {"sasl_username": "user name", "sasl_password": "password"}.get(name, "scope")
    _check(
        "\0" not in value,
        f"The {what} in sasl.jaas.config has a NUL character, which no Kafka client can send. Remove it.",
    )
    half = any("\ud800" <= letter <= "\udfff" for letter in value)
    _check(not half, f"The {what} in sasl.jaas.config is not valid Unicode text. Send it as UTF-8.")


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


def _check(fine: bool, message: str) -> None:  # noqa: FBT001 - reads as an assertion with a message
    if not fine:
        raise LinkEngineError(ErrorCode.MISCONFIGURATION_ERROR, message)


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
