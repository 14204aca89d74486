"""The program: global options, command groups, shell completion."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from linkctl import (
    __version__,
    access,
    checks,
    drills,
    inspection,
    links,
    mirrors,
    namespaces,
    offsets,
    output,
    restores,
    topics,
)

PROGRAM = "linkctl"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=PROGRAM)
@click.option("--url", metavar="URL", help="The address of the service, such as https://links.example.com. [LINKCTL_URL]")
@click.option("--cluster", metavar="ID", help="The destination cluster; not needed if there is only one. [LINKCTL_CLUSTER]")
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A JSON file with url, api_key, api_secret, cluster. [LINKCTL_FILE; default: var/demo.json, ~/.config/linkctl.json]",
)
def program(**_options: object) -> None:
    """Manage cluster links and mirror topics between stock Kafka clusters.

    Set the API key with LINKCTL_API_KEY and LINKCTL_API_SECRET, or a bearer token with LINKCTL_TOKEN, or use the file.

    Exit codes: 0 done, 1 refused, 2 invalid command line, 3 not found, 4 not allowed, 5 unavailable (retry).
    """


program.add_command(links.group)
program.add_command(mirrors.group)
program.add_command(topics.group)
program.add_command(offsets.offsets_for_time)
program.add_command(namespaces.group)
program.add_command(access.keys)
for _command in (
    inspection.gaps,
    inspection.record,
    inspection.lineage,
    inspection.mirror_stops,
    inspection.preview,
    inspection.reparent,
):
    mirrors.group.add_command(_command)
for _mirror_command in (checks.verify, checks.gate, restores.group, restores.recover):
    mirrors.group.add_command(_mirror_command)
for _link_command in (access.approvals, drills.group, inspection.link_stops):
    links.group.add_command(_link_command)


@program.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL. Use it as: eval "$(linkctl completion bash)"."""
    kind = get_completion_class(shell)
    assert kind is not None  # click supports all three
    output.write_line(kind(program, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())


def main() -> None:
    """Run the program; its exit code is a member of ``linkctl.client.Exit``."""
    program(prog_name=PROGRAM)
