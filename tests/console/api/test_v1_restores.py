"""REST API of previews and restores."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from console.errors import UnavailableError
from console.mirrors import diverged_exports
from console.models import ClusterLink, MirrorTopic, RestoreRun
from linkengine.domain.states import MirrorState
from tests.console.api.actors import DESTINATION, NOW, Boundary, Rest
from tests.console.api.brokers import SmallCluster
from tests.console.conftest import MakeMirror, choose_all

pytestmark = pytest.mark.django_db
LINK = f"/api/v1/clusters/{DESTINATION}/links/from-source"
TOPICS = f"/api/v1/clusters/{DESTINATION}/topics"


@pytest.fixture
def orders(make_mirror: MakeMirror) -> MirrorTopic:
    return make_mirror("orders", lags=((15, 10),))


@pytest.fixture
def run(orders: MirrorTopic, settings: Any, tmp_path: Path) -> RestoreRun:
    """A restore that has exported two records."""
    settings.EXPORT_DIR = str(tmp_path)
    with diverged_exports.writing("orders-1.jsonl.gz") as sink:
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


def test_an_operation_is_previewed_for_mirrors_that_match_the_pattern(
    owner: Rest, orders: MirrorTopic, make_mirror: Any
) -> None:
    make_mirror("payments")

    rows = owner.get(f"{LINK}/previews?operation=failover&mirror_topic_name_pattern=ord.*").json()["data"]

    assert [(row["mirror_topic_name"], row["allowed"], row["records_at_risk"]) for row in rows] == [("orders", True, 5)]
    assert MirrorTopic.objects.get(name="orders").state == MirrorState.ACTIVE


@pytest.mark.parametrize("query", ["", "?operation=explode", "?operation=pause&mirror_topic_name_pattern=("])
def test_a_preview_needs_a_valid_operation_and_pattern(owner: Rest, link: ClusterLink, query: str) -> None:
    assert owner.get(f"{LINK}/previews{query}").status_code == 400


def test_a_restore_lists_dropped_records_and_returns_their_export(owner: Rest, run: RestoreRun) -> None:
    listed = owner.get(f"{LINK}/mirrors/orders/restores").json()["data"][0]
    file = owner.get(f"{LINK}/mirrors/orders/restores/{run.pk}/records")

    assert (listed["messages_truncated"], listed["export_records"]) == (2, 2)
    assert gzip.decompress(b"".join(file.streaming_content)) == b"{}\n{}\n"
    assert file["Content-Disposition"] == 'attachment; filename="orders-1.jsonl.gz"'


def test_a_reader_may_not_download_records(reader: Rest, run: RestoreRun) -> None:
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
def test_missing_exports_have_different_reasons(owner: Rest, run: RestoreRun, change: dict[str, Any], words: str) -> None:
    RestoreRun.objects.update(**change)

    response = owner.get(f"{LINK}/mirrors/orders/restores/{run.pk}/records")

    assert response.status_code == 404
    assert words in response.json()["message"]
    assert owner.get(f"{LINK}/mirrors/orders/restores/999/records").status_code == 404


@pytest.fixture
def restore(orders: MirrorTopic, link: ClusterLink, source: Any, boundary: Boundary) -> str:
    """The path of a restore that makes the source's topic a mirror of the stopped mirror; it would drop two records."""
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
    boundary.response = {"orders": [{"partition": 0, "start": 0, "end": 12, "common": 10}]}
    return f"/kafka/v3/clusters/{source.cluster_id}/links/{back.name}/mirrors:truncate-and-restore"


def test_dropped_records_are_counted_before_a_restore(owner: Rest, restore: str) -> None:
    response = owner.post(
        f"{restore}?validate_only=true&include_partition_level_truncation_data=true", {"mirror_topic_names": ["orders"]}
    )

    row = response.json()["data"][0]
    assert (row["error_code"], row["messages_truncated"]) == (None, 2)
    assert row["partition_level_truncation_data"] == [{"partition_id": 0, "offset_truncated_to": 10, "messages_truncated": 2}]
    assert not RestoreRun.objects.exists()


def test_a_restore_returns_the_number_of_dropped_records(owner: Rest, restore: str) -> None:
    row = owner.post(restore, {"mirror_topic_names": ["orders"]}).json()["data"][0]

    assert (row["error_code"], row["messages_truncated"], row["partition_level_truncation_data"]) == (None, 2, [])
    assert RestoreRun.objects.exists()


def test_the_number_of_dropped_records_is_unknown_if_the_cluster_is_unavailable(
    owner: Rest, restore: str, boundary: Boundary
) -> None:
    boundary.error = UnavailableError("No worker responds.")

    row = owner.post(f"{restore}?validate_only=true", {"mirror_topic_names": ["orders"]}).json()["data"][0]

    assert (row["error_code"], row["messages_truncated"]) == (None, None)


class TestPreviewOfADeletion:
    """GET topics/{topic_name}/deletion-preview."""

    def test_mirrors_that_copy_from_the_topic_are_named_before_it_is_deleted(
        self, owner: Rest, make_mirror: Any, other_side: ClusterLink, cluster: SmallCluster
    ) -> None:
        make_mirror("plain", link=other_side)

        found = owner.get(f"{TOPICS}/plain/deletion-preview").json()

        assert (found["topic_name"], found["allowed"], found["reason"]) == ("plain", True, "")
        (warning,) = found["warnings"]
        assert warning.startswith("Mirror topics copy from 'plain': 'plain' on cluster 'Source' (link 'from-source').")
        assert not cluster.queries

    def test_a_topic_without_copies_and_a_mirror_topic_have_no_warnings(self, owner: Rest, orders: MirrorTopic) -> None:
        for name in ("plain", "orders"):
            found = owner.get(f"{TOPICS}/{name}/deletion-preview").json()
            assert found == {"topic_name": name, "allowed": True, "reason": "", "warnings": []}
        assert MirrorTopic.objects.get().deletion_requested_at is None

    def test_the_reason_is_that_of_the_refused_deletion(
        self, owner: Rest, make_mirror: Any, link: ClusterLink, topics: str
    ) -> None:
        make_mirror("orders")
        choose_all(link)

        found = owner.get(f"{TOPICS}/orders/deletion-preview").json()

        assert found["allowed"] is False
        assert found["reason"] == owner.delete(f"{topics}/orders").json()["message"]

    def test_restore_needs_the_role_that_a_deletion_needs(
        self, owner: Rest, reader: Rest, stranger: Rest, orders: MirrorTopic
    ) -> None:
        for name in ("plain", "orders"):
            assert reader.get(f"{TOPICS}/{name}/deletion-preview").status_code == 403
            assert stranger.get(f"{TOPICS}/{name}/deletion-preview").status_code == 404
