"""``linkctl api-key …``: the API keys of a user. ``linkctl link approval …``: requests for a second approver."""

from __future__ import annotations

from typing import Any

import click

from linkctl import output
from linkctl.client import Json
from linkctl.commands import as_json, client_of, complete_links, complete_mirrors, limit

_NAME = click.argument("name", shell_complete=complete_links)
_NUMBER = click.argument("number", type=int)
_OPERATIONS = ("promote", "failover", "reverse-and-start", "reverse-and-pause", "truncate-and-restore", "delete")


@click.group("api-key")
def keys() -> None:
    """API keys. They are created and rotated in the console."""


@keys.command("list")
@as_json
@click.pass_context
def show_keys(context: click.Context, *, as_json: bool) -> None:
    """List your API keys and those of service accounts that you manage."""
    found = client_of(context).call_own("GET", "api-keys")
    if as_json:
        output.write_json(found)
        return
    columns = ("KEY", "OWNER", "DESCRIPTION", "ROLE", "SCOPE", "LAST USED", "EXPIRES", "REPLACED BY")
    output.write_table(columns, (_key_row(row) for row in found["data"]))


@keys.command("delete")
@click.argument("key")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_context
def delete_key(context: click.Context, key: str, *, yes: bool) -> None:
    """Delete the API key KEY. Requests with it and its tokens are rejected from then on."""
    if not yes:
        click.confirm(f"Delete API key {key}?", abort=True)
    client_of(context).call_own("DELETE", "api-keys", key)
    output.write_line(f"API key {key} was deleted")


@click.group("approval")
def approvals() -> None:
    """Requests for a second approver. Another user approves or rejects them in the console."""


@approvals.command("request")
@_NAME
@click.option("--operation", type=click.Choice(_OPERATIONS), required=True, help="The operation that needs an approval.")
@click.option(
    "--topic", "topics", multiple=True, help="Only this mirror topic. Can be repeated.", shell_complete=complete_mirrors
)
@click.option("--reason", required=True, help="The reason, which the approver and the audit log see.")
@as_json
@click.pass_context
def request(context: click.Context, /, **given: Any) -> None:
    """Request an approval for mirror topics of the cluster link NAME."""
    topics = {"mirror_topic_names": list(given["topics"])} if given["topics"] else {}
    body = {"operation": given["operation"], "reason": given["reason"], **topics}
    stored = client_of(context).send_own("POST", "links", given["name"], "approval-requests", body=body)
    _write(stored, as_json=given["as_json"])


@approvals.command("list")
@_NAME
@limit
@as_json
@click.pass_context
def show_all(context: click.Context, name: str, *, limit: int, as_json: bool) -> None:
    """List the approval requests of the cluster link NAME."""
    found = client_of(context).get_own("links", name, "approval-requests", limit=limit)
    if as_json:
        output.write_json(found)
        return
    columns = ("ID", "STATUS", "OPERATION", "TOPICS", "BY", "EXPIRES", "REASON")
    output.write_table(columns, (_request_row(row) for row in found["data"]))


@approvals.command("describe")
@_NAME
@_NUMBER
@as_json
@click.pass_context
def describe(context: click.Context, name: str, number: int, *, as_json: bool) -> None:
    """Show approval request NUMBER of the cluster link NAME."""
    _write(client_of(context).get_own("links", name, "approval-requests", str(number)), as_json=as_json)


@approvals.command("withdraw")
@_NAME
@_NUMBER
@as_json
@click.pass_context
def withdraw(context: click.Context, name: str, number: int, *, as_json: bool) -> None:
    """Withdraw your approval request NUMBER of the cluster link NAME, or end its approval."""
    path = ("links", name, "approval-requests", str(number), "withdraw")
    _write(client_of(context).send_own("POST", *path), as_json=as_json)


def _write(found: Json, *, as_json: bool) -> None:
    if as_json:
        output.write_json(found)
        return
    decided = f"{found['decided_at']} by {found['decided_by'] or 'a deleted user'}" if found["decided_at"] else "-"
    output.write_pairs(
        [
            ("Request", found["id"]),
            ("Status", found["status"]),
            ("Operation", found["operation"]),
            ("Mirror topics", ", ".join(found["mirror_topic_names"]) or "all"),
            ("Reason", found["reason"]),
            ("Requested", f"{found['requested_at']} by {found['requested_by']}"),
            ("Decided", decided),
            ("Decision", found["decision_reason"] or "-"),
            ("Expires", found["expires_at"]),
        ]
    )


def _key_row(row: Json) -> tuple[object, ...]:
    times = (row["last_used_at"] or "never", row["expires_at"] or "never")
    limits = (row["role"] or "-", row["scope"] or "-")
    return (row["key"], row["owner"], row["description"] or "-", *limits, *times, row["replaced_by"] or "-")


def _request_row(row: Json) -> tuple[object, ...]:
    topics = len(row["mirror_topic_names"]) or "all"
    return (row["id"], row["status"], row["operation"], topics, row["requested_by"], row["expires_at"], row["reason"])
