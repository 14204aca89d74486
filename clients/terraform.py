"""The scenario of ``clients/terraform``: Confluent's Terraform provider creates, changes, operates and destroys resources.

The provider comes from its registry, or from the folder in CLIENTS_TERRAFORM_PROVIDER with a binary
``terraform-provider-confluent``. The program is ``terraform``, or the program in CLIENTS_TERRAFORM (such as ``tofu``).
TF_ACC=1, set by default, is the provider's own switch for shorter pauses between its requests.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

import httpx

from clients.stage import ROOT, Stage, StepFailedError, run_program

TEMPLATE = ROOT / "clients" / "terraform" / "main.tf"
_NO_CHANGES, _CHANGES = 0, 2  # terraform plan -detailed-exitcode


class Terraform:
    """A configuration that is applied with changing variables."""

    def __init__(self, stage: Stage) -> None:
        self._folder = stage.directory / "terraform"
        self._folder.mkdir()
        shutil.copy(TEMPLATE, self._folder)
        self._program = os.environ.get("CLIENTS_TERRAFORM", "terraform")
        self._environment = {**os.environ, **_environment(self._folder), **_variables(stage)}

    def init(self) -> None:
        """Fetch the provider, unless it is local."""
        if "CLIENTS_TERRAFORM_PROVIDER" not in os.environ:
            self._run("init")

    def apply(self, what: str, **variables: str) -> None:
        """Apply with variables that stay set; a plan must then find nothing to change."""
        self._environment |= {f"TF_VAR_{name}": value for name, value in variables.items()}
        self._run("apply", "-auto-approve")
        print("ok  ", what)
        plan = self._run("plan", "-detailed-exitcode", expect=(_NO_CHANGES, _CHANGES))
        if plan.returncode == _CHANGES:
            raise StepFailedError(f"A plan after '{what}' wants to change something:\n{plan.stdout}")
        print("ok  ", "  and a plan finds no drift")

    def destroy(self) -> None:
        """Destroy everything."""
        self._run("destroy", "-auto-approve")
        print("ok  ", "the mirror topics and the link are destroyed")

    def _run(self, *arguments: str, expect: tuple[int, ...] = (0,)) -> CompletedProcess[str]:
        command = [self._program, *arguments, "-no-color", *(() if arguments[0] == "init" else ("-input=false",))]
        return run_program(command, folder=self._folder, environment=self._environment, expect=expect)


def run(stage: Stage) -> None:
    """Create, plan, change, pause, resume, promote, fail over, destroy."""
    for name in ("tf-promoted", "tf-failed-over"):
        stage.make_topic(name)
    terraform = Terraform(stage)
    terraform.init()
    terraform.apply("a link and two mirror topics are created")
    terraform.apply("a config of the link is changed", sync_ms="7000")
    terraform.apply("a mirror topic is paused", status_promoted="PAUSED")
    terraform.apply("a mirror topic is resumed", status_promoted="ACTIVE")
    terraform.apply("a mirror topic is promoted", status_promoted="PROMOTED")
    terraform.apply("a mirror topic is failed over", status_failed_over="FAILED_OVER")
    terraform.destroy()
    _check_gone(stage)


def _check_gone(stage: Stage) -> None:
    auth = (stage.key["api_key"], stage.key["api_secret"])
    links = f"{stage.console.base_url}/kafka/v3/clusters/{stage.destination.cluster_id}/links"
    status = httpx.get(f"{links}/by-terraform", auth=auth, timeout=30).status_code
    if status != 404:
        raise StepFailedError(f"The link still exists: REST returned {status}.")
    print("ok  ", "REST returns 404 for the link")


def _variables(stage: Stage) -> dict[str, str]:
    values = {
        "rest_endpoint": stage.console.base_url,
        "api_key": stage.key["api_key"],
        "api_secret": stage.key["api_secret"],
        "source_id": stage.source.cluster_id,
        "source_bootstrap": stage.source.bootstrap,
        "destination_id": stage.destination.cluster_id,
    }
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
