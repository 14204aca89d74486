"""``linkctl namespace …``: create, reserve, attach, detach and delete namespaces of topics."""

from __future__ import annotations

import click

from linkctl import output
from linkctl.client import Exit, Json, LinkctlError, RestClient
from linkctl.commands import as_json, client_of, complete_links, complete_namespaces, done

_PREFIX = click.argument("prefix", shell_complete=complete_namespaces)


@click.group("namespace")
def group() -> None:
    """Manage namespaces: groups of topics with a common name prefix ("" is all topics except internal ones)."""


@group.command("list")
@as_json
@click.pass_context
def show_all(context: click.Context, *, as_json: bool) -> None:
    """List namespaces with their replication states."""
    found = client_of(context).get_own("namespaces")
    if as_json:
        output.write_json(found)
        return
    output.write_table(
        ("PREFIX", "STATE", "LINK", "MIRROR TOPICS", "NOT MIRRORED", "RESERVED", "PROBLEM"),
        (_row(namespace) for namespace in found["data"]),
    )


@group.command("create")
@click.argument("prefix")
@click.option("--reserved", is_flag=True, help="Only the attached link may create topics in it.")
@click.pass_context
def create(context: click.Context, prefix: str, *, reserved: bool) -> None:
    """Create a namespace of all topics whose names begin with PREFIX."""
    client_of(context).send_own("POST", "namespaces", body={"prefix": prefix, "reserved": reserved})
    done(f"Namespace {_shown(prefix)} was created", dry=False)


@group.command("reserve")
@_PREFIX
@click.pass_context
def reserve(context: click.Context, prefix: str) -> None:
    """Reserve PREFIX: only the attached link may create topics in it."""
    _reserve(context, prefix, reserved=True)
    done(f"Namespace {_shown(prefix)} is reserved", dry=False)


@group.command("release")
@_PREFIX
@click.pass_context
def release(context: click.Context, prefix: str) -> None:
    """End the reservation of PREFIX: all principals may create topics in it again."""
    _reserve(context, prefix, reserved=False)
    done(f"Namespace {_shown(prefix)} is no longer reserved", dry=False)


@group.command("attach")
@_PREFIX
@click.option("--link", required=True, help="The cluster link to attach to.", shell_complete=complete_links)
@click.option("--leader-prefix", default="", help="The prefix at the link's source. Default: none.")
@click.pass_context
def attach(context: click.Context, prefix: str, *, link: str, leader_prefix: str) -> None:
    """Attach PREFIX to a link, so that it follows a namespace of the link's source."""
    client = client_of(context)
    body = {"link_name": link, "leader_prefix": leader_prefix}
    client.send_own("PUT", "namespaces", _number(client, prefix), "link", body=body)
    done(f"Namespace {_shown(prefix)} is attached to cluster link {link}", dry=False)


@group.command("detach")
@_PREFIX
@click.pass_context
def detach(context: click.Context, prefix: str) -> None:
    """Detach PREFIX from its link. It stays reserved."""
    client = client_of(context)
    client.send_own("DELETE", "namespaces", _number(client, prefix), "link")
    done(f"Namespace {_shown(prefix)} was detached", dry=False)


@group.command("delete")
@_PREFIX
@click.pass_context
def delete(context: click.Context, prefix: str) -> None:
    """Delete the namespace PREFIX. Its topics are kept."""
    client = client_of(context)
    client.send_own("DELETE", "namespaces", _number(client, prefix))
    done(f"Namespace {_shown(prefix)} was deleted", dry=False)


def _reserve(context: click.Context, prefix: str, *, reserved: bool) -> None:
    client = client_of(context)
    client.send_own("PUT", "namespaces", _number(client, prefix), body={"reserved": reserved})


def _number(client: RestClient, prefix: str) -> str:
    found = [namespace["id"] for namespace in client.get_own("namespaces")["data"] if namespace["prefix"] == prefix]
    if not found:
        raise LinkctlError(f"The cluster has no namespace {_shown(prefix)}. Use namespace list.", code=Exit.NOT_FOUND)
    return str(found[0])


def _row(namespace: Json) -> tuple[object, ...]:
    unmirrored = namespace["unmirrored_topics"]
    return (
        _shown(namespace["prefix"]),
        namespace["replication_state"],
        namespace["link_name"],
        namespace["mirrors"],
        output.count(None if unmirrored is None else len(unmirrored)),
        namespace["reserved"],
        namespace["guard_problem"],
    )


def _shown(prefix: str) -> str:
    return f"{prefix}*"
