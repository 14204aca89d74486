"""Link configs for transport and authentication, once for the source and once for the local cluster."""

from __future__ import annotations

from linkengine.domain.addresses import DEFAULTS_TAKEN, PROTOCOLS
from linkengine.domain.linkconfigspec import LinkConfigSpec

_NO_CIPHERS = "OpenSSL's default suites are used. Restrict them at the brokers."


def _tls_rows(prefix: str, where: str) -> tuple[LinkConfigSpec, ...]:
    rows = (
        ("ssl.cipher.suites", None, False, "Cipher suites: OpenSSL's defaults; restrict them at the brokers"),
        ("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", False, "TLS versions; restrict them at the brokers"),
        (
            "ssl.endpoint.identification.algorithm",
            "https",
            False,
            "How the broker's host name is verified against its certificate; empty: not verified",
        ),
        ("ssl.key.password", None, True, "Password of the private key"),
        ("ssl.keystore.certificate.chain", None, True, "Client certificate chain (PEM)"),
        ("ssl.keystore.key", None, True, "Private key of the client (PEM)"),
        ("ssl.keystore.type", "JKS", False, "Format of the key store; PEM is used in any case"),
        ("ssl.protocol", "TLSv1.3", False, "Preferred TLS version"),
        ("ssl.truststore.certificates", None, True, "Trusted certificates (PEM)"),
        ("ssl.truststore.type", "JKS", False, "Format of the trust store; PEM is used in any case"),
    )
    return tuple(
        LinkConfigSpec(
            name=prefix + name,
            default=default,
            sensitive=sensitive,
            choices=DEFAULTS_TAKEN.get(name, ()),
            refusal=_NO_CIPHERS if name == "ssl.cipher.suites" else "",
            description=f"{text}, for {where}.",
        )
        for name, default, sensitive, text in rows
    )


def security_rows(prefix: str, where: str, mechanisms: tuple[str, ...]) -> tuple[LinkConfigSpec, ...]:
    return (
        LinkConfigSpec(
            name=f"{prefix}security.protocol",
            default="PLAINTEXT",
            choices=PROTOCOLS,
            description=f"Security protocol for {where}.",
        ),
        LinkConfigSpec(
            name=f"{prefix}sasl.mechanism", default="GSSAPI", choices=mechanisms, description=f"SASL mechanism for {where}."
        ),
        LinkConfigSpec(
            name=f"{prefix}sasl.jaas.config",
            default=None,
            sensitive=True,
            description=f"User name and password for {where}, as JAAS text; with OAUTHBEARER clientId, clientSecret and scope.",
        ),
        LinkConfigSpec(
            name=f"{prefix}sasl.login.callback.handler.class",
            default=None,
            description=f"OAuthBearerLoginCallbackHandler with OAUTHBEARER for {where}. No other class is supported.",
        ),
        LinkConfigSpec(
            name=f"{prefix}sasl.oauthbearer.token.endpoint.url",
            default=None,
            description=f"Token endpoint for {where}; OAUTHBEARER only.",
        ),
        *_tls_rows(prefix, where),
    )
