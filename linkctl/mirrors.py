"""``linkctl mirror …``: create, list, describe, delete and operate mirror topics; see why a change of state does not get on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from linkctl import output
from linkctl.client import Json
from linkctl.commands import as_json, client_of, complete_links, complete_mirrors, config_list, configs, done, dry_run
from linkctl.errors import Exit, LinkctlError
from linkctl.topics import confirm, delete_mirror, for_each, yes

STATUSES = [
    "ACTIVE",
    "FAILED",
    "LINK_FAILED",
    "LINK_PAUSED",
    "PAUSED",
    "PENDING_STOPPED",
    "SOURCE_UNAVAILABLE",
    "STOPPED",
    "PENDING_MIRROR",
    "PENDING_SYNCHRONIZE",
    "PENDING_SETUP_FOR_RESTORE",
    "PENDING_RESTORE",
]
# command -> (verb of REST, what it does)
VERBS = {
    "promote": ("promote", "Make topics writable once every record, config and group offset is copied."),
    "failover": ("failover", "Make topics writable at once, without waiting for the source."),
    "pause": ("pause", "Stop copying; the topics stay read-only."),
    "resume": ("resume", "Copy again."),
    "reverse-and-start": ("reverse-and-start-mirror", "Swap source and mirror and mirror back (bidirectional links)."),
    "reverse-and-pause": ("reverse-and-pause-mirror", "Swap source and mirror and pause (bidirectional links)."),
    "truncate-and-restore": ("truncate-and-restore", "Turn topics into mirrors again, dropping records the other side lacks."),
}
_TRUNCATION = "truncate-and-restore"
_LINK = click.option("--link", required=True, help="The cluster link.", shell_complete=complete_links)
_TOPIC = click.argument("topic", shell_complete=complete_mirrors)


@click.group("mirror")
def group() -> None:
    """Mirror topics of cluster links."""


@group.command("create")
@click.argument("mirror")
@_LINK
@click.option("--source-topic", help="The topic to mirror; default: MIRROR. Needed where the link has a prefix.")
@click.option("--replication-factor", type=click.IntRange(1, 32_767), help="Default: the cluster's.")
@configs
@dry_run
@click.pass_context
def create(context: click.Context, /, **given: Any) -> None:
    """Create the mirror topic MIRROR."""
    mirror, source = given["mirror"], given["source_topic"] or given["mirror"]
    body: Json = {
        "source_topic_name": source,
        "mirror_topic_name": mirror,
        "configs": config_list(given["configs"], given["config_file"]),
    }
    body |= {"replication_factor": given["replication_factor"]} if given["replication_factor"] else {}
    flags = {"validate_only": True} if given["dry_run"] else {}
    client_of(context).send("POST", "links", given["link"], "mirrors", body=body, **flags)
    done(f"Mirror topic {mirror} was created; it mirrors {source}", dry=given["dry_run"])


@group.command("delete")
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_mirrors)
@_LINK
@yes
@click.pass_context
def delete(context: click.Context, topics: Sequence[str], *, link: str, yes: bool) -> None:
    """Delete the mirror topics TOPICS of the link, with all their records here; the source topics stay."""
    confirm(topics, yes=yes)
    client = client_of(context)
    for_each(topics, lambda topic: delete_mirror(client, link=link, topic=topic), done="is being deleted")


@group.command("list")
@click.option("--link", default="-", help="The cluster link; default: all.", shell_complete=complete_links)
@click.option(
    "--status",
    "--mirror-status",
    "status",
    type=click.Choice(STATUSES, case_sensitive=False),
    help="Only those with this status.",
)
@as_json
@click.pass_context
def show_all(context: click.Context, *, link: str, status: str | None, as_json: bool) -> None:
    """List mirror topics."""
    found = client_of(context).get("links", link, "mirrors", mirror_status=status)
    if as_json:
        output.write_json(found)
        return
    columns = ("LINK", "MIRROR TOPIC", "SOURCE TOPIC", "STATUS", "PARTITIONS", "LAG", "ERROR")
    output.write_table(columns, (_row(one) for one in found["data"]))


@group.command("describe")
@_TOPIC
@_LINK
@as_json
@click.pass_context
def describe(context: click.Context, topic: str, *, link: str, as_json: bool) -> None:
    """Show the mirror topic TOPIC with the lag of each partition."""
    client, path = client_of(context), ("links", link, "mirrors", topic)
    found = client.get(*path, include_state_transition_errors=True)
    if as_json:
        output.write_json(found)
        return
    output.write_pairs(_facts(found, client.get_own(*path, "state")))
    output.write_line("")
    rows = ((one["partition"], output.count(one["lag"]), output.count(one["last_source_fetch_offset"])) for one in _lags(found))
    output.write_table(("PARTITION", "LAG", "LAST SOURCE FETCH OFFSET"), rows)


@group.group("state-transition-error")
def transition_error() -> None:
    """Why a change of state does not get on."""


@transition_error.command("list")
@_TOPIC
@_LINK
@as_json
@click.pass_context
def transition_errors(context: click.Context, topic: str, *, link: str, as_json: bool) -> None:
    """List what the mirror topic TOPIC waits for, or fails at."""
    found = client_of(context).get("links", link, "mirrors", topic, include_state_transition_errors=True)
    errors = found.get("mirror_state_transition_errors") or []
    if as_json:
        output.write_json(errors)
        return
    output.write_table(("ERROR", "MESSAGE"), ((one["error_code"], one["error_message"]) for one in errors))


def _operate(context: click.Context, verb: str, given: dict[str, Any]) -> None:
    topics, pattern = given["topics"], given["pattern"]
    if bool(topics) == bool(pattern):
        raise LinkctlError("Name mirror topics, or give --pattern; one of both.", code=Exit.USAGE)
    chosen = {"mirror_topic_names": list(topics)} if topics else {"mirror_topic_name_pattern": pattern}
    flags = {"validate_only": given["dry_run"]}
    if verb == _TRUNCATION:
        flags["include_partition_level_truncation_data"] = True
    found = client_of(context).send("POST", "links", given["link"], f"mirrors:{verb}", body=chosen, **flags)
    write_outcome(found, given, verb)
    if any(one["error_code"] for one in found["data"]):
        raise LinkctlError("Some topics were refused; the table says why.", code=Exit.REFUSED)


def write_outcome(found: Json, given: dict[str, Any], verb: str) -> None:
    """Say per topic whether it was accepted, or why not, and what a restore drops."""
    if given["as_json"]:
        output.write_json(found)
        return
    accepted = "would be accepted" if given["dry_run"] else "accepted"
    restores = verb == _TRUNCATION  # other verbs drop nothing
    rows = [
        (
            one["mirror_topic_name"],
            one["error_message"] or accepted,
            output.total_lag(_lags(one)),
            output.count(one["messages_truncated"]) if restores and not one["error_code"] else None,
        )
        for one in found["data"]
    ]
    output.write_table(("MIRROR TOPIC", "RESULT", "LAG", "TRUNCATED"), rows)
    effects = [(one["mirror_topic_name"], one["effect"]) for one in found["data"] if one.get("effect")]
    if effects:
        output.write_table(
            ("MIRROR TOPIC", "STATE AFTER", "AT RISK", "COPIED FIRST", "GROUPS SET BACK", "CONFIGS"),
            [_effect(name, one) for name, one in effects],
        )


def _effect(name: str, effect: Json) -> tuple[object, ...]:
    """Write what an operation would do; an unknown count is no 0."""
    return (
        name,
        effect["state_after"],
        output.count(effect["records_at_risk"]),
        output.count(effect["records_to_copy"]),
        effect["groups_clamped"],
        ", ".join(sorted(effect["configs_to_change"])),
    )


def _add_verb(name: str, verb: str, text: str) -> None:
    @group.command(name, help=f"{text} TOPICS are mirror topics of the link, or --pattern matches whole names.")
    @click.argument("topics", nargs=-1, shell_complete=complete_mirrors)
    @_LINK
    @click.option("--pattern", help="A regular expression for whole names, instead of names.")
    @dry_run
    @as_json
    @click.pass_context
    def command(context: click.Context, /, **given: Any) -> None:
        _operate(context, verb, given)


for _name, (_verb, _text) in VERBS.items():
    _add_verb(_name, _verb, _text)


def _row(mirror: Json) -> tuple[object, ...]:
    return (
        mirror["link_name"],
        mirror["mirror_topic_name"],
        mirror["source_topic_name"],
        mirror["mirror_status"],
        mirror["num_partitions"],
        output.total_lag(_lags(mirror)),
        _error(mirror),
    )


def _facts(mirror: Json, state: Json) -> list[tuple[str, object]]:
    since = datetime.fromtimestamp(mirror["state_time_ms"] / 1000, UTC).isoformat(timespec="seconds")
    errors = mirror.get("mirror_state_transition_errors") or []
    return [
        ("Mirror topic", mirror["mirror_topic_name"]),
        ("Source topic", mirror["source_topic_name"]),
        ("Link", mirror["link_name"]),
        ("Status", f"{mirror['mirror_status']} since {since}"),
        ("Before", state["prior_state"]),
        ("Tried in vain", state["retry_count"]),
        ("Partitions", mirror["num_partitions"]),
        ("Lag", output.total_lag(_lags(mirror))),
        ("Error", _error(mirror)),
        *(("Waits for", f"{one['error_code']}: {one['error_message']}") for one in errors),
    ]


def _lags(mirror: Json) -> list[Json]:
    return list(mirror["mirror_lags"])


def _error(mirror: Json) -> str | None:
    code: str = mirror.get("mirror_topic_error") or "NO_ERROR"
    return None if code in ("NO_ERROR", "NOT_SET") else code
