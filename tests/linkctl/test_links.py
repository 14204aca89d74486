"""``linkctl link``: each command shows the result of the REST API, as a table or as JSON."""

from pathlib import Path
from typing import Any

import pytest

from console.errors import UnavailableError
from console.models import ClusterLink
from linkengine.domain.errors import ErrorCode, LinkEngineError
from tests.console.api.actors import SOURCE, Boundary, Rest
from tests.linkctl.conftest import Run, any_user, read_json

CREATE = ("link", "create", "new", "--source-cluster", SOURCE, "--bootstrap-server", "source.test:9092")


def test_links_are_listed_in_a_table(run: Run, link: ClusterLink) -> None:
    lines = run("link", "list").stdout.splitlines()

    assert lines[0].split() == ["NAME", "HEALTH", "STATE", "SOURCE", "CLUSTER", "MIRROR", "TOPICS", "REASON"]
    assert lines[1].split()[:5] == ["from-source", "EMPTY", "ACTIVE", SOURCE, "0"]


def test_health_of_a_link_names_the_mirrors_that_need_attention(run: Run, link: ClusterLink, make_mirror: Any) -> None:
    make_mirror("orders").partitions.update(observed_at=None)

    shown = run("link", "health", "from-source").stdout

    assert "Health         NOT_COPYING" in shown
    assert "Mirror topics  1 not_copying" in shown
    assert shown.splitlines()[-1].startswith("orders        NOT_COPYING  No copy worker has reported on 1 partition for ")
    assert read_json(run("link", "health", "from-source", "--json"))["reason"] == "SILENT"
    assert "NOT_COPYING: 1 of 1 mirror topic: No copy worker" in run("link", "describe", "from-source").stdout
    assert "NOT_COPYING: No copy worker has reported" in run("mirror", "describe", "orders", "--link", "from-source").stdout


def test_links_are_listed_as_json(run: Run, link: ClusterLink) -> None:
    assert read_json(run("link", "list", "--json"))["data"][0]["link_name"] == "from-source"


def test_a_link_is_described_with_its_configs_and_without_secrets(run: Run, link: ClusterLink) -> None:
    shown = run("link", "describe", "from-source").stdout

    assert "Other cluster  " + SOURCE in shown
    assert "sasl.jaas.config" in shown
    assert "(hidden)" in shown
    assert "password" not in shown
    assert read_json(run("link", "describe", "from-source", "--json"))["configs"]


def test_a_link_is_created(run: Run, source: Any, boundary: Boundary) -> None:
    result = run(*CREATE, "--config", "topic.config.sync.ms=7000")

    assert (result.exit_code, result.stdout) == (0, "Cluster link new was created\n")
    stored = ClusterLink.objects.get(name="new")
    assert dict(stored.configs.values_list("name", "value")) == {"topic.config.sync.ms": "7000"}
    assert boundary.called


def test_credentials_come_from_a_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "source.properties"
    file.write_text(
        "# the source\n\nbootstrap.servers = other.test:9093\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n  username="u" password="p=q";\n'
    )

    assert run("link", "create", "new", "--source-cluster", SOURCE, "--config-file", str(file)).exit_code == 0
    properties = ClusterLink.objects.get(name="new").properties
    assert properties["bootstrap.servers"] == "other.test:9093"
    assert 'password="p=q"' in properties["sasl.jaas.config"]


def test_a_config_can_come_from_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n")
    named = ("--config", "security.protocol=SSL", "--config", f"ssl.keystore.key=@{tmp_path / 'key.pem'}")

    assert run(*CREATE, *named).exit_code == 0
    stored = ClusterLink.objects.get(name="new").properties["ssl.keystore.key"]
    assert stored.splitlines()[1] == "abc"

    missing = run(*CREATE, "--config", f"ssl.keystore.key=@{tmp_path / 'missing.pem'}")
    assert (missing.exit_code, "missing.pem cannot be read" in missing.stderr) == (2, True)


def test_a_dry_run_creates_nothing(run: Run, boundary: Boundary) -> None:
    result = run(*CREATE, "--dry-run")

    assert (result.exit_code, "dry run" in result.stdout) == (0, True)
    assert boundary.called
    assert not ClusterLink.objects.exists()


def test_a_dry_run_shows_the_round_trip_to_each_source_broker(run: Run, boundary: Boundary) -> None:
    far = {"round_trip_ms": 80.0, "send_buffer_bytes": 102_400, "receive_buffer_bytes": 6_291_456}
    boundary.response = {
        "cluster_id": SOURCE,
        "distances": [
            {"broker": 1, "address": "far.test:9092", **far},
            {"broker": 2, "address": "gone.test:9092", "error": "No connection."},
        ],
    }

    lines = run(*CREATE, "--dry-run").stdout.splitlines()

    assert lines[-2].split() == ["1", "far.test:9092", "80.0", "ms", "socket.send.buffer.bytes", "1.3", "MB/s", "-"]
    assert lines[-1].split() == ["2", "gone.test:9092", "unknown", "-", "-", "No", "connection."]


def test_a_link_can_be_created_without_validation(run: Run, boundary: Boundary) -> None:
    assert run(*CREATE, "--no-validate-link").exit_code == 0
    assert not boundary.called


