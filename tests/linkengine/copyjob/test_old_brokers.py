"""Source brokers older than 3.1, which a link does not read: the error says so, and the copy worker keeps running."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.event_loop import Poller
from linkengine.copyjob.source.fetch_planner import FetchEvents
from linkengine.copyjob.source.fetcher import BrokerFetcher
from linkengine.copyjob.values import SourceOrigin, Stage
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.plans import PartitionPhase
from linkengine.kafka import connection
from linkengine.kafka.connection import Connection
from linkengine.kafka.protocol import KafkaCode
from linkengine.kafka.requests import FETCH_API_KEY, FETCH_BY_NAME
from linkengine.kafka.topicviews import Leader
from tests.linkengine.copyjob.copying import Copier, Pair, create_pair, plan_of, producer_for, wait_for
from tests.linkengine.copyjob.partitions import partition, unexpected
from tests.linkengine.copyjob.scripted import ScriptedBroker

OF_2_3, OF_2_6, OF_3_0 = 11, 11, FETCH_BY_NAME  # the highest version of Fetch


@pytest.fixture(params=[(OF_2_3, KafkaCode.UNSUPPORTED_VERSION), (OF_2_6, 0), (OF_3_0, 0)], ids=["2.3", "2.6", "3.0"])
def old(request: pytest.FixtureRequest) -> Iterator[ScriptedBroker]:
    fetch, refuses = request.param
    broker = ScriptedBroker(fetch=fetch, refuses=refuses)
    yield broker
    broker.close()


def test_source_broker_older_than_3_1_is_refused_with_its_version_in_the_error(
    services: Services, poller: Poller, old: ScriptedBroker
) -> None:
    """From 2.8 to 3.0 topics have ids, but Fetch requests cannot name them."""
    lost: list[LinkEngineError] = []
    cluster: Any = SimpleNamespace(open=old.connected)
    events = FetchEvents(planned=unexpected, refused=unexpected, emptied=unexpected, lost=lambda _, error: lost.append(error))
    source, mirror = BrokerFetcher(services, cluster, 0, events=events), partition()
    mirror.stage, mirror.position, mirror.origin = Stage.COPYING, 0, SourceOrigin(Leader(broker=0, epoch=1), bytes(range(16)))
    source.adopt(mirror)

    def turn() -> bool:
        poller.wait(0.02)
        source.pump(services.clock.monotonic())
        return bool(lost)

    wait_for(turn, deadline_s=10)
    source.close()

    assert lost[0].code == ErrorCode.MISCONFIGURATION_ERROR
    assert "3.1" in lost[0].message
    assert old.requested == []


def test_source_older_than_3_1_breaks_the_link_until_it_is_upgraded(
    clusters: Pair, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_pair(clusters, topic_name)
    producer = producer_for(clusters[0])
    producer.produce(topic_name, value="one")
    assert producer.flush(30) == 0
    plan, versions = plan_of(clusters, topic_name), connection._api_versions
    old = [True]

    def spoken(opened: Connection) -> dict[int, tuple[int, int]]:
        of_source = plan.source.bootstrap_servers.endswith(f":{opened.port}")
        return versions(opened) | ({FETCH_API_KEY: (0, OF_3_0)} if of_source and old[0] else {})

    monkeypatch.setattr(connection, "_api_versions", spoken)
    with Copier(plan) as copier:
        broken = (PartitionPhase.LINK_BROKEN, ErrorCode.MISCONFIGURATION_ERROR)
        copier.wait_until(lambda progress: (progress.phase, progress.error_code) == broken and "3.1" in progress.error_message)
        old[0] = False
        copier.wait_for_ends({0: 1})
        copier.wait_until(lambda progress: (progress.phase, progress.error_code) == (PartitionPhase.COPYING, ""))
