"""``linkctl namespace …``: name groups of topics by their prefix, reserve them, let them follow a link."""

from __future__ import annotations

import click

from linkctl import output
from linkctl.client import Json, RestClient
from linkctl.commands import as_json, client_of, complete_links, complete_namespaces, done
from linkctl.errors import Exit, LinkctlError

_PREFIX = click.argument("prefix", shell_complete=complete_namespaces)


@click.group("namespace")
def group() -> None:
    """Groups of topics whose names begin alike ("" is all topics but the internal ones)."""


@group.command("list")
@as_json
@click.pass_context
def show_all(context: click.Context, *, as_json: bool) -> None:
    """List namespaces and how well they follow."""
    found = client_of(context).get_own("namespaces")
    if as_json:
        output.write_json(found)
        return
    output.write_table(
        ("PREFIX", "STATE", "LINK", "MIRROR TOPICS", "NOT MIRRORED", "RESERVED", "PROBLEM"),
        (_row(one) for one in found["data"]),
    )


@group.command("create")
@click.argument("prefix")
@click.option("--reserved", is_flag=True, help="Nobody else may create topics in it.")
@click.pass_context
def create(context: click.Context, prefix: str, *, reserved: bool) -> None:
    """Name all topics that begin with PREFIX."""
    client_of(context).send_own("POST", "namespaces", body={"prefix": prefix, "reserved": reserved})
    done(f"Namespace {_shown(prefix)} was created", dry=False)


@group.command("reserve")
@_PREFIX
@click.pass_context
def reserve(context: click.Context, prefix: str) -> None:
    """Keep others from creating topics in PREFIX."""
    _reserve(context, prefix, reserved=True)
    done(f"Namespace {_shown(prefix)} is reserved", dry=False)


@group.command("release")
@_PREFIX
@click.pass_context
def release(context: click.Context, prefix: str) -> None:
    """Let others create topics in PREFIX again."""
    _reserve(context, prefix, reserved=False)
    done(f"Namespace {_shown(prefix)} is not reserved any more", dry=False)


@group.command("attach")
@_PREFIX
@click.option("--link", required=True, help="The cluster link to follow.", shell_complete=complete_links)
@click.option("--leader-prefix", default="", help="The prefix at the link's source; default: none.")
@click.pass_context
def attach(context: click.Context, prefix: str, *, link: str, leader_prefix: str) -> None:
    """Let PREFIX follow the source of a link."""
    client = client_of(context)
    body = {"link_name": link, "leader_prefix": leader_prefix}
    client.send_own("PUT", "namespaces", _number(client, prefix), "link", body=body)
    done(f"Namespace {_shown(prefix)} follows cluster link {link}", dry=False)


@group.command("detach")
@_PREFIX
@click.pass_context
def detach(context: click.Context, prefix: str) -> None:
    """End the following of PREFIX; it stays reserved."""
    client = client_of(context)
    client.send_own("DELETE", "namespaces", _number(client, prefix), "link")
    done(f"Namespace {_shown(prefix)} follows no cluster link any more", dry=False)


@group.command("delete")
@_PREFIX
@click.pass_context
def delete(context: click.Context, prefix: str) -> None:
    """Forget the namespace PREFIX; its topics stay."""
    client = client_of(context)
    client.send_own("DELETE", "namespaces", _number(client, prefix))
    done(f"Namespace {_shown(prefix)} was deleted", dry=False)


def _reserve(context: click.Context, prefix: str, *, reserved: bool) -> None:
    client = client_of(context)
    client.send_own("PUT", "namespaces", _number(client, prefix), body={"reserved": reserved})


def _number(client: RestClient, prefix: str) -> str:
    found = [one["id"] for one in client.get_own("namespaces")["data"] if one["prefix"] == prefix]
    if not found:
        raise LinkctlError(f"The cluster has no namespace {_shown(prefix)}.", code=Exit.NOT_FOUND)
    return str(found[0])


def _row(one: Json) -> tuple[object, ...]:
    place = (_shown(one["prefix"]), one["replication_state"], one["link_name"], one["mirrors"])
    missing = one["unmirrored_topics"]
    return (*place, output.count(None if missing is None else len(missing)), one["reserved"], one["guard_problem"])


def _shown(prefix: str) -> str:
    return f"{prefix}*"
