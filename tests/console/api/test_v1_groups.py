"""REST API of synced consumer groups, ACLs and clamped offsets."""

from typing import Any

import pytest

from console.models import ClampedOffset, ClusterLink, GroupOffset, SyncedAcl, SyncedGroup
from tests.console.api.actors import DESTINATION, NOW, Rest

pytestmark = pytest.mark.django_db
LINK = f"/api/v1/clusters/{DESTINATION}/links/from-source"


def group(link: ClusterLink, name: str, status: str, message: str = "") -> SyncedGroup:
    return SyncedGroup.objects.create(
        link=link, name=name, destination_name=name, kind="classic", status=status, message=message, listed_at=NOW
    )


def acl(link: ClusterLink, name: str, status: str, *, is_conflict: bool = False) -> SyncedAcl:
    words = {"pattern_type": "LITERAL", "principal": "User:app", "host": "*", "operation": "READ", "permission": "ALLOW"}
    return SyncedAcl.objects.create(
        link=link, resource_type="TOPIC", resource_name=name, status=status, is_conflict=is_conflict, since=NOW, **words
    )


def test_groups_are_listed_with_offsets_and_reasons(owner: Rest, make_mirror: Any) -> None:
    mirror = make_mirror("orders")
    app = group(mirror.link, "app", "SYNCED")
    group(mirror.link, "audit", "EXCLUDED", "The filters do not choose it.")
    GroupOffset.objects.create(
        group=app, mirror=mirror, partition=1, source_offset=9, destination_offset=7, target=9, outcome="IN_USE"
    )

    response = owner.get(f"{LINK}/consumer-groups").json()

    assert response["totals"] == [{"status": "SYNCED", "count": 1}, {"status": "EXCLUDED", "count": 1}]
    first, second = response["data"]
    assert (first["name"], first["type"], second["message"]) == ("app", "classic", "The filters do not choose it.")
    assert first["offsets"] == [
        {
            "mirror_topic_name": "orders",
            "partition": 1,
            "source_offset": 9,
            "destination_offset": 7,
            "target": 9,
            "outcome": "IN_USE",
            "message": "",
        }
    ]
    excluded = owner.get(f"{LINK}/consumer-groups?status=EXCLUDED").json()["data"]
    assert [row["name"] for row in excluded] == ["audit"]
    assert owner.get(f"{LINK}/consumer-groups?status=ASLEEP").status_code == 400


def test_synced_acls_are_listed_and_filtered_by_conflict(owner: Rest, make_mirror: Any) -> None:
    link = make_mirror("orders").link
    acl(link, "orders", "CREATED")
    acl(link, "payments", "ALREADY_THERE", is_conflict=True)

    response = owner.get(f"{LINK}/acls").json()
    conflicts = owner.get(f"{LINK}/acls?conflicts=true").json()

    assert response["conflicts"] == 1
    assert [row["resource_name"] for row in response["data"]] == ["orders", "payments"]
    assert [row["status"] for row in conflicts["data"]] == ["ALREADY_THERE"]
    assert owner.get(f"{LINK}/acls?conflicts=maybe").status_code == 400


def test_offsets_that_a_stop_clamped_are_listed(owner: Rest, make_mirror: Any) -> None:
    mirror = make_mirror("orders")
    ClampedOffset.objects.create(
        mirror=mirror, group="app", partition=0, source_offset=95, before=80, after=90, stopping_since=NOW, at=NOW
    )

    (row,) = owner.get(f"{LINK}/mirrors/orders/clamped-offsets").json()["data"]

    assert (row["group"], row["source_offset"], row["before"], row["after"]) == ("app", 95, 80, 90)
