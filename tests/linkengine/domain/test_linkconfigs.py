"""The table of link configs keeps what Confluent's clients expect of it."""

from __future__ import annotations

from linkengine.domain.linkconfigs import LINK_CONFIGS, is_connection
from linkengine.domain.linkrules import find_problems

# As recorded from Confluent Cloud: name -> (default, read-only, sensitive); "local." twins are left out.
LISTED = {
    "acl.filters": ("", False, False),
    "acl.sync.enable": ("false", False, False),
    "acl.sync.ms": ("5000", False, False),
    "auto.create.mirror.topics.enable": ("false", False, False),
    "auto.create.mirror.topics.filters": ("", False, False),
    "client.dns.lookup": ("use_all_dns_ips", False, False),
    "cluster.link.prefix": (None, False, False),
    "cluster.link.retry.timeout.ms": ("300000", True, False),
    "connection.mode": ("OUTBOUND", False, False),
    "connections.max.idle.ms": ("600000", True, False),
    "consumer.group.prefix.enable": ("false", False, False),
    "consumer.offset.group.filters": ("", False, False),
    "consumer.offset.sync.enable": ("false", False, False),
    "consumer.offset.sync.ms": ("30000", False, False),
    "link.mode": ("DESTINATION", False, False),
    "metadata.max.age.ms": ("300000", False, False),
    "num.cluster.link.fetchers": ("1", True, False),
    "replica.fetch.backoff.ms": ("1000", True, False),
    "replica.fetch.max.bytes": ("5242880", True, False),
    "replica.fetch.min.bytes": ("1", True, False),
    "replica.fetch.response.max.bytes": ("10485760", True, False),
    "replica.fetch.wait.max.ms": ("500", True, False),
    "replica.socket.receive.buffer.bytes": ("-1", False, False),
    "replica.socket.timeout.ms": ("30000", True, False),
    "request.timeout.ms": ("30000", True, False),
    "retry.backoff.ms": ("100", True, False),
    "sasl.jaas.config": (None, False, True),
    "socket.connection.setup.timeout.max.ms": ("30000", True, False),
    "socket.connection.setup.timeout.ms": ("10000", True, False),
    "ssl.cipher.suites": (None, False, False),
    "ssl.enabled.protocols": ("TLSv1.2,TLSv1.3", False, False),
    "ssl.endpoint.identification.algorithm": ("https", False, False),
    "ssl.key.password": (None, False, True),
    "ssl.keystore.certificate.chain": (None, False, True),
    "ssl.keystore.key": (None, False, True),
    "ssl.keystore.type": ("JKS", False, False),
    "ssl.protocol": ("TLSv1.3", False, False),
    "ssl.truststore.certificates": (None, False, True),
    "ssl.truststore.type": ("JKS", False, False),
    "topic.config.sync.ms": ("5000", False, False),
}


def test_names_defaults_and_marks_are_those_that_clients_know() -> None:
    ours = {name: (row.default, row.read_only, row.sensitive) for name, row in LINK_CONFIGS.items()}

    assert {name: ours[name] for name in LISTED} == LISTED


def test_names_are_sorted_and_described() -> None:
    assert list(LINK_CONFIGS) == sorted(LINK_CONFIGS)
    assert all(row.description.endswith(".") for row in LINK_CONFIGS.values())


def test_every_default_keeps_its_own_rules() -> None:
    settable = {name: row.default for name, row in LINK_CONFIGS.items() if not row.read_only}

    assert find_problems(settable) == ()


def test_the_local_side_has_the_same_security_configs() -> None:
    assert {name for name in LINK_CONFIGS if name.startswith("local.")} == {
        f"local.{name}" for name in LINK_CONFIGS if name.startswith(("security.", "sasl.", "ssl."))
    }


def test_all_that_is_sensitive_belongs_to_the_encrypted_connection() -> None:
    assert all(is_connection(name) for name, row in LINK_CONFIGS.items() if row.sensitive)
    assert is_connection("bootstrap.servers")
    assert not is_connection("link.mode")
