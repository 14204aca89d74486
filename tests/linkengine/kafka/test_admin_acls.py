"""ACLs as all brokers of a cluster show them; brokers are simulated by their encoded responses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin import DescribeAclsRequest, DescribeAclsResponse

from linkengine.domain.acls import Acl
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka import admin_acls
from linkengine.kafka.topicviews import Survey

ADDRESS = ClusterAddress(bootstrap_servers="127.0.0.1:1", security_protocol="PLAINTEXT")
VERSION = 2
READ = Acl(
    resource_type="TOPIC",
    resource_name="orders",
    pattern_type="PREFIXED",
    principal="User:app",
    host="*",
    operation="READ",
    permission="ALLOW",
)
ALTER = replace(READ, resource_type="CLUSTER", resource_name="kafka-cluster", pattern_type="LITERAL", operation="ALTER")
UNKNOWN = replace(READ, operation="UNKNOWN", permission="DENY")
_Resource = DescribeAclsResponse.DescribeAclsResource
# Kafka's numbers: resource type, pattern type, operation, permission
NUMBERS = {READ: (2, 4, 3, 3), ALTER: (4, 3, 7, 3), UNKNOWN: (2, 4, 99, 2)}


def encoded(*acls: Acl, error_code: int = 0) -> bytes:
    resources = []
    for acl in acls:
        kind, pattern, operation, permission = NUMBERS[acl]
        described = _Resource.AclDescription(
            principal=acl.principal, host=acl.host, operation=operation, permission_type=permission
        )
        resources.append(_Resource(resource_type=kind, resource_name=acl.resource_name, pattern_type=pattern, acls=[described]))
    return bytes(
        DescribeAclsResponse(
            version=VERSION, throttle_time_ms=0, error_code=error_code, error_message=None, resources=resources
        ).encode()
    )


class Brokers:
    def __init__(self, *responses: bytes, complete: bool = True) -> None:
        self.responses, self.complete, self.closed = responses, complete, False

    def survey(self) -> Survey:
        return Survey(topics={}, complete=self.complete, unlisted_brokers=set())

    def brokers(self) -> list[int]:
        return list(range(len(self.responses)))

    def call(self, broker: int, build: Callable[[Any], Any], *, response: Any, read: Callable[[Any], Any]) -> Any:
        request = build(SimpleNamespace(version_for=lambda *_, **__: VERSION))
        assert isinstance(request, DescribeAclsRequest)
        assert request.encode()
        return read(response.decode(self.responses[broker], version=VERSION))

    def close(self) -> None:
        self.closed = True


def described(monkeypatch: pytest.MonkeyPatch, brokers: Brokers) -> list[set[Acl]]:
    monkeypatch.setattr(admin_acls, "Cluster", lambda _: brokers)
    try:
        return admin_acls.describe_by_broker(ADDRESS)
    finally:
        assert brokers.closed


def test_acls_are_read_from_every_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    found = described(monkeypatch, Brokers(encoded(ALTER), encoded(READ, ALTER, UNKNOWN), encoded()))

    assert found == [{ALTER}, {READ, ALTER, UNKNOWN}, set()]


@pytest.mark.parametrize(
    ("brokers", "code"),
    [
        (Brokers(encoded(READ), complete=False), ErrorCode.TIMEOUT_ERROR),
        (Brokers(encoded(READ), encoded(error_code=31)), ErrorCode.AUTHORIZATION_ERROR),
        (Brokers(encoded(READ), encoded(error_code=54)), ErrorCode.SECURITY_DISABLED_ERROR),
    ],
    ids=["silent", "refuses", "has no authorizer"],
)
def test_missing_acl_is_unknown_while_a_broker_does_not_return_its_acls(
    monkeypatch: pytest.MonkeyPatch, brokers: Brokers, code: ErrorCode
) -> None:
    with pytest.raises(LinkEngineError) as raised:
        described(monkeypatch, brokers)

    assert raised.value.code == code