def test_configs_are_set_and_unset(run: Run, link: ClusterLink) -> None:
    link.configs.create(name="acl.sync.ms", value="9000")

    result = run("link", "update", "from-source", "--config", "topic.config.sync.ms=7000", "--unset", "acl.sync.ms")

    assert result.exit_code == 0
    assert dict(link.configs.values_list("name", "value")) == {"topic.config.sync.ms": "7000"}


def test_configs_are_updated_with_the_command_of_confluents_cli(run: Run, link: ClusterLink) -> None:
    command = ("link", "configuration", "update", "from-source", "--config", "topic.config.sync.ms=7000")

    assert run(*command).stdout == "Cluster link from-source was updated\n"
    assert dict(link.configs.values_list("name", "value")) == {"topic.config.sync.ms": "7000"}


def test_a_dry_run_updates_nothing(run: Run, link: ClusterLink) -> None:
    assert run("link", "update", "from-source", "--config", "topic.config.sync.ms=7000", "--dry-run").exit_code == 0
    assert not link.configs.exists()
    assert run("link", "update", "from-source", "--config", "no.such.config=1", "--dry-run").exit_code == 1


def test_an_update_needs_a_change(run: Run, link: ClusterLink) -> None:
    result = run("link", "update", "from-source")

    assert result.exit_code == 2
    assert "--config" in result.stderr


def test_all_configs_are_listed(run: Run, link: ClusterLink) -> None:
    shown = run("link", "configuration", "list", "from-source").stdout

    assert "num.cluster.link.fetchers" in shown
    assert read_json(run("link", "configuration", "list", "from-source", "--json"))["kind"] == "KafkaLinkConfigDataList"


def test_tasks_are_listed(run: Run, link: ClusterLink, make_mirror: Any) -> None:
    make_mirror("orders")

    assert "ConsumerOffsetSync" in run("link", "task", "list", "from-source").stdout
    assert {task["task_name"] for task in read_json(run("link", "task", "list", "from-source", "--json"))} >= {"AclSync"}


def test_deleting_a_link_needs_confirmation(run: Run, link: ClusterLink) -> None:
    assert run("link", "delete", "from-source", stdin="n\n").exit_code == 1
    assert run("link", "delete", "from-source", "--dry-run").exit_code == 0
    assert ClusterLink.objects.exists()

    assert run("link", "delete", "from-source", stdin="y\n").exit_code == 0
    assert not ClusterLink.objects.exists()


def test_a_forced_deletion_fails_mirrors_over_first(run: Run, link: ClusterLink, make_mirror: Any) -> None:
    mirror = make_mirror("orders")
    assert run("link", "delete", "from-source", "--yes").exit_code == 1

    assert run("link", "delete", "from-source", "--yes", "--force").exit_code == 0

    mirror.refresh_from_db()
    assert mirror.state == "PENDING_STOPPED"


class TestExitCodes:
    """Exit codes for scripts; the message on stderr is the service's."""

    def test_an_unknown_link_is_3(self, run: Run) -> None:
        result = run("link", "describe", "nothing")

        assert (result.exit_code, result.stdout) == (3, "")
        assert "nothing" in result.stderr

    def test_a_refusal_is_1(self, run: Run, boundary: Boundary) -> None:
        boundary.error = LinkEngineError(ErrorCode.AUTHENTICATION_ERROR, "The source refuses the password.")

        result = run(*CREATE)

        assert (result.exit_code, result.stderr) == (1, "Error: The source refuses the password.\n")

    def test_a_missing_role_and_a_wrong_secret_are_4(self, run: Run, link: ClusterLink, reader: Rest) -> None:
        assert run("link", "delete", "from-source", "--yes", as_=reader).exit_code == 4
        assert run("link", "list", LINKCTL_API_SECRET="wrong").exit_code == 4

    def test_an_unavailable_service_is_5(self, run: Run, boundary: Boundary) -> None:
        boundary.error = UnavailableError("No worker responds.")

        assert run(*CREATE).exit_code == 5

    @pytest.mark.parametrize("arguments", [("link", "explode"), ("link", "create"), ("mirror", "promote", "a")])
    def test_an_invalid_command_line_is_2(self, run: Run, arguments: tuple[str, ...]) -> None:
        assert run(*arguments).exit_code == 2


def test_the_cluster_must_be_given_if_several_are_visible(run: Run, link: ClusterLink) -> None:
    ClusterLink.objects.update(source=None)
    assert "from-source" not in run("link", "list", LINKCTL_CLUSTER="").stdout  # two clusters are registered

    result = run("link", "list", LINKCTL_CLUSTER="")

    assert result.exit_code == 2
    assert SOURCE in result.stderr
    assert run("link", "list", as_=any_user(), LINKCTL_CLUSTER="").exit_code == 2


def test_a_bearer_token_suffices_to_sign_in(run: Run, link: ClusterLink, owner: Rest) -> None:
    token = owner.post("/api/v1/tokens", {}).json()["access_token"]

    assert run("link", "list", LINKCTL_API_KEY="", LINKCTL_API_SECRET="", LINKCTL_TOKEN=token).exit_code == 0
