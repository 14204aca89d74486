"""``linkctl mirror restore …``: what restores took out of a topic, and the file with it; ``linkctl mirror recover``."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

import click

from linkctl import output
from linkctl.client import Json, RestClient
from linkctl.commands import as_json, client_of, complete_restores, done, dry_run, limit
from linkctl.errors import Exit, LinkctlError
from linkctl.inspection import LINK, TOPIC

_UNFINISHED = ".unfinished"


@click.group("restore")
def group() -> None:
    """Restores of a topic, and the records they set aside."""


@group.command("list")
@TOPIC
@LINK
@limit
@as_json
@click.pass_context
def show_all(context: click.Context, topic: str, *, link: str, limit: int, as_json: bool) -> None:
    """List the restores of TOPIC, the newest first."""
    found = _restores(client_of(context), topic, link, limit=limit)
    if as_json:
        output.write_json(found)
        return
    columns = ("ID", "BY", "AT", "OUTCOME", "TRUNCATED", "SET ASIDE", "BYTES", "FILE")
    output.write_table(columns, (_row(one) for one in found["data"]))


@group.command("download")
@TOPIC
@click.argument("number", type=int, shell_complete=complete_restores)
@LINK
@click.option(
    "--to", "file", type=click.Path(dir_okay=False, path_type=Path), help="Where to write it; default: its own name, here."
)
@click.pass_context
def download(context: click.Context, topic: str, number: int, *, link: str, file: Path | None) -> None:
    """Fetch the records that restore NUMBER of TOPIC set aside, check the file, and say how to write them back."""
    client = client_of(context)
    run = next((one for one in _restores(client, topic, link, limit=1000)["data"] if one["id"] == number), None)
    if run is None:
        raise LinkctlError(f"Topic {topic} has no restore {number}. List them with mirror restore list.", code=Exit.NOT_FOUND)
    place = file or Path(Path(run["export_name"] or f"restore-{number}.jsonl.gz").name)
    if place.exists():
        raise LinkctlError(f"{place} is here already and is not overwritten. Give another name with --to.", code=Exit.USAGE)
    _fetch(client, ("links", link, "mirrors", topic, "restores", str(number), "records"), place, sha256=run["export_sha256"])
    checksum = f", SHA-256 {run['export_sha256']}" if run["export_sha256"] else ""
    output.write_line(f"{place}: {output.count(run['export_records'])} records{checksum}")
    output.write_line("Write them to another topic with the service's package (the properties are a Kafka client's):")
    words = [
        "python",
        "-m",
        "linkengine.replay",
        str(place),
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
    """Let the failed mirror TOPIC go on, once what made it fail is mended; its offsets must still be the source's."""
    client_of(context).send_own("POST", "links", link, "mirrors", topic, "recover", validate_only=dry_run)
    done(f"Mirror topic {topic} goes on", dry=dry_run)


def _restores(client: RestClient, topic: str, link: str, *, limit: int) -> Json:
    return client.get_own("links", link, "mirrors", topic, "restores", limit=limit)


def _fetch(client: RestClient, parts: tuple[str, ...], place: Path, *, sha256: str) -> None:
    """Write the file under another name until it is whole and its checksum is right."""
    unfinished, digest = place.with_name(place.name + _UNFINISHED), hashlib.sha256()
    try:
        with unfinished.open("wb") as sink:
            for piece in client.download(*parts):
                digest.update(piece)
                sink.write(piece)
        if sha256 and digest.hexdigest() != sha256:
            message = f"The file did not arrive as it was written (SHA-256 {digest.hexdigest()}, not {sha256}). Fetch it again."
            raise LinkctlError(message, code=Exit.UNAVAILABLE)
        unfinished.replace(place)
    except OSError as error:
        raise LinkctlError(
            f"{place} cannot be written: {error.strerror}. Give another place with --to.", code=Exit.USAGE
        ) from None
    finally:
        unfinished.unlink(missing_ok=True)


def _row(one: Json) -> tuple[object, ...]:
    counts = (output.count(one["messages_truncated"]), output.count(one["export_records"]), output.count(one["export_bytes"]))
    return (one["id"], one["requested_by"], one["requested_at"], _outcome(one), *counts, one["export_name"])


def _outcome(one: Json) -> str:
    if one["in_place"]:
        return "nothing diverged"
    if one["exported_at"]:
        return "records set aside" if one["export_name"] else "nothing to set aside"
    return "agreed" if one["agreed_at"] else "not agreed yet"
