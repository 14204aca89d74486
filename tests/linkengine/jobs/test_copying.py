import time
from collections.abc import Callable
from uuid import uuid4

import pytest

from linkengine import jobs
from linkengine.domain.mirrorjobs import MirrorSetup, MirrorStop
from linkengine.domain.plans import CopyPlan, PartitionPhase, PartitionProgress, VerifyPlan
from linkengine.domain.states import StopReason
from linkengine.jobs.mirror_topics import AssignmentsFactory
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from tests.linkengine.jobs.copyworkers import COPIED_WITHIN_S, copy_worker
from tests.linkengine.jobs.stops import stop_mirror
from tests.signing import SECRETS, SIGNER

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
Send = Callable[..., None]


def wait_until_copied(redis_url: str, link_id: str, ends: dict[str, int]) -> list[PartitionProgress]:
    """Return the reports once every partition has reached its end."""
    deadline = time.monotonic() + COPIED_WITHIN_S
    while True:
        reports = jobs.read_progress(redis_url, link_id, SIGNER)
        if {report.key: report.mirror_end for report in reports} == ends:
            return reports
        assert time.monotonic() < deadline, f"not copied in time: {reports}"
        time.sleep(0.1)


def test_a_mirror_is_made_copied_verified_promoted_and_written_to(
    setup_plan: MirrorSetup,
    assignments: AssignmentsFactory,
    there: ClusterAdmin,
    here: ClusterAdmin,
    source_topic: str,
    send_there: Send,
    send_here: Send,
    redis_url: str,
    spark_connect_url: str,
) -> None:
    send_there(source_topic, partition=0, count=300)
    send_there(source_topic, partition=1, count=50)
    there.trim(source_topic, {1: 20})
    created = jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)
    assigned = tuple(assignments(created.partitions, created.source_topic_id))
    link_id = uuid4().hex
    source, destination = setup_plan.source, setup_plan.destination
    plan = CopyPlan(
        link_id=link_id,
        revision=1,
        source=source,
        destination=destination,
        assignments=assigned,
        signing_keys=SIGNER.texts(),
    )

    with copy_worker(redis_url=redis_url, spark_url=spark_connect_url) as name:
        jobs.write_assignments(redis_url, link_id, {name: plan}, secrets=SECRETS)
        wait_until_copied(redis_url, link_id, {"7/0": 300, "7/1": 50})
    outcomes = jobs.read_progress(redis_url, link_id, SIGNER)
    blockers = jobs.promotion_blockers(
        source=source, destination=destination, source_topic=source_topic, mirror_topic=source_topic
    )
    report = jobs.verify(
        VerifyPlan(source=source, destination=destination, source_topic=source_topic, mirror_topic=source_topic),
        spark_url=spark_connect_url,
    )
    stopped = stop_mirror(
        MirrorStop(
            source=source,
            destination=destination,
            assignments=assigned,
            reason=StopReason.PROMOTE,
            generation=100,
            source_topic=source_topic,
            mirror_topic=source_topic,
        )
    )
    send_here(source_topic, user="app")

    assert {(outcome.phase, outcome.mirror_end) for outcome in outcomes} == {
        (PartitionPhase.RELEASED, 300),
        (PartitionPhase.RELEASED, 50),
    }
    assert blockers == []
    assert (report.records_compared, report.differences) == (330, 0)
    assert stopped.ends == ((0, 300), (1, 50))
    assert here.offsets(source_topic, OffsetKind.START) == {0: 0, 1: 20}
    assert here.offsets(source_topic, OffsetKind.END) == {0: 302, 1: 51}

    jobs.clear_mirror(redis_url, link_id, mirror_id="7")
    jobs.clear_link(redis_url, link_id)
    assert jobs.read_progress(redis_url, link_id, SIGNER) == []
