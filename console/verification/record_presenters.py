"""View models of the comparison of a record: fields of both sides as text, JSON and hex, and the verdict."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext, gettext_noop, ngettext

from console.languages import translated
from console.web import numbers
from console.web.badges import GAP_BADGES, Badge, Family
from linkengine.domain.record_views import Presence, RecordVerdict

if TYPE_CHECKING:
    from console.verification.actions import ComparedRecord

HEX_BYTES = 2048  # shown as hex; a dump has four characters per byte
_HEX_LINE = 16
_MOST_DEPTH = 50  # of JSON that is indented
_UTF8_BYTES = 4
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')

VERDICT_BADGES: Mapping[RecordVerdict, Badge] = MappingProxyType(
    {
        RecordVerdict.EQUAL: Badge(
            code="EQUAL",
            label=gettext_noop("Equal"),
            icon="check-circle-fill",
            family=Family.OK,
            meaning=gettext_noop("Both sides have the same record."),
        ),
        RecordVerdict.DIFFERENT: Badge(
            code="DIFFERENT",
            label=gettext_noop("Differs"),
            icon="x-octagon-fill",
            family=Family.BAD,
            meaning=gettext_noop("Source and mirror differ at this offset."),
            next_step=gettext_noop("Do not change either topic. Run a verification to find all differences."),
        ),
        RecordVerdict.FILLER: Badge(
            code="FILLER",
            label=gettext_noop("Filler"),
            icon="dash-circle",
            family=Family.DONE,
            meaning=gettext_noop("The mirror has a filler."),
        ),
        RecordVerdict.NO_RECORD: Badge(
            code="NO_RECORD",
            label=gettext_noop("No record"),
            icon="dash-circle",
            family=Family.DONE,
            meaning=gettext_noop("Neither side has a record."),
        ),
        RecordVerdict.NOT_COPIED: Badge(
            code="NOT_COPIED",
            label=gettext_noop("Not copied"),
            icon="hourglass-split",
            family=Family.BUSY,
            meaning=gettext_noop("The mirror has not reached this offset."),
        ),
        RecordVerdict.NOT_COMPARABLE: Badge(
            code="NOT_COMPARABLE",
            label=gettext_noop("Not comparable"),
            icon="exclamation-triangle-fill",
            family=Family.WARN,
            meaning=gettext_noop("The sides cannot be compared at this offset."),
        ),
        RecordVerdict.UNKNOWN: Badge(
            code="UNKNOWN",
            label=gettext_noop("Unknown"),
            icon="question-circle",
            family=Family.WARN,
            meaning=gettext_noop("The offset could not be compared."),
        ),
    }
)
_PRESENCE_LABELS: Mapping[Presence, str] = MappingProxyType(
    {
        Presence.RECORD: gettext_noop("Record"),
        Presence.TRANSACTION_MARKER: gettext_noop("Transaction marker"),
        Presence.ABORTED: gettext_noop(
            "Data of an aborted transaction. Consumers do not see it, and its contents are not shown."
        ),
        Presence.NO_RECORD: gettext_noop("No record. Compaction has removed it."),
        Presence.UNCOMMITTED: gettext_noop("Not readable yet. A transaction is open at or before this offset."),
        Presence.BEFORE_START: gettext_noop("Below the log start offset"),
        Presence.BEYOND_END: gettext_noop("At or beyond the log end offset"),
        Presence.UNREADABLE: gettext_noop("Could not be read"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldText:
    """A field in up to three forms; ``None`` for a form that its bytes do not have. ``shown`` is the form that is open."""

    size: str
    is_null: bool
    is_empty: bool
    cut: str  # how much is shown, "" for all
    text: str | None
    json: str | None
    hex: str
    hex_cut: str
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderText:
    """A header."""

    name: str
    value: FieldText


@dataclass(frozen=True, slots=True, kw_only=True)
class SideText:
    """A side at an offset."""

    title: str
    status: str
    message: str
    key: FieldText | None
    value: FieldText | None
    headers: Sequence[HeaderText]
    more_headers: int
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonView:
    """Both sides, the verdict, and the offsets before and after."""

    partition: int
    offset: int
    badge: Badge
    text: str
    reason: Badge | None
    sides: Sequence[SideText]
    previous_offset: int | None
    next_offset: int | None


def comparison_view(found: ComparedRecord, *, source: str, destination: str) -> ComparisonView:
    """Return the view of a comparison; ``source`` and ``destination`` are the names of the clusters."""
    reason = found.judgement.reason
    return ComparisonView(
        partition=found.partition,
        offset=found.offset,
        badge=VERDICT_BADGES[found.judgement.verdict],
        text=translated(found.judgement.text),
        reason=GAP_BADGES[reason] if reason else None,
        sides=[
            _side(gettext("Source, %(cluster)s") % {"cluster": source}, found.source),
            _side(gettext("Mirror, %(cluster)s") % {"cluster": destination}, found.mirror),
        ],
        previous_offset=found.offset - 1 if found.offset else None,
        next_offset=found.next_offset,
    )


def _side(title: str, side: Mapping[str, Any]) -> SideText:
    record, presence = side["record"], Presence(side["presence"])
    headers = record["headers"] if record else ()
    marker = f" ({side['marker']})" if side["marker"] else ""
    return SideText(
        title=title,
        status=f"{gettext(_PRESENCE_LABELS[presence])}{marker}",
        message=side["message"],
        key=field_text(record["key"]) if record else None,
        value=field_text(record["value"]) if record else None,
        headers=[HeaderText(name=_printable(header["name"]), value=field_text(header["value"])) for header in headers],
        more_headers=record["header_count"] - len(headers) if record else 0,
        facts=_facts(record, side),
    )


def _facts(record: Mapping[str, Any] | None, side: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if record is not None:
        time = gettext("none") if record["timestamp_ms"] < 0 else numbers.record_time(record["timestamp_ms"])
        facts.append((gettext("Timestamp"), f"{time} ({record['timestamp_ms']} ms)"))
        facts.append((gettext("Timestamp type"), record["timestamp_type"]))
        facts.append((gettext("Record size"), numbers.size(record["size"])))
    batch = side["batch"]
    if batch is not None:
        facts += [
            (gettext("Batch"), _batch_words(batch)),
            (gettext("Compression"), batch["compression"]),
            (gettext("Leader epoch"), numbers.count(batch["leader_epoch"])),
            (gettext("Transactional"), gettext("yes") if batch["is_transactional"] else gettext("no")),
        ]
    facts += [
        (gettext("Log start"), numbers.count(side["log_start_offset"])),
        (gettext("Log end"), numbers.count(side["log_end_offset"])),
    ]
    return facts


def _batch_words(batch: Mapping[str, Any]) -> str:
    text = ngettext(
        "offsets %(first)s to %(last)s, %(count)s record, %(size)s",
        "offsets %(first)s to %(last)s, %(count)s records, %(size)s",
        batch["record_count"],
    )
    return text % {
        "first": f"{batch['base_offset']:,}",
        "last": f"{batch['next_offset'] - 1:,}",
        "count": numbers.count(batch["record_count"]),
        "size": numbers.size(batch["size"]),
    }


def field_text(field: Mapping[str, Any] | None) -> FieldText:
    """Return a field as text, JSON and hex, as far as it has these forms."""
    data = b64decode(field["base64"]) if field else b""
    size = field["size"] if field else 0
    text = _text(data, is_cut=bool(field and field["is_cut"]))
    pretty = indented(text) if text and len(data) == size else None
    shown = "json" if pretty is not None else "text" if text is not None else "hex"
    return FieldText(
        size=numbers.size(size),
        is_null=field is None,
        is_empty=field is not None and size == 0,
        cut=_part(len(data), of=size),
        text=None if text is None else _printable(text),
        json=None if pretty is None else _printable(pretty),
        hex=hex_dump(data[:HEX_BYTES]),
        hex_cut=_part(HEX_BYTES, of=size),
        shown=shown,
    )


def _part(shown: int, *, of: int) -> str:
    if shown >= of:
        return ""
    return gettext("the first %(shown)s of %(size)s") % {"shown": numbers.size(shown), "size": numbers.size(of)}


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """Return UTF-8 text, None for other bytes; a character that is cut off at the end is dropped."""
    for dropped in range(_UTF8_BYTES if is_cut else 1):
        try:
            return data[: len(data) - dropped].decode()
        except UnicodeDecodeError:
            continue
    return None


def _printable(text: str) -> str:
    """Return the text with control characters escaped, also those that change the direction of writing."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode() for letter in text
    )


def indented(text: str) -> str | None:
    """Return a JSON object or array with a line per value, None for other text.

    Numbers and strings stay as they are written: a parser would round numbers and drop repeated names.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    depth, out, before = 0, [], ""
    for part in _TOKENS.findall(text):
        closes = part in "}]"
        depth -= closes
        if depth > _MOST_DEPTH:
            return None
        if (before in ("{", "[") and not closes) or before == "," or (closes and before not in ("{", "[")):
            out.append(f"\n{'  ' * depth}")
        out.append(": " if part == ":" else part)
        depth += part in "{["
        before = part
    return "".join(out)


def hex_dump(data: bytes) -> str:
    """Return lines of position, bytes in hex and printable ASCII."""
    lines = []
    for at in range(0, len(data), _HEX_LINE):
        part = data[at : at + _HEX_LINE]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{3 * _HEX_LINE - 1}}  {text}")
    return "\n".join(lines)
