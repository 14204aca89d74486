"""Write the records that a restore has exported (``exporting``) back to a topic."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import looks_like_mirror
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin import ClusterAdmin
from linkengine.kafka.record_writer import PlainRecord, write_records


def replay_records(address: ClusterAddress, topic: str, read: Callable[[], Iterable[bytes]]) -> int:
    """Append exported records to the same partitions, with their timestamps and headers; return how many.

    They get new offsets. A topic with too few partitions and a mirror are refused before anything is written. ``read`` is
    called twice, first to validate all lines, so that nothing is written from a damaged file.
    """
    admin = ClusterAdmin(address)
    found = admin.find(topic)
    if found is None:
        raise LinkEngineError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, f"There is no topic {topic!r}. Create it first.")
    if looks_like_mirror(found.configs) or (admin.has_authorizer() and admin.denies_writes(topic)):
        raise LinkEngineError(
            ErrorCode.ILLEGAL_STATE, f"Topic {topic!r} is closed to producers and may be a mirror. Use an ordinary topic."
        )
    for record in _records(read()):
        if record.partition >= found.partitions:
            raise LinkEngineError(
                ErrorCode.INVALID_REQUEST_ERROR,
                f"Topic {topic!r} has {found.partitions} partitions, too few for records of partition {record.partition}. Add "
                "partitions first.",
            )
    return write_records(address, topic, _records(read()))


def _records(lines: Iterable[bytes]) -> Iterator[PlainRecord]:
    for number, line in enumerate(lines, start=1):
        try:
            fields = json.loads(line)
            yield PlainRecord(
                partition=fields["partition"],
                timestamp_ms=fields["timestamp"],
                key=_bytes(fields["key"]),
                value=_bytes(fields["value"]),
                headers=tuple((_name(name), _bytes(value)) for name, value in fields["headers"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, f"Line {number} cannot be replayed: {error!r}.") from error


def _name(name: str) -> str:
    name.encode("utf-8", "surrogateescape")  # as exported if it is not UTF-8; UnicodeEncodeError is a ValueError
    return name


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
