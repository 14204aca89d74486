from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from devcluster.kafka import KafkaCluster
from devcluster.ports import free_port
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.mirrorjobs import MirrorSetup
from linkengine.jobs import mirror_topics as setting_up
from linkengine.jobs.mirror_topics import AssignmentsFactory
from linkengine.kafka.admin import ClusterAdmin, OffsetKind

pytestmark = pytest.mark.kafka
Send = Callable[..., None]


def refusal(setup: MirrorSetup) -> LinkEngineError:
    with pytest.raises(LinkEngineError) as refused:
        jobs.check_mirror_topic(setup)
    return refused.value


@pytest.fixture
def crash_in(
    setup_plan: MirrorSetup, assignments: AssignmentsFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Return a function that lets an attempt to set up the mirror crash in a step."""

    def attempt(step: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(setting_up, step, _crash)
            with pytest.raises(ConnectionAbortedError):
                jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)

    return attempt


def test_a_mirror_of_an_existing_topic_can_be_created(setup_plan: MirrorSetup, there: ClusterAdmin, source_topic: str) -> None:
    assert jobs.check_mirror_topic(setup_plan) == there.describe(source_topic)


def test_a_source_topic_that_does_not_exist_is_refused(setup_plan: MirrorSetup) -> None:
    error = refusal(setup_plan)

    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR
    assert setup_plan.source_topic in error.message


def test_a_topic_that_exists_at_the_destination_is_refused(
    setup_plan: MirrorSetup, here: ClusterAdmin, source_topic: str
) -> None:
    here.create_topic(source_topic, partitions=1)

    assert refusal(setup_plan).code is ErrorCode.TOPIC_EXISTS_ERROR


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"replication_factor": 3}, "replication factor"),
        ({"configs": {"segment.bytes": "1"}}, "segment.bytes"),
        ({"configs": {"segment.bytes": "many"}}, "segment.bytes"),
    ],
)
def test_a_topic_that_the_destination_would_refuse_is_refused_by_the_check(
    setup_plan: MirrorSetup, here: ClusterAdmin, source_topic: str, wanted: dict[str, Any], words: str
) -> None:
    error = refusal(replace(setup_plan, **wanted))

    assert error.code is ErrorCode.INVALID_REQUEST_ERROR
    assert words in error.message.lower()
    assert here.find(source_topic) is None


def test_a_source_that_is_down_refuses_the_creation(setup_plan: MirrorSetup) -> None:
    down = replace(setup_plan.source, bootstrap_servers=f"127.0.0.1:{free_port()}")

    assert refusal(replace(setup_plan, source=down)).code is ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR


def test_internal_topics_illegal_names_and_overrides_of_synced_configs_are_refused(setup_plan: MirrorSetup) -> None:
    assert refusal(replace(setup_plan, source_topic="__consumer_offsets")).code is ErrorCode.INVALID_TOPIC
    assert refusal(replace(setup_plan, mirror_topic="a b")).code is ErrorCode.INVALID_TOPIC
    assert refusal(replace(setup_plan, configs={"cleanup.policy": "delete"})).code is ErrorCode.MISCONFIGURATION_ERROR


def test_a_new_mirror_is_empty_and_read_only_and_has_its_configs(
    setup_plan: MirrorSetup, assignments: AssignmentsFactory, there: ClusterAdmin, here: ClusterAdmin, source_topic: str
) -> None:
    setup = replace(setup_plan, configs={"min.insync.replicas": "1", "segment.ms": "600000"}, replication_factor=1)

    created = jobs.set_up_mirror_topic(setup, assignments_factory=assignments)

    mirror = here.describe(source_topic)
    assert (created.partitions, created.read_only, created.seeded) == (2, True, ())
    assert created.source_topic_id == there.describe(source_topic).topic_id
    assert created.mirror_topic_id == mirror.topic_id
    assert created.source_configs["cleanup.policy"] == "delete"
    assert (mirror.partitions, mirror.configs["segment.ms"], mirror.configs["retention.ms"]) == (2, "600000", "-1")
    assert here.offsets(source_topic, OffsetKind.END) == {0: 0, 1: 0}


def test_ordinary_clients_can_read_a_new_mirror_but_not_write_to_it(
    setup_plan: MirrorSetup, assignments: AssignmentsFactory, destination_as_app: ClusterAddress, source_topic: str
) -> None:
    jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)

    rights = ClusterAdmin(destination_as_app).rights(source_topic)

    assert "READ" in rights
    assert "WRITE" not in rights


@pytest.fixture(params=[True, False], ids=["visible", "not visible yet"])
def first_read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the first broker that is queried shows the topic already."""
    if not request.param:
        monkeypatch.setattr(setting_up, "_find_once", lambda *_: None)


@pytest.fixture
def headed_topic(there: ClusterAdmin, source_topic: str, send_there: Send) -> str:
    """The source topic with 100 records in partition 0, of which the first 60 are deleted."""
    send_there(source_topic, count=100)
    there.trim(source_topic, {0: 60})
    return source_topic


@pytest.mark.usefixtures("first_read")
def test_setting_up_twice_changes_nothing(
    setup_plan: MirrorSetup,
    assignments: AssignmentsFactory,
    here: ClusterAdmin,
    headed_topic: str,
) -> None:
    first = jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)
    before = here.describe(headed_topic)

    assert jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments) == first
    assert here.offsets(headed_topic, OffsetKind.END)[0] == 60
    assert not here.denies_reads(headed_topic)
    assert here.describe(headed_topic) == before


