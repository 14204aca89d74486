"""``linkctl topic …``: list, describe and delete topics of a cluster, including mirror topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from linkctl import output
from linkctl.client import Exit, Json, LinkctlError, RestClient
from linkctl.commands import as_json, client_of

yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def complete_topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the cluster's topics for completion; empty if they cannot be listed."""
    try:
        found = client_of(context).get("topics")["data"]
    except LinkctlError:
        return []
    return [topic["topic_name"] for topic in found if topic["topic_name"].startswith(incomplete)]


_TOPIC = click.argument("topic", shell_complete=complete_topics)


@click.group("topic")
def group() -> None:
    """Manage the topics of a cluster."""


@group.command("list")
@as_json
@click.pass_context
def show_all(context: click.Context, *, as_json: bool) -> None:
    """List topics."""
    found = client_of(context).get("topics")
    if as_json:
        output.write_json(found)
        return
    rows = ((topic["topic_name"], topic["partitions_count"], topic["replication_factor"]) for topic in found["data"])
    output.write_table(("NAME", "PARTITIONS", "REPLICATION FACTOR"), rows)


@group.command("describe")
@_TOPIC
@as_json
@click.pass_context
def describe(context: click.Context, topic: str, *, as_json: bool) -> None:
    """Show TOPIC with the configs that are not default."""
    client = client_of(context)
    found, configs = client.get("topics", topic), client.get("topics", topic, "configs")["data"]
    if as_json:
        output.write_json({**found, "configs": configs})
        return
    output.write_pairs(
        [
            ("Name", found["topic_name"]),
            ("Partitions", found["partitions_count"]),
            ("Replication factor", found["replication_factor"]),
            ("Internal", found["is_internal"]),
        ]
    )
    output.write_line("")
    rows = ((config["name"], config["value"]) for config in configs if not config["is_default"])
    output.write_table(("CONFIG", "VALUE"), rows)


@group.command("delete")
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@yes
@click.pass_context
def delete(context: click.Context, topics: Sequence[str], *, yes: bool) -> None:
    """Delete TOPICS with all their records. For a mirror topic the mirror is deleted too."""
    client = client_of(context)
    confirm(client, topics, yes=yes)
    for_each(topics, lambda topic: _delete(client, topic), done="was deleted")


def confirm(client: RestClient, topics: Sequence[str], *, yes: bool) -> None:
    """Write the warnings before topics are deleted; then require confirmation, and abort if the user declines."""
    for topic in topics:
        for warning in _warnings(client, topic):
            click.echo(f"Warning: {topic}: {warning}", err=True)
    if not yes:
        click.confirm(f"Delete {', '.join(topics)} with all their records?", abort=True, err=True)


def _warnings(client: RestClient, topic: str) -> list[str]:
    """Return the warnings before a deletion. A failed check is a warning too, as the deletion itself reports its errors."""
    try:
        found = client.get_own("topics", topic, "deletion-preview")
    except LinkctlError as error:
        return [f"It could not be checked whether mirror topics copy from it. {error.message}"]
    return [*found["warnings"], *([found["reason"]] if found["reason"] else [])]


def for_each(topics: Sequence[str], work: Callable[[str], Any], *, done: str) -> None:
    """Call ``work`` for each topic and print each result; raise LinkctlError at the end if a topic was refused."""
    failed: LinkctlError | None = None
    for topic in topics:
        try:
            work(topic)
            output.write_line(f"Topic {topic} {done}")
        except LinkctlError as error:
            if len(topics) == 1:
                raise
            output.write_line(f"Topic {topic}: {error.message}")
            failed = failed or error
    if failed:
        raise LinkctlError("Some topics were refused. See the reasons above.", code=Exit.REFUSED)


def delete_mirror(client: RestClient, *, link: str, topic: str) -> None:
    """Delete a mirror topic; raise LinkctlError if it is not a mirror topic of the link."""
    client.get("links", link, "mirrors", topic)
    _delete(client, topic)


def _delete(client: RestClient, topic: str) -> Json | None:
    deleted: Json | None = client.send("DELETE", "topics", topic)
    return deleted
