"""The program: options of all commands, the groups, shell completion."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from linkctl import __version__, checks, drills, inspection, links, mirrors, namespaces, offsets, output, restores, topics

PROGRAM = "linkctl"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=PROGRAM)
@click.option("--url", metavar="URL", help="Address of the service, such as https://links.example.com. [LINKCTL_URL]")
@click.option("--cluster", metavar="ID", help="The destination cluster; not needed where there is one. [LINKCTL_CLUSTER]")
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON with url, api_key, api_secret, cluster. [LINKCTL_FILE; else var/demo.json, ~/.config/linkctl.json]",
)
def program(**_options: object) -> None:
    """Cluster links and mirror topics between stock Kafka clusters.

    The API key comes from LINKCTL_API_KEY and LINKCTL_API_SECRET, a bearer token from LINKCTL_TOKEN, or all from the file.

    Exit codes: 0 done, 1 refused, 2 command line, 3 not found, 4 not allowed, 5 unavailable (try again).
    """


program.add_command(links.group)
program.add_command(mirrors.group)
program.add_command(topics.group)
program.add_command(offsets.offsets_for_time)
program.add_command(namespaces.group)
for _part in (inspection.gaps, inspection.lineage, inspection.mirror_stops, inspection.preview, inspection.reparent):
    mirrors.group.add_command(_part)
for _more in (checks.verify, checks.gate, restores.group, restores.recover):
    mirrors.group.add_command(_more)
for _of_links in (drills.group, inspection.link_stops):
    links.group.add_command(_of_links)


@program.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Write the completion script of SHELL: eval "$(linkctl completion bash)"."""
    kind = get_completion_class(shell)
    assert kind is not None  # click knows the three
    output.write_line(kind(program, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())


def main() -> None:
    """Run the program; its exit code is one of ``linkctl.errors.Exit``."""
    program(prog_name=PROGRAM)
