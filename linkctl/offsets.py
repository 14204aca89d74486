"""``linkctl offsets-for-time``: look up offsets of a mirror topic by time, and reset consumer groups to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from linkctl import output
from linkctl.client import Exit, Json, LinkctlError, RestClient
from linkctl.commands import as_json, client_of
from linkctl.inspection import LINK, TOPIC


@click.command("offsets-for-time")
@TOPIC
@LINK
@click.option("--to-datetime", metavar="TIME", help="ISO 8601, such as 2026-11-25T20:00:00Z. UTC unless it has an offset.")
@click.option("--timestamp-ms", type=click.IntRange(min=0), help="The time in milliseconds since 1970, instead.")
@click.option("--reset-group", "group", metavar="GROUP", help="Show the reset of this consumer group to the offsets.")
@click.option("--execute", is_flag=True, help="With --reset-group: reset the group.")
@as_json
@click.pass_context
def offsets_for_time(context: click.Context, /, **given: Any) -> None:
    """Find the first record of each partition of the mirror topic TOPIC that is not older than a time.

    Unlike Kafka's lookup (ListOffsets) this ignores the fillers of a mirror topic.
    """
    if given["execute"] and given["group"] is None:
        raise LinkctlError("--execute has an effect only with --reset-group. Add it.", code=Exit.USAGE)
    timestamp_ms = _timestamp_ms(given["to_datetime"], given["timestamp_ms"])
    client, path = client_of(context), ("links", given["link"], "mirrors", given["topic"])
    rows = _find(client, path, timestamp_ms)
    if given["group"] is None:
        _write_offsets(timestamp_ms, rows, as_json=given["as_json"])
        return
    body = {"consumer_group_id": given["group"], "offsets": _targets(rows), "execute": given["execute"]}
    found = client.send_own("POST", *path, "group-resets", body=body)
    _write_reset(found, as_json=given["as_json"])
    if any(row["message"] for row in found["data"]):
        raise LinkctlError("Some offsets were refused. See the reasons in the table above.", code=Exit.REFUSED)


def _timestamp_ms(text: str | None, timestamp_ms: int | None) -> int:
    if (text is None) == (timestamp_ms is None):
        raise LinkctlError("Give either --to-datetime or --timestamp-ms.", code=Exit.USAGE)
    if text is None:
        assert timestamp_ms is not None
        return timestamp_ms
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is not a time in ISO 8601. Write it like 2026-11-25T20:00:00Z."
        raise LinkctlError(message, code=Exit.USAGE) from None
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1000)


def _find(client: RestClient, path: Sequence[str], timestamp_ms: int) -> list[Json]:
    """Repeat the request until the search is complete: the service reads for a few seconds per request."""
    positions: Mapping[int, int] = {}
    while True:
        start = [f"{partition}:{offset}" for partition, offset in positions.items()]
        found = client.get_own(*path, "offsets-for-time", timestamp_ms=timestamp_ms, **({"from": start} if start else {}))
        rows: list[Json] = found["data"]
        if found["is_complete"]:
            return rows
        positions = {row["partition"]: _next(row) for row in rows}
        click.echo(f"Searched to {', '.join(f'{n}:{offset}' for n, offset in positions.items())} …", err=True)


def _next(row: Json) -> int:
    """Return where to continue: at the record that was found, or otherwise at the end of the searched offsets."""
    return int(row["searched_to"] if row["offset"] is None else row["offset"])


def _targets(rows: Sequence[Json]) -> list[Json]:
    """Return the offsets to reset a group to; without such a record it is the log end, as in kafka-consumer-groups."""
    return [
        {"partition": row["partition"], "offset": row["log_end_offset"] if row["offset"] is None else row["offset"]}
        for row in rows
    ]


def _write_offsets(timestamp_ms: int, rows: Sequence[Json], *, as_json: bool) -> None:
    if as_json:
        output.write_json({"timestamp_ms": timestamp_ms, "is_complete": True, "data": rows})
        return
    cells = ((row["partition"], row["offset"], row["record_timestamp_ms"], row["log_end_offset"]) for row in rows)
    output.write_table(("PARTITION", "OFFSET", "TIMESTAMP (MS)", "LOG END OFFSET"), cells)


def _write_reset(found: Json, *, as_json: bool) -> None:
    if as_json:
        output.write_json(found)
        return
    rows = ((row["partition"], row["before"], row["after"], _result(row, found)) for row in found["data"])
    output.write_table(("PARTITION", "BEFORE", "AFTER", "RESULT"), rows)


def _result(row: Json, found: Json) -> str:
    if row["message"]:
        return str(row["message"])
    return "written" if found["executed"] else "would be written (add --execute)"
