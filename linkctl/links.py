"""``linkctl link …``: create, list, describe, update and delete cluster links; list their tasks and configs."""

from __future__ import annotations

from typing import Any

import click

from linkctl import output
from linkctl.client import Exit, LinkctlError
from linkctl.commands import as_json, client_of, complete_links, config_list, configs, done, dry_run

_NAME = click.argument("name", shell_complete=complete_links)
_CREATE_FIELDS = {
    "source_cluster": ("source_cluster_id", "The cluster to mirror from."),
    "destination_cluster": ("destination_cluster_id", "The cluster to mirror to, for a link created on its source cluster."),
    "remote_cluster": ("remote_cluster_id", "The other cluster of a bidirectional link."),
    "link_id": ("cluster_link_id", "The expected id, for the second side of a bidirectional link."),
}


@click.group("link")
def group() -> None:
    """Manage the cluster links of a destination cluster."""


def _cluster_options(command: Any) -> Any:
    for name, (_, text) in reversed(_CREATE_FIELDS.items()):
        command = click.option(f"--{name.replace('_', '-')}", help=text)(command)
    return command


@group.command("create")
@click.argument("name")
@_cluster_options
@click.option("--bootstrap-server", help="Bootstrap servers of the other cluster; the same as --config bootstrap.servers=….")
@click.option("--no-validate-link", is_flag=True, help="Do not connect to the source cluster first.")
@configs
@dry_run
@click.pass_context
def create(context: click.Context, /, **given: Any) -> None:
    """Create the cluster link NAME."""
    listed = config_list(given["configs"], given["config_file"])
    if given["bootstrap_server"]:
        listed.append({"name": "bootstrap.servers", "value": given["bootstrap_server"]})
    body = {field: given[option] for option, (field, _) in _CREATE_FIELDS.items() if given[option]}
    found = client_of(context).send(
        "POST",
        "links",
        body={**body, "configs": listed},
        link_name=given["name"],
        validate_only=given["dry_run"],
        validate_link=not given["no_validate_link"],
    )
    done(f"Cluster link {given['name']} was created", dry=given["dry_run"])
    if found and found.get("source_brokers"):
        columns = ("SOURCE BROKER", "ADDRESS", "ROUND TRIP", "LIMITED BY", "PER CONNECTION", "ERROR")
        output.write_table(columns, (_distance(broker) for broker in found["source_brokers"]))


def _distance(broker: dict[str, Any]) -> tuple[object, ...]:
    round_trip, rate = broker["round_trip_ms"], broker["connection_bytes_per_s"]
    return (
        broker["broker_id"],
        broker["address"],
        output.UNKNOWN if round_trip is None else f"{round_trip:.1f} ms",
        broker["limited_by"] or "-",
        "-" if rate is None else f"{rate / 1e6:.1f} MB/s",
        broker["error"] or "-",
    )


@group.command("list")
@as_json
@click.pass_context
def show_all(context: click.Context, *, as_json: bool) -> None:
    """List cluster links."""
    client = client_of(context)
    found = client.get("links")
    health = {link["link_name"]: link for link in client.get_own("link-health")["data"]}
    if as_json:
        output.write_json(found)
        return
    columns = ("NAME", "HEALTH", "STATE", "SOURCE CLUSTER", "MIRROR TOPICS", "REASON")
    output.write_table(columns, (_row(link, health.get(link["link_name"])) for link in found["data"]))


@group.command("health")
@_NAME
@as_json
@click.pass_context
def health(context: click.Context, name: str, *, as_json: bool) -> None:
    """Show the health of the cluster link NAME and the mirror topics that need attention."""
    found = client_of(context).get_own("links", name, "health")
    if as_json:
        output.write_json(found)
        return
    counts = [f"{number} {value.lower()}" for value, number in found["mirror_topics"].items() if number]
    output.write_pairs(
        [
            ("Health", found["health"]),
            ("Reason", found["message"]),
            ("Next step", found["next_step"] or None),
            ("State", found["link_state"]),
            ("Mirror topics", ", ".join(counts)),
        ]
    )
    if found["mirrors"]:
        output.write_line("")
        rows = ((mirror["mirror_topic_name"], mirror["health"], mirror["message"]) for mirror in found["mirrors"])
        output.write_table(("MIRROR TOPIC", "HEALTH", "REASON"), rows)


