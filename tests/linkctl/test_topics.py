"""``linkctl topic``: list, describe and delete topics of the cluster."""

from typing import Any

import pytest

from console.models import ClusterLink
from tests.console.api.actors import Rest
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


@pytest.mark.parametrize("arguments", [(), ("--yes",)])
def test_mirrors_that_copy_from_a_topic_are_named_before_it_is_deleted(
    run: Run, make_mirror: Any, other_side: ClusterLink, cluster: SmallCluster, arguments: tuple[str, ...]
) -> None:
    make_mirror("plain", link=other_side)

    result = run("topic", "delete", "plain", *arguments, stdin="n\n")

    assert result.stderr.startswith("Warning: plain: Mirror topics copy from 'plain': 'plain' on cluster 'Source'")
    assert result.stderr.find("Delete plain with all") > 0 or arguments
    assert (result.exit_code, deleted(cluster)) == ((0, ["plain"]) if arguments else (1, []))


def test_a_deletion_warns_if_the_copies_of_a_topic_could_not_be_checked(run: Run, reader: Rest, cluster: SmallCluster) -> None:
    result = run("topic", "delete", "plain", as_=reader, stdin="y\n")

    assert result.stderr.startswith("Warning: plain: It could not be checked whether mirror topics copy from it. ")
    assert (result.exit_code, deleted(cluster)) == (4, [])


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
    return [requested["topic"] for question, requested in cluster.queries if question == "delete_topic"]
