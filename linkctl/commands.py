"""What commands share: the client of this run, options that several have, configs on the command line, completion of names."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from linkctl import output
from linkctl.client import Json, RestClient
from linkctl.errors import Exit, LinkctlError
from linkctl.settings import read_settings

POLL_S = 1.0
_Command = TypeVar("_Command", bound=Callable[..., Any])
as_json = click.option("--json", "as_json", is_flag=True, help="Write the service's JSON instead of a table.")
dry_run = click.option("--dry-run", is_flag=True, help="Let the service check it; change nothing.")
limit = click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Most rows.")


def client_of(context: click.Context) -> RestClient:
    """Return a client that is closed when the command ends; settings are read here, so that --help needs none.

    The root's object may be a transport of httpx: that of a service in this process.
    """
    root = context.find_root()
    options = {name: root.params.get(name) for name in ("url", "cluster")}
    settings = read_settings(options=options, file=root.params.get("file"))
    return root.with_resource(RestClient(settings, transport=root.obj))


def configs(command: _Command) -> _Command:
    """Add --config and --config-file."""
    option = click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="Set a config; may be repeated.")
    file = click.option(
        "--config-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Set the configs of a properties file. The place for credentials: a command line is seen by everybody.",
    )
    return option(file(command))


def config_list(given: Sequence[str], file: Path | None) -> list[Json]:
    """Read configs of both options as REST wants them; the command line wins."""
    lines = [] if file is None else _properties(file)
    values = dict(_pair(line) for line in [*lines, *given])
    return [{"name": name, "value": value} for name, value in values.items()]


def done(text: str, *, dry: bool) -> None:
    """Say what happened, or would."""
    output.write_line(f"{text} (dry run: nothing was changed)" if dry else text)


def waiting(command: _Command) -> _Command:
    """Add --wait and --timeout."""
    wait = click.option("--wait", is_flag=True, help="Wait for the result; the exit code tells it.")
    timeout = click.option(
        "--timeout", "timeout_s", type=click.IntRange(min=1), default=3600, show_default=True, help="Seconds to wait at most."
    )
    return wait(timeout(command))


def wait_for(look: Callable[[], Json], *, is_over: Callable[[Json], bool], timeout_s: float) -> Json:
    """Look again and again until it is over; raise LinkctlError when that takes too long. What runs goes on all the same."""
    deadline = time.monotonic() + timeout_s
    while not is_over(found := look()):
        if time.monotonic() >= deadline:
            message = f"Not over after {timeout_s} s; it goes on, list it to see the result."
            raise LinkctlError(message, code=Exit.UNAVAILABLE)
        time.sleep(POLL_S)
    return found


def complete_links(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer the links of the cluster; nothing where they cannot be asked for."""
    return _names(context, "links", "link_name", incomplete)


def complete_mirrors(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer the mirror topics of the link that is named already, else of the cluster."""
    link = context.params.get("link") or "-"  # of all links
    return _names(context, f"links/{link}/mirrors", "mirror_topic_name", incomplete)


def complete_namespaces(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer the prefixes of the cluster's namespaces."""
    try:
        found = client_of(context).get_own("namespaces")["data"]
    except LinkctlError:
        return []
    return [one["prefix"] for one in found if one["prefix"].startswith(incomplete)]


def complete_restores(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer the restores of the topic that is named already; its link has to be, too."""
    topic, link = context.params.get("topic"), context.params.get("link")
    if not topic or not link:
        return []
    try:
        found = client_of(context).get_own("links", link, "mirrors", topic, "restores")["data"]
    except LinkctlError:
        return []
    return [str(one["id"]) for one in found if str(one["id"]).startswith(incomplete)]


def _names(context: click.Context, path: str, field: str, incomplete: str) -> list[str]:
    try:
        found = client_of(context).get(*path.split("/"))["data"]
    except LinkctlError:
        return []
    return [one[field] for one in found if one[field].startswith(incomplete)]


def _properties(file: Path) -> list[str]:
    """Read a Java properties file as far as Kafka's need it: NAME=VALUE, # comments, a backslash at the end goes on."""
    text = file.read_text().replace("\\\n", "")
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("#", "!"))]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise LinkctlError(f"A config is written NAME=VALUE; this is none: {name.strip()!r}.", code=Exit.USAGE)
    return name.strip(), value.strip()
