"""Comparisons that nobody takes, or whose worker has died, whatever the clock has done since."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from console.models import MirrorTopic, VerifyRun
from console.tasks import verifying
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW

Sent = list[tuple[str, dict[str, Any]]]


@pytest.mark.parametrize(
    "dated", [NOW - timedelta(hours=1), NOW + timedelta(hours=1)], ids=["long ago", "before a clock was set back"]
)
def test_what_nobody_takes_is_sent_again_and_what_was_left_behind_is_closed(
    link: Any, sent: Sent, own_redis: None, dated: Any
) -> None:
    when = {"state_since": NOW, "created_at": NOW}
    mirror = MirrorTopic.objects.create(link=link, name="a", source_topic="a", state=MirrorState.ACTIVE, **when)
    common = {"mirror": mirror, "requested_by": "test", "requested_at": dated}
    queued = VerifyRun.objects.create(**common)
    left = VerifyRun.objects.create(**common, started_at=dated, status=VerifyRun.Status.RUNNING)

    verifying.look_after_runs(now=NOW)

    left.refresh_from_db()
    assert sent == [("verify_mirror", {"run_id": queued.pk})]
    assert left.status == VerifyRun.Status.ERROR
