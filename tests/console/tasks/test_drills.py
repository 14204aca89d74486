"""A drill on real clusters: scratch copies are failed over, compared, written to and deleted; the mirror goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from django.utils import timezone

from console.actions.drills import start_drill
from console.actors import SYSTEM
from console.models import ClusterLink, Drill, MirrorPartition, MirrorTopic
from console.tasks import mirrors, reconcile
from console.tasks.drills import look_after_drills
from linkengine.domain.states import MirrorState
from tests.console.tasks.conftest import Until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_drill_rehearses_on_copies_leaves_the_mirror_alone_and_passes_only_what_it_compared(
    new_mirror: MirrorTopic,
    link: ClusterLink,
    worker: Callable[[], None],
    until: Until,
    spark_connect_url: str,
    destination_admin: AdminClient,
) -> None:
    def beat(look: Callable[[], Any]) -> Callable[[], Any]:
        def once() -> Any:
            look_after_drills()
            reconcile.reconcile_link(link_id=link.pk)
            worker()
            return look()

        return once

    mirrors.setup_mirror(mirror_id=new_mirror.pk)
    rows = MirrorPartition.objects.filter(mirror=new_mirror)
    until(beat(lambda: [row.mirror_end for row in rows.all()] == [100, 100]))

    drill = start_drill(link=link, start_spec="earliest", by=SYSTEM, now=timezone.now())
    scratch = f"{new_mirror.name}.clusterlink-drill-{drill.pk}"
    until(beat(lambda: Drill.objects.get().status in ("PASSED", "FAILED")), timeout_s=200.0)

    drill.refresh_from_db()
    assert (drill.status, drill.problem) == ("PASSED", "")
    (row,) = drill.report
    assert (row["mirror_topic_name"], row["records_compared"], row["differences"]) == (new_mirror.name, 200, 0)
    assert row["writable"]
    assert drill.rto_ms is not None
    assert scratch not in destination_admin.list_topics(timeout=10).topics
    assert not MirrorTopic.objects.filter(drill=drill).exists()
    assert MirrorTopic.objects.get().state == MirrorState.ACTIVE
    assert [row.mirror_end for row in rows.all()] == [100, 100]

    quiet = start_drill(link=link, start_spec="latest", by=SYSTEM, now=timezone.now())
    until(beat(lambda: Drill.objects.get(pk=quiet.pk).status in ("PASSED", "FAILED")), timeout_s=200.0)

    quiet.refresh_from_db()
    (row,) = quiet.report
    assert (quiet.status, row["records_compared"], row["writable"]) == ("FAILED", 0, True)
    assert row["problem"].startswith("Nothing was compared in partition 0, 1:")
