"""The rows of the table of link configs about transport and sign-in: once for the source, once for the local cluster."""

from __future__ import annotations

from linkengine.domain.addresses import DEFAULTS_TAKEN, PROTOCOLS
from linkengine.domain.linkconfigspec import LinkConfigSpec

_NO_CIPHERS = "The suites are OpenSSL's own and cannot be restricted here. Restrict them at the brokers."


def _tls_rows(prefix: str, where: str) -> tuple[LinkConfigSpec, ...]:
    rows = (
        ("ssl.cipher.suites", None, False, "Cipher suites offered: OpenSSL's own; restrict them at the brokers"),
        ("ssl.enabled.protocols", "TLSv1.2,TLSv1.3", False, "TLS versions offered; restrict them at the brokers"),
        (
            "ssl.endpoint.identification.algorithm",
            "https",
            False,
            "How host names are compared with certificates; empty: not at all",
        ),
        ("ssl.key.password", None, True, "Password of the private key"),
        ("ssl.keystore.certificate.chain", None, True, "Our certificate chain (PEM)"),
        ("ssl.keystore.key", None, True, "Our private key (PEM)"),
        ("ssl.keystore.type", "JKS", False, "Format of the key store; what is read is PEM"),
        ("ssl.protocol", "TLSv1.3", False, "Preferred TLS version"),
        ("ssl.truststore.certificates", None, True, "Certificates of authorities to trust (PEM)"),
        ("ssl.truststore.type", "JKS", False, "Format of the trust store; what is read is PEM"),
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
            description=f"Transport and sign-in of {where}.",
        ),
        LinkConfigSpec(
            name=f"{prefix}sasl.mechanism", default="GSSAPI", choices=mechanisms, description=f"How to sign in to {where}."
        ),
        LinkConfigSpec(
            name=f"{prefix}sasl.jaas.config",
            default=None,
            sensitive=True,
            description=f"User and password for {where}, as a JAAS line; with OAUTHBEARER clientId, clientSecret and scope.",
        ),
        LinkConfigSpec(
            name=f"{prefix}sasl.login.callback.handler.class",
            default=None,
            description=f"OAuthBearerLoginCallbackHandler with OAUTHBEARER for {where}; no other class is supported.",
        ),
        LinkConfigSpec(
            name=f"{prefix}sasl.oauthbearer.token.endpoint.url",
            default=None,
            description=f"Where tokens for {where} come from; OAUTHBEARER only.",
        ),
        *_tls_rows(prefix, where),
    )
