"""The task that carries out operations on several topics: slices, lost messages, crashes, checks on both clusters."""

from __future__ import annotations

import html
import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from console.mirrors import bulk_actions
from console.models import BulkOperation, Cluster, ClusterLink, MirrorTopic
from console.queue import dispatch
from console.redis import locks
from console.tasks import mirrors
from console.tasks.links import KEEP_OPERATIONS, forget_old_rows
from console.tasks.mirrors import advance_bulk_operation, advance_stop, continue_operations, delete_mirror
from devcluster.ports import free_port
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW
from tests.console.pages.test_bulk import confirm, request

pytestmark = [pytest.mark.kafka]
Sent = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    queued: Sent = []
    monkeypatch.setattr(dispatch, "send", lambda name, **kwargs: queued.append((name, kwargs)))
    return queued


@pytest.fixture
def operation(link: ClusterLink, sent: Sent) -> BulkOperation:
    """Resumes twenty paused mirrors of a link with real clusters."""
    names = [f"topic-{number:02}" for number in range(20)]
    values = {"link": link, "state": MirrorState.PAUSED, "state_since": NOW, "created_at": NOW}
    MirrorTopic.objects.bulk_create(MirrorTopic(name=name, source_topic=name, **values) for name in names)
    return make_operation(link, "resume", names)


def make_operation(link: ClusterLink, verb: str, names: list[str]) -> BulkOperation:
    """Store an operation of a superuser."""
    user = User.objects.create_superuser(f"root-{verb}")
    operation = BulkOperation.objects.create(link=link, operation=verb, user=user, requested_by=user.username, requested_at=NOW)
    for name in names:
        operation.topics.create(name=name)
    return operation


def test_task_carries_out_all_topics(operation: BulkOperation) -> None:
    advance_bulk_operation(operation_id=operation.pk)

    operation.refresh_from_db()
    assert operation.finished_at is not None
    assert set(operation.topics.values_list("status", flat=True)) == {"ACCEPTED"}
    assert set(MirrorTopic.objects.values_list("state", flat=True)) == {"ACTIVE"}


