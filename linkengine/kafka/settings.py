"""A cluster address as librdkafka's settings. Names follow librdkafka's CONFIGURATION.md; the result contains the secrets."""

from __future__ import annotations

from linkengine.domain.addresses import ClusterAddress


def librdkafka_settings(address: ClusterAddress) -> dict[str, str]:
    """Answer what a confluent-kafka client needs to reach ``address``."""
    settings = {"bootstrap.servers": address.bootstrap_servers, "security.protocol": address.security_protocol}
    if address.uses_sasl:
        settings["sasl.mechanism"] = address.sasl_mechanism
        settings["sasl.username"] = address.sasl_username
        settings["sasl.password"] = address.sasl_password
    if address.uses_tls:
        settings |= _tls_settings(address)
    return settings


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
