"""Immediate runs of recurring link tasks: permission, conditions, and the stored request."""

from __future__ import annotations

from typing import Any

import pytest

from console.actors import Actor
from console.errors import ConflictError, DeniedError, NotFoundError
from console.links.actions import LinkConfigChange, alter_configs, run_task
from console.models import AuditEvent, ClusterLink, LinkTask, MirrorTopic
from linkengine.domain.linktasks import TaskName
from linkengine.domain.states import LinkState
from tests.console.conftest import NOW

CONFIGS = TaskName.TOPIC_CONFIGS


def test_a_requested_run_is_stored_audited_and_queued(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, sent: list[tuple[str, dict[str, Any]]]
) -> None:
    run_task(link=link, name=CONFIGS, by=owner, now=NOW)

    row = LinkTask.objects.get()
    assert (row.requested_at, row.requested_by) == (NOW, "owner")
    assert sent == [("run_link_task", {"link_id": link.pk, "task": CONFIGS})]
    event = AuditEvent.objects.get()
    assert (event.action, event.detail) == ("RunLinkTask", {"task": CONFIGS})


def test_a_reader_may_not_run_a_task(link: ClusterLink, mirror: MirrorTopic, colleague: Actor) -> None:
    with pytest.raises(DeniedError, match="manage links"):
        run_task(link=link, name=CONFIGS, by=colleague, now=NOW)

    assert not LinkTask.objects.exists()


@pytest.mark.parametrize("name", ["MirrorTopicCopy", "Nonsense", ""])
def test_only_recurring_tasks_can_be_run(link: ClusterLink, owner: Actor, name: str) -> None:
    with pytest.raises(NotFoundError, match="AutoCreateMirror"):
        run_task(link=link, name=name, by=owner, now=NOW)


def test_running_a_disabled_task_names_the_config_that_enables_it(link: ClusterLink, owner: Actor) -> None:
    with pytest.raises(ConflictError, match=r"Set auto\.create\.mirror\.topics\.enable to true"):
        run_task(link=link, name=TaskName.AUTO_CREATE, by=owner, now=NOW)
    with pytest.raises(ConflictError, match="no mirror topic"):
        run_task(link=link, name=CONFIGS, by=owner, now=NOW)


@pytest.mark.parametrize(
    ("state", "words"),
    [(LinkState.PAUSED, "paused"), (LinkState.FAILED, "has failed"), (LinkState.UNAVAILABLE, "cannot reach its source")],
)
def test_running_a_task_of_a_link_that_does_not_work_names_its_state(
    link: ClusterLink, mirror: MirrorTopic, owner: Actor, state: LinkState, words: str
) -> None:
    link.state = state
    with pytest.raises(ConflictError, match=words):
        run_task(link=link, name=CONFIGS, by=owner, now=NOW)


def test_a_config_change_reschedules_only_the_task_that_uses_it(link: ClusterLink, owner: Actor, sent: object) -> None:
    LinkTask.objects.create(link=link, name=CONFIGS, next_run_at=NOW)
    LinkTask.objects.create(link=link, name=TaskName.ACLS, next_run_at=NOW)

    alter_configs(link=link, changes=[LinkConfigChange(name="topic.config.sync.ms", value="9000")], by=owner, now=NOW)

    assert LinkTask.objects.get(name=CONFIGS).next_run_at is None
    assert LinkTask.objects.get(name=TaskName.ACLS).next_run_at == NOW


def test_disabling_a_task_clears_its_errors(link: ClusterLink, owner: Actor, sent: object) -> None:
    errors = [{"code": "X", "message": "y"}]
    LinkTask.objects.create(link=link, name=TaskName.ACLS, errors=errors, error_count=1, failing_since=NOW)
    LinkTask.objects.create(link=link, name=CONFIGS, errors=errors, error_count=1)

    alter_configs(link=link, changes=[LinkConfigChange(name="acl.sync.enable", value="false")], by=owner, now=NOW)

    assert dict(LinkTask.objects.values_list("name", "error_count")) == {TaskName.ACLS: 0, CONFIGS: 1}
