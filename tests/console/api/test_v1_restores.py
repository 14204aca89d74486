"""Previews and restores below /api/v1."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from console import exports
from console.errors import UnavailableError
from console.models import ClusterLink, MirrorTopic, RestoreRun
from linkengine.domain.states import MirrorState
from tests.console.api.cast import DESTINATION, NOW, Boundary, Rest

pytestmark = pytest.mark.django_db
LINK = f"/api/v1/clusters/{DESTINATION}/links/from-source"


@pytest.fixture
def orders(make_mirror: Any) -> MirrorTopic:
    return make_mirror("orders", lags=((15, 10),))


@pytest.fixture
def run(orders: MirrorTopic, settings: Any, tmp_path: Path) -> RestoreRun:
    """A restore that has set two records aside."""
    settings.EXPORT_DIR = str(tmp_path)
    with exports.writing("orders-1.jsonl.gz") as sink:
        sink(b"{}\n{}\n")
    return RestoreRun.objects.create(
        mirror=orders,
        requested_by="owner",
        requested_at=NOW,
        points=[{"partition": 0, "start": 0, "end": 12, "common": 10, "records": 2}],
        exported_at=NOW,
        export_name="orders-1.jsonl.gz",
        export_records=2,
    )


def test_an_operation_is_previewed_for_the_mirrors_that_match(owner: Rest, orders: MirrorTopic, make_mirror: Any) -> None:
    make_mirror("payments")

    rows = owner.get(f"{LINK}/previews?operation=failover&mirror_topic_name_pattern=ord.*").json()["data"]

    assert [(row["mirror_topic_name"], row["allowed"], row["records_at_risk"]) for row in rows] == [("orders", True, 5)]
    assert MirrorTopic.objects.get(name="orders").state == MirrorState.ACTIVE


@pytest.mark.parametrize("query", ["", "?operation=explode", "?operation=pause&mirror_topic_name_pattern=("])
def test_what_to_preview_must_be_clear(owner: Rest, link: ClusterLink, query: str) -> None:
    assert owner.get(f"{LINK}/previews{query}").status_code == 400


def test_a_restore_tells_what_it_dropped_and_gives_it_back(owner: Rest, run: RestoreRun) -> None:
    told = owner.get(f"{LINK}/mirrors/orders/restores").json()["data"][0]
    file = owner.get(f"{LINK}/mirrors/orders/restores/{run.pk}/records")

    assert (told["messages_truncated"], told["export_records"]) == (2, 2)
    assert gzip.decompress(b"".join(file.streaming_content)) == b"{}\n{}\n"
    assert file["Content-Disposition"] == 'attachment; filename="orders-1.jsonl.gz"'


def test_who_may_only_look_gets_no_records(reader: Rest, run: RestoreRun) -> None:
    assert reader.get(f"{LINK}/mirrors/orders/restores/{run.pk}/records").status_code == 403


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"export_name": ""}, "had no diverged records to export"),
        ({"exported_at": None}, "not exported its diverged records yet"),
        ({"export_name": "gone.jsonl.gz"}, "2 records to gone.jsonl.gz, but that file is missing"),
        ({"export_bytes": 7}, "or incomplete"),
    ],
)
def test_none_not_yet_and_lost_are_three_things(owner: Rest, run: RestoreRun, change: dict[str, Any], words: str) -> None:
    RestoreRun.objects.update(**change)

    answer = owner.get(f"{LINK}/mirrors/orders/restores/{run.pk}/records")

    assert answer.status_code == 404
    assert words in answer.json()["message"]
    assert owner.get(f"{LINK}/mirrors/orders/restores/999/records").status_code == 404


@pytest.fixture
def restore(orders: MirrorTopic, link: ClusterLink, source: Any, boundary: Boundary) -> str:
    """Where the source's topic is made a mirror of the stopped one; two of its records would be dropped."""
    ClusterLink.objects.update(mode="BIDIRECTIONAL")
    back = ClusterLink.objects.create(
        name=link.name,
        mode="BIDIRECTIONAL",
        destination=source,
        source=link.destination,
        source_cluster_id=DESTINATION,
        properties={},
        state_since=NOW,
        created_at=NOW,
        created_by="owner",
    )
    MirrorTopic.objects.update(state=MirrorState.STOPPED)
    boundary.answer = {"orders": [{"partition": 0, "start": 0, "end": 12, "common": 10}]}
    return f"/kafka/v3/clusters/{source.cluster_id}/links/{back.name}/mirrors:truncate-and-restore"


def test_truncation_is_counted_before_anything_happens(owner: Rest, restore: str) -> None:
    answer = owner.post(
        f"{restore}?validate_only=true&include_partition_level_truncation_data=true", {"mirror_topic_names": ["orders"]}
    )

    row = answer.json()["data"][0]
    assert (row["error_code"], row["messages_truncated"]) == (None, 2)
    assert row["partition_level_truncation_data"] == [{"partition_id": 0, "offset_truncated_to": 10, "messages_truncated": 2}]
    assert not RestoreRun.objects.exists()


def test_a_restore_counts_what_it_drops_without_being_asked(owner: Rest, restore: str) -> None:
    row = owner.post(restore, {"mirror_topic_names": ["orders"]}).json()["data"][0]

    assert (row["error_code"], row["messages_truncated"], row["partition_level_truncation_data"]) == (None, 2, [])
    assert RestoreRun.objects.exists()


def test_a_cluster_that_does_not_answer_leaves_the_count_unknown(owner: Rest, restore: str, boundary: Boundary) -> None:
    boundary.error = UnavailableError("No worker answers.")

    row = owner.post(f"{restore}?validate_only=true", {"mirror_topic_names": ["orders"]}).json()["data"][0]

    assert (row["error_code"], row["messages_truncated"]) == (None, None)
