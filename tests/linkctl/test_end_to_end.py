"""linkctl against the whole product: web process, worker, Spark and two clusters, without test doubles."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient, NewTopic

from devcluster.kafka import KafkaCluster
from linkctl.cli import program
from tests.console.api.service import Service, running
from tests.console.api.test_end_to_end import RECORDS, produce

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
TIMEOUT_S = 120.0
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def service(
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    redis_url: str,
    spark_connect_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    assert redis_url
    assert spark_connect_url
    clusters = {"Destination": destination_cluster.client_properties("link")}
    with running(directory=tmp_path_factory.mktemp("linkctl"), clusters=clusters) as service:
        yield service


@pytest.fixture
def run(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs linkctl with a settings file; no cluster is given, since the service has only one."""
    monkeypatch.chdir(tmp_path)
    settings = {"url": str(service.client.base_url), "api_key": service.key, "api_secret": service.secret}
    Path("linkctl.json").write_text(json.dumps(settings))

    def call(*arguments: str, expect: int = 0) -> Result:
        result = CliRunner().invoke(program, ["--file", "linkctl.json", *arguments])
        assert result.exit_code == expect, f"{arguments}: {result.output}\n{service.log_tail()}"
        return result

    return call


def test_a_link_is_created_operated_and_deleted_on_the_command_line(
    run: Run, source_cluster: KafkaCluster, source_admin: AdminClient, topic_name: str
) -> None:
    source_admin.create_topics([NewTopic(topic_name, 2, 1)])[topic_name].result(30)
    produce(source_cluster, topic_name, count=RECORDS)
    properties = source_cluster.client_properties("link")
    Path("source.properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    create = ("link", "create", "shell", "--source-cluster", source_cluster.cluster_id, "--config-file", "source.properties")

    run(*create, "--dry-run")
    run("link", "describe", "shell", expect=3)
    run(*create)
    run("mirror", "create", topic_name, "--link", "shell")
    until(lambda: row_of(run, topic_name)[3:6] == ["ACTIVE", "2", "0"])
    assert "MirrorTopicCopy" in run("link", "task", "list", "shell").stdout
    run("mirror", "pause", topic_name, "--link", "shell")
    assert row_of(run, topic_name)[3] == "PAUSED"
    run("mirror", "pause", topic_name, "--link", "shell", expect=1)
    run("mirror", "resume", topic_name, "--link", "shell")
    run("mirror", "failover", "--pattern", f"{topic_name}", "--link", "shell")
    until(lambda: row_of(run, topic_name)[3] == "STOPPED")
    run("link", "delete", "shell", "--yes")
    run("link", "describe", "shell", expect=3)


def row_of(run: Run, topic: str) -> list[str]:
    lines = run("mirror", "list", "--link", "shell").stdout.splitlines()
    return next(line.split() for line in lines if topic in line)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
