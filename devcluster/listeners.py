"""Additional listeners of a development cluster: TLS, mutual TLS, passwords over TLS, tokens over TLS.

A broker with all of them represents many kinds of clusters. Principals: over TLS alone a client is anonymous, a client
certificate gives `CN=link` and the organization, a token its subject.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from devcluster.ports import LOOPBACK
from devcluster.tls import Certificates, subject_of

ExtraListener = Literal["TLS", "MTLS", "PASSWORDS", "TOKENS"]
EXTRA_LISTENERS: tuple[ExtraListener, ...] = get_args(ExtraListener)
PRINCIPALS = ("User:ANONYMOUS", f"User:{subject_of('link')}")  # besides those of `access.py`; all are super users
AUDIENCE, ISSUER = "kafka", "devcluster"  # of tokens
_PROTOCOL: Mapping[ExtraListener, str] = {"TLS": "SSL", "MTLS": "SSL", "PASSWORDS": "SASL_SSL", "TOKENS": "SASL_SSL"}
_OAUTH = "org.apache.kafka.common.security.oauthbearer"


def listener_properties(
    ports: Mapping[ExtraListener, int], *, certificates: Certificates, known: Mapping[str, object], jwks_url: str
) -> dict[str, object]:
    """Return the settings that add these listeners to a broker with the settings `known`."""
    settings: dict[str, object] = {}
    for name in ("listeners", "advertised.listeners"):
        settings[name] = ",".join([str(known[name]), *(f"{listener}://{LOOPBACK}:{port}" for listener, port in ports.items())])
    protocols = [str(known["listener.security.protocol.map"]), *(f"{listener}:{_PROTOCOL[listener]}" for listener in ports)]
    settings["listener.security.protocol.map"] = ",".join(protocols)
    for listener in ports:
        prefix = f"listener.name.{listener.lower()}."
        settings |= {f"{prefix}ssl.keystore.type": "PEM", f"{prefix}ssl.keystore.location": certificates.broker}
    if "MTLS" in ports:
        settings |= _client_certificates(certificates)
    if "PASSWORDS" in ports:
        old, new = "listener.name.client.", "listener.name.passwords."
        settings |= {
            name.replace(old, new): value for name, value in known.items() if name.startswith(f"{old}s") or "sasl" in name
        }
    if "TOKENS" in ports:
        settings |= _tokens(jwks_url)
    return settings


def listener_security(listener: ExtraListener, *, certificates: Certificates) -> dict[str, str]:
    """Return the Java clients' properties for a listener, without the SASL login."""
    settings = {
        "security.protocol": _PROTOCOL[listener],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": certificates.authority.read_text(),
    }
    if listener == "MTLS":
        key, chain = _split(certificates.client)
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain}
    return settings


def jvm_flags(jwks_url: str) -> list[str]:
    """Return the flags that permit a JVM to fetch keys or tokens from that address (since Kafka 3.9.1)."""
    return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks_url}"] if jwks_url else []


def _client_certificates(certificates: Certificates) -> dict[str, object]:
    return {
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.mtls.ssl.truststore.type": "PEM",
        "listener.name.mtls.ssl.truststore.location": certificates.authority,
    }


def _tokens(jwks_url: str) -> dict[str, object]:
    prefix = "listener.name.tokens.oauthbearer."
    return {
        "listener.name.tokens.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
        f"{prefix}sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
        f"{prefix}sasl.oauthbearer.jwks.endpoint.url": jwks_url,
        f"{prefix}sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{prefix}sasl.oauthbearer.expected.issuer": ISSUER,  # without it, brokers do not start since Kafka 4.4
    }


def _split(pem: Path) -> tuple[str, str]:
    """Return the private key and the certificates of a PEM file."""
    text = pem.read_text()
    start = text.index("-----BEGIN CERTIFICATE-----")
    return text[:start], text[start:]
