"""REST API of namespaces."""

from typing import Any

import pytest

from console.models import ClusterLink
from console.tasks.clusters import guard_namespace
from linkengine import jobs
from tests.console.api.actors import DESTINATION, Boundary, Rest

pytestmark = pytest.mark.django_db
NAMESPACES = f"/api/v1/clusters/{DESTINATION}/namespaces"


def test_a_namespace_is_created_attached_detached_and_deleted(
    owner: Rest, link: ClusterLink, make_mirror: Any, boundary: Boundary, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_mirror("orders.new")
    created = owner.post(NAMESPACES, {"prefix": "orders."}).json()
    assert (created["reserved"], created["link_name"], created["replication_state"]) == (False, None, "DISCONNECTED")
    path = f"{NAMESPACES}/{created['id']}"

    attached = owner.put(f"{path}/link", {"link_name": link.name, "leader_prefix": "orders."}).json()
    assert (attached["reserved"], attached["link_name"], attached["mirrors"]) == (True, link.name, 1)
    assert attached["replication_state"] in {"CATCHING_UP", "FOLLOWING", "IN_SYNC"}
    assert owner.get(NAMESPACES).json()["data"] == [attached]

    assert owner.delete(f"{path}/link").json()["link_name"] is None
    assert owner.put(path, {"reserved": False}).json()["reserved"] is False
    assert owner.delete(path).status_code == 204
    assert owner.get(path).status_code == 200  # until its ACL is deleted on the cluster
    monkeypatch.setattr(jobs, "change_acls", lambda _address, **_: {})
    guard_namespace(namespace_id=created["id"])
    assert owner.get(path).status_code == 404
