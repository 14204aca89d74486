"""librdkafka clients for a cluster address. Names of settings follow its CONFIGURATION.md; the settings contain secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from linkengine.domain.addresses import OAUTH, ClusterAddress
from linkengine.kafka.tokens import librdkafka_token

_Client = TypeVar("_Client", AdminClient, Consumer, Producer)
_TRIMMED = tuple(" \t\n\v\f\r")


def make_client(kind: type[_Client], address: ClusterAddress, settings: Mapping[str, Any]) -> _Client:
    """Return a librdkafka client; ``settings`` are added to those of the address."""
    client = kind({**librdkafka_settings(address), **settings})
    if address.sasl_username.startswith(_TRIMMED) or address.sasl_password.startswith(_TRIMMED):
        # librdkafka strips leading white space of a setting, but not of credentials that are set like this
        client.set_sasl_credentials(address.sasl_username, address.sasl_password)
    return client


def librdkafka_settings(address: ClusterAddress) -> dict[str, Any]:
    """Return the settings with which a confluent-kafka client reaches ``address``."""
    settings: dict[str, Any] = {"bootstrap.servers": address.bootstrap_servers, "security.protocol": address.security_protocol}
    if address.uses_sasl:
        settings["sasl.mechanism"] = address.sasl_mechanism
        settings |= _login_settings(address)
    if address.uses_tls:
        settings |= _tls_settings(address)
    return settings


def _login_settings(address: ClusterAddress) -> dict[str, Any]:
    if address.sasl_mechanism != OAUTH:
        return {"sasl.username": address.sasl_username, "sasl.password": address.sasl_password}
    # librdkafka's own OIDC client would connect to the token endpoint without a check of its network address
    return {"oauth_cb": lambda _config: librdkafka_token(address)}


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
