"""REST API of offset lookups by time and of consumer group resets."""

from typing import Any

import pytest

from console.models import AuditEvent, Cluster, MirrorTopic, RoleBinding
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.states import BECOMING, MirrorState
from tests.console.api.actors import DESTINATION, ORDERS, Rest
from tests.console.api.brokers import TIMED, SmallCluster
from tests.linkengine.jobs.test_group_names import NAMES

pytestmark = pytest.mark.django_db
BY_TIME, RESETS = f"{ORDERS}/offsets-for-time", f"{ORDERS}/group-resets"
BODY = {"consumer_group_id": "readers", "offsets": [{"partition": 0, "offset": 7}]}


def test_offsets_are_looked_up_by_time(owner: Rest, orders: MirrorTopic, cluster: SmallCluster) -> None:
    response = owner.get(f"{BY_TIME}?timestamp_ms=1700000000000&from=0:3&from=2:99")

    assert response.status_code == 200
    assert response.json() == {"timestamp_ms": 1_700_000_000_000, "is_complete": True, "data": [TIMED]}
    requested = {"topic": "orders", "timestamp_ms": 1_700_000_000_000, "positions": [[0, 3], [2, 99]]}
    assert cluster.queries == [("offsets_for_time", requested)]


def test_an_incomplete_lookup_is_marked(owner: Rest, orders: MirrorTopic, cluster: SmallCluster) -> None:
    cluster.timed = [[TIMED, {**TIMED, "partition": 1, "offset": None, "record_timestamp_ms": None, "is_complete": False}]]

    response = owner.get(f"{BY_TIME}?timestamp_ms=0").json()

    assert response["is_complete"] is False
    assert response["data"][1]["offset"] is None


@pytest.mark.parametrize("query", ["", "timestamp_ms=", "timestamp_ms=-1", "timestamp_ms=yesterday", "timestamp_ms=1&from=0"])
def test_malformed_query_parameters_are_400(owner: Rest, orders: MirrorTopic, cluster: SmallCluster, query: str) -> None:
    assert owner.get(f"{BY_TIME}?{query}").status_code == 400
    assert cluster.queries == []


@pytest.mark.parametrize("state", sorted(BECOMING))
def test_offsets_of_a_topic_that_is_becoming_a_mirror_are_refused(
    owner: Rest, make_mirror: Any, cluster: SmallCluster, state: MirrorState
) -> None:
    make_mirror("orders", state)

    for response in (owner.get(f"{BY_TIME}?timestamp_ms=0"), owner.post(RESETS, BODY)):
        assert response.status_code == 400
        assert "is not a mirror topic yet" in response.json()["message"]
    assert cluster.queries == []


def test_a_reader_may_look_up_offsets_but_not_reset_groups(reader: Rest, orders: MirrorTopic, cluster: SmallCluster) -> None:
    assert reader.get(f"{BY_TIME}?timestamp_ms=0").status_code == 200
    refused = reader.post(RESETS, {**BODY, "execute": True})

    assert refused.status_code == 403
    assert "manage consumer groups" in refused.json()["message"]
    assert [question for question, _ in cluster.queries] == ["offsets_for_time"]


def test_a_stranger_sees_no_mirror(stranger: Rest, orders: MirrorTopic) -> None:
    assert stranger.get(f"{BY_TIME}?timestamp_ms=0").status_code == 404
    assert stranger.post(RESETS, BODY).status_code == 404


def test_a_reset_needs_a_role_on_the_group(
    reader: Rest, orders: MirrorTopic, destination: Cluster, cluster: SmallCluster
) -> None:
    role = RoleBinding.Role.DEVELOPER_MANAGE
    RoleBinding.objects.update(role=role, environment=None, cluster=destination, resource_type="Topic", resource_name="orders")
    assert reader.post(RESETS, BODY).status_code == 403

    binding = RoleBinding.objects.get()
    binding.pk, binding.resource_type, binding.resource_name = None, "Group", "readers"
    binding.save()
    assert reader.post(RESETS, BODY).status_code == 200


def test_a_reset_is_previewed_unless_execute_is_true(owner: Rest, orders: MirrorTopic, cluster: SmallCluster) -> None:
    shown = owner.post(RESETS, BODY).json()
    assert (shown["executed"], shown["data"][0]["is_written"]) == (False, False)
    assert not AuditEvent.objects.filter(action="ResetGroup").exists()

    done = owner.post(RESETS, {**BODY, "execute": True}).json()

    assert (done["executed"], done["consumer_group_id"], done["data"][0]["is_written"]) == (True, "readers", True)
    row = AuditEvent.objects.get(action="ResetGroup")
    assert row.resource == f"cluster/{DESTINATION}/link/from-source/mirror/orders/group/readers"
    assert row.detail["partitions"] == done["data"]
    requested = {"topic": "orders", "group_id": "readers", "offsets": [[0, 7]]}
    assert cluster.queries == [
        ("reset_group", {**requested, "execute": False}),
        ("reset_group", {**requested, "execute": True}),
    ]


def test_a_refused_reset_is_audited(owner: Rest, orders: MirrorTopic, cluster: SmallCluster) -> None:
    cluster.error = LinkEngineError(ErrorCode.ILLEGAL_STATE, "Consumer group 'readers' has active members.")

    response = owner.post(RESETS, {**BODY, "execute": True})

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)
    assert AuditEvent.objects.get(action="ResetGroup").result == "FAILURE"


@pytest.mark.parametrize("name", NAMES)
def test_a_group_with_any_name_can_be_reset(owner: Rest, orders: MirrorTopic, cluster: SmallCluster, name: str) -> None:
    response = owner.post(RESETS, {**BODY, "consumer_group_id": name, "execute": True})

    assert (response.status_code, response.json()["consumer_group_id"]) == (200, name)
    assert cluster.queries[0][1]["group_id"] == name
    assert "\0" not in AuditEvent.objects.get(action="ResetGroup").resource


@pytest.mark.parametrize(
    "changes",
    [{"offsets": []}, {"offsets": [{"partition": -1, "offset": 0}]}, {"offsets": [{"partition": 0}]}, {"execute": "yes"}],
)
def test_an_invalid_body_is_refused(owner: Rest, orders: MirrorTopic, cluster: SmallCluster, changes: Any) -> None:
    assert owner.post(RESETS, {**BODY, **changes}).status_code in (400, 422)
    assert cluster.queries == []
