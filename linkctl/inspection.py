"""Looking closer: gaps, lineage, what stops cost, what an operation would do; and moving a mirror to another link."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from linkctl import output
from linkctl.client import Json
from linkctl.commands import as_json, client_of, complete_links, complete_mirrors, done, dry_run, limit

YEAR_10000_MS = 253_402_300_800_000  # a record's timestamp may be anything, also beyond the calendar
TOPIC = click.argument("topic", shell_complete=complete_mirrors)
LINK = click.option("--link", required=True, help="The cluster link.", shell_complete=complete_links)
OPERATIONS = (
    "promote",
    "failover",
    "pause",
    "resume",
    "reverse-and-start",
    "reverse-and-pause",
    "truncate-and-restore",
    "recover",
    "delete",
)


@click.command("gaps")
@TOPIC
@LINK
@limit
@as_json
@click.pass_context
def gaps(context: click.Context, topic: str, *, link: str, limit: int, as_json: bool) -> None:
    """List the offsets of TOPIC that hold a filler instead of a record, and why."""
    found = client_of(context).get_own("links", link, "mirrors", topic, "gaps", limit=limit)
    if as_json:
        output.write_json(found)
        return
    output.write_table(
        ("REASON", "RANGES", "OFFSETS"), ((one["reason"], one["ranges"], one["offsets"]) for one in found["totals"])
    )
    output.write_line("")
    rows = (
        (
            one["partition"],
            one["start"],
            one["end"],
            one["offsets"],
            one["reason"],
            _time(one["before_ms"]),
            _time(one["after_ms"]),
        )
        for one in found["data"]
    )
    output.write_table(("PARTITION", "START", "END", "OFFSETS", "REASON", "LOST AFTER", "LOST BEFORE"), rows)


@click.command("lineage")
@TOPIC
@LINK
@limit
@as_json
@click.pass_context
def lineage(context: click.Context, topic: str, *, link: str, limit: int, as_json: bool) -> None:
    """List which offsets of TOPIC came from which cluster, over which link; what lies behind is indented."""
    found = client_of(context).get_own("links", link, "mirrors", topic, "lineage", limit=limit)
    if as_json:
        output.write_json(found)
        return
    rows = [row for one in found["data"] for row in _origins(one)]
    output.write_table(("PARTITION", "START", "END", "CLUSTER", "TOPIC", "LINK", "SINCE", "UNTIL"), rows)


@click.command("stop-reports")
@TOPIC
@LINK
@limit
@as_json
@click.pass_context
def mirror_stops(context: click.Context, topic: str, *, link: str, limit: int, as_json: bool) -> None:
    """List what promotions and failovers of TOPIC cost."""
    found = client_of(context).get_own("links", link, "mirrors", topic, "stop-reports", limit=limit)
    _write_stops(found, as_json=as_json)


@click.command("stop-reports")
@click.argument("name", shell_complete=complete_links)
@limit
@as_json
@click.pass_context
def link_stops(context: click.Context, name: str, *, limit: int, as_json: bool) -> None:
    """List what promotions and failovers on the cluster link NAME cost."""
    _write_stops(client_of(context).get_own("links", name, "stop-reports", limit=limit), as_json=as_json)


@click.command("preview")
@click.argument("operation", type=click.Choice(OPERATIONS))
@LINK
@click.option("--pattern", help="A regular expression for whole names; default: all mirror topics of the link.")
@limit
@as_json
@click.pass_context
def preview(context: click.Context, operation: str, *, link: str, pattern: str | None, limit: int, as_json: bool) -> None:
    """Tell what OPERATION would do to the mirror topics of a link, and change nothing."""
    query = {"operation": operation, "mirror_topic_name_pattern": pattern, "limit": limit}
    found = client_of(context).get_own("links", link, "previews", **query)
    if as_json:
        output.write_json(found)
        return
    columns = ("MIRROR TOPIC", "RESULT", "AT RISK", "TO COPY", "GROUPS SET BACK", "CONFIGS TO CHANGE")
    output.write_table(columns, (_foreseen(one) for one in found["data"]))


@click.command("reparent")
@TOPIC
@LINK
@click.option(
    "--to", "target", required=True, help="The link from the other copy of the source.", shell_complete=complete_links
)
@dry_run
@as_json
@click.pass_context
def reparent(context: click.Context, topic: str, *, link: str, target: str, dry_run: bool, as_json: bool) -> None:
    """Move the paused mirror TOPIC to a link from another copy of its source; nothing is copied again."""
    path = ("links", link, "mirrors", topic, "reparent")
    found: Json = client_of(context).send_own("POST", *path, body={"link_name": target}, validate_only=dry_run)
    if as_json:
        output.write_json(found)
        return
    rows = ((one["partition"], one["end"], one["fence"], one["to_copy"]) for one in found["partitions"])
    output.write_table(("PARTITION", "MIRROR ENDS", "COMMON UP TO", "TO COPY"), rows)
    done(f"Mirror topic {topic} moved to cluster link {target}; it is paused", dry=dry_run)


def _write_stops(found: Json, *, as_json: bool) -> None:
    if as_json:
        output.write_json(found)
        return
    columns = ("MIRROR TOPIC", "WHAT", "BY", "WRITABLE AT", "NOT COPIED", "RPO", "RTO", "GROUPS SET BACK")
    output.write_table(columns, (_stop(one) for one in found["data"]))


def _stop(one: Json) -> tuple[object, ...]:
    return (
        one["mirror_topic_name"],
        one["reason"],
        one["requested_by"],
        one["writable_at"],
        output.count(one["records_not_copied"]),
        output.duration(one["rpo_ms"]),
        output.duration(one["rto_ms"]),
        _groups(one["groups_clamped"]),
    )


def _foreseen(one: Json) -> tuple[object, ...]:
    result = one["reason"] or f"accepted, then {one['state_after']}"
    risk, first = output.count(one["records_at_risk"]), output.count(one["records_to_copy"])
    return one["mirror_topic_name"], result, risk, first, _groups(one["groups_clamped"]), ", ".join(one["configs_to_change"])


def _groups(clamped: list[Json]) -> str:
    return ", ".join(sorted({one["group"] for one in clamped}))


def _origins(one: Json) -> list[tuple[object, ...]]:
    return [_origin(one, one["partition"], ""), *(_origin(up, "", "  " * (up["links_away"] - 1)) for up in one["upstream"])]


def _origin(one: Json, partition: object, indent: str) -> tuple[object, ...]:
    place = (f"{indent}{one['cluster_id']}", one["topic"], one["link_name"])
    return (partition, one["start"], one["end"], *place, one["since"], one["until"])


def _time(unix_ms: int | None) -> str | None:
    if unix_ms is None:
        return None
    if not 0 <= unix_ms < YEAR_10000_MS:
        return f"{unix_ms} ms"
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds")
