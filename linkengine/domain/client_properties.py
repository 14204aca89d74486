"""Addresses of clusters as Kafka client properties: parsed, validated and written.

Property names are those of Kafka's Java clients (the names link configs use). ``linkengine.kafka`` converts an address to the
settings of a client library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from linkengine.domain.addresses import MECHANISMS, OAUTH, PROTOCOLS, ClusterAddress, Server, join_servers, parse_servers
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.messages import gettext_lazy

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


# --- sasl.jaas.config ----------------------------------------------------------------------------------------------------
# ``<login module> <control flag> <option>=<value> …;``, which Kafka reads with Java's ``StreamTokenizer`` (class
# ``JaasConfig``): values are words or strings in single or double quotes. Within quotes a backslash escapes a quote and itself,
# ``\n`` and the like are control characters, ``\101`` is an octal code, and a line break ends the string. Messages never repeat
# the line, since it holds a password.


_TOKEN = re.compile(
    r"""
      (?P<skip> [\x00-\x20]+ | /\*.*?(?:\*/|\Z) | /[^\n\r]* )
    | (?P<quote> "(?:\\.|[^"\\\n\r])*" | '(?:\\.|[^'\\\n\r])*' )
    | (?P<word> [A-Za-z_$\u00a0-\U0010ffff][\w.$\u00a0-\U0010ffff-]* )
    | (?P<sign> [=;] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginLine:
    """One entry: the simple name of the login module's class, and its options."""

    module: str
    options: Mapping[str, str]


def parse_jaas(line: str) -> LoginLine:
    """Return the entry; raise MISCONFIGURATION_ERROR for what Kafka's clients cannot read, and for several login modules."""
    tokens = _tokens(line)
    if len(tokens) < 2 or tokens[0][0] != "word" or tokens[1][0] != "word" or tokens[1][1].lower() not in _FLAGS:
        raise _malformed("it begins with the class of a login module and the word required")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != ("sign", ";"):
        (kind, name), sign, value = (*tokens[at : at + 3], *[("", "")] * 3)[:3]
        if kind == "sign" or sign != ("sign", "=") or value[0] not in ("word", "quote"):
            raise _malformed(f"what follows option {len(options)} is no option with a value")
        options[name], at = value[1], at + 3
    if at < len(tokens) - 1:
        raise _malformed("one login module is supported, ended by a semicolon")
    return LoginLine(module=tokens[0][1].rpartition(".")[2], options=options)


def write_jaas(module: str, options: Mapping[str, str]) -> str:
    """Return the line, values in double quotes."""
    words = " ".join(f'{name}="{_escaped(value)}"' for name, value in options.items())
    return f"{module} required {words};"


def _tokens(line: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(line):
        match = _TOKEN.match(line, at)
        if match is None:
            raise _malformed("a value is a word or a string in quotes, and a string ends on the line where it begins")
        kind, at = str(match.lastgroup), match.end()
        if kind != "skip":
            found.append((kind, _unquoted(match[0]) if kind == "quote" else match[0]))
    return found


def _unquoted(text: str) -> str:
    return _ESCAPE.sub(lambda found: _character(found[1]), text[1:-1])


def _character(escaped: str) -> str:
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _LETTERS.get(escaped, escaped)


def _escaped(value: str) -> str:
    plain = value.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(f"\\{ord(letter):03o}" if letter < " " else letter for letter in plain)


def _malformed(why: str) -> LinkEngineError:
    return LinkEngineError(
        ErrorCode.MISCONFIGURATION_ERROR,
        f'sasl.jaas.config cannot be read: {why}. Write …LoginModule required username="…" password="…"; with a backslash '
        "before each quote and backslash of a value.",
    )
