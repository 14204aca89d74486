"""What librdkafka does not tell of DescribeAcls: it answers a broker's refusal with an empty list.

Taken for the truth, a source that no longer lets the link see its ACLs would have none, and all that were carried over would be
removed. So an empty list counts only once the broker has said so itself.
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
    """Tell whether no ACL matches the AclBindingFilter; raise where the broker does not tell. ``what``: "Failed to …"."""
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
            request, response=DescribeAclsResponse, read=lambda answer: (answer.error_code, bool(answer.resources))
        )
    if error_code:
        raise translated(KafkaError(error_code), what=what)
    return not found
