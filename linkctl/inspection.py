"""Commands that inspect mirrors: gaps, single records, lineage, failover reports, previews; and ``reparent``."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from linkctl import output
from linkctl.client import Exit, Json, LinkctlError
from linkctl.commands import as_json, client_of, complete_links, complete_mirrors, done, dry_run, limit

YEAR_10000_MS = 253_402_300_800_000  # a record's timestamp may be any int64, including times that datetime cannot represent
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
    """List the gaps of TOPIC: offsets that hold a filler instead of a record, and the reasons."""
    found = client_of(context).get_own("links", link, "mirrors", topic, "gaps", limit=limit)
    if as_json:
        output.write_json(found)
        return
    output.write_table(
        ("REASON", "RANGES", "OFFSETS"), ((total["reason"], total["ranges"], total["offsets"]) for total in found["totals"])
    )
    output.write_line("")
    rows = (
        (
            gap["partition"],
            gap["start"],
            gap["end"],
            gap["offsets"],
            gap["reason"],
            _time(gap["before_ms"]),
            _time(gap["after_ms"]),
        )
        for gap in found["data"]
    )
    output.write_table(("PARTITION", "START", "END", "OFFSETS", "REASON", "LOST AFTER", "LOST BEFORE"), rows)


@click.command("record")
@TOPIC
@LINK
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True, help="The partition.")
@click.option("--offset", type=click.IntRange(min=0), help="The offset.")
@click.option("--timestamp-ms", type=click.IntRange(min=0), help="Instead: the first record that is not older, since 1970.")
@as_json
@click.pass_context
def record(context: click.Context, /, topic: str, *, link: str, as_json: bool, **place: int | None) -> None:
    """Compare the record at an offset of TOPIC with the source's. With --json the contents are in base64.

    The exit code is 1 if the two differ.
    """
    if (place["offset"] is None) == (place["timestamp_ms"] is None):
        raise LinkctlError("Give either --offset or --timestamp-ms.", code=Exit.USAGE)
    query = {name: value for name, value in place.items() if value is not None}
    found = client_of(context).get_own("links", link, "mirrors", topic, "records", **query)
    if as_json:
        output.write_json(found)
    else:
        facts = [("Partition", found["partition"]), ("Offset", found["offset"]), ("Result", found["verdict"])]
        reason = [("Filler", found["filler_reason"])] if found["filler_reason"] else []
        output.write_pairs([*facts, *reason, ("Meaning", found["text"])])
        output.write_line("")
        rows = (_record_row(side, found[side]) for side in ("source", "mirror"))
        output.write_table(("SIDE", "HAS", "KEY", "VALUE", "HEADERS", "TIMESTAMP", "COMPRESSION", "LEADER EPOCH"), rows)
    if found["verdict"] == "DIFFERENT":
        raise LinkctlError("Source and mirror differ at this offset.", code=Exit.REFUSED)


@click.command("lineage")
@TOPIC
@LINK
@limit
@as_json
@click.pass_context
def lineage(context: click.Context, topic: str, *, link: str, limit: int, as_json: bool) -> None:
    """List which offsets of TOPIC came from which cluster over which link; origins of origins are indented."""
    found = client_of(context).get_own("links", link, "mirrors", topic, "lineage", limit=limit)
    if as_json:
        output.write_json(found)
        return
    rows = [row for origin in found["data"] for row in _origins(origin)]
    output.write_table(("PARTITION", "START", "END", "CLUSTER", "TOPIC", "LINK", "SINCE", "UNTIL"), rows)


@click.command("stop-reports")
@TOPIC
@LINK
@limit
@as_json
@click.pass_context
def mirror_stops(context: click.Context, topic: str, *, link: str, limit: int, as_json: bool) -> None:
    """List the failover reports of TOPIC."""
    found = client_of(context).get_own("links", link, "mirrors", topic, "stop-reports", limit=limit)
    _write_stops(found, as_json=as_json)


@click.command("stop-reports")
@click.argument("name", shell_complete=complete_links)
@limit
@as_json
@click.pass_context
def link_stops(context: click.Context, name: str, *, limit: int, as_json: bool) -> None:
    """List the failover reports of the mirror topics of the cluster link NAME."""
    _write_stops(client_of(context).get_own("links", name, "stop-reports", limit=limit), as_json=as_json)


@click.command("preview")
@click.argument("operation", type=click.Choice(OPERATIONS))
@LINK
@click.option("--pattern", help="A regular expression that matches whole names. Default: all mirror topics of the link.")
@limit
@as_json
@click.pass_context
def preview(context: click.Context, operation: str, *, link: str, pattern: str | None, limit: int, as_json: bool) -> None:
    """Show what OPERATION would do to the mirror topics of a link, without changing anything."""
    query = {"operation": operation, "mirror_topic_name_pattern": pattern, "limit": limit}
    found = client_of(context).get_own("links", link, "previews", **query)
    if as_json:
        output.write_json(found)
        return
    columns = ("MIRROR TOPIC", "RESULT", "AT RISK", "TO COPY", "GROUPS CLAMPED", "CONFIGS TO CHANGE")
    output.write_table(columns, (_preview_row(topic) for topic in found["data"]))
    output.write_warnings((topic["mirror_topic_name"], text) for topic in found["data"] for text in topic["warnings"])


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
    """Move the paused mirror TOPIC to a link from another copy of its source. No records are copied again."""
    path = ("links", link, "mirrors", topic, "reparent")
    found: Json = client_of(context).send_own("POST", *path, body={"link_name": target}, validate_only=dry_run)
    if as_json:
        output.write_json(found)
        return
    rows = ((row["partition"], row["end"], row["fence"], row["to_copy"]) for row in found["partitions"])
    output.write_table(("PARTITION", "MIRROR END", "COMMON UP TO", "TO COPY"), rows)
    done(f"Mirror topic {topic} moved to cluster link {target}; it is paused", dry=dry_run)


def _write_stops(found: Json, *, as_json: bool) -> None:
    if as_json:
        output.write_json(found)
        return
    columns = ("MIRROR TOPIC", "OPERATION", "BY", "WRITABLE AT", "NOT COPIED", "RPO", "RTO", "GROUPS CLAMPED")
    output.write_table(columns, (_stop_row(report) for report in found["data"]))


def _stop_row(report: Json) -> tuple[object, ...]:
    return (
        report["mirror_topic_name"],
        report["reason"],
        report["requested_by"],
        report["writable_at"],
        output.count(report["records_not_copied"]),
        output.duration(report["rpo_ms"]),
        output.duration(report["rto_ms"]),
        _groups(report["groups_clamped"]),
    )


def _preview_row(topic: Json) -> tuple[object, ...]:
    result = topic["reason"] or f"accepted, then {topic['state_after']}"
    risk, first = output.count(topic["records_at_risk"]), output.count(topic["records_to_copy"])
    configs = ", ".join(topic["configs_to_change"])
    return topic["mirror_topic_name"], result, risk, first, _groups(topic["groups_clamped"]), configs


def _groups(clamped: list[Json]) -> str:
    return ", ".join(sorted({offset["group"] for offset in clamped}))


def _record_row(name: str, side: Json) -> tuple[object, ...]:
    record, batch = side["record"] or {}, side["batch"] or {}
    sizes = [_field(record[part]) for part in ("key", "value")] if record else [None, None]
    has = f"{side['presence']} {side['marker']}{side['message']}".strip()
    time = _time(record.get("timestamp_ms"))
    return name, has, *sizes, record.get("header_count"), time, batch.get("compression"), batch.get("leader_epoch")


def _field(field: Json | None) -> str:
    return "null" if field is None else f"{field['size']} bytes"


def _origins(origin: Json) -> list[tuple[object, ...]]:
    chain = (_origin_row(up, "", "  " * (up["links_away"] - 1)) for up in origin["upstream"])
    return [_origin_row(origin, origin["partition"], ""), *chain]


def _origin_row(origin: Json, partition: object, indent: str) -> tuple[object, ...]:
    place = (f"{indent}{origin['cluster_id']}", origin["topic"], origin["link_name"])
    return (partition, origin["start"], origin["end"], *place, origin["since"], origin["until"])


def _time(unix_ms: int | None) -> str | None:
    if unix_ms is None:
        return None
    if not 0 <= unix_ms < YEAR_10000_MS:
        return f"{unix_ms} ms"
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds")
