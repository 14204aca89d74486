"""``linkctl mirror verify …`` and ``linkctl mirror gate …``: is the copy right, may it be promoted."""

from __future__ import annotations

import click

from linkctl import output
from linkctl.client import Json, RestClient
from linkctl.commands import as_json, client_of, done, limit, wait_for, waiting
from linkctl.errors import Exit, LinkctlError
from linkctl.inspection import LINK, TOPIC

_COMPARING, _CHECKING = ("QUEUED", "RUNNING"), ("RUNNING",)
_OPEN = ("GREEN", "OVERRIDDEN")


@click.group("verify")
def verify() -> None:
    """Comparisons of a mirror topic with its source, record by record."""


@verify.command("start")
@TOPIC
@LINK
@waiting
@as_json
@click.pass_context
def start(context: click.Context, topic: str, *, link: str, wait: bool, timeout_s: int, as_json: bool) -> None:
    """Compare every record of TOPIC with the source's; with --wait, code 1 where records differ."""
    client, path = client_of(context), ("links", link, "mirrors", topic, "verify-runs")
    run: Json = client.send_own("POST", *path)
    if wait:
        number = str(run["id"])
        run = wait_for(lambda: client.get_own(*path, number), is_over=_is_compared, timeout_s=timeout_s)
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
    """List the comparisons of TOPIC."""
    found = client_of(context).get_own("links", link, "mirrors", topic, "verify-runs", limit=limit)
    _write_runs(found["data"], as_json=as_json, whole=found)


@verify.command("coverage")
@TOPIC
@LINK
@as_json
@click.pass_context
def coverage(context: click.Context, topic: str, *, link: str, as_json: bool) -> None:
    """Show how much of TOPIC was compared and found equal."""
    found = client_of(context).get_own("links", link, "mirrors", topic, "verification")
    if as_json:
        output.write_json(found)
        return
    names = ("start", "end", "verified", "unverified", "differences")
    rows = ((one["partition"], *(output.count(one[name]) for name in names), one["verified_at"]) for one in found["data"])
    output.write_table(("PARTITION", "START", "END", "VERIFIED", "NOT VERIFIED", "DIFFERENT", "LAST"), rows)


@click.group("gate")
def gate() -> None:
    """The checklist that decides whether a mirror topic may be promoted."""


@gate.command("run")
@TOPIC
@LINK
@waiting
@as_json
@click.pass_context
def run_gate(context: click.Context, topic: str, *, link: str, wait: bool, timeout_s: int, as_json: bool) -> None:
    """Check whether TOPIC may be promoted; with --wait, code 1 unless the gate is green."""
    client, path = client_of(context), ("links", link, "mirrors", topic, "gate-runs")
    run: Json = client.send_own("POST", *path)
    if wait:
        number = run["id"]
        run = wait_for(lambda: _gate_run(client, path, number), is_over=_is_checked, timeout_s=timeout_s)
    _write_gate(run, as_json=as_json)
    if wait and run["status"] not in _OPEN:
        raise LinkctlError(f"The gate of {topic} is {run['status']}; the checks say why.", code=Exit.REFUSED)


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
    rows = ((one["id"], one["status"], one["requested_by"], one["requested_at"], one["reason"]) for one in found["data"])
    output.write_table(("ID", "STATUS", "BY", "AT", "REASON"), rows)


@gate.command("override")
@TOPIC
@LINK
@click.option("--reason", required=True, help="Why; it is kept with your name.")
@click.pass_context
def override(context: click.Context, topic: str, *, link: str, reason: str) -> None:
    """Open the gate of TOPIC although it is not green."""
    path = ("links", link, "mirrors", topic, "gate-overrides")
    client_of(context).send_own("POST", *path, body={"reason": reason})
    done(f"The gate of {topic} is open", dry=False)


def _gate_run(client: RestClient, path: tuple[str, ...], number: int) -> Json:
    found = client.get_own(*path)["data"]
    run: Json | None = next((one for one in found if one["id"] == number), None)
    if run is None:
        raise LinkctlError(f"Gate run {number} is not listed any more.", code=Exit.NOT_FOUND)
    return run


def _is_compared(run: Json) -> bool:
    return run["status"] not in _COMPARING


def _is_checked(run: Json) -> bool:
    return run["status"] not in _CHECKING


def _write_runs(rows: list[Json], *, as_json: bool, whole: Json) -> None:
    if as_json:
        output.write_json(whole)
        return
    names = ("records_compared", "differences", "not_copied")
    shown = ((one["id"], one["status"], *(output.count(one[name]) for name in names), one["requested_at"]) for one in rows)
    output.write_table(("ID", "STATUS", "RECORDS", "DIFFERENT", "NOT COPIED", "ASKED AT"), shown)


def _write_gate(run: Json, *, as_json: bool) -> None:
    if as_json:
        output.write_json(run)
        return
    output.write_pairs([("Gate run", run["id"]), ("Status", run["status"])])
    output.write_table(("CHECK", "RESULT", "DETAIL"), ((one["name"], one["state"], one["detail"]) for one in run["checks"]))
