"""A mirror in any error state can be failed over and deleted, on real clusters and without the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from cryptography.fernet import Fernet

from console.actors import ENGINE, SYSTEM
from console.mirrors import operation_actions, transitions
from console.mirrors.operation_actions import operate_many
from console.models import Cluster, ClusterLink, MirrorTopic, StopReport
from console.models.fields import UnreadableProperties
from console.queue import dispatch
from console.reconciling import due_tasks, plans, transition_errors
from console.tasks.mirrors import restore_source_configs, setup_mirror
from console.workflows import mirrors
from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.mirrorjobs import RefusedStep
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW
from tests.console.workflows.reversal import Drive, fresh, request_operation, states, write
from tests.console.workflows.test_shapes_of_links import link_to

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.usefixtures("copier")]
S = MirrorState
E = MirrorEvent
NOWHERE = {"bootstrap.servers": "127.0.0.1:9", "security.protocol": "PLAINTEXT"}
INBOUND = {"connection_mode": "INBOUND", "properties": {}}
LOST_KEY = UnreadableProperties(Fernet(Fernet.generate_key()).encrypt(b"{}").decode())
# Links whose stored properties are not an address, by the reason.
UNUSABLE: Mapping[str, dict[str, Any]] = {
    "no properties": {"properties": {}},
    "a refused property": {"properties": {**NOWHERE, "ssl.keystore.location": "/etc/key.jks"}},
    "a former server": {"properties": {"bootstrap.servers": "former:9092"}, "uses_cluster_credentials": True},
    "partial local configs": INBOUND,
    "no source side": INBOUND,
    "a lost key": {"properties": LOST_KEY},
    "a lost key of the cluster": {"properties": {}, "uses_cluster_credentials": True},
}


def make_unusable(link: ClusterLink, why: str) -> None:
    """Change a stored link so that the address of its source cannot be built."""
    assert link.source is not None
    ClusterLink.objects.filter(pk=link.pk).update(**UNUSABLE[why])
    if why == "partial local configs":
        link_to(link.source, link.destination, link.name, mode="SOURCE", properties={"local.security.protocol": "SASL_SSL"})
    if why == "a lost key of the cluster":
        Cluster.objects.filter(pk=link.source.pk).update(properties=LOST_KEY)
    with pytest.raises(LinkEngineError):
        plans.source_address(ClusterLink.objects.select_related("source", "destination").get(pk=link.pk))


@pytest.mark.parametrize(
    ("event", "state", "why"),
    [
        (E.SOURCE_LOST, S.SOURCE_UNAVAILABLE, ""),
        (E.LINK_BROKEN, S.LINK_FAILED, ""),
        (E.FATAL, S.FAILED, ""),
        (E.PROMOTE, S.PENDING_STOPPED, ""),  # permanently: the lag cannot drain
        *((E.LINK_BROKEN, S.LINK_FAILED, why) for why in UNUSABLE),
        (E.PROMOTE, S.PENDING_STOPPED, "no properties"),
    ],
)
def test_mirror_in_an_error_state_can_be_failed_over_or_deleted(
    event: E,
    state: S,
    why: str,
    new_mirror: MirrorTopic,
    destination_cluster: KafkaCluster,
    destination_admin: AdminClient,
    drive: Drive,
) -> None:
    dated = {"state": S.PENDING_SETUP, "state_since": NOW, "created_at": NOW}
    topic = new_mirror.name
    other = MirrorTopic.objects.create(link=new_mirror.link, name=f"{topic}-other", source_topic=topic, **dated)
    for mirror in (new_mirror, other):
        setup_mirror(mirror_id=mirror.pk)
        facts = {"stop_reason": "promote"} if event is E.PROMOTE else {}
        transitions.apply_event(mirror=fresh(mirror), event=event, by=ENGINE, now=NOW, **facts)
    if why:
        make_unusable(new_mirror.link, why)
    else:
        ClusterLink.objects.update(properties=NOWHERE)
    assert states(new_mirror, other) == [state, state]
    assert write(destination_cluster, topic, "too early") != [None]

    request_operation(new_mirror, E.FAILOVER)
    request_operation(other, E.DELETE)
    drive(lambda: states(new_mirror) == [S.STOPPED] and not MirrorTopic.objects.filter(pk=other.pk).exists())

    assert write(destination_cluster, topic, "open") == [None]
    assert other.name not in destination_admin.list_topics(timeout=20).topics
    assert StopReport.objects.get(mirror=new_mirror).records_not_copied is None  # the source was never seen


@pytest.mark.parametrize("why", ["no properties", "no source side"])
def test_mirrors_of_a_link_without_a_usable_address_are_failed_over_together(
    why: str,
    new_mirror: MirrorTopic,
    destination_cluster: KafkaCluster,
    drive: Drive,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operation_actions, "FEW", 3)
    monkeypatch.setattr(due_tasks, "MANY", 3)
    together: list[set[str]] = []
    stop_mirrors = jobs.stop_mirrors

    def noted(*arguments: Any, **options: Any) -> Any:
        stopped = stop_mirrors(*arguments, **options)
        together.append(set(stopped))
        return stopped

    monkeypatch.setattr(jobs, "stop_mirrors", noted)
    topic, dated = new_mirror.name, {"state": S.PENDING_SETUP, "state_since": NOW, "created_at": NOW}
    names = [f"{topic}-{number}" for number in (2, 3)]
    rows = [MirrorTopic.objects.create(link=new_mirror.link, name=name, source_topic=topic, **dated) for name in names]
    for mirror in (new_mirror, *rows):
        setup_mirror(mirror_id=mirror.pk)
    make_unusable(new_mirror.link, why)

    operate_many(link=new_mirror.link, names=[topic, *names], operation=E.FAILOVER, by=SYSTEM, now=NOW)
    drive(lambda: states(new_mirror, *rows) == [S.STOPPED] * 3)

    assert together == [{topic, *names}]
    assert [write(destination_cluster, name, "open") for name in (topic, *names)] == [[None]] * 3


def test_stopped_topic_of_a_link_without_a_usable_address_can_be_reopened_and_gets_its_configs_back(
    new_mirror: MirrorTopic, destination_cluster: KafkaCluster, drive: Drive
) -> None:
    setup_mirror(mirror_id=new_mirror.pk)
    request_operation(new_mirror, E.FAILOVER)
    drive(lambda: states(new_mirror) == [S.STOPPED])
    make_unusable(new_mirror.link, "no properties")
    here = fresh(new_mirror).link.destination.address

    jobs.close_topic(here, new_mirror.name)  # by a task that was suspended during the stop
    mirrors.reconcile_topic(new_mirror)
    transition_errors.note_refusals(
        {fresh(new_mirror): [RefusedStep(name="retention.ms", value="1", code="POLICY_VIOLATION_ERROR", message="No.")]},
        now=NOW,
    )
    restore_source_configs(mirror_id=new_mirror.pk, reply_to="reply")

    assert dispatch.wait_for_reply("reply", timeout_s=5) == {"result": []}
    assert write(destination_cluster, new_mirror.name, "open") == [None]
    assert not new_mirror.transition_errors.exists()
