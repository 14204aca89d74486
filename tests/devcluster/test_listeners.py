from pathlib import Path

from devcluster.listeners import EXTRA_LISTENERS, jvm_flags, listener_properties, listener_security
from devcluster.tls import certificates_in, write_certificates

KNOWN = {
    "listeners": "CLIENT://127.0.0.1:1",
    "advertised.listeners": "CLIENT://127.0.0.1:1",
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT",
    "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
}


def test_each_additional_listener_has_its_own_settings(tmp_path: Path) -> None:
    ports = {listener: 10 + number for number, listener in enumerate(EXTRA_LISTENERS)}

    settings = listener_properties(ports, certificates=certificates_in(tmp_path), known=KNOWN, jwks_url="http://k/jwks")

    assert settings["listeners"] == (
        "CLIENT://127.0.0.1:1,TLS://127.0.0.1:10,MTLS://127.0.0.1:11,PASSWORDS://127.0.0.1:12,TOKENS://127.0.0.1:13"
    )
    assert str(settings["listener.security.protocol.map"]).endswith("TLS:SSL,MTLS:SSL,PASSWORDS:SASL_SSL,TOKENS:SASL_SSL")
    assert settings["listener.name.mtls.ssl.client.auth"] == "required"
    assert settings["listener.name.passwords.sasl.enabled.mechanisms"] == "PLAIN"
    assert settings["listener.name.tokens.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"] == "http://k/jwks"


def test_only_mutual_tls_clients_have_a_certificate(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    certificates = certificates_in(tmp_path)

    mutual = listener_security("MTLS", certificates=certificates)

    assert "PRIVATE KEY" in mutual["ssl.keystore.key"]
    assert mutual["ssl.keystore.certificate.chain"].startswith("-----BEGIN CERTIFICATE-----")
    assert "ssl.keystore.key" not in listener_security("TLS", certificates=certificates)


def test_jvm_flags_allow_the_jwks_url() -> None:
    assert jvm_flags("") == []
    assert jvm_flags("http://k/jwks") == ["-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=http://k/jwks"]
