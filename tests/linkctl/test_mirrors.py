"""``linkctl mirror``: all verbs and statuses of the REST API, per-topic refusals, unknown lags."""

from dataclasses import asdict
from typing import Any

import pytest

from console.api.kafka_schemas import MIRROR_STATUSES
from console.mirrors.rest import VERBS as REST_VERBS
from console.models import ClusterLink, MirrorTopic
from linkctl.mirrors import STATUSES, VERBS, write_outcome
from linkengine.domain.clusterviews import ReversalRisks, TransactionalWriters
from linkengine.domain.states import MirrorState
from tests.console.api.actors import NOW, Boundary
from tests.console.api.brokers import SmallCluster
from tests.linkctl.conftest import Run, read_json


def test_every_verb_and_status_of_the_rest_api_is_supported() -> None:
    assert {verb for verb, _ in VERBS.values()} == set(REST_VERBS)
    assert set(STATUSES) == set(MIRROR_STATUSES)


def test_mirrors_of_all_links_are_listed(run: Run, make_mirror: Any) -> None:
    make_mirror("orders", lags=((10, 4), (5, 5)))
    make_mirror("payments", MirrorState.PAUSED, lags=((10, 4), None))

    rows = [line.split() for line in run("mirror", "list").stdout.splitlines()[1:]]

    assert rows == [
        ["from-source", "orders", "orders", "ACTIVE", "2", "6", "-"],
        ["from-source", "payments", "payments", "PAUSED", "2", "unknown", "-"],
    ]


def test_mirrors_are_filtered_by_status(run: Run, make_mirror: Any) -> None:
    make_mirror("orders")
    make_mirror("payments", MirrorState.PAUSED)

    found = read_json(run("mirror", "list", "--link", "from-source", "--status", "paused", "--json"))

    assert [mirror["mirror_topic_name"] for mirror in found["data"]] == ["payments"]


def test_a_mirror_is_described_with_the_lag_of_each_partition(run: Run, make_mirror: Any) -> None:
    make_mirror("orders", lags=((10, 4), None), prior_state=MirrorState.LINK_FAILED, retry_count=3)

    shown = run("mirror", "describe", "orders", "--link", "from-source").stdout

    assert "Status        ACTIVE since 2026-05-04T10:00:00+00:00" in shown
    assert "Prior state   LINK_FAILED\nRetries       3\n" in shown
    assert shown.splitlines()[-2].split() == ["0", "6", "4"]
    assert shown.splitlines()[-1].split() == ["1", "unknown", "unknown"]


def test_transition_errors_are_listed(run: Run, make_mirror: Any) -> None:
    mirror = make_mirror("orders", MirrorState.PENDING_STOPPED)
    mirror.transition_errors.create(code="WAITING_FOR_LAG", message="5 records to go.", since=NOW, last_seen_at=NOW)
    command = ("mirror", "state-transition-error", "list", "orders", "--link", "from-source")

    assert "WAITING_FOR_LAG  5 records to go." in run(*command).stdout
    assert read_json(run(*command, "--json")) == [{"error_code": "WAITING_FOR_LAG", "error_message": "5 records to go."}]


def test_a_mirror_is_created(run: Run, link: ClusterLink, boundary: Boundary) -> None:
    result = run(
        "mirror", "create", "orders", "--link", "from-source", "--replication-factor", "1", "--config", "segment.ms=60000"
    )

    assert (result.exit_code, result.stdout) == (0, "Mirror topic orders was created; it mirrors orders\n")
    mirror = MirrorTopic.objects.get(name="orders")
    assert (mirror.replication_factor, mirror.config_overrides) == (1, {"segment.ms": "60000"})


def test_a_mirror_with_the_prefix_of_the_link_is_created(run: Run, link: ClusterLink, boundary: Boundary) -> None:
    link.prefix = "west."
    link.save()

    refused = run("mirror", "create", "orders", "--link", "from-source")
    result = run("mirror", "create", "west.orders", "--source-topic", "orders", "--link", "from-source")

    assert (refused.exit_code, refused.stdout) == (1, "")
    assert (result.exit_code, result.stdout) == (0, "Mirror topic west.orders was created; it mirrors orders\n")
    assert MirrorTopic.objects.get().source_topic == "orders"


def test_deleting_mirrors_needs_confirmation(run: Run, make_mirror: Any, boundary: Boundary) -> None:
    for name in ("orders", "payments", "kept"):
        make_mirror(name)
    command = ("mirror", "delete", "orders", "payments", "--link", "from-source")

    assert run(*command, stdin="n\n").exit_code == 1
    assert not MirrorTopic.objects.exclude(deletion_requested_at=None).exists()
    assert run(*command, stdin="y\n").exit_code == 0

    deleting = MirrorTopic.objects.exclude(deletion_requested_at=None)
    assert set(deleting.values_list("name", flat=True)) == {"orders", "payments"}


def test_mirror_delete_refuses_a_topic_that_is_not_a_mirror_of_the_link(
    run: Run, make_mirror: Any, link: ClusterLink, cluster: SmallCluster
) -> None:
    make_mirror("orders")

    result = run("mirror", "delete", "plain", "orders", "--link", "from-source", "--yes")

    assert result.exit_code == 1
    assert "Topic orders is being deleted" in result.stdout
    assert "plain" in cluster.topics
    assert not [question for question, _ in cluster.queries if question == "delete_topic"]
    assert run("mirror", "delete", "plain", "--link", "from-source", "--yes").exit_code == 3


def test_a_dry_run_creates_nothing(run: Run, link: ClusterLink, boundary: Boundary) -> None:
    result = run("mirror", "create", "orders", "--link", "from-source", "--dry-run")

    assert result.exit_code == 0
    assert [name for name, _ in boundary.called] == ["check_mirror"]
    assert not MirrorTopic.objects.exists()


