"""docker-compose.yml, Dockerfile and .env.example agree with the settings and the documents, and nothing in them floats."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.demo.services import Console, web_command
from devcluster.spark import MASTER
from linkctl import __version__
from scripts import check_parts, image_digests

ROOT = Path(__file__).resolve().parents[1]
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
EXAMPLE = (ROOT / ".env.example").read_text()
SETTING = re.compile(r"CLUSTERLINK_[A-Z_]+")
VARIABLE = re.compile(r"(?<!\$)\$\{([A-Z_]+)")  # $${…} is left to the shell of the container
PINNED = re.compile(r"[a-z0-9/.-]+:v?\d+\.\d+(\.\d+)?[a-z0-9.-]*@sha256:[0-9a-f]{64}")
OWN = ("migrate", "web", "worker", "beat")
SPARK = ("spark-master", "spark-worker", "spark-connect")
ENDS = {"migrate", "spark-secrets"}  # run once; other services wait until they have succeeded
PARTS = {*OWN, *SPARK, "spark-secrets", "postgres", "redis", "kafka-source", "kafka-destination"}
SECRETS = {"CLUSTERLINK_SECRET_KEY", "CLUSTERLINK_CREDENTIALS_KEY", "CLUSTERLINK_DATABASE_URL", "CLUSTERLINK_DATABASE_PASSWORD",
           "CLUSTERLINK_REDIS_URL", "CLUSTERLINK_REDIS_PASSWORD", "CLUSTERLINK_SPARK_URL",
           "CLUSTERLINK_SPARK_TOKEN", "CLUSTERLINK_OIDC_CLIENT_SECRET"}  # fmt: skip
ALL_SECRETS = SECRETS | {"POSTGRES_PASSWORD", "REDIS_PASSWORD", "SPARK_AUTH_SECRET"}
NAMED = set(re.findall(r"^([A-Z_]+)=", EXAMPLE, re.MULTILINE))


def known_settings() -> set[str]:
    return set(re.findall(r'"(CLUSTERLINK_[A-Z_]+)"', (ROOT / "console" / "settings.py").read_text()))


def megabytes(text: str) -> int:
    """Read a size of Compose, with or without a variable around it."""
    number, unit = re.fullmatch(r"(?:\$\{\w+:-)?(\d+)([mg])\}?", text).groups()  # type: ignore[union-attr]
    return int(number) * (1024 if unit == "g" else 1)


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def test_compose_describes_every_part() -> None:
    assert set(SERVICES) >= PARTS


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_image_is_pinned_and_depends_on_services_that_exist(name: str) -> None:
    service = SERVICES[name]

    assert service["image"] == f"clusterlink:{__version__}" or PINNED.fullmatch(service["image"]), service["image"]
    assert set(service.get("depends_on", ())) <= set(SERVICES)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_has_an_init_process_a_memory_limit_and_a_health_check(name: str) -> None:
    service = SERVICES[name]

    assert service["init"] is True
    assert megabytes(service["mem_limit"]) >= 256
    if name in ENDS:
        assert service["healthcheck"] == {"disable": True}
        assert service["restart"] == "no"
    else:
        assert service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
        assert seconds(service["healthcheck"]["timeout"]) <= seconds(service["healthcheck"]["interval"])


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_secret_is_an_argument_of_a_process(name: str) -> None:
    """Compose replaces ``${…}`` before a process starts; ``$$`` is left to the shell, which reads the environment."""
    words = str([SERVICES[name].get("command"), SERVICES[name].get("entrypoint"), SERVICES[name].get("healthcheck")])

    assert not VARIABLE.search(words)
    assert not re.search(r"(requirepass|redis-cli[^|]* -a|--password)", words)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_requires_only_services_that_are_started_with_it(name: str) -> None:
    for other, condition in SERVICES[name].get("depends_on", {}).items():
        optional = set(SERVICES[other].get("profiles", ())) - set(SERVICES[name].get("profiles", ()))
        assert not optional or condition.get("required") is False


def test_the_profiles_of_the_example_start_everything_but_kafka() -> None:
    profiles = re.search(r"^COMPOSE_PROFILES=(.*)$", EXAMPLE, re.MULTILINE)
    assert profiles is not None
    needed = {profile for service in SERVICES.values() for profile in service.get("profiles", ())}

    assert set(profiles[1].split(",")) == needed - {"kafka"}


def test_each_variable_of_the_example_takes_effect_and_no_other_is_used() -> None:
    used = set(VARIABLE.findall(COMPOSE_TEXT))

    assert used - {f"{name}_FILE" for name in ALL_SECRETS} == NAMED - {"COMPOSE_PROFILES"}
    assert {f"{name}_FILE" for name in ALL_SECRETS} <= used
    assert {name for name in ALL_SECRETS if name not in EXAMPLE.partition("# Signs sessions")[0]} == set()


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_that_gets_a_secret_as_a_variable_also_gets_it_as_a_file(name: str) -> None:
    """Compose inserts variables, not the contents of files: a secret that is used elsewhere than here could not be a file."""
    environment = SERVICES[name].get("environment", {})
    secrets = ALL_SECRETS & set(environment)
    elsewhere = str({key: value for key, value in SERVICES[name].items() if key != "environment"})

    for secret in secrets:
        assert environment[f"{secret}_FILE"].startswith(f"${{{secret}_FILE:-"), secret
    assert not secrets or "${SECRETS_DIR:-./secrets}:/run/secrets:ro" in SERVICES[name]["volumes"]
    assert not ALL_SECRETS & set(VARIABLE.findall(elsewhere))
    assert "configs" not in COMPOSE  # contents in this file would also need Compose 2.23.1, the documents say 2.20
    assert "secrets" not in COMPOSE


def test_every_setting_reaches_the_product() -> None:
    for name in OWN:
        assert set(SERVICES[name]["environment"]) == known_settings() | {f"{secret}_FILE" for secret in SECRETS}
    assert {name for name in NAMED if name.startswith("CLUSTERLINK_")} == known_settings()


def test_every_secret_setting_may_come_from_a_file() -> None:
    text = (ROOT / "console" / "settings.py").read_text()
    read_as_secret = set(re.findall(r'_env\.(?:secret|cipher_keys|database|redis)\("(\w+)"', text))
    read_as_secret |= set(re.findall(r', "(CLUSTERLINK_\w+_PASSWORD)"\)', text))

    assert read_as_secret == SECRETS


@pytest.mark.parametrize("name", SPARK)
def test_spark_gets_no_setting_of_the_product(name: str) -> None:
    assert not SETTING.findall(str(SERVICES[name]["environment"]))
    assert "/run/secrets" not in str(SERVICES[name].get("volumes", ""))


def test_memory_limits_are_those_of_the_documents() -> None:
    text = "".join(path.read_text() for path in sorted((ROOT / "docs").rglob("*.md")))
    table = dict(re.findall(r"^\| `([a-z-]+)` \|[^|]*\| (\d+ [MG]B)\b", text, re.MULTILINE))

    for name in PARTS - {"kafka-source", "kafka-destination"}:
        number, unit = table[name].split()
        assert int(number) * (1024 if unit == "GB" else 1) == megabytes(SERVICES[name]["mem_limit"]), name


def test_a_spark_worker_has_room_for_its_executors_and_copy_tasks() -> None:
    environment = SERVICES["spark-worker"]["environment"]
    cores = int(environment["SPARK_WORKER_CORES"].rpartition(":-")[2].rstrip("}"))
    heap = megabytes(environment["SPARK_WORKER_MEMORY"])

    assert heap >= megabytes(SERVICES["spark-connect"]["environment"]["SPARK_EXECUTOR_MEMORY"])
    assert megabytes(SERVICES["spark-worker"]["mem_limit"]) >= heap + cores * 256 + 1024
    assert f"local[{cores}," in MASTER  # as many as in the demo


def test_spark_recovers_from_a_restart_of_its_master_and_logs_as_in_the_demo() -> None:
    assert "spark-recovery:/recovery" in SERVICES["spark-master"]["volumes"]
    assert SERVICES["spark-master"]["environment"]["SPARK_RECOVERY_DIR"] == "/recovery"
    assert "install -d -o clusterlink -g clusterlink -m 700 /recovery" in (ROOT / "Dockerfile").read_text()
    assert {SERVICES[name]["environment"]["SPARK_LOG_LEVEL"] for name in SPARK} == {"${SPARK_LOG_LEVEL:-WARN}"}


def test_exports_lie_where_the_web_process_and_later_containers_find_them() -> None:
    assert "${CLUSTERLINK_EXPORT_DIR:-exports}:/exports" in SERVICES["web"]["volumes"]
    assert SERVICES["web"]["volumes"] == SERVICES["worker"]["volumes"]
    assert SERVICES["web"]["environment"]["CLUSTERLINK_EXPORT_DIR"] == "/exports"
    assert "exports" in COMPOSE["volumes"]
    assert "install -d -o clusterlink -g clusterlink -m 700 /exports" in (ROOT / "Dockerfile").read_text()


def test_the_two_clusters_to_try_it_on_are_two() -> None:
    assert len({SERVICES[name]["environment"]["CLUSTER_ID"] for name in ("kafka-source", "kafka-destination")}) == 2


@pytest.mark.parametrize("script", sorted((ROOT / "deploy").glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_executable_and_can_be_read_by_sh(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0


@pytest.mark.parametrize("name", SPARK)
def test_spark_gets_its_secrets_from_a_file_that_exists_before_it_starts(name: str) -> None:
    service, (script, file) = SERVICES[name], SERVICES["spark-secrets"]["command"]

    assert script == "deploy/write-spark-secrets.sh"
    assert service["environment"]["SPARK_SECRETS"] == file
    assert "spark-secrets:/spark-secrets:ro" in service["volumes"]
    assert "spark-secrets:/spark-secrets" in SERVICES["spark-secrets"]["volumes"]
    assert "install -d -o clusterlink -g clusterlink -m 700 /spark-secrets" in (ROOT / "Dockerfile").read_text()
    assert name == "spark-master" or "spark-master" in service["depends_on"]
    assert SERVICES["spark-master"]["depends_on"] == {"spark-secrets": {"condition": "service_completed_successfully"}}


@pytest.fixture
def commands(tmp_path: Path) -> tuple[Path, Path]:
    """A path with the commands of the script, each of which writes its arguments to a log before it runs, and that log."""
    folder, log = tmp_path / "bin", tmp_path / "arguments"
    folder.mkdir()
    for name in ("cat", "sed", "mv", "id"):
        program = shutil.which(name)
        assert program is not None
        (folder / name).write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >>"{log}"\nexec {program} "$@"\n')
        (folder / name).chmod(0o755)
    return folder, log


def write_spark_secrets(folder: Path, file: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    script = ROOT / "deploy" / "write-spark-secrets.sh"
    environment = {"PATH": str(folder), **variables}
    return subprocess.run([script, file], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("from_file", [True, False], ids=["files", "variables"])
def test_the_properties_file_has_both_secrets_and_no_process_argument_has_one(
    tmp_path: Path, commands: tuple[Path, Path], from_file: bool
) -> None:
    folder, log = commands
    given = {"SPARK_AUTH_SECRET": "a\\b=#c", "CLUSTERLINK_SPARK_TOKEN": "token-of-clients"}
    variables = dict(given)
    for name, value in given.items() if from_file else ():
        (tmp_path / name).write_text(f"{value}\n")
        variables |= {name: "", f"{name}_FILE": str(tmp_path / name)}  # as Compose passes an empty variable

    done = write_spark_secrets(folder, tmp_path / "secrets.conf", **variables)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "secrets.conf").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "secrets.conf").read_text().splitlines() == [
        "spark.authenticate=true",
        "spark.authenticate.secret=a\\\\b=#c",
        "spark.connect.authenticate.token=token-of-clients",
    ]
    arguments = log.read_text()
    assert "sed " in arguments
    assert not [value for value in given.values() if value in arguments]


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"SPARK_AUTH_SECRET": "a"}, "Set CLUSTERLINK_SPARK_TOKEN or CLUSTERLINK_SPARK_TOKEN_FILE"),
        ({"SPARK_AUTH_SECRET": "", "CLUSTERLINK_SPARK_TOKEN": "b"}, "Set SPARK_AUTH_SECRET or SPARK_AUTH_SECRET_FILE"),
        ({"SPARK_AUTH_SECRET_FILE": "/dev/null"}, "Set SPARK_AUTH_SECRET or SPARK_AUTH_SECRET_FILE"),
        ({"SPARK_AUTH_SECRET_FILE": "/no/such/file"}, "SPARK_AUTH_SECRET_FILE names /no/such/file, which user"),
        ({"SPARK_AUTH_SECRET": "a\nspark.x=y", "CLUSTERLINK_SPARK_TOKEN": "b"}, "SPARK_AUTH_SECRET has several lines"),
    ],
)
def test_without_a_secret_no_properties_file_is_written(
    tmp_path: Path, commands: tuple[Path, Path], variables: dict[str, str], error: str
) -> None:
    done = write_spark_secrets(commands[0], tmp_path / "secrets.conf", **variables)

    assert done.returncode == 1
    assert error in done.stderr
    assert not list(tmp_path.glob("secrets.conf*"))


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("spark.authenticate.secret abc\nspark.connect.authenticate.token def\n", True),
        ("spark.authenticate.secret abc\nspark.connect.authenticate.token \n", False),
        ("spark.connect.authenticate.token def\n", False),
    ],
)
def test_spark_does_not_start_without_its_secrets(tmp_path: Path, text: str, starts: bool) -> None:
    secrets = tmp_path / "secrets.conf"
    secrets.write_text(text)
    command: list[str | Path] = [
        ROOT / "deploy" / "spark-secrets.sh",
        "spark.authenticate.secret",
        "spark.connect.authenticate.token",
    ]

    environment = {"SPARK_SECRETS": str(secrets), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert (done.returncode == 0) is starts
    assert done.stdout == (f"{secrets}\n" if starts else "")
    assert starts or "is not set in" in done.stderr


def test_a_record_too_large_for_the_heap_does_not_end_spark() -> None:
    defaults = (ROOT / "deploy" / "spark" / "spark-defaults.conf").read_text()
    start = (ROOT / "deploy" / "spark-connect.sh").read_text()

    assert re.search(r"^spark\.executor\.killOnFatalError\.depth +0$", defaults, re.MULTILINE)
    assert "--load-spark-defaults" in start
    assert "ExitOnOutOfMemoryError" not in defaults + start


def test_no_web_server_evaluates_forwarding_headers_itself(tmp_path: Path) -> None:
    image = re.findall(r'^CMD \["uvicorn".*$', (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    compose = [service["command"] for service in SERVICES.values() if "uvicorn" in service.get("command", ())]
    units = re.findall(r"^ExecStart=.*uvicorn.*$", (ROOT / "deploy/systemd/clusterlink-web.service").read_text(), re.MULTILINE)
    console = Console(directory=tmp_path, port=1, environment={})

    assert len(image) == len(compose) == len(units) == 1
    for command in (image[0], compose[0], units[0], web_command(console, reload=False), web_command(console, reload=True)):
        assert "--no-proxy-headers" in command
        assert "--forwarded-allow-ips" not in command


def test_dockerfile_builds_on_pinned_images_with_hashed_requirements_and_recorded_java_parts() -> None:
    text = (ROOT / "Dockerfile").read_text()
    images = re.findall(r"^FROM (\S+)", text, re.MULTILINE)

    assert images
    assert all(PINNED.fullmatch(image) for image in images)
    assert "--require-hashes -r requirements-run.txt" in text
    assert "sha256sum --check --strict --quiet wanted.sha256" in text
    assert set(SETTING.findall(text)) <= known_settings()
    assert image_digests.without_digest() == []


def test_each_java_part_that_is_installed_has_its_recorded_hash() -> None:
    profiles = {name.split("/")[0] for name in check_parts.read_record()}

    assert profiles == set(re.findall(r"<id>([\w.-]+)</id>", (ROOT / "devcluster" / "pom.xml").read_text()))
    installed = sorted(profile for profile in profiles if (check_parts.PARTS / profile).is_dir())
    assert len(profiles) - len(installed) <= 1  # kafka-4.4.0 comes with `make test KAFKA=4.4.0`
    assert check_parts.main(installed) == 0


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