@pytest.mark.usefixtures("first_read")
def test_a_topic_created_by_another_user_in_the_meantime_is_left_alone(
    setup_plan: MirrorSetup, assignments: AssignmentsFactory, here: ClusterAdmin, source_topic: str
) -> None:
    here.create_topic(source_topic, partitions=2)

    with pytest.raises(LinkEngineError) as refused:
        jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)

    assert refused.value.code is ErrorCode.TOPIC_EXISTS_ERROR
    assert here.describe(source_topic).configs == {}
    assert not here.denies_writes(source_topic)
    assert not here.denies_reads(source_topic)


def test_acls_of_a_crashed_attempt_are_removed_from_a_topic_that_another_user_created_since(
    setup_plan: MirrorSetup,
    assignments: AssignmentsFactory,
    here: ClusterAdmin,
    headed_topic: str,
    crash_in: Callable[[str], None],
) -> None:
    crash_in("_create")
    assert (here.denies_writes(headed_topic), here.denies_reads(headed_topic)) == (True, True)
    here.create_topic(headed_topic, partitions=2)

    with pytest.raises(LinkEngineError) as refused:
        jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)

    assert refused.value.code is ErrorCode.TOPIC_EXISTS_ERROR
    assert (here.denies_writes(headed_topic), here.denies_reads(headed_topic)) == (False, False)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_head_is_seeded_so_that_the_mirror_has_the_log_start_of_its_source(
    setup_plan: MirrorSetup,
    assignments: AssignmentsFactory,
    there: ClusterAdmin,
    here: ClusterAdmin,
    source_topic: str,
    send_there: Send,
    policy: str,
) -> None:
    there.set_configs(source_topic, {"cleanup.policy": policy})
    send_there(source_topic, partition=1, count=1500)
    there.trim(source_topic, {1: 1200})

    created = jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)

    assert created.seeded == ((1, 1200),)
    assert here.offsets(source_topic, OffsetKind.START) == {0: 0, 1: 1200}
    assert here.offsets(source_topic, OffsetKind.END) == {0: 0, 1: 1200}
    assert here.describe(source_topic).configs["cleanup.policy"] == policy
    assert not here.denies_reads(source_topic)
    assert jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments) == created


def test_a_crash_while_seeding_leaves_the_mirror_hidden_and_the_next_attempt_finishes_it(
    setup_plan: MirrorSetup,
    assignments: AssignmentsFactory,
    here: ClusterAdmin,
    headed_topic: str,
    crash_in: Callable[[str], None],
) -> None:
    crash_in("seed_head")
    hidden = here.denies_reads(headed_topic)
    created = jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)

    assert hidden
    assert created.seeded == ((0, 60),)
    assert here.offsets(headed_topic, OffsetKind.START) == {0: 60, 1: 0}
    assert not here.denies_reads(headed_topic)


