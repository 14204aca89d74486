"""Several mirrors of one source partition are each asked for with the past of their own."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from linkengine.copyjob import history
from linkengine.copyjob.history import Seen, find_rewound
from linkengine.copyjob.pieces import Origin
from linkengine.domain.plans import PartitionAssignment
from linkengine.kafka.cluster import Leader


def test_a_mirror_is_not_hidden_by_another_of_the_same_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    assignments = [
        PartitionAssignment(
            mirror_id=name, partition=0, source_topic="t", mirror_topic=name, source_topic_id="", producer_id=1 << 62
        )
        for name in ("behind", "ahead", "also-behind")
    ]

    def ends(_: Any, __: int, asked: Mapping[Any, Any]) -> dict[Any, Any]:
        return dict.fromkeys(asked, (0, 4, 50))  # the leader kept the predecessors' records up to here

    monkeypatch.setattr(history, "epoch_ends", ends)
    seen = {f"{name}/0": Seen(epoch=4, end=end) for name, end in (("behind", 40), ("ahead", 60), ("also-behind", 50))}
    origin = Origin(Leader(broker=1, epoch=5), b"t")

    found = find_rewound(SimpleNamespace(), assignments, found=dict.fromkeys(seen, origin), seen=seen)  # type: ignore[arg-type]

    assert list(found) == ["ahead/0"]
