from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from linkengine.domain.addresses import ClusterAddress
from linkengine.kafka.security import librdkafka_settings


def test_a_plain_address_has_only_servers_and_protocol() -> None:
    assert librdkafka_settings(ClusterAddress(bootstrap_servers="b:1")) == {
        "bootstrap.servers": "b:1",
        "security.protocol": "PLAINTEXT",
    }


def test_credentials_are_passed_only_with_sasl() -> None:
    address = ClusterAddress(bootstrap_servers="b:1", sasl_mechanism="SCRAM-SHA-512", sasl_username="u", sasl_password="p")

    plain = librdkafka_settings(address)
    sasl = librdkafka_settings(replace(address, security_protocol="SASL_PLAINTEXT"))

    assert not {"sasl.username", "sasl.password"} & set(plain)
    assert (sasl["sasl.mechanism"], sasl["sasl.username"], sasl["sasl.password"]) == ("SCRAM-SHA-512", "u", "p")


def test_tls_is_passed_as_pem_text() -> None:
    address = ClusterAddress(
        bootstrap_servers="b:1", security_protocol="SSL", ssl_ca_pem="CA", ssl_certificate_pem="CERT", ssl_key_pem="KEY"
    )

    settings = librdkafka_settings(address)

    assert (settings["ssl.ca.pem"], settings["ssl.certificate.pem"], settings["ssl.key.pem"]) == ("CA", "CERT", "KEY")
    assert "ssl.key.password" not in settings
    assert settings["ssl.endpoint.identification.algorithm"] == "https"


def test_librdkafka_trusts_the_authorities_of_the_other_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's ``ssl``, with which copy workers connect, reads SSL_CERT_FILE, and librdkafka does not."""
    file = tmp_path / "authorities.pem"
    file.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    address = ClusterAddress(bootstrap_servers="b:1", security_protocol="SSL")

    assert librdkafka_settings(address)["ssl.ca.location"] == str(file)
    assert "ssl.ca.location" not in librdkafka_settings(replace(address, ssl_ca_pem="CA"))
    assert "ssl.ca.location" not in librdkafka_settings(replace(address, security_protocol="PLAINTEXT"))


def test_the_host_name_check_can_be_switched_off() -> None:
    address = ClusterAddress(bootstrap_servers="b:1", security_protocol="SSL", ssl_check_hostname=False)

    assert librdkafka_settings(address)["ssl.endpoint.identification.algorithm"] == "none"


def test_librdkafka_accepts_every_setting() -> None:
    address = ClusterAddress(
        bootstrap_servers="127.0.0.1:1",
        security_protocol="SASL_SSL",
        sasl_username="u",
        sasl_password="p",
        ssl_key_password="x",
    )

    client = AdminClient({**librdkafka_settings(address), "log_level": 0})

    assert client is not None  # an unknown name would have been refused


def test_librdkafka_gets_tokens_from_the_engines_own_client() -> None:
    address = ClusterAddress(
        bootstrap_servers="127.0.0.1:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_username="us",
        sasl_password="p",
        oauth_token_url="https://127.0.0.1:1/token",
        oauth_scope="a b",
        oauth_extensions=(("pool", "x"), ("cluster", "y")),
        ssl_ca_pem="CA",
    )

    settings = librdkafka_settings(address)

    assert set(settings) == {
        "bootstrap.servers",
        "security.protocol",
        "sasl.mechanism",
        "oauth_cb",
        "ssl.ca.pem",
        "ssl.endpoint.identification.algorithm",
    }
