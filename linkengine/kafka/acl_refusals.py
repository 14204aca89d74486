"""Detect a refused DescribeAcls, which librdkafka returns as an empty list.

If that list were taken as true, a source that no longer lets the link's principal see its ACLs would appear to have none, and
all synced ACLs would be removed from the destination. So an empty list counts only after the broker has confirmed it.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError
from kafka.protocol.admin import DescribeAclsRequest, DescribeAclsResponse

from linkengine.domain.addresses import ClusterAddress
from linkengine.kafka.admin_errors import translated
from linkengine.kafka.preflight import first_connection

_VERSIONS = (1, 2)


def is_empty(address: ClusterAddress, rule: Any, *, what: str) -> bool:
    """Return True if no ACL matches the AclBindingFilter; raise if the broker refuses. ``what`` completes "Failed to …"."""
    lowest, highest = _VERSIONS
    with first_connection(address) as connection:
        version = connection.version_for(DescribeAclsRequest.API_KEY, highest=highest, lowest=lowest)
        request = DescribeAclsRequest(
            version=version,
            resource_type_filter=rule.restype.value,
            resource_name_filter=rule.name,
            pattern_type_filter=rule.resource_pattern_type.value,
            principal_filter=rule.principal,
            host_filter=rule.host,
            operation=rule.operation.value,
            permission_type=rule.permission_type.value,
        )
        error_code, found = connection.request(
            request, response=DescribeAclsResponse, read=lambda response: (response.error_code, bool(response.resources))
        )
    if error_code:
        raise translated(KafkaError(error_code), what=what)
    return not found
