"""Validation of link configs."""

from __future__ import annotations

import pytest

from linkengine.domain.errors import ErrorCode
from linkengine.domain.linkrules import (
    AUTO_CREATE,
    AUTO_CREATE_FILTERS,
    LinkConfigError,
    check_configs,
    with_canonical_names,
    with_consequences,
)

FILTERS = '{"topicFilters": [{"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}]}'
TERRAFORM = {
    "bootstrap.servers": "SASL_SSL://broker:9092",
    "connection.mode": "OUTBOUND",
    "link.mode": "DESTINATION",
    "sasl.jaas.config": 'PlainLoginModule required username="k" password="s";',
    "sasl.mechanism": "PLAIN",
    "security.protocol": "SASL_SSL",
    "remote.link.connection.mode": "INBOUND",
    "local.security.protocol": "SASL_SSL",
}


def test_the_configs_sent_by_terraform_are_accepted() -> None:
    check_configs(TERRAFORM)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("no.such.config", "1", "is not a config of a cluster link"),
        ("request.timeout.ms", "1", "is read-only"),
        ("ssl.enabled.protocols", "TLSv1.3", "must be one of TLSv1.2,TLSv1.3"),
        ("local.ssl.cipher.suites", "TLS_AES_128_GCM_SHA256", "OpenSSL's default suites are used"),
        ("link.throughput.limit.bytes.per.second", "0", "cannot be 0"),
        ("acl.sync.ms", "5s", "must be a whole number"),
        ("acl.sync.ms", "999", "at least 1000"),
        ("acl.sync.ms", "86400001", "at most 86400000"),
        ("acl.sync.enable", "yes", "true or false"),
        ("acl.filters", "{", "not valid JSON"),
        ("security.protocol", "TLS", "must be one of PLAINTEXT, SSL"),
        ("cluster.link.prefix", "a-prefix-too-long", "up to 12 letters"),
        ("cluster.link.prefix", "A.b-c_1234567", "up to 12 letters"),
        ("cluster.link.prefix", "west/", "up to 12 letters"),
        ("cluster.link.prefix", "us ", "up to 12 letters"),
        ("cluster.link.prefix", "us\n", "up to 12 letters"),
        ("cluster.link.prefix", "é", "up to 12 letters"),
        ("cluster.link.prefix", "[a]", "up to 12 letters"),
        ("topic.config.sync.include", "retention.ms,compression.typ", "compression.typ: not a config that can be synced"),
        ("cluster.link.retry.timeout.ms", "999", "at least 1000"),
        ("acl.sync.ms", "", "must be a whole number"),
        ("acl.sync.enable", "", "true or false"),
        ("auto.create.mirror.topics.filters", "[]", 'must be an object with the list "topicFilters"'),
        ("auto.create.mirror.topics.filters", '{"topicFilters": []}', "at least one filter"),
        ("auto.create.mirror.topics.filters", '{"topicFilters": [{"name": "a"}]}', 'row 1 needs a "patternType"'),
        ("consumer.offset.group.filters", '{"topicFilters": []}', 'the list "groupFilters"'),
        ("mirror.start.offset.spec", "yesterday", "must be earliest, latest, a time"),
    ],
)
def test_an_invalid_value_is_refused_with_a_message(name: str, value: str, words: str) -> None:
    with pytest.raises(LinkConfigError, match=words) as caught:
        check_configs({name: value})
    assert (caught.value.name, caught.value.code) == (name, ErrorCode.MISCONFIGURATION_ERROR)


@pytest.mark.parametrize(
    ("configs", "name"),
    [
        ({"cluster.link.prefix": "w.", "acl.sync.enable": "true"}, "acl.sync.enable"),
        ({"consumer.group.prefix.enable": "true"}, "consumer.group.prefix.enable"),
        ({"link.mode": "SOURCE", "connection.mode": "INBOUND"}, "connection.mode"),
        ({"link.mode": "SOURCE", "cluster.link.paused": "true"}, "cluster.link.paused"),
        ({AUTO_CREATE: "true"}, AUTO_CREATE),
        ({AUTO_CREATE: "false", AUTO_CREATE_FILTERS: FILTERS}, AUTO_CREATE_FILTERS),
        (
            {"consumer.group.prefix.enable": "true", "cluster.link.prefix": "w.", "link.mode": "BIDIRECTIONAL"},
            "consumer.group.prefix.enable",
        ),
    ],
)
def test_conflicting_values_are_refused(configs: dict[str, str], name: str) -> None:
    with pytest.raises(LinkConfigError) as caught:
        check_configs(configs)
    assert caught.value.name == name


def test_a_change_is_checked_against_the_links_present_values() -> None:
    with pytest.raises(LinkConfigError, match="prefix"):
        check_configs({"acl.sync.enable": "true"}, present={"cluster.link.prefix": "w."})
    check_configs({"acl.sync.enable": "true"}, present={})


def test_switching_auto_create_off_clears_its_filters() -> None:
    for value in ("false", None):
        assert with_consequences({AUTO_CREATE: value}) == {AUTO_CREATE: value, AUTO_CREATE_FILTERS: None}
    assert with_consequences({AUTO_CREATE: "true"}) == {AUTO_CREATE: "true"}


def test_filters_can_be_set_before_auto_create_is_enabled_but_not_removed_while_it_is() -> None:
    check_configs({AUTO_CREATE_FILTERS: FILTERS}, present={})
    check_configs({AUTO_CREATE: "true"}, present={AUTO_CREATE_FILTERS: FILTERS})
    with pytest.raises(LinkConfigError, match="at least one filter"):
        check_configs({AUTO_CREATE_FILTERS: None}, present={AUTO_CREATE: "true", AUTO_CREATE_FILTERS: FILTERS})


def test_immutable_configs_can_only_be_set_at_creation() -> None:
    check_configs({"cluster.link.prefix": "w."})
    with pytest.raises(LinkConfigError, match="only be set when the link is created"):
        check_configs({"cluster.link.prefix": "w."}, present={})


@pytest.mark.parametrize("prefix", ["", "us_", "A.b-c_123456"])
def test_a_prefix_of_up_to_twelve_legal_characters_is_accepted(prefix: str) -> None:
    check_configs({"cluster.link.prefix": prefix})


def test_an_empty_value_means_the_default() -> None:
    check_configs({"acl.sync.ms": None, "acl.filters": ""})


def test_the_documented_alias_of_the_prefix_is_accepted() -> None:
    assert with_canonical_names({"link.prefix": "us.", "link.mode": "SOURCE"}) == {
        "cluster.link.prefix": "us.",
        "link.mode": "SOURCE",
    }
    assert with_canonical_names({"link.prefix": "us.", "cluster.link.prefix": "us."}) == {"cluster.link.prefix": "us."}
    with pytest.raises(LinkConfigError, match=r"link\.prefix is an alias of cluster\.link\.prefix"):
        with_canonical_names({"link.prefix": "us.", "cluster.link.prefix": "eu."})


def test_any_topic_config_can_be_synced_and_the_retry_timeout_can_be_set() -> None:
    check_configs({"topic.config.sync.include": "retention.ms, min.insync.replicas,segment.bytes"})
    check_configs({"cluster.link.retry.timeout.ms": "60000"})
