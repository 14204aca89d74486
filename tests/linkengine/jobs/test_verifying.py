from collections.abc import Callable

import pytest

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.plans import VerifyPlan
from linkengine.jobs.verifying import complete
from linkengine.kafka.admin import ClusterAdmin

pytestmark = pytest.mark.kafka
Send = Callable[..., None]


@pytest.fixture
def plan(source: ClusterAddress, destination: ClusterAddress, here: ClusterAdmin, source_topic: str) -> VerifyPlan:
    """Compare two topics of two partitions, up to wherever the mirror is."""
    here.create_topic(source_topic, partitions=2)
    return VerifyPlan(source=source, destination=destination, source_topic=source_topic, mirror_topic=source_topic)


def test_ends_are_where_the_mirror_is_now_unless_the_plan_names_them(plan: VerifyPlan, send_here: Send) -> None:
    send_here(plan.mirror_topic, partition=1, count=3)

    completed = complete(plan)

    assert (completed.ends, completed.compacted) == (((0, 0), (1, 3)), False)
    assert complete(completed) == completed


@pytest.mark.parametrize("side", ["there", "here"])
def test_a_topic_that_is_compacted_on_either_side_is_compared_as_such(
    plan: VerifyPlan, side: str, request: pytest.FixtureRequest
) -> None:
    admin: ClusterAdmin = request.getfixturevalue(side)
    admin.set_configs(plan.source_topic, {"cleanup.policy": "compact,delete"})

    assert complete(plan).compacted
