"""``linkctl mirror verify …`` (verification runs) and ``linkctl mirror gate …`` (the migration gate)."""

from __future__ import annotations

import click

from linkctl import output
from linkctl.client import Exit, Json, LinkctlError, RestClient
from linkctl.commands import as_json, client_of, done, limit, wait_for, waiting
from linkctl.inspection import LINK, TOPIC

_UNFINISHED_RUN, _UNFINISHED_GATE = ("QUEUED", "RUNNING"), ("RUNNING",)
_OPEN = ("GREEN", "OVERRIDDEN")


@click.group("verify")
def verify() -> None:
    """Verification runs: comparisons of a mirror topic with its source, record by record."""


@verify.command("start")
@TOPIC
@LINK
@waiting
@as_json
@click.pass_context
def start(context: click.Context, topic: str, *, link: str, wait: bool, timeout_s: int, as_json: bool) -> None:
    """Compare every record of TOPIC with its source. With --wait the exit code is 1 if records differ."""
    client, path = client_of(context), ("links", link, "mirrors", topic, "verify-runs")
    run: Json = client.send_own("POST", *path)
    if wait:
        number = str(run["id"])
        run = wait_for(lambda: client.get_own(*path, number), is_over=_is_run_finished, timeout_s=timeout_s)
    _write_runs([run], as_json=as_json, whole=run)
    if wait and run["status"] != "EQUAL":
        raise LinkctlError(run["error_message"] or f"{topic} differs from its source.", code=Exit.REFUSED)


@verify.command("list")
@TOPIC
@LINK
@limit
@as_json
@click.pass_context
def runs(context: click.Context, topic: str, *, link: str, limit: int, as_json: bool) -> None:
    """List the verification runs of TOPIC."""
    found = client_of(context).get_own("links", link, "mirrors", topic, "verify-runs", limit=limit)
    _write_runs(found["data"], as_json=as_json, whole=found)


@verify.command("coverage")
@TOPIC
@LINK
@as_json
@click.pass_context
def coverage(context: click.Context, topic: str, *, link: str, as_json: bool) -> None:
    """Show how much of TOPIC is verified."""
    found = client_of(context).get_own("links", link, "mirrors", topic, "verification")
    if as_json:
        output.write_json(found)
        return
    names = ("start", "end", "verified", "unverified", "differences")
    rows = ((row["partition"], *(output.count(row[name]) for name in names), row["verified_at"]) for row in found["data"])
    output.write_table(("PARTITION", "START", "END", "VERIFIED", "NOT VERIFIED", "DIFFERENT", "LAST"), rows)


@click.group("gate")
def gate() -> None:
    """The migration gate: a checklist that must pass before a mirror topic can be promoted."""


@gate.command("run")
@TOPIC
@LINK
@waiting
@as_json
@click.pass_context
def run_gate(context: click.Context, topic: str, *, link: str, wait: bool, timeout_s: int, as_json: bool) -> None:
    """Run the migration gate of TOPIC. With --wait the exit code is 1 unless the gate is green."""
    client, path = client_of(context), ("links", link, "mirrors", topic, "gate-runs")
    run: Json = client.send_own("POST", *path)
    if wait:
        number = run["id"]
        run = wait_for(lambda: _gate_run(client, path, number), is_over=_is_gate_finished, timeout_s=timeout_s)
    _write_gate(run, as_json=as_json)
    if wait and run["status"] not in _OPEN:
        raise LinkctlError(f"The gate of {topic} is {run['status']}. See the failed checks above.", code=Exit.REFUSED)


@gate.command("list")
@TOPIC
@LINK
@limit
@as_json
@click.pass_context
def gate_runs(context: click.Context, topic: str, *, link: str, limit: int, as_json: bool) -> None:
    """List the gate runs of TOPIC."""
    found = client_of(context).get_own("links", link, "mirrors", topic, "gate-runs", limit=limit)
    if as_json:
        output.write_json(found)
        return
    rows = ((row["id"], row["status"], row["requested_by"], row["requested_at"], row["reason"]) for row in found["data"])
    output.write_table(("ID", "STATUS", "BY", "AT", "REASON"), rows)


@gate.command("override")
@TOPIC
@LINK
@click.option("--reason", required=True, help="The reason, which is stored with your name.")
@click.pass_context
def override(context: click.Context, topic: str, *, link: str, reason: str) -> None:
    """Open the gate of TOPIC without a green run."""
    path = ("links", link, "mirrors", topic, "gate-overrides")
    client_of(context).send_own("POST", *path, body={"reason": reason})
    done(f"The gate of {topic} is open", dry=False)


def _gate_run(client: RestClient, path: tuple[str, ...], number: int) -> Json:
    found = client.get_own(*path)["data"]
    run: Json | None = next((row for row in found if row["id"] == number), None)
    if run is None:
        raise LinkctlError(f"Gate run {number} is no longer listed. Start a new run.", code=Exit.NOT_FOUND)
    return run


def _is_run_finished(run: Json) -> bool:
    return run["status"] not in _UNFINISHED_RUN


def _is_gate_finished(run: Json) -> bool:
    return run["status"] not in _UNFINISHED_GATE


def _write_runs(rows: list[Json], *, as_json: bool, whole: Json) -> None:
    if as_json:
        output.write_json(whole)
        return
    names = ("records_compared", "differences", "not_copied")
    cells = ((row["id"], row["status"], *(output.count(row[name]) for name in names), row["requested_at"]) for row in rows)
    output.write_table(("ID", "STATUS", "RECORDS", "DIFFERENT", "NOT COPIED", "REQUESTED AT"), cells)


def _write_gate(run: Json, *, as_json: bool) -> None:
    if as_json:
        output.write_json(run)
        return
    output.write_pairs([("Gate run", run["id"]), ("Status", run["status"])])
    rows = ((check["name"], check["state"], check["detail"]) for check in run["checks"])
    output.write_table(("CHECK", "RESULT", "DETAIL"), rows)
