"""Who may read which part of the audit."""

from __future__ import annotations

import pytest

from console import audit
from console.actors import SYSTEM, Actor
from console.errors import DeniedError
from console.models import Cluster, ClusterLink
from console.queries.audit import list_events
from tests.console.conftest import NOW, MakeActor


@pytest.fixture(autouse=True)
def events(link: ClusterLink) -> None:
    for resource in ("cluster/destination-id/link/west-to-east", "cluster/source-id", "organization/Acme"):
        audit.record(by=SYSTEM, action="Change", resource=resource, now=NOW)


def seen(by: Actor, **filters: str) -> list[str]:
    return [one.resource for one in list_events(by=by, **filters)]  # type: ignore[arg-type]


def test_a_cluster_admin_reads_the_audit_of_its_cluster(make_actor: MakeActor, source: Cluster) -> None:
    admin = make_actor("admin", "CloudClusterAdmin", cluster=source)
    audit.record(by=admin, action="Mine", resource="api-key/X", now=NOW)

    assert sorted(seen(admin)) == ["api-key/X", "cluster/source-id"]


def test_an_environment_admin_reads_all_of_its_clusters(owner: Actor) -> None:
    assert len(seen(owner)) == 2


def test_a_reader_is_refused_and_that_is_noted(colleague: Actor) -> None:
    with pytest.raises(DeniedError):
        list_events(by=colleague)
    assert seen(SYSTEM)[0] == "this installation"


def test_events_are_searched_and_filtered() -> None:
    assert seen(SYSTEM, search="acme") == ["organization/Acme"]
    assert seen(SYSTEM, resource="cluster/destination-id") == ["cluster/destination-id/link/west-to-east"]
    assert len(seen(SYSTEM, action="Change", result="SUCCESS")) == 3
    assert seen(SYSTEM, result="DENIED") == []