def test_task_is_sent_again_after_its_slice(operation: BulkOperation, sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out = bulk_actions.carry_out

    def slowly(found: BulkOperation, **values: Any) -> bool:
        more = carry_out(found, **values)
        time.sleep(0.1)
        return more

    monkeypatch.setattr(mirrors, "BULK_SLICE_S", 0.05)
    monkeypatch.setattr(bulk_actions, "carry_out", slowly)

    advance_bulk_operation(operation_id=operation.pk)

    assert sent.count(("advance_bulk_operation", {"operation_id": operation.pk})) == 1
    assert operation.topics.filter(status="WAITING").count() == 20 - bulk_actions.BATCH


def test_task_does_nothing_while_another_worker_has_the_operation(operation: BulkOperation, sent: Sent) -> None:
    with locks.lock(f"bulk-operation:{operation.pk}"):
        advance_bulk_operation(operation_id=operation.pk)
        continue_operations()

    assert set(operation.topics.values_list("status", flat=True)) == {"WAITING"}
    assert sent == []


def test_reconciler_sends_the_task_of_an_unfinished_operation(operation: BulkOperation, sent: Sent) -> None:
    continue_operations()
    continue_operations()

    assert sent == [("advance_bulk_operation", {"operation_id": operation.pk})]


def test_finished_operation_is_not_sent_again(operation: BulkOperation, sent: Sent) -> None:
    advance_bulk_operation(operation_id=operation.pk)
    sent.clear()

    continue_operations()

    assert sent == []


def test_old_operations_are_deleted_but_not_unfinished_ones(operation: BulkOperation) -> None:
    old = timezone.now() - KEEP_OPERATIONS - timedelta(days=1)
    finished = BulkOperation.objects.create(
        link=operation.link, operation="pause", requested_by="x", requested_at=old, finished_at=old
    )
    BulkOperation.objects.filter(pk=operation.pk).update(requested_at=old)

    forget_old_rows()

    assert list(BulkOperation.objects.all()) == [operation]
    assert not BulkOperation.objects.filter(pk=finished.pk).exists()


def test_creation_is_checked_on_both_clusters(link: ClusterLink, make_topic: Any, sent: Sent) -> None:
    topic = make_topic(partitions=1)
    operation = make_operation(link, "create", [topic, "no-such-topic"])

    advance_bulk_operation(operation_id=operation.pk)

    assert dict(operation.topics.values_list("name", "status")) == {topic: "ACCEPTED", "no-such-topic": "FAILED"}
    assert operation.topics.get(name="no-such-topic").error_code == "UNKNOWN_TOPIC_OR_PARTITION_ERROR"
    assert MirrorTopic.objects.get(name=topic).state == "PENDING_SETUP"


# --- clusters that cannot be reached ----------------------------------------------------------------------------------


OUT_OF_REACH = ("out-of-reach-1", "out-of-reach-2")


@pytest.fixture
def operator(link: ClusterLink, sent: Sent, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A superuser's browser, whose requests may not wait for a worker."""

    def call(task_name: str, **_: Any) -> Any:
        raise AssertionError(f"A page has waited for {task_name}.")

    monkeypatch.setattr(dispatch, "call", call)
    values = {"link": link, "state": MirrorState.ACTIVE, "state_since": NOW, "created_at": NOW, "num_partitions": 1}
    for mirror in MirrorTopic.objects.bulk_create(MirrorTopic(name=name, source_topic=name, **values) for name in OUT_OF_REACH):
        mirror.partitions.create(partition=0)
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def cut_off(link: ClusterLink, side: str) -> None:
    """Set the address of a cluster of the link to a port on which nothing listens."""
    dead = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "security.protocol": "PLAINTEXT"}
    if side == "source":
        ClusterLink.objects.filter(pk=link.pk).update(properties=dead)
    else:
        Cluster.objects.filter(pk=link.destination_id).update(properties=dead)


def accepted(response: Any, sent: Sent) -> str:
    """Return the URL of the page of the operation that was just accepted, without any request to a cluster."""
    assert response.status_code == 302, response.content.decode()
    operation = BulkOperation.objects.get()
    assert sent == [("advance_bulk_operation", {"operation_id": operation.pk})]
    assert response["Location"] == operation.get_absolute_url()
    return operation.get_absolute_url()


@pytest.mark.parametrize("side", ["source", "destination"])
@pytest.mark.parametrize(
    ("verb", "unreached"),
    [
        ("pause", ()),
        ("promote", ("source", "destination")),
        ("failover", ("destination",)),
        ("delete", ("destination",)),
    ],
)
def test_operation_on_topics_of_an_unreachable_cluster_is_accepted_and_shows_why_each_waits(
    link: ClusterLink, operator: Client, sent: Sent, verb: str, unreached: tuple[str, ...], side: str
) -> None:
    """The page contacts no cluster. The worker that does so notes the error of each topic that waits for the cluster."""
    cut_off(link, side)
    requested = request(operator, link.get_absolute_url(), operation=verb, mirror=OUT_OF_REACH)
    url = accepted(confirm(operator, link.get_absolute_url(), requested, confirm=link.name), sent)

    advance_bulk_operation(operation_id=BulkOperation.objects.get().pk)
    before = operator.get(url).context["topics"]
    for mirror in link.mirrors.all():
        tasks = {"promote": advance_stop, "failover": advance_stop, "delete": delete_mirror}
        tasks.get(verb, lambda **_: None)(mirror_id=mirror.pk)
    after = operator.get(url)

    assert [row.name for row in before] == list(OUT_OF_REACH)
    assert {row.badge.code for row in before} == {"ACCEPTED" if verb == "pause" else "REQUESTED"}
    if side in unreached:
        assert {row.badge.code for row in after.context["topics"]} == {"REQUESTED"}
        assert all(row.code and row.message for row in after.context["topics"])
        assert all(row.message in html.unescape(after.content.decode()) for row in after.context["topics"])


@pytest.mark.parametrize("side", ["source", "destination"])
def test_topics_of_an_unreachable_cluster_are_refused_each_with_the_reason_when_they_are_added(
    link: ClusterLink, operator: Client, sent: Sent, side: str
) -> None:
    cut_off(link, side)
    response = operator.post(f"{link.get_absolute_url()}mirrors/new/", {"source_topic": ["new-1", "new-2"]})
    url = accepted(response, sent)

    advance_bulk_operation(operation_id=BulkOperation.objects.get().pk)
    page = operator.get(url)

    assert {(row.name, row.badge.code) for row in page.context["topics"]} == {("new-1", "FAILED"), ("new-2", "FAILED")}
    assert all(row.code and row.message for row in page.context["topics"])
    assert all(row.message in html.unescape(page.content.decode()) for row in page.context["topics"])
