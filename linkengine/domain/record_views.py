"""The record at an offset of a mirror and of its source, and how both compare. Values and pure functions.

The contents of a record are cut to its first bytes, encoded in base64 so that the values can be sent as JSON. Whether two
records are equal is decided on the whole contents, before they are cut (``linkengine.jobs.comparing_records``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from linkengine.domain.messages import gettext_lazy, join_messages
from linkengine.domain.states import GapReason


class Presence(StrEnum):
    """Content of a log at an offset."""

    RECORD = "RECORD"  # a record that consumers read
    TRANSACTION_MARKER = "TRANSACTION_MARKER"  # a control batch; most fillers of a mirror are such batches
    ABORTED = "ABORTED"  # data of an aborted transaction
    NO_RECORD = "NO_RECORD"  # compaction has removed it
    UNCOMMITTED = "UNCOMMITTED"  # at or beyond the last stable offset: a transaction is open there or before it
    BEFORE_START = "BEFORE_START"  # below the log start offset
    BEYOND_END = "BEYOND_END"  # at or beyond the high watermark
    UNREADABLE = "UNREADABLE"  # unknown; ``code`` and ``message`` have the reason


class RecordVerdict(StrEnum):
    """How both sides compare at an offset."""

    EQUAL = "EQUAL"
    DIFFERENT = "DIFFERENT"
    FILLER = "FILLER"  # the mirror has a filler, and the source has no record there
    NO_RECORD = "NO_RECORD"  # neither side has a record there
    NOT_COPIED = "NOT_COPIED"  # the mirror has not reached the offset
    NOT_COMPARABLE = "NOT_COMPARABLE"  # a side no longer has it, or both were written to independently
    UNKNOWN = "UNKNOWN"  # a side could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldView:
    """A key, a value or the value of a header. A field that is null is None instead."""

    size: int
    base64: str  # its first bytes
    is_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderView:
    """A header of a record; bytes of its name that are not UTF-8 are escaped."""

    name: str
    value: FieldView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInfo:
    """The batch of a record as it is stored. ``leader_epoch`` is None where the format has none."""

    base_offset: int
    next_offset: int
    record_count: int
    size: int  # bytes in the log
    compression: str
    leader_epoch: int | None
    is_transactional: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordContents:
    """A record; ``headers`` are the first of ``header_count``."""

    key: FieldView | None
    value: FieldView | None
    headers: tuple[HeaderView, ...]
    header_count: int
    timestamp_ms: int  # -1: the format has none
    timestamp_type: str
    size: int  # decompressed bytes of key, value and headers


@dataclass(frozen=True, slots=True, kw_only=True)
class SideView:
    """The record of a side at an offset, or why it has none. Unknown is None.

    ``next_offset`` is the first offset above at which this side may have a record, None if the log ends here.
    """

    presence: Presence
    marker: str = ""  # type of a control batch: COMMIT, ABORT
    record: RecordContents | None = None
    batch: BatchInfo | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None  # high watermark
    last_stable_offset: int | None = None
    next_offset: int | None = None
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordComparison:
    """Both sides at an offset; ``differing`` are the parts of two records that differ: key, value, headers, timestamp."""

    partition: int
    offset: int
    source: SideView
    mirror: SideView
    differing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GapEntry:
    """A row of the gap ledger that covers the offset; not ``exact``: the row also covers offsets that hold records."""

    reason: GapReason
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict; ``reason`` is that of a filler, None if it is unknown or there is no filler."""

    verdict: RecordVerdict
    text: str
    reason: GapReason | None = None


_V, _P = RecordVerdict, Presence
_SEEN_REASONS = {
    _P.TRANSACTION_MARKER: GapReason.TRANSACTION_MARKER,
    _P.ABORTED: GapReason.ABORTED,
    _P.NO_RECORD: GapReason.COMPACTED,
}
_AT_SOURCE = {
    _P.TRANSACTION_MARKER: gettext_lazy("the source has a transaction marker"),
    _P.ABORTED: gettext_lazy("the source has aborted data"),
    _P.NO_RECORD: gettext_lazy("the source has no record"),
    _P.UNCOMMITTED: gettext_lazy("the source has only uncommitted data"),
    _P.BEYOND_END: gettext_lazy("the source's log ends before it"),
}
_MIRROR_LACKS = {
    _P.BEFORE_START: (_V.NOT_COMPARABLE, gettext_lazy("The offset is below the log start of the mirror topic.")),
    _P.UNCOMMITTED: (
        _V.UNKNOWN,
        gettext_lazy("The mirror topic has an open transaction at or before this offset. Try again when it has ended."),
    ),
}


