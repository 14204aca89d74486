"""Shared by the commands: the client, common options, configs on the command line, completion of names."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from linkctl import output
from linkctl.client import Exit, Json, LinkctlError, RestClient, read_settings

POLL_S = 1.0
_Command = TypeVar("_Command", bound=Callable[..., Any])
as_json = click.option("--json", "as_json", is_flag=True, help="Write JSON instead of a table.")
dry_run = click.option("--dry-run", is_flag=True, help="Check the request without changing anything.")
limit = click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Maximum number of rows.")


def client_of(context: click.Context) -> RestClient:
    """Return a client, which is closed when the command ends.

    The settings are read here and not at startup, so that ``--help`` works without them. The root context's object may be an
    httpx transport; tests pass the transport of a service in the same process.
    """
    root = context.find_root()
    options = {name: root.params.get(name) for name in ("url", "cluster")}
    settings = read_settings(options=options, file=root.params.get("file"))
    return root.with_resource(RestClient(settings, transport=root.obj))


def configs(command: _Command) -> _Command:
    """Add --config and --config-file."""
    option = click.option(
        "--config",
        "configs",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a config. Can be repeated. NAME=@FILE takes the value from a file, for example a private key.",
    )
    file = click.option(
        "--config-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Set the configs of a properties file. Use it for credentials: other users can see command lines.",
    )
    return option(file(command))


def config_list(given: Sequence[str], file: Path | None) -> list[Json]:
    """Return the configs of both options as the REST API expects them; --config takes precedence over the file."""
    lines = [] if file is None else _properties(file)
    values = dict(map(_pair, lines)) | {name: _value(value) for name, value in map(_pair, given)}
    return [{"name": name, "value": value} for name, value in values.items()]


def done(text: str, *, dry: bool) -> None:
    """Print what was done, or with ``dry`` what would be."""
    output.write_line(f"{text} (dry run: nothing was changed)" if dry else text)


def waiting(command: _Command) -> _Command:
    """Add --wait and --timeout."""
    wait = click.option("--wait", is_flag=True, help="Wait for the result and return it as exit code.")
    timeout = click.option(
        "--timeout", "timeout_s", type=click.IntRange(min=1), default=3600, show_default=True, help="Maximum seconds to wait."
    )
    return wait(timeout(command))


def wait_for(poll: Callable[[], Json], *, is_over: Callable[[Json], bool], timeout_s: float) -> Json:
    """Poll until the operation is over and return its last state; raise LinkctlError after ``timeout_s``.

    The operation itself continues after a timeout.
    """
    deadline = time.monotonic() + timeout_s
    while not is_over(state := poll()):
        if time.monotonic() >= deadline:
            message = f"Not finished after {timeout_s} s. The operation continues; use the list command to see its result."
            raise LinkctlError(message, code=Exit.UNAVAILABLE)
        time.sleep(POLL_S)
    return state


def complete_links(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of the cluster's links for completion; empty if the service cannot be reached."""
    return _names(context, "links", "link_name", incomplete)


def complete_mirrors(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the mirror topics of the given link for completion, or those of all links."""
    link = context.params.get("link") or "-"  # "-" is the REST path of all links
    return _names(context, f"links/{link}/mirrors", "mirror_topic_name", incomplete)


def complete_namespaces(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the prefixes of the cluster's namespaces for completion."""
    try:
        found = client_of(context).get_own("namespaces")["data"]
    except LinkctlError:
        return []
    return [namespace["prefix"] for namespace in found if namespace["prefix"].startswith(incomplete)]


def complete_restores(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the restores of the given topic and link for completion; empty if either is not given yet."""
    topic, link = context.params.get("topic"), context.params.get("link")
    if not topic or not link:
        return []
    try:
        found = client_of(context).get_own("links", link, "mirrors", topic, "restores")["data"]
    except LinkctlError:
        return []
    return [str(run["id"]) for run in found if str(run["id"]).startswith(incomplete)]


def _names(context: click.Context, path: str, field: str, incomplete: str) -> list[str]:
    try:
        found = client_of(context).get(*path.split("/"))["data"]
    except LinkctlError:
        return []
    return [row[field] for row in found if row[field].startswith(incomplete)]


def _properties(file: Path) -> list[str]:
    """Return the lines of a Java properties file, in the subset of Kafka's files: NAME=VALUE, comments, continuation lines."""
    text = file.read_text().replace("\\\n", "")
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("#", "!"))]


def _value(text: str) -> str:
    """Return the value of --config; with ``@`` before it, it is the name of a file with the value."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text()
    except (OSError, UnicodeError) as error:
        raise LinkctlError(f"{text[1:]} cannot be read: {error}. Check the file of --config.", code=Exit.USAGE) from None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise LinkctlError(f"{name.strip()!r} is not a config. Write NAME=VALUE.", code=Exit.USAGE)
    return name.strip(), value.strip()
