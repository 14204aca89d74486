"""The table of link configs has what Confluent's clients expect."""

from __future__ import annotations

import pytest

from linkengine.domain.linkconfigs import LINK_CONFIGS, LinkConfigSpec, is_connection
from linkengine.domain.linkrules import find_problems

# Permitted values, as written below: choices | joined, a range with both ends, or the kind of the value.
FLAG, JSON, NAMES, TEXT, NUMBER = "true or false", "JSON document", "names separated by commas", "text", "whole number"
EVERY = "1000..86400000"  # once a second to once a day
TLS = {
    "ssl.cipher.suites": (None, "", "nothing"),
    "ssl.enabled.protocols": ("TLSv1.2,TLSv1.3", "", "TLSv1.2,TLSv1.3|TLSv1.3,TLSv1.2"),
    "ssl.endpoint.identification.algorithm": ("https", "", TEXT),
    "ssl.key.password": (None, "secret", TEXT),
    "ssl.keystore.certificate.chain": (None, "secret", TEXT),
    "ssl.keystore.key": (None, "secret", TEXT),
    "ssl.keystore.type": ("JKS", "", "JKS|PEM"),
    "ssl.protocol": ("TLSv1.3", "", "TLSv1.3"),
    "ssl.truststore.certificates": (None, "secret", TEXT),
    "ssl.truststore.type": ("JKS", "", "JKS|PEM"),
}
SECURITY = {
    "sasl.jaas.config": (None, "secret", TEXT),
    "sasl.mechanism": ("GSSAPI", "", "GSSAPI|PLAIN|SCRAM-SHA-256|SCRAM-SHA-512|OAUTHBEARER"),
    "security.protocol": ("PLAINTEXT", "", "PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL"),
    **TLS,
}
# All that Confluent Cloud lists for a link: name -> (default, flag, what may be set). metadata.max.age.ms is read-only there;
# here it can be set, since it determines how often mirrors are created.
LISTED = {
    "acl.filters": ("", "", JSON),
    "acl.sync.enable": ("false", "", FLAG),
    "acl.sync.ms": ("5000", "", EVERY),
    "auto.create.mirror.topics.enable": ("false", "", FLAG),
    "auto.create.mirror.topics.filters": ("", "", JSON),
    "bootstrap.servers": (None, "", TEXT),
    "client.dns.lookup": ("use_all_dns_ips", "", "use_all_dns_ips|resolve_canonical_bootstrap_servers_only"),
    "cluster.link.prefix": (None, "immutable", TEXT),
    "cluster.link.retry.timeout.ms": ("300000", "", "1000..604800000"),
    "connection.mode": ("OUTBOUND", "immutable", "OUTBOUND|INBOUND"),
    "connections.max.idle.ms": ("600000", "read-only", NUMBER),
    "consumer.group.prefix.enable": ("false", "", FLAG),
    "consumer.offset.group.filters": ("", "", JSON),
    "consumer.offset.sync.enable": ("false", "", FLAG),
    "consumer.offset.sync.ms": ("30000", "", EVERY),
    "link.mode": ("DESTINATION", "immutable", "DESTINATION|SOURCE|BIDIRECTIONAL"),
    "metadata.max.age.ms": ("300000", "", EVERY),
    "num.cluster.link.fetchers": ("1", "read-only", NUMBER),
    "replica.fetch.backoff.ms": ("1000", "read-only", NUMBER),
    "replica.fetch.max.bytes": ("5242880", "read-only", NUMBER),
    "replica.fetch.min.bytes": ("1", "read-only", NUMBER),
    "replica.fetch.response.max.bytes": ("10485760", "read-only", NUMBER),
    "replica.fetch.wait.max.ms": ("500", "read-only", NUMBER),
    "replica.socket.receive.buffer.bytes": ("-1", "", "-1.."),
    "replica.socket.timeout.ms": ("30000", "read-only", NUMBER),
    "request.timeout.ms": ("30000", "read-only", NUMBER),
    "retry.backoff.ms": ("100", "read-only", NUMBER),
    "socket.connection.setup.timeout.max.ms": ("30000", "read-only", NUMBER),
    "socket.connection.setup.timeout.ms": ("10000", "read-only", NUMBER),
    "topic.config.sync.ms": ("5000", "", EVERY),
    **SECURITY,
    **{f"local.{name}": row for name, row in SECURITY.items()},
}
# Configs that its list leaves out: documented for links elsewhere, or specific to this product.
BESIDE = {
    "cluster.link.paused": ("false", "", FLAG),
    "link.rpo.objective.ms": ("-1", "", "-1..604800000 without 0"),
    "link.throughput.limit.bytes.per.second": ("-1", "", "-1.. without 0"),
    "migration.gate.enable": ("false", "", FLAG),
    "migration.gate.max.age.ms": ("900000", "", EVERY),
    "mirror.start.offset.spec": ("earliest", "", TEXT),
    "remote.link.connection.mode": (None, "immutable", "OUTBOUND|INBOUND"),
    "topic.config.sync.include": (None, "", NAMES),
    "verify.continuous.enable": ("true", "", FLAG),
    "verify.interval.ms": ("60000", "", EVERY),
    "verify.max.records.per.run": ("500000", "", "1000..100000000"),
    **{f"{side}sasl.login.callback.handler.class": (None, "", TEXT) for side in ("", "local.")},
    **{f"{side}sasl.oauthbearer.token.endpoint.url": (None, "", TEXT) for side in ("", "local.")},
}


