"""Bulk operations change many mirrors with few SQL statements, with the same rows, history and audit as single operations."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from console.actors import Actor
from console.mirrors.operation_actions import operate_many
from console.models import AuditEvent, ClusterLink, MirrorTopic, StateTransition
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.console.conftest import NOW, MakeMirror

E = MirrorEvent
S = MirrorState
Sent = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def many(make_mirror: MakeMirror) -> list[MirrorTopic]:
    """Thirty mirrors: 28 active, a stopped mirror, and a mirror that is being promoted."""
    states = {28: S.STOPPED, 29: S.PENDING_STOPPED}
    return [make_mirror(f"topic-{number:02}", states.get(number, S.ACTIVE), partitions=1) for number in range(30)]


def test_bulk_failover_needs_fewer_statements_than_mirrors(
    many: list[MirrorTopic], link: ClusterLink, owner: Actor, sent: Sent
) -> None:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        rows = operate_many(link=link, pattern=".*", operation=E.FAILOVER, by=owner, now=NOW)

    assert len(queries) < len(many)
    assert [row.error_code for row in rows if row.error_code] == [400]
    assert len(rows) == len(many)
    assert set(MirrorTopic.objects.exclude(name="topic-28").values_list("state", "stop_reason")) == {
        (S.PENDING_STOPPED, "failover")
    }
    assert MirrorTopic.objects.get(name="topic-00").prior_state == S.ACTIVE
    assert StateTransition.objects.filter(event="failover", by="owner").count() == 29
    assert AuditEvent.objects.filter(action="FailoverMirrorTopic", actor="owner").count() == 29
    assert [name for name, _ in sent] == ["stop_many", "reconcile_link"]


def test_bulk_pause_refuses_a_mirror_whose_state_changed_since_it_was_read(
    many: list[MirrorTopic], link: ClusterLink, owner: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from console.mirrors import operation_actions  # noqa: PLC0415

    move = operation_actions._move_together

    def late(rows: Any, old: S, operation: E, **more: Any) -> Any:
        MirrorTopic.objects.filter(name="topic-00").update(state=S.STOPPED)
        return move(rows, old, operation, **more)

    monkeypatch.setattr(operation_actions, "_move_together", late)

    rows = operate_many(link=link, names=[mirror.name for mirror in many[:28]], operation=E.PAUSE, by=owner, now=NOW)

    refused = {row.mirror_topic_name: row.error_message for row in rows if row.error_code}
    assert set(refused) == {"topic-00"}
    assert MirrorTopic.objects.filter(state=S.PAUSED).count() == 27
