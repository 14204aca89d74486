"""Failovers of mirrors whose head is still being seeded."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from devcluster.kafka import KafkaCluster
from linkengine import jobs
from linkengine.copyjob.destination import head_seed
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.mirrorjobs import MirrorSetup, MirrorStop
from linkengine.domain.states import StopReason
from linkengine.jobs import mirror_topics as setting_up
from linkengine.jobs.mirror_topics import AssignmentsFactory
from linkengine.kafka.admin import ClusterAdmin, OffsetKind
from tests.linkengine.jobs.stops import stop_mirror

pytestmark = pytest.mark.kafka
Send = Callable[..., None]


def test_a_failover_during_seeding_leaves_an_empty_readable_topic(
    setup_plan: MirrorSetup,
    assignments: AssignmentsFactory,
    there: ClusterAdmin,
    here: ClusterAdmin,
    source_topic: str,
    send_there: Send,
    send_here: Send,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send_there(source_topic, count=10)
    there.trim(source_topic, {0: 8})

    def half(*_: object, **__: object) -> None:
        send_here(source_topic, count=3)
        raise ConnectionAbortedError

    monkeypatch.setattr(setting_up, "seed_head", half)
    with pytest.raises(ConnectionAbortedError):
        jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)

    stop_mirror(
        MirrorStop(
            source=setup_plan.source,
            destination=setup_plan.destination,
            assignments=(),
            reason=StopReason.FAILOVER,
            generation=1,
            source_topic=source_topic,
            mirror_topic=source_topic,
            seeding=True,
        )
    )

    assert here.offsets(source_topic, OffsetKind.START)[0] == here.offsets(source_topic, OffsetKind.END)[0] == 3
    assert not here.denies_reads(source_topic)


@pytest.fixture(scope="module")
def unsecured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster("unsecured", directory=tmp_path_factory.mktemp("unsecured"), security="PLAINTEXT") as cluster:
        yield cluster


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "with a foreign write"])
def test_a_failover_during_seeding_leaves_no_filler_if_reads_cannot_be_denied(
    unsecured: KafkaCluster,
    setup_plan: MirrorSetup,
    assignments: AssignmentsFactory,
    there: ClusterAdmin,
    source_topic: str,
    send_there: Send,
    monkeypatch: pytest.MonkeyPatch,
    others: int,
) -> None:
    """Writes could not be denied either: a foreign record between the fillers stays, with the fillers before it."""
    setup = replace(setup_plan, destination=address_from_properties(unsecured.client_properties("link")))
    here = ClusterAdmin(setup.destination)
    send_there(source_topic, count=10)
    there.trim(source_topic, {0: 8})

    def abort(*_: object, **__: object) -> None:
        raise ConnectionAbortedError

    monkeypatch.setattr(head_seed, "_trim", abort)
    with pytest.raises(ConnectionAbortedError):
        jobs.set_up_mirror_topic(setup, assignments_factory=assignments)
    if others:
        producer = Producer(unsecured.client("app"))
        producer.produce(source_topic, "mine", partition=0)
        assert producer.flush(60) == 0

    stop_mirror(
        MirrorStop(
            source=setup.source,
            destination=setup.destination,
            assignments=tuple(assignments(2, "")),
            reason=StopReason.FAILOVER,
            generation=1,
            source_topic=source_topic,
            mirror_topic=source_topic,
            was_mirror=False,
            seeding=True,
        )
    )

    assert here.offsets(source_topic, OffsetKind.END)[0] == 9 + others
    assert here.offsets(source_topic, OffsetKind.START)[0] == (0 if others else 9)
