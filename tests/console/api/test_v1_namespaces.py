"""Namespaces over REST."""

from typing import Any

import pytest

from console.models import ClusterLink
from console.tasks.namespaces import guard_namespace
from linkengine import jobs
from tests.console.api.cast import DESTINATION, Boundary, Rest

pytestmark = pytest.mark.django_db
NAMESPACES = f"/api/v1/clusters/{DESTINATION}/namespaces"


def test_a_namespace_lives(
    owner: Rest, link: ClusterLink, make_mirror: Any, boundary: Boundary, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mirror("orders.new")
    made = owner.post(NAMESPACES, {"prefix": "orders."}).json()
    assert (made["reserved"], made["link_name"], made["replication_state"]) == (False, None, "DISCONNECTED")
    place = f"{NAMESPACES}/{made['id']}"

    attached = owner.put(f"{place}/link", {"link_name": link.name, "leader_prefix": "orders."}).json()
    assert (attached["reserved"], attached["link_name"], attached["mirrors"]) == (True, link.name, 1)
    assert attached["replication_state"] in {"CATCHING_UP", "FOLLOWING", "IN_SYNC"}
    assert owner.get(NAMESPACES).json()["data"] == [attached]

    assert owner.delete(f"{place}/link").json()["link_name"] is None
    assert owner.put(place, {"reserved": False}).json()["reserved"] is False
    assert owner.delete(place).status_code == 204
    assert owner.get(place).status_code == 200  # until the cluster has taken its rule away
    monkeypatch.setattr(jobs, "change_acls", lambda _address, **_: {})
    guard_namespace(namespace_id=made["id"])
    assert owner.get(place).status_code == 404
