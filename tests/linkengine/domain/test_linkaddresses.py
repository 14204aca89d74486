"""Whose security a link uses to reach its source."""

from __future__ import annotations

import pytest

from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linkaddresses import source_properties, uses_registered_security

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


@pytest.mark.parametrize(
    "given",
    [
        OWN,
        {**TERRAFORM, "bootstrap.servers": "SASL_SSL://other:9093"},  # another listener is taken at its word
        {"bootstrap.servers": "other:9094", "security.protocol": "PLAINTEXT"},
        {**TERRAFORM, "bootstrap.servers": "one:9092,other:9093"},
    ],
)
def test_security_that_can_work_is_used_as_given(given: dict[str, str]) -> None:
    assert source_properties(given, REGISTERED) == given
    assert not uses_registered_security(given, REGISTERED)


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
def test_the_registered_security_stands_in_for_what_cannot_work(given: dict[str, str]) -> None:
    found = source_properties(given, REGISTERED)

    assert found["sasl.jaas.config"] == "registered"
    assert found["security.protocol"] == "SASL_PLAINTEXT"
    assert found["bootstrap.servers"] == ("one:9092" if given else "one:9092,two:9092")
    assert uses_registered_security(given, REGISTERED)


@pytest.mark.parametrize("servers", ["other:9092", "one:9092,other:9092", "SASL_SSL://one:9092, X://other:9092", "one:9093"])
@pytest.mark.parametrize("protocol", [{}, {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}], ids=["none", "half"])
def test_registered_credentials_are_not_sent_to_an_address_that_is_not_registered(
    servers: str, protocol: dict[str, str]
) -> None:
    with pytest.raises(LinkEngineError, match="not an address of the registered source cluster") as caught:
        source_properties({"bootstrap.servers": servers, **protocol}, REGISTERED)
    assert caught.value.code == ErrorCode.MISCONFIGURATION_ERROR


def test_an_unregistered_source_is_reached_as_given() -> None:
    assert source_properties(TERRAFORM, None) == TERRAFORM
    assert not uses_registered_security({}, None)


def test_properties_of_the_local_side_and_other_configs_are_left_out() -> None:
    given = {**OWN, "local.sasl.jaas.config": "x", "acl.sync.ms": "1000"}
    assert source_properties(given, REGISTERED) == OWN
