"""``linkctl mirror …``: create, list, describe, delete and operate mirror topics; list state transition errors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from linkctl import output
from linkctl.client import Exit, Json, LinkctlError
from linkctl.commands import as_json, client_of, complete_links, complete_mirrors, config_list, configs, done, dry_run
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
# command -> (verb of the REST API, help text)
VERBS = {
    "promote": ("promote", "Make topics writable after all records, configs and group offsets are copied."),
    "failover": ("failover", "Make topics writable immediately, without waiting for the source."),
    "pause": ("pause", "Pause copying; the topics stay read-only."),
    "resume": ("resume", "Resume copying."),
    "reverse-and-start": ("reverse-and-start-mirror", "Swap source and mirror and start mirroring (bidirectional links)."),
    "reverse-and-pause": ("reverse-and-pause-mirror", "Swap source and mirror and pause (bidirectional links)."),
    "truncate-and-restore": (
        "truncate-and-restore",
        "Make topics mirrors again; records that the other side lacks are dropped.",
    ),
}
_TRUNCATION = "truncate-and-restore"
_LINK = click.option("--link", required=True, help="The cluster link.", shell_complete=complete_links)
_TOPIC = click.argument("topic", shell_complete=complete_mirrors)


@click.group("mirror")
def group() -> None:
    """Manage the mirror topics of cluster links."""


@group.command("create")
@click.argument("mirror")
@_LINK
@click.option("--source-topic", help="The topic to mirror. Default: MIRROR. Required if the link has a prefix.")
@click.option("--replication-factor", type=click.IntRange(1, 32_767), help="Default: the cluster's default.")
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
    """Delete the mirror topics TOPICS of the link with all their records. The source topics are kept."""
    client = client_of(context)
    confirm(client, topics, yes=yes)
    for_each(topics, lambda topic: delete_mirror(client, link=link, topic=topic), done="is being deleted")


@group.command("list")
@click.option("--link", default="-", help="The cluster link. Default: all.", shell_complete=complete_links)
@click.option(
    "--status",
    "--mirror-status",
    "status",
    type=click.Choice(STATUSES, case_sensitive=False),
    help="Only mirror topics with this status.",
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
    output.write_table(columns, (_row(mirror) for mirror in found["data"]))


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
    rows = ((row["partition"], output.count(row["lag"]), output.count(row["last_source_fetch_offset"])) for row in _lags(found))
    output.write_table(("PARTITION", "LAG", "LAST SOURCE FETCH OFFSET"), rows)


@group.group("state-transition-error")
def transition_error() -> None:
    """Errors of pending state transitions."""


@transition_error.command("list")
@_TOPIC
@_LINK
@as_json
@click.pass_context
def transition_errors(context: click.Context, topic: str, *, link: str, as_json: bool) -> None:
    """List the errors of the mirror topic TOPIC and the conditions that it waits for."""
    found = client_of(context).get("links", link, "mirrors", topic, include_state_transition_errors=True)
    errors = found.get("mirror_state_transition_errors") or []
    if as_json:
        output.write_json(errors)
        return
    output.write_table(("ERROR", "MESSAGE"), ((error["error_code"], error["error_message"]) for error in errors))


def _operate(context: click.Context, verb: str, given: dict[str, Any]) -> None:
    topics, pattern = given["topics"], given["pattern"]
    if bool(topics) == bool(pattern):
        raise LinkctlError("Give either names of mirror topics or --pattern.", code=Exit.USAGE)
    chosen = {"mirror_topic_names": list(topics)} if topics else {"mirror_topic_name_pattern": pattern}
    flags = {"validate_only": given["dry_run"]}
    if verb == _TRUNCATION:
        flags["include_partition_level_truncation_data"] = True
    found = client_of(context).send("POST", "links", given["link"], f"mirrors:{verb}", body=chosen, **flags)
    write_outcome(found, given, verb)
    if any(topic["error_code"] for topic in found["data"]):
        raise LinkctlError("Some topics were refused. See the reasons in the table above.", code=Exit.REFUSED)


def write_outcome(found: Json, given: dict[str, Any], verb: str) -> None:
    """Write for each topic whether the operation was accepted, or the reason, and how many records a restore drops.

    A dry run also has the effects and the warnings.
    """
    if given["as_json"]:
        output.write_json(found)
        return
    accepted = "would be accepted" if given["dry_run"] else "accepted"
    restores = verb == _TRUNCATION  # other verbs drop no records
    rows = [
        (
            topic["mirror_topic_name"],
            topic["error_message"] or accepted,
            output.total_lag(_lags(topic)),
            output.count(topic["messages_truncated"]) if restores and not topic["error_code"] else None,
        )
        for topic in found["data"]
    ]
    output.write_table(("MIRROR TOPIC", "RESULT", "LAG", "TRUNCATED"), rows)
    effects = [(topic["mirror_topic_name"], topic["effect"]) for topic in found["data"] if topic.get("effect")]
    if effects:
        output.write_table(
            ("MIRROR TOPIC", "STATE AFTER", "AT RISK", "COPIED FIRST", "GROUPS CLAMPED", "CONFIGS"),
            [_effect(name, effect) for name, effect in effects],
        )
        output.write_warnings((name, text) for name, effect in effects for text in effect.get("warnings", ()))


def _effect(name: str, effect: Json) -> tuple[object, ...]:
    """Return the table row of an operation's effect; unknown counts are written as unknown and not as 0."""
    return (
        name,
        effect["state_after"],
        output.count(effect["records_at_risk"]),
        output.count(effect["records_to_copy"]),
        effect["groups_clamped"],
        ", ".join(sorted(effect["configs_to_change"])),
    )


def _add_verb(name: str, verb: str, text: str) -> None:
    @group.command(name, help=f"{text} TOPICS are mirror topics of the link; or use --pattern.")
    @click.argument("topics", nargs=-1, shell_complete=complete_mirrors)
    @_LINK
    @click.option("--pattern", help="A regular expression that matches whole names, instead of TOPICS.")
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
        ("Health", f"{state['health']['health']}: {state['health']['message']}"),
        ("Next step", state["health"]["next_step"] or None),
        ("Status", f"{mirror['mirror_status']} since {since}"),
        ("Prior state", state["prior_state"]),
        ("Retries", state["retry_count"]),
        ("Partitions", mirror["num_partitions"]),
        ("Lag", output.total_lag(_lags(mirror))),
        ("Error", _error(mirror)),
        *(("Waiting for", f"{error['error_code']}: {error['error_message']}") for error in errors),
    ]


def _lags(mirror: Json) -> list[Json]:
    return list(mirror["mirror_lags"])


def _error(mirror: Json) -> str | None:
    code: str = mirror.get("mirror_topic_error") or "NO_ERROR"
    return None if code in ("NO_ERROR", "NOT_SET") else code
