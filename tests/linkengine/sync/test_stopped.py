"""When a mirror counts as stopped although its row does not say so; clusters are simulated."""

from typing import Any, cast

import pytest

from linkengine.domain.configs import mirror_configs
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import TopicDescription
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sync.topics import stopped_error, was_stopped

MIRRORS = mirror_configs({})


def described(configs: dict[str, str], *, topic_id: str = "id") -> TopicDescription:
    return TopicDescription(name="t", topic_id=topic_id, partitions=1, replication_factor=1, internal=False, configs=configs)


class Destination:
    """A cluster with one topic. ``denied`` is None if ACLs may not be read, which librdkafka returns as an empty list."""

    def __init__(self, *, denied: bool | None, configs: dict[str, str] | None = None, denied_somewhere: bool = False) -> None:
        self.denied, self.configs, self.denied_somewhere = denied, configs or {}, denied_somewhere
        self.topic_id = "id"

    def has_authorizer(self) -> bool:
        return True

    def denies_writes(self, _: str) -> bool:
        return bool(self.denied)

    def lacks_deny_write(self, _: str) -> bool:
        return self.denied is False

    def denies_writes_nowhere(self, _: str) -> bool:
        return not (self.denied or self.denied_somewhere)

    def find(self, _: str) -> TopicDescription:
        return described(self.configs, topic_id=self.topic_id)


@pytest.mark.parametrize(
    ("configs", "denied", "stopped"),
    [
        ({}, False, True),
        ({}, True, False),
        (MIRRORS, False, False),
        ({}, None, False),  # the principal may no longer read configs and ACLs
    ],
)
def test_mirror_was_stopped_if_it_has_certainly_lost_its_configs_and_its_guard(
    configs: dict[str, str], *, denied: bool | None, stopped: bool
) -> None:
    destination = cast(ClusterAdmin, Destination(denied=denied))

    assert was_stopped(destination, described(configs), guard=True) is stopped


@pytest.mark.parametrize(
    ("later", "permanent"),
    [
        ({}, True),
        ({"configs": MIRRORS}, False),  # the first broker had just started
        ({"denied_somewhere": True}, False),  # both were cut off from the controllers
    ],
)
def test_mirror_fails_permanently_only_if_no_broker_contradicts(later: dict[str, Any], *, permanent: bool) -> None:
    destination = cast(ClusterAdmin, Destination(denied=False, **later))

    error = stopped_error(destination, described({}), reread_after_s=0.0)

    assert error.code == (ErrorCode.MIRROR_WAS_STOPPED if permanent else ErrorCode.TIMEOUT_ERROR)


def test_topic_that_was_created_again_in_between_is_not_the_mirror() -> None:
    destination = Destination(denied=False)
    destination.topic_id = "another"

    assert stopped_error(cast(ClusterAdmin, destination), described({}), reread_after_s=0.0).code == ErrorCode.TIMEOUT_ERROR
