"""``linkctl topic``: list, describe and delete topics of the cluster."""

import pytest

from console.models import ClusterLink
from tests.console.api.brokers import SmallCluster
from tests.linkctl.conftest import Run, read_json


def test_topics_are_listed(run: Run) -> None:
    assert run("topic", "list").stdout.splitlines()[1].split() == ["plain", "3", "2"]
    assert [topic["topic_name"] for topic in read_json(run("topic", "list", "--json"))["data"]] == ["plain"]


def test_a_topic_is_described_with_its_configs(run: Run) -> None:
    shown = run("topic", "describe", "plain").stdout

    assert "Partitions          3\n" in shown
    assert "retention.ms  1000" in shown
    assert read_json(run("topic", "describe", "plain", "--json"))["configs"][0]["name"] == "retention.ms"


def test_deleting_a_topic_needs_confirmation(run: Run, cluster: SmallCluster) -> None:
    assert run("topic", "delete", "plain", stdin="n\n").exit_code == 1
    assert not deleted(cluster)

    assert run("topic", "delete", "plain", stdin="y\n").exit_code == 0
    assert deleted(cluster) == ["plain"]


def test_existing_topics_are_deleted_even_if_others_are_unknown(run: Run, cluster: SmallCluster) -> None:
    result = run("topic", "delete", "none", "plain", "--yes")

    assert result.exit_code == 1
    assert result.stdout.splitlines()[1] == "Topic plain was deleted"
    assert "none" in result.stdout.splitlines()[0]
    assert run("topic", "delete", "none", "--yes").exit_code == 3


def test_deleting_a_mirror_topic_deletes_the_mirror(run: Run, link: ClusterLink, make_mirror: object) -> None:
    make_mirror("orders")  # type: ignore[operator]

    assert run("topic", "delete", "orders", "--yes").exit_code == 0
    assert link.mirrors.get().deletion_requested_at is not None


@pytest.mark.parametrize("name", ["..", ".", "a/b", "50%", "a b?c#d"])
def test_a_topic_name_with_any_characters_is_a_single_path_segment(run: Run, name: str) -> None:
    """No topic has such a name, so each is not found; none of the names changes the path of the request."""
    result = run("topic", "describe", name)

    assert result.exit_code == 3
    assert f"Topic '{name}' cannot be found" in result.stderr


def deleted(cluster: SmallCluster) -> list[str]:
    return [asked["topic"] for question, asked in cluster.queries if question == "delete_topic"]
