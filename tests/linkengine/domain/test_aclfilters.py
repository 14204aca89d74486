import json

import pytest

from linkengine.domain.acls import Acl, AclFilter, parse_acl_filters
from linkengine.domain.errors import ErrorCode, LinkEngineError


def acl(name: str = "orders", *, pattern: str = "LITERAL", operation: str = "READ", permission: str = "ALLOW") -> Acl:
    return Acl(
        resource_type="TOPIC",
        resource_name=name,
        pattern_type=pattern,
        principal="User:app",
        host="*",
        operation=operation,
        permission=permission,
    )


def document(resource: dict[str, object], access: dict[str, object] | None = None) -> str:
    return json.dumps({"aclFilters": [{"resourceFilter": resource, "accessFilter": access or {}}]})


def test_any_matches_every_acl() -> None:
    text = document({"resourceType": "any", "patternType": "any"}, {"operation": "any", "permissionType": "any"})

    [row] = parse_acl_filters(text)

    assert row == AclFilter()
    assert row.matches(acl())


@pytest.mark.parametrize(
    ("row", "matched"),
    [
        (AclFilter(resource_type="TOPIC", name="orders"), True),
        (AclFilter(resource_type="GROUP"), False),
        (AclFilter(name="order"), False),
        (AclFilter(pattern_type="PREFIXED"), False),
        (AclFilter(principal="User:other"), False),
        (AclFilter(host="10.0.0.1"), False),
        (AclFilter(operation="WRITE"), False),
        (AclFilter(permission="DENY"), False),
    ],
)
def test_each_field_of_a_filter_must_match(row: AclFilter, matched: bool) -> None:
    assert row.matches(acl()) == matched


def test_pattern_type_match_matches_every_acl_that_applies_to_the_name() -> None:
    row = AclFilter(pattern_type="MATCH", name="orders.eu")

    assert row.matches(acl("orders.eu"))
    assert row.matches(acl("orders", pattern="PREFIXED"))
    assert row.matches(acl("*"))
    assert not row.matches(acl("orders"))
    assert AclFilter(pattern_type="MATCH").matches(acl())


@pytest.mark.parametrize(
    "text",
    [
        "{",
        pytest.param("[" * 100_000, id="deep"),
        "[]",
        '{"aclFilters": {}}',
        '{"aclFilters": ["all"]}',
        document({"resourceType": "queue"}),
        document({"patternType": "suffix"}),
        document({"kind": "topic"}),
        document({"name": ""}),
        document({}, {"operation": 3}),
        '{"aclFilters": [{"resourceFilter": []}]}',
    ],
)
def test_invalid_acl_filters_are_refused_as_misconfiguration(text: str) -> None:
    with pytest.raises(LinkEngineError) as refused:
        parse_acl_filters(text)

    assert refused.value.code is ErrorCode.MISCONFIGURATION_ERROR
