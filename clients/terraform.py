"""The scenario of ``clients/terraform``: Confluent's Terraform provider creates, changes, operates and destroys resources.

It also applies the configurations that the console prints for new links, and compares each link with that of the form.

The provider comes from its registry, or from the folder in CLIENTS_TERRAFORM_PROVIDER with a binary
``terraform-provider-confluent``. The program is ``terraform``, or the program in CLIENTS_TERRAFORM (such as ``tofu``).
TF_ACC=1, set by default, is the provider's own switch for shorter pauses between its requests.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import httpx

from clients.environment import ODD_PASSWORD, ROOT, ClientEnvironment, StepFailedError, run_program
from clients.wizard import LinkForm, Wizard, printed_command
from devcluster.kafka import KafkaCluster

TEMPLATE = ROOT / "clients" / "terraform" / "main.tf"
_NO_CHANGES, _CHANGES = 0, 2  # terraform plan -detailed-exitcode
# The provider always sends these; for a registered source they are stored and have no effect.
_CONNECTION = frozenset({"bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.jaas.config"})


class Terraform:
    """A configuration that is applied with changing variables."""

    def __init__(self, environment: ClientEnvironment, *, name: str, text: str, variables: Mapping[str, str]) -> None:
        self._folder = environment.directory / name
        self._folder.mkdir()
        (self._folder / "main.tf").write_text(text)
        self._program = os.environ.get("CLIENTS_TERRAFORM", "terraform")
        self._environment = {**os.environ, **_environment(self._folder), **_as_variables(variables)}

    def init(self) -> None:
        """Fetch the provider, unless it is local."""
        if "CLIENTS_TERRAFORM_PROVIDER" not in os.environ:
            self._run("init")

    def apply(self, what: str, **variables: str) -> None:
        """Apply with variables that stay set; a plan must then find nothing to change."""
        self._environment |= _as_variables(variables)
        self._run("apply", "-auto-approve")
        print("ok  ", what)
        plan = self._run("plan", "-detailed-exitcode", expect=(_NO_CHANGES, _CHANGES))
        if plan.returncode == _CHANGES:
            raise StepFailedError(f"A plan after '{what}' wants to change something:\n{plan.stdout}")
        print("ok  ", "  and a plan finds no drift")

    def destroy(self, what: str) -> None:
        """Destroy everything."""
        self._run("destroy", "-auto-approve")
        print("ok  ", what)

    def _run(self, *arguments: str, expect: tuple[int, ...] = (0,)) -> CompletedProcess[str]:
        command = [self._program, *arguments, "-no-color", *(() if arguments[0] == "init" else ("-input=false",))]
        return run_program(command, folder=self._folder, environment=self._environment, expect=expect)


def run(environment: ClientEnvironment) -> None:
    """Create, plan, change, pause, resume, promote, fail over, destroy; then apply what the console prints for new links."""
    for name in ("tf-promoted", "tf-failed-over"):
        environment.make_topic(name)
    terraform = Terraform(environment, name="terraform", text=TEMPLATE.read_text(), variables=_variables(environment))
    terraform.init()
    terraform.apply("a link and two mirror topics are created")
    terraform.apply("a config of the link is changed", sync_ms="7000")
    terraform.apply("a mirror topic is paused", status_promoted="PAUSED")
    terraform.apply("a mirror topic is resumed", status_promoted="ACTIVE")
    terraform.apply("a mirror topic is promoted", status_promoted="PROMOTED")
    terraform.apply("a mirror topic is failed over", status_failed_over="FAILED_OVER")
    terraform.destroy("the mirror topics and the link are destroyed")
    _check_gone(environment, "by-terraform")
    _run_printed(environment)


def _run_printed(environment: ClientEnvironment) -> None:
    """Apply what the last step of a new link prints, and create the same link with the form."""
    with (
        KafkaCluster("open", directory=environment.directory / "open", security="PLAINTEXT") as without_login,
        environment.public,
    ):
        environment.register(without_login)
        with Wizard(environment) as wizard:
            for form in _forms(environment, without_login):
                _compare(environment, wizard, form)


def _compare(environment: ClientEnvironment, wizard: Wizard, form: LinkForm) -> None:
    last = wizard.enter(form)
    text = printed_command(last, "terraform")
    key = {"api_key": environment.key["api_key"], "api_secret": environment.key["api_secret"]}
    has_login = form.source["other_kind"] == "other"
    variables = {**key, **({"source_secret": ODD_PASSWORD} if has_login else {})}
    terraform = Terraform(environment, name=f"terraform-{form.name}", text=text, variables=variables)
    terraform.init()
    terraform.apply(f"the printed configuration of {form.name} is applied")
    printed = _link(environment, form.name, ignored=frozenset() if has_login else _CONNECTION)
    terraform.destroy("  and destroyed")
    _check_gone(environment, form.name)
    wizard.create(last, form)
    entered = _link(environment, form.name, ignored=frozenset() if has_login else _CONNECTION)
    if printed != entered:
        raise StepFailedError(f"Terraform has created another link than the form:\n{printed}\n{entered}\n\n{text}")
    print("ok  ", "  and the form creates the same link")
    _rest(environment, "DELETE", form.name)
    _check_gone(environment, form.name)


def _forms(environment: ClientEnvironment, without_login: KafkaCluster) -> list[LinkForm]:
    """Return a link for each purpose. No filter includes a topic that exists: a link with mirror topics is not destroyed."""
    registered = {"other_kind": "registered", "other": environment.source.cluster_id}
    servers = environment.public.bootstrap
    login = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "username": "odd", "password": ODD_PASSWORD}
    return [
        LinkForm(
            name="migrate-without-login",
            preset="migrate",
            source={"other_kind": "registered", "other": without_login.cluster_id},
        ),
        LinkForm(
            name="recover",
            preset="recovery",
            source=registered,
            configuration={
                **_filter("topics", 0, "orders", pattern="PREFIXED"),
                **_filter("groups", 1, "billing", kind="EXCLUDE"),
                "acls-1-resource_type": "TOPIC",
                "acls-1-principal": "User:audit",
                "acls-1-operation": "READ",
            },
        ),
        LinkForm(
            name="share-with-prefix",
            preset="share",
            source=registered,
            configuration={"prefix": "east.", **_filter("topics", 0, "orders")},
        ),
        LinkForm(name="aggregate", preset="aggregate", source=registered, configuration={"prefix": "all_"}),
        LinkForm(
            name="with-login",
            preset="custom",
            source={
                "other_kind": "other",
                "other_cluster_id": environment.public.cluster_id,
                "bootstrap_servers": f"{servers},{servers.replace('127.0.0.1', 'localhost')}",
                **login,
            },
            configuration={
                "sync_offsets": "on",
                **_filter("groups", 0, 'team "a" \\ ${x} %{y} é'),
                **_filter("groups", 1, "temporary", pattern="PREFIXED", kind="EXCLUDE"),
            },
        ),
    ]


def _filter(what: str, row: int, name: str, *, pattern: str = "LITERAL", kind: str = "INCLUDE") -> dict[str, str]:
    return {f"{what}-{row}-name": name, f"{what}-{row}-pattern": pattern, f"{what}-{row}-kind": kind}


def _link(environment: ClientEnvironment, name: str, *, ignored: frozenset[str]) -> dict[str, object]:
    """Return what a link consists of by REST, without the ignored configs."""
    link = _rest(environment, "GET", name).json()
    configs = {row["name"]: row["value"] for row in _rest(environment, "GET", f"{name}/configs").json()["data"]}
    facts = {fact: link[fact] for fact in ("source_cluster_id", "link_state", "link_error", "topic_names")}
    return facts | {name: value for name, value in configs.items() if name not in ignored}


def _check_gone(environment: ClientEnvironment, name: str) -> None:
    status = _rest(environment, "GET", name, expect=(httpx.codes.NOT_FOUND,)).status_code
    print("ok  ", f"  and REST returns {status} for it")


def _rest(environment: ClientEnvironment, method: str, path: str, *, expect: Sequence[int] = (200, 204)) -> httpx.Response:
    auth = (environment.key["api_key"], environment.key["api_secret"])
    links = f"{environment.console.base_url}/kafka/v3/clusters/{environment.destination.cluster_id}/links"
    response = httpx.request(method, f"{links}/{path}", auth=auth, timeout=30)
    if response.status_code not in expect:
        raise StepFailedError(f"{method} {path} returned {response.status_code}:\n{response.text}")
    return response


def _variables(environment: ClientEnvironment) -> dict[str, str]:
    return {
        "rest_endpoint": environment.console.base_url,
        "api_key": environment.key["api_key"],
        "api_secret": environment.key["api_secret"],
        "source_id": environment.source.cluster_id,
        "source_bootstrap": environment.source.bootstrap,
        "destination_id": environment.destination.cluster_id,
    }


def _as_variables(values: Mapping[str, str]) -> dict[str, str]:
    return {f"TF_VAR_{name}": value for name, value in values.items()}


def _environment(folder: Path) -> Mapping[str, str]:
    """Return terraform's own settings: none of the user's, shorter pauses, a local provider if set."""
    settings = folder / "cli.tfrc"
    local = os.environ.get("CLIENTS_TERRAFORM_PROVIDER")
    text = f'provider_installation {{\n  dev_overrides {{ "confluentinc/confluent" = "{local}" }}\n  direct {{}}\n}}\n'
    settings.write_text(text if local else "")
    return {
        "TF_CLI_CONFIG_FILE": str(settings),
        "TF_ACC": os.environ.get("TF_ACC", "1"),
        "CHECKPOINT_DISABLE": "1",
        "TF_IN_AUTOMATION": "1",
    }
