"""``linkctl link drill …``: failover drills of a link on scratch copies."""

from __future__ import annotations

from typing import Any

import click

from linkctl import output
from linkctl.client import Exit, Json, LinkctlError
from linkctl.commands import as_json, client_of, complete_links, complete_mirrors, limit, wait_for, waiting

_NAME = click.argument("name", shell_complete=complete_links)
_OVER = ("PASSED", "FAILED", "CANCELED")


@click.group("drill")
def group() -> None:
    """Failover drills on scratch copies; the mirror topics are not touched."""


@group.command("start")
@_NAME
@click.option(
    "--topic", "topics", multiple=True, help="Only this mirror topic. Can be repeated.", shell_complete=complete_mirrors
)
@click.option("--from", "start", help="Where the copies start: latest (default), earliest or a time.")
@waiting
@as_json
@click.pass_context
def begin(context: click.Context, /, **given: Any) -> None:
    """Start a failover drill of the cluster link NAME. With --wait the exit code is 1 unless it passes."""
    body = {"mirror_topic_names": list(given["topics"])} if given["topics"] else {}
    body |= {"start": given["start"]} if given["start"] else {}
    client, path = client_of(context), ("links", given["name"], "drills")
    drill: Json = client.send_own("POST", *path, body=body)
    if given["wait"]:
        number = str(drill["id"])
        drill = wait_for(lambda: client.get_own(*path, number), is_over=_is_over, timeout_s=given["timeout_s"])
    _write(drill, as_json=given["as_json"])
    if given["wait"] and drill["status"] != "PASSED":
        raise LinkctlError(drill["problem"] or "The drill failed. See the problems in the table above.", code=Exit.REFUSED)


@group.command("list")
@_NAME
@limit
@as_json
@click.pass_context
def show_all(context: click.Context, name: str, *, limit: int, as_json: bool) -> None:
    """List the failover drills of the cluster link NAME."""
    found = client_of(context).get_own("links", name, "drills", limit=limit)
    if as_json:
        output.write_json(found)
        return
    rows = (
        (row["id"], row["status"], row["requested_by"], row["requested_at"], output.duration(row["rto_ms"]), row["problem"])
        for row in found["data"]
    )
    output.write_table(("ID", "STATUS", "BY", "AT", "RTO", "PROBLEM"), rows)


@group.command("describe")
@_NAME
@click.argument("number", type=int)
@as_json
@click.pass_context
def describe(context: click.Context, name: str, number: int, *, as_json: bool) -> None:
    """Show the report of drill NUMBER of the cluster link NAME."""
    _write(client_of(context).get_own("links", name, "drills", str(number)), as_json=as_json)


@group.command("cancel")
@_NAME
@click.argument("number", type=int)
@as_json
@click.pass_context
def cancel(context: click.Context, name: str, number: int, *, as_json: bool) -> None:
    """Cancel drill NUMBER of the cluster link NAME; its scratch copies are deleted."""
    _write(client_of(context).send_own("POST", "links", name, "drills", str(number), "cancel"), as_json=as_json)


def _is_over(drill: Json) -> bool:
    return drill["status"] in _OVER


def _write(drill: Json, *, as_json: bool) -> None:
    if as_json:
        output.write_json(drill)
        return
    done = f"{len(drill['report'])} of {len(drill['topics'])}"
    summary = [("Drill", drill["id"]), ("Status", drill["status"]), ("Topics", done), ("RTO", output.duration(drill["rto_ms"]))]
    output.write_pairs(summary)
    columns = ("MIRROR TOPIC", "RTO", "RPO", "NOT COPIED", "COMPARED", "DIFFERENT", "WRITABLE", "PROBLEM")
    output.write_table(columns, (_row(topic) for topic in drill["report"]))
    if drill["groups"]:
        group_columns = ("GROUP", "MIRROR TOPIC", "PARTITIONS", "CLAMPED", "CLAMPED BY", "UNKNOWN")
        output.write_table(group_columns, (_group_row(group) for group in drill["groups"]))


def _group_row(group: Json) -> tuple[object, ...]:
    counts = (output.count(group[name]) for name in ("partitions", "clamped", "offsets_set_back", "unknown"))
    return (group["group"], group["mirror_topic_name"], *counts)


def _row(topic: Json) -> tuple[object, ...]:
    times = (output.duration(topic["rto_ms"]), output.duration(topic["rpo_ms"]))
    counts = (output.count(topic[name]) for name in ("records_not_copied", "records_compared", "differences"))
    return (topic["mirror_topic_name"], *times, *counts, topic["writable"], topic["problem"] or topic["note"])
