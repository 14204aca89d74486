"""docker-compose.yml, Dockerfile and .env.example say the same as the settings, and nothing in them floats."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.demo.services import Console, web_command

ROOT = Path(__file__).resolve().parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SETTING = re.compile(r"CLUSTERLINK_[A-Z_]+")
PINNED = re.compile(r"[a-z0-9/.-]+:v?\d+\.\d+(\.\d+)?[a-z0-9.-]*")
PARTS = {"web", "worker", "beat", "postgres", "redis", "spark-master", "spark-worker", "spark-connect", "kafka-source",
         "kafka-destination"}  # fmt: skip


def known_settings() -> set[str]:
    read = set(SETTING.findall((ROOT / "console" / "settings.py").read_text()))
    return read | {f"{name}_FILE" for name in read}


def test_compose_describes_every_part() -> None:
    assert set(SERVICES) >= PARTS


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_image_is_pinned_and_depends_on_services_that_exist(name: str) -> None:
    service = SERVICES[name]

    assert PINNED.fullmatch(service["image"]), service["image"]
    assert set(service.get("depends_on", ())) <= set(SERVICES)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_setting_that_is_passed_exists(name: str) -> None:
    passed = SETTING.findall(str(SERVICES[name].get("environment", {})) + str(SERVICES[name].get("command", "")))

    assert set(passed) <= known_settings()


def test_every_required_setting_is_passed_to_the_product() -> None:
    required = {name for name in known_settings() if f'("{name}")' in (ROOT / "console" / "settings.py").read_text()}
    flags = {"CLUSTERLINK_DEBUG", "CLUSTERLINK_BEHIND_TLS", "CLUSTERLINK_LOG_JSON"}

    assert required - flags <= set(SERVICES["web"]["environment"])


def test_example_environment_names_all_that_compose_wants() -> None:
    wanted = set(re.findall(r"\$\{([A-Z_]+)", (ROOT / "docker-compose.yml").read_text()))

    assert wanted <= set(re.findall(r"^([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))


def test_every_setting_reaches_the_product() -> None:
    from_a_file = {name for name in known_settings() if name.endswith("_FILE")}

    assert set(SERVICES["web"]["environment"]) == known_settings() - from_a_file


def test_what_a_restore_sets_aside_lies_where_the_web_process_and_later_containers_find_it() -> None:
    place = SERVICES["web"]["environment"]["CLUSTERLINK_EXPORT_DIR"]

    assert {f"exports:{place}"} == set(SERVICES["web"]["volumes"]) == set(SERVICES["worker"]["volumes"])
    assert "exports" in COMPOSE["volumes"]
    assert f"install -d -o clusterlink -g clusterlink -m 700 {place}" in (ROOT / "Dockerfile").read_text()


def test_the_two_clusters_to_try_it_on_are_two() -> None:
    assert len({SERVICES[name]["environment"]["CLUSTER_ID"] for name in ("kafka-source", "kafka-destination")}) == 2


def test_the_spark_worker_may_write_where_it_works() -> None:
    command = SERVICES["spark-worker"]["command"]

    assert command[command.index("--work-dir") + 1].startswith("/tmp/")


@pytest.mark.parametrize("name", ["spark-master", "spark-worker", "spark-connect"])
def test_spark_gets_its_secrets_from_a_file_and_none_of_the_products(name: str) -> None:
    service, secrets = SERVICES[name], COMPOSE["configs"]["spark-secrets"]["content"]

    assert not SETTING.findall(str(service["environment"]))
    assert service["configs"] == ["spark-secrets"]
    assert service["command"][service["command"].index("--properties-file") + 1] == "/spark-secrets"
    assert not [word for word in service["command"] if "TOKEN" in word or "SECRET" in word]
    assert {line.split()[0] for line in secrets.splitlines()} == {
        "spark.authenticate",
        "spark.authenticate.secret",
        "spark.connect.authenticate.token",
    }


def test_example_environment_names_exactly_the_settings() -> None:
    example = (ROOT / ".env.example").read_text()
    named = set(re.findall(r"^(CLUSTERLINK_[A-Z_]+)=", example, re.MULTILINE))

    assert named == {name for name in known_settings() if not name.endswith("_FILE")}


def test_no_web_server_evaluates_forwarding_headers_itself(tmp_path: Path) -> None:
    image = re.findall(r'^CMD \["uvicorn".*$', (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    compose = [service["command"] for service in SERVICES.values() if "uvicorn" in service.get("command", ())]
    console = Console(directory=tmp_path, port=1, environment={})

    assert len(image) == len(compose) == 1
    for command in (image[0], compose[0], web_command(console, reload=False), web_command(console, reload=True)):
        assert "--no-proxy-headers" in command
        assert "--forwarded-allow-ips" not in command


def test_dockerfile_builds_on_pinned_images_with_hashed_requirements() -> None:
    text = (ROOT / "Dockerfile").read_text()
    images = re.findall(r"^FROM (\S+)", text, re.MULTILINE)

    assert images
    assert all(PINNED.fullmatch(image) for image in images)
    assert "--require-hashes -r requirements-run.txt" in text
    assert set(SETTING.findall(text)) <= known_settings()


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-run.txt"])
def test_requirements_are_pinned_hashed_and_name_no_host(file: str) -> None:
    text = (ROOT / file).read_text()
    pins = re.findall(r"^([A-Za-z0-9_.\[\]-]+)==", text, re.MULTILINE)

    assert len(pins) > 50
    assert text.count("--hash=sha256:") >= len(pins)
    assert "://" not in text


def test_both_requirement_files_agree_on_versions() -> None:
    both = []
    for file in ("requirements.txt", "requirements-run.txt"):
        pins = re.findall(r"^([A-Za-z0-9_.\[\]-]+)==(\S+)", (ROOT / file).read_text(), re.MULTILINE)
        both.append(dict(pins))
    everything, needed = both

    assert {name: everything.get(name) for name in needed} == needed