@group.command("describe")
@_NAME
@as_json
@click.pass_context
def describe(context: click.Context, name: str, *, as_json: bool) -> None:
    """Show the cluster link NAME with the configs that are not default."""
    client = client_of(context)
    link, listed = client.get("links", name), client.get("links", name, "configs")
    health = client.get_own("links", name, "health")
    if as_json:
        output.write_json({**link, "configs": listed["data"], "health": health})
        return
    output.write_pairs(_facts(link, health))
    output.write_line("")
    rows = ((config["name"], _value(config)) for config in listed["data"] if not config["is_default"])
    output.write_table(("CONFIG", "VALUE"), rows)


@group.command("update")
@_NAME
@configs
@click.option("--unset", multiple=True, metavar="NAME", help="Reset a config to its default. Can be repeated.")
@dry_run
@click.pass_context
def update(context: click.Context, /, **given: Any) -> None:
    """Change configs of the cluster link NAME. Either all changes are applied or none."""
    changes = [{**config, "operation": "SET"} for config in config_list(given["configs"], given["config_file"])]
    changes += [{"name": name, "operation": "DELETE"} for name in given["unset"]]
    if not changes:
        raise LinkctlError("No change is given. Use --config NAME=VALUE, --config-file or --unset NAME.", code=Exit.USAGE)
    client_of(context).send(
        "PUT", "links", given["name"], "configs:alter", body={"data": changes, "validate_only": given["dry_run"]}
    )
    done(f"Cluster link {given['name']} was updated", dry=given["dry_run"])


@group.command("delete")
@_NAME
@click.option("--force", is_flag=True, help="Fail over mirror topics that are not stopped first.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@dry_run
@click.pass_context
def delete(context: click.Context, name: str, *, force: bool, yes: bool, dry_run: bool) -> None:
    """Delete the cluster link NAME and the history of its mirror topics."""
    if not yes and not dry_run:
        click.confirm(f"Delete cluster link {name} and the history of its mirror topics?", abort=True, err=True)
    client_of(context).send("DELETE", "links", name, force=force, validate_only=dry_run)
    done(f"Cluster link {name} was deleted" if not force else f"Cluster link {name} is being deleted", dry=dry_run)


@group.group("task")
def task() -> None:
    """Tasks of a cluster link."""


@task.command("list")
@_NAME
@as_json
@click.pass_context
def tasks(context: click.Context, name: str, *, as_json: bool) -> None:
    """List the tasks of the cluster link NAME with their states."""
    found = client_of(context).get("links", name, include_tasks=True)["tasks"] or []
    if as_json:
        output.write_json(found)
        return
    rows = ((task["task_name"], task["state"], _errors(task["errors"])) for task in found)
    output.write_table(("TASK", "STATE", "ERRORS"), rows)


@group.group("configuration")
def configuration() -> None:
    """Configs of a cluster link."""


@configuration.command("list")
@_NAME
@as_json
@click.pass_context
def configuration_list(context: click.Context, name: str, *, as_json: bool) -> None:
    """List all configs of the cluster link NAME, including defaults."""
    found = client_of(context).get("links", name, "configs")
    if as_json:
        output.write_json(found)
        return
    rows = ((row["name"], _value(row), not row["is_default"], row["is_read_only"]) for row in found["data"])
    output.write_table(("CONFIG", "VALUE", "SET", "READ ONLY"), rows)


configuration.add_command(update)  # also here, as in Confluent's CLI


def _row(link: dict[str, Any], health: dict[str, Any] | None) -> tuple[object, ...]:
    reason = health["message"] if health and health["health"] != "HEALTHY" else None
    value = health["health"] if health else None
    return link["link_name"], value, link["link_state"], _other(link), len(link["topic_names"]), reason


def _facts(link: dict[str, Any], health: dict[str, Any]) -> list[tuple[str, object]]:
    categories = [category for category in link["category_counts"] or [] if category["count"]]
    counts = [f"{category['count']} {category['state_category'].lower()}" for category in categories]
    return [
        ("Name", link["link_name"]),
        ("Id", link["cluster_link_id"]),
        ("Health", f"{health['health']}: {health['message']}"),
        ("Next step", health["next_step"] or None),
        ("State", link["link_state"]),
        ("Other cluster", _other(link)),
        ("Mirror topics", ", ".join(counts)),
        ("Error", None if link["link_error"] == "NO_ERROR" else f"{link['link_error']}: {link['link_error_message']}"),
    ]


def _other(link: dict[str, Any]) -> str | None:
    found: str | None = link["source_cluster_id"] or link["remote_cluster_id"] or link["destination_cluster_id"]
    return found


def _value(config: dict[str, Any]) -> str | None:
    hidden = config["is_sensitive"] and not config["is_default"]
    return "(hidden)" if hidden else config["value"]


def _errors(errors: list[dict[str, Any]]) -> str:
    return "; ".join(f"{error['error_code']}: {error['error_message']}" for error in errors)
