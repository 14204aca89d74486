"""``linkctl mirror restore …`` (restores of a topic and their exported records) and ``linkctl mirror recover``."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

import click

from linkctl import output
from linkctl.client import Exit, Json, LinkctlError, RestClient
from linkctl.commands import as_json, client_of, complete_restores, done, dry_run, limit
from linkctl.inspection import LINK, TOPIC

_UNFINISHED = ".unfinished"


@click.group("restore")
def group() -> None:
    """Restores of a topic and the records that they exported."""


@group.command("list")
@TOPIC
@LINK
@limit
@as_json
@click.pass_context
def show_all(context: click.Context, topic: str, *, link: str, limit: int, as_json: bool) -> None:
    """List the restores of TOPIC, newest first."""
    found = _restores(client_of(context), topic, link, limit=limit)
    if as_json:
        output.write_json(found)
        return
    columns = ("ID", "BY", "AT", "OUTCOME", "TRUNCATED", "EXPORTED", "BYTES", "FILE")
    output.write_table(columns, (_row(run) for run in found["data"]))


@group.command("download")
@TOPIC
@click.argument("number", type=int, shell_complete=complete_restores)
@LINK
@click.option(
    "--to",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write. Default: the export's name, in this folder.",
)
@click.pass_context
def download(context: click.Context, topic: str, number: int, *, link: str, file: Path | None) -> None:
    """Download the records that restore NUMBER of TOPIC exported, check the file, and show how to write them to a topic."""
    client = client_of(context)
    run = next((row for row in _restores(client, topic, link, limit=1000)["data"] if row["id"] == number), None)
    if run is None:
        raise LinkctlError(f"Topic {topic} has no restore {number}. List them with mirror restore list.", code=Exit.NOT_FOUND)
    target = file or Path(Path(run["export_name"] or f"restore-{number}.jsonl.gz").name)
    if target.exists():
        raise LinkctlError(f"{target} exists and was not overwritten. Give another name with --to.", code=Exit.USAGE)
    parts = ("links", link, "mirrors", topic, "restores", str(number), "records")
    _download(client, parts, target, sha256=run["export_sha256"])
    checksum = f", SHA-256 {run['export_sha256']}" if run["export_sha256"] else ""
    output.write_line(f"{target}: {output.count(run['export_records'])} records{checksum}")
    output.write_line("To write them to another topic, use the service's package with the properties of a Kafka client:")
    words = [
        "python",
        "-m",
        "linkengine.replay",
        str(target),
        "--properties",
        "client.properties",
        "--topic",
        f"{topic}-recovered",
    ]
    output.write_line(f"  {shlex.join(words)}")


@click.command("recover")
@TOPIC
@LINK
@dry_run
@click.pass_context
def recover(context: click.Context, topic: str, *, link: str, dry_run: bool) -> None:
    """Resume the failed mirror TOPIC after the cause was fixed. Its offsets must still correspond to the source's."""
    client_of(context).send_own("POST", "links", link, "mirrors", topic, "recover", validate_only=dry_run)
    done(f"Mirror topic {topic} was recovered", dry=dry_run)


def _restores(client: RestClient, topic: str, link: str, *, limit: int) -> Json:
    return client.get_own("links", link, "mirrors", topic, "restores", limit=limit)


def _download(client: RestClient, parts: tuple[str, ...], target: Path, *, sha256: str) -> None:
    """Download a file to a temporary name, check its SHA-256, and rename it to ``target``."""
    unfinished, digest = target.with_name(target.name + _UNFINISHED), hashlib.sha256()
    try:
        with unfinished.open("wb") as sink:
            for chunk in client.download(*parts):
                digest.update(chunk)
                sink.write(chunk)
        if sha256 and digest.hexdigest() != sha256:
            message = f"The downloaded file is damaged (SHA-256 {digest.hexdigest()}, expected {sha256}). Download it again."
            raise LinkctlError(message, code=Exit.UNAVAILABLE)
        unfinished.replace(target)
    except OSError as error:
        raise LinkctlError(
            f"{target} cannot be written: {error.strerror}. Give another file with --to.", code=Exit.USAGE
        ) from None
    finally:
        unfinished.unlink(missing_ok=True)


def _row(run: Json) -> tuple[object, ...]:
    counts = (output.count(run["messages_truncated"]), output.count(run["export_records"]), output.count(run["export_bytes"]))
    return (run["id"], run["requested_by"], run["requested_at"], _outcome(run), *counts, run["export_name"])


def _outcome(run: Json) -> str:
    if run["in_place"]:
        return "nothing diverged"
    if run["exported_at"]:
        return "records exported" if run["export_name"] else "nothing to export"
    return "agreed" if run["agreed_at"] else "not agreed yet"
