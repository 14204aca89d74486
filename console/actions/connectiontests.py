"""Test the connection to a cluster through a worker; nothing is stored and nothing is written to the cluster.

A test connects to addresses that a user enters, and occupies a thread of a worker, so the tests of a user are limited.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from console.access import Permission, check_permission
from console.actors import Actor
from console.errors import UnavailableError, from_engine
from console.models import Cluster
from console.models.fields import seal
from console.queue import dispatch
from console.redis import rate_limit
from linkengine.domain.addresses import address_from_properties
from linkengine.domain.connectionchecks import ConnectionCheck, ConnectionRole, checks_from_json
from linkengine.domain.errors import LinkEngineError

TEST_TIMEOUT_S = 30.0  # silent brokers delay several steps, each of which has a timeout of 3 to 5 s
TESTS_AT_ONCE, TESTS_PER_S = 30, 0.5  # of a user


def check_properties(
    properties: Mapping[str, str],
    *,
    role: ConnectionRole = ConnectionRole.ANY,
    expected_cluster_id: str = "",
    other_cluster_id: str = "",
    by: Actor,
) -> tuple[ConnectionCheck, ...]:
    """Return the checklist of a connection with client properties. The caller has checked the permission to use them.

    Raises InvalidInputError for properties that cannot be read, and UnavailableError if the user starts too many tests; a
    connection that fails is a row of the checklist.
    """
    count_test(by=by)
    try:
        address_from_properties(properties)
        rows = dispatch.call(
            "check_connection",
            timeout_s=TEST_TIMEOUT_S,
            sealed=seal(dict(properties)),
            role=str(role),
            expected_cluster_id=expected_cluster_id,
            other_cluster_id=other_cluster_id,
        )
    except LinkEngineError as error:
        raise from_engine(error, field="bootstrap.servers") from error
    return checks_from_json(rows)


def check_registered(
    *, cluster: Cluster, role: ConnectionRole = ConnectionRole.ANY, other_cluster_id: str = "", by: Actor
) -> tuple[ConnectionCheck, ...]:
    """Return the checklist of a registered cluster; the same permission as for a refresh, which connects as well."""
    check_permission(by, Permission.VIEW, cluster=cluster)
    return check_properties(
        cluster.properties, role=role, expected_cluster_id=cluster.cluster_id, other_cluster_id=other_cluster_id, by=by
    )


def count_test(*, by: Actor) -> None:
    """Count a test, or a list of a source, of a user; raise UnavailableError if there were too many."""
    wait_s = rate_limit.take(f"connection-test:{by.name}", per_s=TESTS_PER_S, burst=TESTS_AT_ONCE)
    if wait_s:
        raise UnavailableError(
            f"You have started too many connection tests. Nothing was sent. Try again in {math.ceil(wait_s)} s.",
            code="TOO_MANY_TESTS",
        )
