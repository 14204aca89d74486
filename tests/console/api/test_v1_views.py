"""REST API below /api/v1: states, gaps, transitions, partitions, rates, tasks, source topics, synced configs."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.models import ClusterLink, ConfigRevert, MirrorPartition, MirrorTopic, SourceTopic
from linkengine.domain.states import MirrorState
from tests.console.api.actors import LINK, NOW, ORDERS, Boundary, Rest

pytestmark = pytest.mark.django_db


def test_the_state_of_a_mirror_has_the_prior_state_retries_and_errors(
    owner: Rest, reader: Rest, stranger: Rest, orders: MirrorTopic
) -> None:
    later = NOW + timedelta(minutes=5)
    MirrorTopic.objects.update(
        state="SOURCE_UNAVAILABLE", prior_state="ACTIVE", retry_count=7, error_since=NOW, state_since=later
    )
    orders.transition_errors.create(code="TIMEOUT_ERROR", message="No broker responds.", since=NOW, last_seen_at=later)
    times = {"since": "2026-05-04T10:00:00Z", "last_seen_at": "2026-05-04T10:05:00Z"}

    assert reader.get(f"{ORDERS}/state").json() == {
        "mirror_topic_name": "orders",
        "state": "SOURCE_UNAVAILABLE",
        "state_since": "2026-05-04T10:05:00Z",
        "prior_state": "ACTIVE",
        "retry_count": 7,
        "retry_at": None,
        "error_code": "",
        "error_message": "",
        "error_since": "2026-05-04T10:00:00Z",
        "transition_errors": [{"code": "TIMEOUT_ERROR", "message": "No broker responds.", **times}],
        "health": {
            "health": "NOT_COPYING",
            "reason": "SOURCE_UNAVAILABLE",
            "codes": [],
            "message": "No broker of the source cluster responds.",
            "next_step": "Check the source cluster and the network. In a disaster, fail over.",
        },
    }
    MirrorTopic.objects.update(prior_state="")
    assert owner.get(f"{ORDERS}/state").json()["prior_state"] is None
    assert stranger.get(f"{ORDERS}/state").status_code == 404


def test_gaps_are_listed_with_totals(owner: Rest, orders: MirrorTopic) -> None:
    for partition, start, end, reason in ((0, 5, 6, "TRANSACTION_MARKER"), (0, 9, 12, "COMPACTED"), (1, 2, 4, "COMPACTED")):
        orders.gaps.create(partition=partition, start=start, end=end, filled=end - start, reason=reason, noted_at=NOW)

    response = owner.get(f"{ORDERS}/gaps").json()

    assert response["totals"] == [
        {"reason": "COMPACTED", "ranges": 2, "offsets": 5},
        {"reason": "TRANSACTION_MARKER", "ranges": 1, "offsets": 1},
    ]
    assert response["data"][0] == {
        "partition": 0,
        "start": 5,
        "end": 6,
        "offsets": 1,
        "reason": "TRANSACTION_MARKER",
        "before_ms": None,
        "after_ms": None,
        "noted_at": "2026-05-04T10:00:00Z",
    }
    assert len(owner.get(f"{ORDERS}/gaps?limit=2").json()["data"]) == 2


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "x", "1.5", "²", "1" * 5000])
def test_an_invalid_limit_is_refused(owner: Rest, orders: MirrorTopic, limit: str) -> None:
    response = owner.get(f"{ORDERS}/gaps?limit={limit}")

    assert response.status_code == response.json()["error_code"] == 400


def test_transitions_are_listed_in_their_order_even_if_requests_overlapped(owner: Rest, orders: MirrorTopic) -> None:
    """The request that came first may have been completed second."""
    for before, after, seconds in (("ACTIVE", "PAUSED", 2), ("PAUSED", "PENDING_STOPPED", 1)):
        at = NOW + timedelta(seconds=seconds)
        orders.transitions.create(from_state=before, to_state=after, event="any", by="owner", at=at)

    rows = owner.get(f"{ORDERS}/transitions").json()["data"]

    assert [row["to_state"] for row in rows] == ["PENDING_STOPPED", "PAUSED"]


def test_transitions_are_listed_newest_first(owner: Rest, orders: MirrorTopic) -> None:
    for number, (old, new, event) in enumerate((("", "ACTIVE", "create"), ("ACTIVE", "PAUSED", "pause"))):
        at = NOW + timedelta(seconds=number)
        orders.transitions.create(from_state=old, to_state=new, event=event, by="owner", at=at)

    rows = owner.get(f"{ORDERS}/transitions").json()["data"]

    assert rows[0] == {
        "from_state": "ACTIVE",
        "to_state": "PAUSED",
        "event": "pause",
        "by": "owner",
        "detail": "",
        "at": "2026-05-04T10:00:01Z",
    }
    assert [row["to_state"] for row in rows] == ["PAUSED", "ACTIVE"]


def test_partitions_have_lag_and_time_lag(owner: Rest, orders: MirrorTopic) -> None:
    MirrorPartition.objects.filter(partition=0).update(caught_up_at=timezone.now() - timedelta(seconds=30))

    rows = owner.get(f"{ORDERS}/partitions").json()["data"]

    assert [(row["partition"], row["source_end"], row["mirror_end"], row["lag"]) for row in rows] == [
        (0, 15, 10, 5),
        (1, 7, 7, 0),
    ]
    assert rows[0]["lag_ms"] == pytest.approx(30_000, abs=20_000)
    assert rows[1]["lag_ms"] == 0
    assert rows[1]["bytes_per_s"] is None


def test_records_after_an_open_transaction_have_a_time_lag_but_no_lag(owner: Rest, orders: MirrorTopic) -> None:
    since = timezone.now() - timedelta(seconds=30)
    MirrorPartition.objects.filter(partition=1).update(last_high_watermark=12, caught_up_at=since)

    rows = owner.get(f"{ORDERS}/partitions").json()["data"]

    assert [(row["lag"], row["held_back"]) for row in rows] == [(5, 0), (0, 5)]
    assert rows[1]["lag_ms"] == pytest.approx(30_000, abs=20_000)


def test_unknown_offsets_are_null(owner: Rest, orders: MirrorTopic) -> None:
    MirrorPartition.objects.filter(partition=0).update(source_end=None)

    row = owner.get(f"{ORDERS}/partitions").json()["data"][0]

    assert row["source_end"] is row["lag"] is row["lag_ms"] is row["held_back"] is None


def test_the_source_end_has_the_time_at_which_it_was_read(owner: Rest, orders: MirrorTopic) -> None:
    MirrorPartition.objects.filter(partition=0).update(last_source_seen_at=NOW)  # long ago
    MirrorPartition.objects.filter(partition=1).update(last_source_seen_at=None)

    old, never = owner.get(f"{ORDERS}/partitions").json()["data"]

    assert (old["source_end"], old["source_seen_at"], old["lag"]) == (15, "2026-05-04T10:00:00Z", None)
    assert (never["source_seen_at"], never["lag"]) == (None, None)


def test_rates_are_null_without_recent_reports(owner: Rest, orders: MirrorTopic) -> None:
    now = timezone.now()
    orders.partitions.update(bytes_per_s=500.0, records_per_s=5.0, observed_at=now)
    orders.partitions.filter(partition=1).update(observed_at=now - timedelta(minutes=10))

    rows = owner.get(f"{ORDERS}/partitions").json()["data"]

    assert [(row["bytes_per_s"], row["records_per_s"]) for row in rows] == [(500.0, 5.0), (None, None)]


def test_rates_of_a_link_are_summed(owner: Rest, orders: MirrorTopic, make_mirror: Any) -> None:
    make_mirror("new", MirrorState.PENDING_SETUP)
    MirrorPartition.objects.filter(mirror=orders).update(bytes_per_s=500.0, records_per_s=5.0)

    assert owner.get(f"{LINK}/rates").json() == {
        "link_name": "from-source",
        "link_state": "ACTIVE",
        "gap_filler": "markers",
        "mirrors": {"ACTIVE": 2},
        "bytes_per_s": 1000.0,
        "records_per_s": 10.0,
        "max_lag": 5,
        "unknown_lag_partitions": 0,
        "lag_bytes": None,
        "oldest_lag_ms": None,
    }


@pytest.mark.parametrize(
    ("changed", "of_partition", "of_link"),
    [
        ({}, 500, 500),
        ({"mirror_end": 15}, 0, 0),
        ({"source_end": None}, None, None),
        ({"records_copied": 0, "bytes_copied": 0}, None, None),
    ],
    ids=["behind", "in sync", "lag unknown", "nothing copied yet"],
)
def test_a_lag_in_bytes_is_estimated_and_unknown_is_null(
    owner: Rest, orders: MirrorTopic, changed: dict[str, Any], of_partition: int | None, of_link: int | None
) -> None:
    orders.partitions.update(bytes_copied=1_000, records_copied=10)
    orders.partitions.filter(partition=0).update(**changed)

    assert owner.get(f"{ORDERS}/partitions").json()["data"][0]["lag_bytes"] == of_partition
    assert owner.get(f"{LINK}/rates").json()["lag_bytes"] == of_link


def test_a_stranger_sees_no_resources_of_a_mirror(stranger: Rest, orders: MirrorTopic, link: ClusterLink) -> None:
    for part in ("verify-runs", "gaps", "lineage", "transitions", "partitions"):
        assert stranger.get(f"{ORDERS}/{part}").status_code == 404
    assert stranger.get(f"{LINK}/rates").status_code == 404


def test_a_task_can_be_run_and_shows_its_runs(owner: Rest, orders: MirrorTopic, boundary: Boundary) -> None:
    response = owner.post(f"{LINK}/tasks/TopicConfigsSync/run")

    assert response.status_code == 202
    task = response.json()
    assert (task["name"], task["state"], task["interval_ms"], task["runs"]) == ("TopicConfigsSync", "UNKNOWN", 5000, 0)
    assert task["requested_at"] is not None
    assert boundary.sent[-1][0] == "run_link_task"
    assert task in owner.get(f"{LINK}/tasks").json()["data"]


def test_running_a_disabled_task_is_refused_with_the_reason(owner: Rest, link: ClusterLink) -> None:
    response = owner.post(f"{LINK}/tasks/AclSync/run")

    assert response.status_code == 400
    assert "acl.sync.enable" in response.json()["message"]
    assert owner.post(f"{LINK}/tasks/Nonsense/run").status_code == 404


def test_a_source_topic_shows_why_it_is_not_mirrored(owner: Rest, link: ClusterLink, orders: MirrorTopic) -> None:
    for name in ("orders", "clicks"):
        SourceTopic.objects.create(link=link, name=name, partitions=1, seen_at=NOW)

    rows = owner.get(f"{LINK}/source-topics").json()["data"]
    clicks = owner.get(f"{LINK}/source-topics/clicks").json()

    assert [(row["source_topic_name"], row["standing"], row["mirror_status"]) for row in rows] == [
        ("clicks", "NOT_MIRRORED", None),
        ("orders", "MIRRORED", "ACTIVE"),
    ]
    assert clicks == rows[0]
    failed = [check for check in clicks["checks"] if not check["passed"]]
    assert [check["code"] for check in failed] == ["AUTO_CREATE", "INCLUDED"]
    assert all(check["next_step"] for check in failed)
    assert owner.get(f"{LINK}/source-topics?standing=MIRRORED").json()["data"] == rows[1:]
    assert owner.get(f"{LINK}/source-topics/ghost").json()["checks"][0]["passed"] is False


def test_synced_configs_have_both_values_and_the_reverted_changes(owner: Rest, orders: MirrorTopic) -> None:
    MirrorTopic.objects.update(source_configs={"cleanup.policy": "compact", "retention.ms": "5000"})
    ConfigRevert.objects.create(mirror=orders, name="retention.ms", found=None, restored="-1", at=NOW)

    response = owner.get(f"{ORDERS}/configs").json()

    assert response["data"] == [
        {"name": "cleanup.policy", "source_value": "compact", "mirror_value": "compact,delete", "always": True},
        {"name": "retention.ms", "source_value": "5000", "mirror_value": "-1", "always": False},
    ]
    assert [(row["name"], row["found"], row["restored"]) for row in response["reverted"]] == [("retention.ms", None, "-1")]