def judge(
    *,
    source: Presence,
    mirror: Presence,
    differing: Sequence[str] = (),
    ledger: Sequence[GapEntry] = (),
    was_compacted: bool = False,
    after_stop: bool = False,
) -> Judgement:
    """Return how both sides compare at an offset.

    ``was_compacted``: either side was, at some time, so each may lack what the other has. ``after_stop``: the mirror was
    stopped, and the offset is at or beyond the end that it had then. The mirror must have been read before the source:
    otherwise a record could arrive at both sides between the two reads, and the source would seem to lack it.
    """
    if _P.UNREADABLE in (source, mirror):
        return Judgement(
            verdict=_V.UNKNOWN, text=gettext_lazy("Source or mirror could not be read, so the offset cannot be compared.")
        )
    if after_stop:
        text = gettext_lazy(
            "The mirror was stopped before this offset. Since then both topics may be written to independently."
        )
        return Judgement(verdict=_V.NOT_COMPARABLE, text=text)
    if mirror is _P.BEYOND_END:
        return _not_copied(source)
    if mirror in _MIRROR_LACKS:
        verdict, text = _MIRROR_LACKS[mirror]
        return Judgement(verdict=verdict, text=text, reason=_ledger_reason(ledger) if mirror is _P.BEFORE_START else None)
    if mirror is _P.RECORD:
        return _judge_record(source, differing, was_compacted=was_compacted)
    return _judge_filler(source, mirror, ledger, was_compacted=was_compacted)


def _not_copied(source: Presence) -> Judgement:
    if source is _P.BEYOND_END:
        return Judgement(verdict=_V.NO_RECORD, text=gettext_lazy("Neither log has reached this offset."))
    if source is _P.BEFORE_START:
        text = gettext_lazy("The source deleted this offset before the mirror reached it. A record at this offset is lost.")
        return Judgement(verdict=_V.NOT_COPIED, text=text)
    if source is _P.UNCOMMITTED:
        text = gettext_lazy(
            "A transaction is open at the source at or before this offset. It is copied when the transaction has ended."
        )
        return Judgement(verdict=_V.NOT_COPIED, text=text)
    return Judgement(verdict=_V.NOT_COPIED, text=gettext_lazy("The mirror has not copied this offset yet."))


def _judge_record(source: Presence, differing: Sequence[str], *, was_compacted: bool) -> Judgement:
    if source is _P.RECORD:
        if not differing:
            return Judgement(verdict=_V.EQUAL, text=gettext_lazy("Key, value, headers and timestamp are equal."))
        return Judgement(
            verdict=_V.DIFFERENT, text=gettext_lazy("The records differ in: %(names)s.", names=", ".join(differing))
        )
    if source is _P.BEFORE_START:
        return Judgement(verdict=_V.NOT_COMPARABLE, text=gettext_lazy("The source no longer has this offset."))
    if source is _P.NO_RECORD and was_compacted:
        return Judgement(verdict=_V.NOT_COMPARABLE, text=gettext_lazy("Compaction has removed the record at the source."))
    return Judgement(
        verdict=_V.DIFFERENT, text=gettext_lazy("The mirror has a record where %(what)s.", what=_AT_SOURCE[source])
    )


def _judge_filler(source: Presence, mirror: Presence, ledger: Sequence[GapEntry], *, was_compacted: bool) -> Judgement:
    removed = mirror is _P.NO_RECORD
    if source is _P.RECORD:
        if removed and was_compacted:
            return Judgement(verdict=_V.NOT_COMPARABLE, text=gettext_lazy("Compaction has removed the record on the mirror."))
        if removed:
            text = gettext_lazy("The mirror has no record where the source has a record.")
        else:
            text = gettext_lazy("The mirror has a filler where the source has a record.")
        return Judgement(verdict=_V.DIFFERENT, text=text)
    if source in (_P.BEYOND_END, _P.UNCOMMITTED):
        return Judgement(
            verdict=_V.DIFFERENT, text=gettext_lazy("The mirror has reached an offset where %(what)s.", what=_AT_SOURCE[source])
        )
    if removed:
        return Judgement(verdict=_V.NO_RECORD, text=gettext_lazy("Neither side has a record at this offset."))
    reason = _filler_reason(source, ledger)
    text = gettext_lazy("The mirror has a filler, which consumers do not see, so that later records keep their offsets.")
    if reason is None:
        unknown = gettext_lazy(
            "The reason is unknown: the source no longer has this offset, and the gap ledger has no row for it."
        )
        text = join_messages(" ", (text, unknown))
    return Judgement(verdict=_V.FILLER, text=text, reason=reason)


def _filler_reason(source: Presence, ledger: Sequence[GapEntry]) -> GapReason | None:
    """Return an exact row's reason, else what the source has now, else the reason of a row that covers records too."""
    exact = _ledger_reason([entry for entry in ledger if entry.exact])
    return exact or _SEEN_REASONS.get(source) or _ledger_reason(ledger)


def _ledger_reason(ledger: Sequence[GapEntry]) -> GapReason | None:
    reasons = [entry.reason for entry in ledger]
    return GapReason.LOST if GapReason.LOST in reasons else next(iter(reasons), None)