@pytest.mark.parametrize(
    ("verb", "before", "after"),
    [
        ("pause", "ACTIVE", "PAUSED"),
        ("resume", "PAUSED", "ACTIVE"),
        ("promote", "ACTIVE", "PENDING_STOPPED"),
        ("failover", "ACTIVE", "PENDING_STOPPED"),
    ],
)
def test_an_operation_changes_the_state_unless_it_is_a_dry_run(
    run: Run, make_mirror: Any, verb: str, before: str, after: str
) -> None:
    mirror = make_mirror("orders", MirrorState(before))

    dry = run("mirror", verb, "orders", "--link", "from-source", "--dry-run")
    mirror.refresh_from_db()
    assert (dry.exit_code, mirror.state) == (0, before)
    assert "would be accepted" in dry.stdout

    assert run("mirror", verb, "orders", "--link", "from-source").exit_code == 0
    mirror.refresh_from_db()
    assert mirror.state == after


def test_topics_are_chosen_by_pattern(run: Run, make_mirror: Any) -> None:
    make_mirror("orders-1")
    make_mirror("orders-2")
    make_mirror("payments")

    found = read_json(run("mirror", "pause", "--pattern", "orders-.*", "--link", "from-source", "--json"))

    assert [mirror["mirror_topic_name"] for mirror in found["data"]] == ["orders-1", "orders-2"]


def test_the_exit_code_is_1_if_one_of_several_topics_is_refused(run: Run, make_mirror: Any) -> None:
    make_mirror("orders")

    result = run("mirror", "pause", "orders", "nothing", "--link", "from-source")

    assert result.exit_code == 1
    assert "orders        accepted" in result.stdout
    assert "is not a mirror topic" in result.stdout


@pytest.mark.parametrize("verb", ["reverse-and-start", "reverse-and-pause", "truncate-and-restore"])
def test_reversals_and_restores_are_refused_on_other_links(run: Run, make_mirror: Any, verb: str) -> None:
    make_mirror("orders", MirrorState.STOPPED if verb == "truncate-and-restore" else MirrorState.ACTIVE)

    result = run("mirror", verb, "orders", "--link", "from-source")

    assert result.exit_code == 1
    assert "bidirectional" in result.stdout


@pytest.mark.parametrize("verb", ["reverse-and-start", "reverse-and-pause", "truncate-and-restore"])
def test_several_topics_can_be_reversed_or_restored_with_one_command(
    run: Run, make_mirror: Any, other_side: ClusterLink, verb: str
) -> None:
    state = MirrorState.STOPPED if verb == "truncate-and-restore" else MirrorState.ACTIVE
    for name in ("orders", "payments"):
        make_mirror(name, state)

    found = read_json(run("mirror", verb, "orders", "payments", "--link", "from-source", "--dry-run", "--json"))

    assert [(row["mirror_topic_name"], row["error_code"]) for row in found["data"]] == [("orders", None), ("payments", None)]


@pytest.mark.parametrize("verb", ["reverse-and-start", "reverse-and-pause"])
def test_the_dry_run_and_the_preview_of_a_reversal_show_the_warnings(
    run: Run, make_mirror: Any, other_side: ClusterLink, boundary: Boundary, verb: str
) -> None:
    make_mirror("orders")
    risks = ReversalRisks(
        unclean_on=("Source",), writers=TransactionalWriters(ids=(), open_ids=(), unnamed_open=0, complete=True)
    )
    boundary.response = {"orders": asdict(risks)}

    dry = run("mirror", verb, "orders", "--link", "from-source", "--dry-run").stdout.splitlines()
    preview = run("mirror", "preview", verb, "--link", "from-source").stdout.splitlines()

    for lines in (dry, preview):
        assert lines[-3] == ""
        assert lines[-2].split() == ["MIRROR", "TOPIC", "WARNING"]
        assert lines[-1].startswith("orders        unclean.leader.election.enable is on for 'orders' on Source.")


def test_mirror_delete_and_its_preview_name_the_mirrors_that_copy_from_the_topic(
    run: Run, make_mirror: Any, other_side: ClusterLink
) -> None:
    make_mirror("orders")
    make_mirror("onward", link=other_side, source_topic="orders")

    preview = run("mirror", "preview", "delete", "--link", "from-source")
    declined = run("mirror", "delete", "orders", "--link", "from-source", stdin="n\n")

    named = "Mirror topics copy from 'orders': 'onward' on cluster 'Source'"
    assert named in preview.stdout
    assert declined.stderr.startswith(f"Warning: orders: {named}")
    assert not MirrorTopic.objects.exclude(deletion_requested_at=None).exists()


@pytest.mark.parametrize("arguments", [(), ("orders", "--pattern", ".*")])
def test_either_topics_or_a_pattern_must_be_given(run: Run, link: ClusterLink, arguments: tuple[str, ...]) -> None:
    assert run("mirror", "pause", *arguments, "--link", "from-source").exit_code == 2


@pytest.mark.parametrize(("counted", "shown"), [(7, "7"), (0, "0"), (None, "unknown")])
def test_the_number_of_dropped_records_of_a_restore_is_shown_or_unknown(
    capsys: pytest.CaptureFixture[str], counted: int | None, shown: str
) -> None:
    row: dict[str, Any] = {"mirror_topic_name": "orders", "error_code": None, "error_message": None, "mirror_lags": []}
    found = {"data": [{**row, "messages_truncated": counted}]}

    write_outcome(found, {"as_json": False, "dry_run": True}, "truncate-and-restore")

    assert capsys.readouterr().out.splitlines()[1].split()[-1] == shown
