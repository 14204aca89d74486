"""A cluster address as librdkafka's settings. Names follow librdkafka's CONFIGURATION.md; the result contains the secrets."""

from __future__ import annotations

from linkengine.domain.addresses import OAUTH, ClusterAddress


def librdkafka_settings(address: ClusterAddress) -> dict[str, str]:
    """Answer what a confluent-kafka client needs to reach ``address``."""
    settings = {"bootstrap.servers": address.bootstrap_servers, "security.protocol": address.security_protocol}
    if address.uses_sasl:
        settings["sasl.mechanism"] = address.sasl_mechanism
        settings |= _login_settings(address)
    if address.uses_tls:
        settings |= _tls_settings(address)
    return settings


def _login_settings(address: ClusterAddress) -> dict[str, str]:
    if address.sasl_mechanism != OAUTH:
        return {"sasl.username": address.sasl_username, "sasl.password": address.sasl_password}
    optional = {
        "sasl.oauthbearer.scope": address.oauth_scope,
        "sasl.oauthbearer.extensions": ",".join(f"{name}={value}" for name, value in address.oauth_extensions),
    }
    # the endpoint's certificate, where it is not of a public authority, is signed by the one that signs the brokers'
    if address.oauth_token_url.startswith("https:"):
        optional["https.ca.pem"] = address.ssl_ca_pem
    return {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": address.sasl_username,
        "sasl.oauthbearer.client.secret": address.sasl_password,
        "sasl.oauthbearer.token.endpoint.url": address.oauth_token_url,
        **{name: value for name, value in optional.items() if value},
    }


def _tls_settings(address: ClusterAddress) -> dict[str, str]:
    optional = {
        "ssl.ca.pem": address.ssl_ca_pem,
        "ssl.certificate.pem": address.ssl_certificate_pem,
        "ssl.key.pem": address.ssl_key_pem,
        "ssl.key.password": address.ssl_key_password,
    }
    settings = {name: value for name, value in optional.items() if value}
    settings["ssl.endpoint.identification.algorithm"] = "https" if address.ssl_check_hostname else "none"
    return settings
