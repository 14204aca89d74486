"""REST API of ACLs: search, create, delete, permissions, refusals."""

from typing import Any

import pytest

from console.models import AuditEvent, Cluster, RoleBinding
from linkengine.domain.states import MirrorState
from tests.console.api.actors import DESTINATION, Rest
from tests.console.api.brokers import ACL, SmallCluster

pytestmark = pytest.mark.django_db
EXACTLY = "resource_type=TOPIC&resource_name=plain&pattern_type=LITERAL&operation=READ&permission=ALLOW"


@pytest.fixture
def acls(destination: Cluster) -> str:
    return f"/kafka/v3/clusters/{destination.cluster_id}/acls"


def shown(acls: str) -> dict[str, Any]:
    return {"kind": "KafkaAcl", "metadata": {"self": f"http://testserver{acls}"}, "cluster_id": DESTINATION, **ACL}


def test_acls_are_searched_with_any_by_default(owner: Rest, acls: str, cluster: SmallCluster) -> None:
    response = owner.get(acls)

    assert response.status_code == 200
    assert response.json() == {
        "kind": "KafkaAclList",
        "metadata": {"self": f"http://testserver{acls}", "next": None},
        "data": [shown(acls)],
    }
    words = dict.fromkeys(("resource_type", "pattern_type", "operation", "permission"), "ANY")
    assert cluster.queries == [("acls", {"wanted": {**words, "resource_name": None, "principal": None, "host": None}})]


def test_acls_are_searched_by_all_criteria(owner: Rest, acls: str, cluster: SmallCluster) -> None:
    owner.get(f"{acls}?{EXACTLY}&principal=User:app&host=*")

    assert cluster.queries == [("acls", {"wanted": ACL})]


def test_an_unknown_acl_operation_is_refused(owner: Rest, acls: str) -> None:
    response = owner.get(f"{acls}?operation=DANCE")

    assert (response.status_code, response.json()["error_code"]) == (400, 400)


def test_an_acl_is_created(owner: Rest, acls: str, cluster: SmallCluster) -> None:
    response = owner.post(acls, ACL)

    assert (response.status_code, response.content) == (201, b"")
    assert cluster.queries == [("create_acls", {"rules": [ACL]})]
    assert AuditEvent.objects.get(action="CreateAcls").detail == {"rules": [ACL]}


def test_acls_are_created_in_a_batch(owner: Rest, acls: str, cluster: SmallCluster) -> None:
    response = owner.post(f"{acls}:batch", {"data": [ACL, {**ACL, "operation": "WRITE"}]})

    assert (response.status_code, response.content) == (201, b"")
    assert [rule["operation"] for rule in cluster.queries[0][1]["rules"]] == ["READ", "WRITE"]


def test_deleting_acls_returns_them_and_protects_the_acls_of_mirrors(
    owner: Rest, acls: str, cluster: SmallCluster, make_mirror: Any
) -> None:
    make_mirror("orders")
    make_mirror("old", MirrorState.STOPPED)

    response = owner.delete(f"{acls}?{EXACTLY}")

    assert response.status_code == 200
    assert response.json() == {"data": [shown(acls)]}
    assert cluster.queries[0][1]["guarded"] == ["orders"]
    assert AuditEvent.objects.filter(action="DeleteAcls", result="SUCCESS").exists()


@pytest.mark.parametrize("name", ["resource_type", "pattern_type", "operation", "permission"])
@pytest.mark.parametrize("value", [None, "UNKNOWN"])
def test_deleting_acls_needs_four_parameters(
    owner: Rest, acls: str, cluster: SmallCluster, name: str, value: str | None
) -> None:
    words = {"resource_type": "ANY", "pattern_type": "ANY", "operation": "ANY", "permission": "ANY", name: value}
    query = "&".join(f"{key}={word}" for key, word in words.items() if word)

    response = owner.delete(f"{acls}?{query}")

    assert (response.status_code, response.json()["error_code"]) == (400, 400)
    assert not cluster.queries


def test_a_reader_may_search_but_not_change_acls(reader: Rest, acls: str) -> None:
    assert reader.get(acls).status_code == 200
    for response in (reader.post(acls, ACL), reader.post(f"{acls}:batch", {"data": [ACL]}), reader.delete(f"{acls}?{EXACTLY}")):
        assert (response.status_code, response.json()["error_code"]) == (403, 40301)


def test_a_role_on_a_topic_does_not_show_acls(reader: Rest, acls: str, destination: Cluster) -> None:
    RoleBinding.objects.update(environment=None, cluster=destination, resource_type="Topic", resource_name="plain")

    assert reader.get(acls).status_code == 403
