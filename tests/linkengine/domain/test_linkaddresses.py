"""Which security a link uses to connect to its source, and which changes need the stored secrets again."""

from __future__ import annotations

import pytest

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linkrules import (
    inbound_properties,
    own_properties,
    registered_properties,
    secrets_to_repeat,
    uses_registered_security,
)

REGISTERED = {
    "bootstrap.servers": "one:9092,two:9092",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": "registered",
}
OWN = {**REGISTERED, "sasl.jaas.config": "own"}
TERRAFORM = {
    "bootstrap.servers": "SASL_SSL://one:9092",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "api-key",
}
TOKEN = "sasl.oauthbearer.token.endpoint.url"
STORED = {
    **OWN,
    "ssl.keystore.key": "private",
    "ssl.truststore.certificates": "authority",
    TOKEN: "https://tokens.test/",
}


@pytest.mark.parametrize(
    "given",
    [
        OWN,
        {**TERRAFORM, "bootstrap.servers": "SASL_SSL://other:9093"},  # another listener may have other security
        {"bootstrap.servers": "other:9094", "security.protocol": "PLAINTEXT"},
        {**TERRAFORM, "bootstrap.servers": "one:9092,other:9093"},
    ],
)
def test_a_link_with_complete_security_uses_its_own_credentials(given: dict[str, str]) -> None:
    assert not uses_registered_security(given, REGISTERED)
    assert own_properties(given) == given


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"bootstrap.servers": "one:9092"},
        {"bootstrap.servers": "ONE:9092"},
        {"bootstrap.servers": "one:9092", "security.protocol": "PLAINTEXT"},
        {"bootstrap.servers": "one:9092", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"},
        TERRAFORM,
    ],
)
def test_a_link_whose_security_cannot_work_uses_the_registered_credentials(given: dict[str, str]) -> None:
    assert uses_registered_security(given, REGISTERED)
    found = registered_properties(given, REGISTERED)

    assert found["sasl.jaas.config"] == "registered"
    assert found["security.protocol"] == "SASL_PLAINTEXT"
    assert found["bootstrap.servers"] == ("one:9092" if given else "one:9092,two:9092")


@pytest.mark.parametrize("servers", ["other:9092", "one:9092,other:9092", "SASL_SSL://one:9092, X://other:9092", "one:9093"])
@pytest.mark.parametrize("protocol", [{}, {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}], ids=["none", "half"])
def test_registered_credentials_are_not_sent_to_unregistered_addresses(servers: str, protocol: dict[str, str]) -> None:
    with pytest.raises(LinkEngineError, match="not an address of the registered source cluster") as caught:
        registered_properties({"bootstrap.servers": servers, **protocol}, REGISTERED)
    assert caught.value.code == ErrorCode.MISCONFIGURATION_ERROR


def test_trust_settings_of_a_link_are_ignored_with_registered_credentials() -> None:
    given = {"ssl.truststore.certificates": "another", "ssl.endpoint.identification.algorithm": "", TOKEN: "http://elsewhere/"}
    assert registered_properties(given, REGISTERED) == REGISTERED | {"bootstrap.servers": "one:9092,two:9092"}


def test_own_properties_leave_out_the_local_side_and_other_configs() -> None:
    given = {**OWN, "local.sasl.jaas.config": "x", "acl.sync.ms": "1000"}
    assert own_properties(given) == OWN


@pytest.mark.parametrize(
    "name",
    ["security.protocol", "sasl.mechanism", TOKEN, "ssl.truststore.certificates", "ssl.endpoint.identification.algorithm"],
)
def test_no_registered_secret_is_mixed_with_local_configs(name: str) -> None:
    registered = {
        **REGISTERED,
        "ssl.keystore.key": "private",
        "ssl.keystore.certificate.chain": "chain",
        "ssl.key.password": "p",
    }

    found = inbound_properties({f"local.{name}": "changed"}, registered)

    assert found[name] == "changed"
    assert not {"registered", "private", "chain", "p"} & set(found.values())
    assert found["bootstrap.servers"] == REGISTERED["bootstrap.servers"]


def test_an_inbound_link_uses_the_registered_connection_without_local_configs() -> None:
    assert inbound_properties(OWN, REGISTERED) == REGISTERED


@pytest.mark.parametrize("prefix", ["", "local."])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bootstrap.servers", "elsewhere:9092"),
        ("bootstrap.servers", "one:9092,two:9092,elsewhere:9092"),
        ("bootstrap.servers", None),
        ("security.protocol", "SASL_SSL"),
        ("security.protocol", "PLAINTEXT"),
        ("security.protocol", None),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.mechanism", None),
        (TOKEN, "https://elsewhere.test/"),
        (TOKEN, None),
        ("ssl.truststore.certificates", "another"),
        ("ssl.truststore.certificates", None),
        ("ssl.endpoint.identification.algorithm", ""),
    ],
)
def test_a_change_of_the_recipient_requires_every_stored_secret_again(prefix: str, name: str, value: str | None) -> None:
    stored = {prefix + key: text for key, text in STORED.items()}
    change: dict[str, str | None] = {prefix + name: value}
    jaas, key = f"{prefix}sasl.jaas.config", f"{prefix}ssl.keystore.key"

    assert secrets_to_repeat(stored, change) == ((jaas, prefix + name), (key, prefix + name))
    assert secrets_to_repeat(stored, {**change, jaas: "typed"}) == ((key, prefix + name),)
    assert secrets_to_repeat(stored, {**change, jaas: "typed", key: None}) == ()
    assert secrets_to_repeat(stored, {**change, jaas: None, key: "typed"}) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"bootstrap.servers": "one:9092,two:9092"},
        {"ssl.endpoint.identification.algorithm": "https"},
        {"ssl.endpoint.identification.algorithm": None},
        {"ssl.truststore.certificates": "authority\r\n"},
        {"sasl.jaas.config": "rotated"},
        {"sasl.jaas.config": None},
        {"local.security.protocol": "SSL"},
        {"ssl.key.password": "x"},
    ],
)
def test_a_change_that_keeps_the_recipient_requires_no_secret(changes: dict[str, str | None]) -> None:
    assert secrets_to_repeat(STORED, changes) == ()


def test_a_stored_secret_that_is_not_in_use_is_protected_too() -> None:
    """Otherwise a secret could be redirected in three steps that send nothing: SASL off, another address, SASL on."""
    assert secrets_to_repeat({**OWN, "security.protocol": "PLAINTEXT"}, {"bootstrap.servers": "elsewhere:9092"})