def test_a_name_hidden_by_a_crashed_attempt_is_made_readable_by_the_next_attempt(
    setup_plan: MirrorSetup,
    assignments: AssignmentsFactory,
    there: ClusterAdmin,
    here: ClusterAdmin,
    headed_topic: str,
    crash_in: Callable[[str], None],
) -> None:
    """Its source was created again in between, and has no head to hide."""
    crash_in("_create")
    hidden = here.denies_reads(headed_topic)
    there.delete_topic(headed_topic)
    there.create_topic(headed_topic, partitions=2)

    created = jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)

    assert hidden
    assert created.seeded == ()
    assert not here.denies_reads(headed_topic)


@pytest.mark.usefixtures("first_read")
def test_a_source_that_begins_earlier_at_the_second_attempt_raises(
    setup_plan: MirrorSetup,
    assignments: AssignmentsFactory,
    there: ClusterAdmin,
    headed_topic: str,
    crash_in: Callable[[str], None],
) -> None:
    """It was deleted and created again; its first records would be missing, as if they were the head of the former topic."""
    crash_in("sync_configs")
    there.delete_topic(headed_topic)
    there.create_topic(headed_topic, partitions=2)

    with pytest.raises(LinkEngineError, match="partition 0 begin at offset 60, but the source now begins at 0") as refused:
        jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)

    assert refused.value.code is ErrorCode.SOURCE_TOPIC_ID_CHANGED


def test_partitions_added_at_the_source_between_two_attempts_are_added_to_the_mirror(
    setup_plan: MirrorSetup, assignments: AssignmentsFactory, there: ClusterAdmin, here: ClusterAdmin, source_topic: str
) -> None:
    jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)
    there.add_partitions(source_topic, total=3)

    assert jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments).partitions == 3
    assert here.describe(source_topic).partitions == 3


def test_a_mirror_topic_that_the_destination_does_not_show_is_waited_for(
    setup_plan: MirrorSetup,
    assignments: AssignmentsFactory,
    here: ClusterAdmin,
    source_topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION_ERROR would end the set-up permanently, as for a source topic that does not exist."""
    with monkeypatch.context() as patch:
        patch.setattr(setting_up, "_seed", lambda *_, **__: here.delete_topic(source_topic))
        with pytest.raises(LinkEngineError) as refused:
            jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments)

    assert refused.value.code is ErrorCode.TIMEOUT_ERROR
    assert (
        jobs.set_up_mirror_topic(setup_plan, assignments_factory=assignments).mirror_topic_id
        == here.describe(source_topic).topic_id
    )


def test_missing_rights_of_a_link_raise_before_anything_is_copied(
    make_cluster: Callable[..., KafkaCluster],
    setup_plan: MirrorSetup,
    assignments: AssignmentsFactory,
    source_topic: str,
) -> None:
    cluster = make_cluster(extra={"super.users": "User:admin;User:broker"})
    admin = ClusterAdmin(address_from_properties(cluster.client_properties("admin")))
    app = address_from_properties(cluster.client_properties("app"))
    link = address_from_properties(cluster.client_properties("link"))
    admin.create_topic("secret", partitions=1)

    unreadable = refusal(replace(setup_plan, source=link, source_topic="secret"))
    with pytest.raises(LinkEngineError) as unwritable:
        jobs.set_up_mirror_topic(replace(setup_plan, destination=app), assignments_factory=assignments)

    assert unreadable.code is ErrorCode.AUTHORIZATION_ERROR
    assert unwritable.value.code is ErrorCode.AUTHORIZATION_ERROR


def test_without_an_authorizer_a_mirror_is_created_and_reported_as_not_read_only(
    make_cluster: Callable[..., KafkaCluster], setup_plan: MirrorSetup, assignments: AssignmentsFactory, source_topic: str
) -> None:
    cluster = make_cluster(security="PLAINTEXT")
    unsecured = address_from_properties(cluster.client_properties("link"))
    setup = replace(setup_plan, destination=unsecured)

    created = jobs.set_up_mirror_topic(setup, assignments_factory=assignments)

    assert not created.read_only
    assert jobs.set_up_mirror_topic(setup, assignments_factory=assignments) == created
    assert jobs.delete_mirror_topic(destination=unsecured, mirror_topic=source_topic)


def _crash(*_: object, **__: object) -> None:
    raise ConnectionAbortedError
