"""How soon an idle mirror's log end is checked, by a simulated clock."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from linkengine.copyjob.broker_link import Services
from linkengine.copyjob.destination.maintenance import EVERY_S, Maintenance
from linkengine.copyjob.partition_state import MirrorPartition
from linkengine.copyjob.worker import TICK_S
from linkengine.kafka.cluster import Cluster
from tests.linkengine.copyjob.test_partition_state import owned

FOUND_WITHIN_S = 5.0
FOR_THE_REST_S = 1.5  # the request, and the resume that identifies the writer: some round trips


class AtOnce:
    """A background that runs jobs immediately."""

    background = property(lambda self: self)

    def first_due(self, now: float, *, every_s: float) -> float:
        return now + every_s

    def submit(self, work: Callable[[], Any], *, done: Callable[[Any], None], failed: object) -> None:
        done(work())


@pytest.mark.parametrize("written_after_s", [0.0, 0.5, EVERY_S - TICK_S, EVERY_S, EVERY_S + TICK_S])
def test_foreign_write_to_an_idle_mirror_is_noticed_within_the_deadline(
    monkeypatch: pytest.MonkeyPatch, written_after_s: float
) -> None:
    mirror, now_s, suspects = owned(generation=9, clean=True), 0.0, list[MirrorPartition]()
    place = (mirror.assignment.mirror_topic, mirror.assignment.partition)
    monkeypatch.setattr(
        "linkengine.copyjob.destination.maintenance.log_ends", lambda *_: {place: (0, 11 if now_s > written_after_s else 10)}
    )
    upkeep = Maintenance(cast(Services, AtOnce()), cast(Cluster, None), suspicious=suspects.append)

    while not suspects:
        upkeep.tick(now_s, {0: [mirror]})
        now_s += TICK_S
        assert now_s - written_after_s < FOUND_WITHIN_S - FOR_THE_REST_S

    assert suspects == [mirror]
