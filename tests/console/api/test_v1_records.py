"""REST API of the record at one offset on both sides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from console.models import AuditEvent, GapRange, MirrorTopic, RoleBinding
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.record_views import Presence
from linkengine.domain.states import GapReason, MirrorState
from tests.console.api.actors import DESTINATION, NOW, ORDERS, Rest
from tests.console.api.brokers import SmallCluster, side

pytestmark = pytest.mark.django_db
RECORDS = f"{ORDERS}/records"
AT_SEVEN = f"{RECORDS}?partition=0&offset=7"


def test_two_equal_records(owner: Rest, orders: MirrorTopic, cluster: SmallCluster) -> None:
    response = owner.get(AT_SEVEN)

    assert response.status_code == 200
    found = response.json()
    assert (found["verdict"], found["filler_reason"], found["differing"], found["next_offset"]) == ("EQUAL", None, [], 8)
    assert found["source"] == found["mirror"]
    assert found["source"]["record"]["value"] == {"size": 4, "base64": "c2FtZQ==", "is_cut": False}
    assert found["source"]["batch"]["compression"] == "zstd"
    requested = {"mirror_pk": orders.pk, "partition": 0, "offset": 7, "timestamp_ms": None}
    assert cluster.queries == [("compare_record", requested)]


def test_records_that_differ(owner: Rest, orders: MirrorTopic, cluster: SmallCluster) -> None:
    cluster.sides, cluster.differing = (side(b"one"), side(b"other")), ("value",)

    found = owner.get(AT_SEVEN).json()

    assert (found["verdict"], found["differing"]) == ("DIFFERENT", ["value"])


def test_filler_has_the_reason_of_the_gap_ledger(owner: Rest, orders: MirrorTopic, cluster: SmallCluster) -> None:
    cluster.sides = (side(None, Presence.BEFORE_START), side(None, Presence.TRANSACTION_MARKER, marker="COMMIT"))
    rows = {"mirror": orders, "noted_at": NOW}
    GapRange.objects.create(partition=0, start=7, end=8, filled=1, reason=GapReason.LOST, **rows)
    GapRange.objects.create(partition=1, start=7, end=8, filled=1, reason=GapReason.HEAD, **rows)
    GapRange.objects.create(partition=0, start=8, end=9, filled=1, reason=GapReason.ABORTED, **rows)

    found = owner.get(AT_SEVEN).json()

    assert (found["verdict"], found["filler_reason"]) == ("FILLER", "LOST")
    assert (found["mirror"]["record"], found["mirror"]["marker"]) == (None, "COMMIT")


def test_offset_behind_a_stop_is_not_compared(owner: Rest, make_mirror: Any, cluster: SmallCluster) -> None:
    mirror = make_mirror("orders", MirrorState.STOPPED)
    mirror.partitions.update(stopped_end=7)
    cluster.differing = ("value",)

    assert owner.get(AT_SEVEN).json()["verdict"] == "NOT_COMPARABLE"

    mirror.partitions.update(stopped_end=8)
    assert owner.get(AT_SEVEN).json()["verdict"] == "DIFFERENT"


@pytest.mark.parametrize("role", list(RoleBinding.Role))
def test_role_decides_who_may_read_records(reader: Rest, orders: MirrorTopic, cluster: SmallCluster, role: str) -> None:
    RoleBinding.objects.filter(role=RoleBinding.Role.DEVELOPER_READ).update(role=role)
    may = role not in (RoleBinding.Role.DEVELOPER_READ, RoleBinding.Role.OPERATOR, RoleBinding.Role.AUDITOR)

    response = reader.get(AT_SEVEN)

    assert response.status_code == (200 if may else 403)
    assert len(cluster.queries) == may
    row = AuditEvent.objects.get(action__in=("ReadRecord", "READ_RECORDS"))
    assert (row.action, row.result) == (("ReadRecord", "SUCCESS") if may else ("READ_RECORDS", "DENIED"))


def test_stranger_sees_no_mirror(stranger: Rest, orders: MirrorTopic, cluster: SmallCluster) -> None:
    assert stranger.get(AT_SEVEN).status_code == 404
    assert cluster.queries == []


def test_each_read_is_audited_without_contents(owner: Rest, orders: MirrorTopic, cluster: SmallCluster) -> None:
    cluster.sides = (side(b"a-secret"), side(b"a-secret"))

    assert "YS1zZWNyZXQ=" in owner.get(f"{RECORDS}?partition=0&timestamp_ms=1700000000000").content.decode()

    row = AuditEvent.objects.get(action="ReadRecord")
    assert row.resource == f"cluster/{DESTINATION}/link/from-source/mirror/orders"
    assert row.detail == {"partition": 0, "timestamp_ms": 1_700_000_000_000, "offset": 7}
    assert "secret" not in json.dumps(row.detail)


def test_failed_comparison_of_a_record_is_audited(owner: Rest, orders: MirrorTopic, cluster: SmallCluster) -> None:
    cluster.error = LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, "There is no record since then.")

    response = owner.get(f"{RECORDS}?partition=0&timestamp_ms=1")

    assert (response.status_code, "no record since then" in response.json()["message"]) == (400, True)
    row = AuditEvent.objects.get(action="ReadRecord")
    assert (row.result, row.detail) == (
        "FAILURE",
        {"partition": 0, "timestamp_ms": 1, "code": ErrorCode.INVALID_REQUEST_ERROR},
    )


@pytest.mark.parametrize(
    "query",
    [
        "",
        "offset=7",
        "partition=0",
        "partition=0&offset=7&timestamp_ms=1",
        "partition=-1&offset=7",
        "partition=0&offset=-1",
        "partition=9&offset=7",
        "partition=0&offset=9223372036854775808",
        "partition=0&offset=%D9%A7",
    ],
)
def test_wrong_query_parameters_are_400(owner: Rest, orders: MirrorTopic, cluster: SmallCluster, query: str) -> None:
    assert owner.get(f"{RECORDS}?{query}").status_code == 400
    assert cluster.queries == []


def test_mirror_that_is_not_set_up_has_no_records(owner: Rest, make_mirror: Any, cluster: SmallCluster) -> None:
    make_mirror("orders", MirrorState.PENDING_SETUP, lags=())

    response = owner.get(AT_SEVEN)

    assert (response.status_code, "not set up yet" in response.json()["message"]) == (400, True)
    assert cluster.queries == []