GOOD = {
    "acl.filters": '{"aclFilters": [{"resourceFilter": {"resourceType": "any"}, "accessFilter": {}}]}',
    "auto.create.mirror.topics.filters": '{"topicFilters": [{"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}]}',
    "consumer.offset.group.filters": '{"groupFilters": [{"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}]}',
    "mirror.start.offset.spec": "latest",
}


def as_listed(row: LinkConfigSpec) -> tuple[str | None, str, str]:
    """Return a row of the product's table in the form of the tables above."""
    flags = [("read-only", row.read_only), ("secret", row.sensitive), ("immutable", row.immutable)]
    return row.default, " ".join(flag for flag, is_so in flags if is_so), values_of(row)


def values_of(row: LinkConfigSpec) -> str:
    if row.refusal:
        return "nothing"
    if row.choices:
        return "|".join(row.choices)
    if row.lowest is None and row.highest is None:
        return str(row.kind)
    limits = f"{'' if row.lowest is None else row.lowest}..{'' if row.highest is None else row.highest}"
    return limits if row.zero else f"{limits} without 0"


def test_the_table_has_the_defaults_types_ranges_and_flags_that_clients_expect() -> None:
    assert {name: as_listed(row) for name, row in LINK_CONFIGS.items()} == {**LISTED, **BESIDE}


@pytest.mark.parametrize("name", LISTED | BESIDE)
def test_types_ranges_and_flags_are_enforced(name: str) -> None:
    _, flag, values = (LISTED | BESIDE)[name]
    value, closed = GOOD.get(name) or good(values), flag == "read-only" or values == "nothing"

    assert bool(find_problems({name: value})) is closed
    assert bool(find_problems({name: value}, creating=False)) is (closed or flag == "immutable")
    assert [wrong for wrong in bad(values) if not find_problems({name: wrong})] == []


def good(values: str) -> str:
    if ".." in values:
        return values.removesuffix(" without 0").rpartition("..")[2] or "1"
    return {FLAG: "true", NUMBER: "1", NAMES: "retention.ms", TEXT: "x"}.get(values) or values.rpartition("|")[2]


def bad(values: str) -> list[str]:
    """Return values that are never accepted; none for text, which may be anything."""
    if ".." in values:
        lowest, _, highest = values.removesuffix(" without 0").partition("..")
        beyond = [str(int(highest) + 1)] if highest else []
        return ["many", "1.5", "", str(int(lowest) - 1), *beyond, *(["0"] if "without" in values else [])]
    known = {FLAG: ["yes", "TRUE", "1", ""], JSON: ["{", "[]", "{}"], NAMES: ["no.such.config"], TEXT: []}
    return known.get(values, ["neither", values.lower()])


def test_config_names_are_sorted_and_have_descriptions() -> None:
    assert list(LINK_CONFIGS) == sorted(LINK_CONFIGS)
    assert all(row.description.endswith(".") for row in LINK_CONFIGS.values())


def test_every_default_is_valid() -> None:
    settable = {name: row.default for name, row in LINK_CONFIGS.items() if not row.read_only}

    assert find_problems(settable) == ()


def test_the_local_side_has_the_same_security_configs() -> None:
    assert {name for name in LINK_CONFIGS if name.startswith("local.")} == {
        f"local.{name}" for name in LINK_CONFIGS if name.startswith(("security.", "sasl.", "ssl."))
    }


def test_all_sensitive_configs_belong_to_the_encrypted_connection() -> None:
    assert all(is_connection(name) for name, row in LINK_CONFIGS.items() if row.sensitive)
    assert is_connection("bootstrap.servers")
    assert not is_connection("link.mode")
