"""A failover report as a PDF file, in the language of the page.

Uses fonts that the file does not contain: Helvetica, which every PDF viewer has, for the characters of Windows-1252, and for
Japanese a font of the Adobe-Japan1 collection (ISO 32000-1, 9.7.5.2), for which viewers use a Japanese font of their system.
Figures and names are in Helvetica in either language, so they can be read without one. Other characters, in the names of
consumer groups and in reasons, are written as ``U+0444``. The JSON has them. ReportLab is imported when a file is made: few
processes ever make one.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from django.utils.translation import get_language, gettext, gettext_lazy

from console.web import numbers

if TYPE_CHECKING:
    from console.verification.report_presenters import ReportDocument, ReportRow

LATIN_FONT, JAPANESE_FONT = "Helvetica", "HeiseiKakuGo-W5"
_IDEOGRAPHIC_SPACE = "\u3000"
_FIRST_SIGN = 0x2010  # before it, the Japanese font has only letters of other scripts, in full width
MARGIN_MM = 16
WIDEST_PT = 6.0  # an upper bound of the mean width of a character at 8 points
_SHADE, _LINE = "#eef1f4", "#c6ccd3"
_TOPICS = (
    gettext_lazy("Mirror topic"),
    gettext_lazy("Operation"),
    gettext_lazy("Writable"),
    gettext_lazy("Not copied"),
    "RPO",
    "RTO",
)
_TOPIC_WIDTHS = (0.27, 0.185, 0.225, 0.12, 0.1, 0.1)  # shares of the width
_CLAMPED = (
    gettext_lazy("Group"),
    gettext_lazy("Mirror topic"),
    gettext_lazy("Partition"),
    gettext_lazy("Source offset"),
    gettext_lazy("Before"),
    gettext_lazy("After"),
)
_CLAMPED_WIDTHS = (0.22, 0.19, 0.135, 0.155, 0.15, 0.15)  # offsets of eleven digits fit on a line
_PARTITIONS = (
    gettext_lazy("Partition"),
    gettext_lazy("Mirrored end"),
    gettext_lazy("Last known source end"),
    gettext_lazy("Not copied"),
)
_PARTITION_WIDTHS = (0.25, 0.25, 0.25, 0.25)


def to_pdf(document: ReportDocument, *, more: int = 0) -> bytes:
    """Return the report as a PDF file. ``more`` topics are not listed in it."""
    from reportlab.lib.pagesizes import A4  # noqa: PLC0415 - see the module's docstring
    from reportlab.lib.units import mm  # noqa: PLC0415
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont  # noqa: PLC0415
    from reportlab.pdfbase.pdfmetrics import registerFont  # noqa: PLC0415
    from reportlab.platypus import SimpleDocTemplate  # noqa: PLC0415

    registerFont(UnicodeCIDFont(JAPANESE_FONT))
    target, margin = io.BytesIO(), MARGIN_MM * mm
    template = SimpleDocTemplate(
        target,
        pagesize=A4,
        leftMargin=margin,
        rightMargin=margin,
        topMargin=margin,
        bottomMargin=margin,
        title=printable(document.title),
        author="",
        creator="",
        lang=get_language(),
        invariant=1,  # equal reports are equal files
    )
    footer = gettext("%(title)s, made %(time)s") % {"title": document.title, "time": document.created}
    pieces = _pieces(printable(footer)[:110])

    def number_page(canvas: Any, _template: Any) -> None:
        line = canvas.beginText(margin, margin / 2)
        for piece, font in pieces:
            line.setFont(font, 8)
            line.textOut(piece)
        canvas.drawText(line)
        number = gettext("Page %(number)s") % {"number": canvas.getPageNumber()}
        canvas.setFont(JAPANESE_FONT if _has_japanese(number) else LATIN_FONT, 8)
        canvas.drawRightString(A4[0] - margin, margin / 2, number)

    story = _Story(template.width).document(document, more=more)
    template.build(story, onFirstPage=number_page, onLaterPages=number_page)
    return target.getvalue()


def printable(text: str) -> str:
    """Return a text in which characters that no font of the file has, and control characters, are their code points."""
    return "".join(character if _font_of(character) else f"U+{ord(character):04X} " for character in text)


@lru_cache(maxsize=20_000)
def _font_of(character: str) -> str:
    """Return the font that has a character; "" if none has it."""
    if not (character.isprintable() or character in ("\n", _IDEOGRAPHIC_SPACE)):
        return ""
    if character == "\n" or character.encode("cp1252", errors="ignore"):
        return LATIN_FONT
    is_japanese = ord(character) >= _FIRST_SIGN and character.encode("cp932", errors="ignore")
    return JAPANESE_FONT if is_japanese else ""


def _has_japanese(text: str) -> bool:
    """Return whether a printable text has a character that is in the Japanese font only."""
    return not text.isascii() and any(_font_of(character) == JAPANESE_FONT for character in text)


def _pieces(text: str) -> list[tuple[str, str]]:
    """Return the parts of a printable text, each with its font."""
    return [("".join(run), font) for font, run in groupby(text, key=_font_of)]


def _markup(text: str) -> str:
    """Return a printable text as the markup of a paragraph, which has the font of its style, and Japanese in its own font."""
    return "".join(
        f'<font name="{JAPANESE_FONT}">{escape(piece)}</font>' if font == JAPANESE_FONT else escape(piece)
        for piece, font in _pieces(text)
    )


class _Story:
    """Builds the paragraphs and tables of a report for a page width."""

    def __init__(self, width: float) -> None:
        """Load the styles."""
        from reportlab.lib.styles import getSampleStyleSheet  # noqa: PLC0415

        self.width, self.styles = width, getSampleStyleSheet()
        self.cell = self.styles["BodyText"].clone("cell", fontSize=8, leading=10, wordWrap="CJK", spaceBefore=0)

    def document(self, document: ReportDocument, *, more: int) -> list[Any]:
        """Return all parts of a report in their order."""
        facts = [*document.facts, *((tile.label, f"{tile.value} ({tile.hint})") for tile in document.tiles)]
        parts = [self._text(document.title, "Title"), self._table((), facts, (0.28, 0.72))]
        parts += [self._text(note) for note in document.notes]
        if document.checklist:
            responses = [
                (gettext("confirmed") if confirmed else gettext("not confirmed"), gettext(text))
                for text, confirmed in document.checklist
            ]
            parts += [self._text(gettext("Checklist for clients"), "Heading2"), self._table((), responses, (0.2, 0.8))]
        parts += [self._text(gettext("Topics"), "Heading2"), self._table(_TOPICS, map(_topic, document.rows), _TOPIC_WIDTHS)]
        if more:
            text = gettext("%(count)s more topics are in the JSON only.")
            parts.append(self._text(text % {"count": numbers.count(more)}))
        parts += self._problems(document.rows)
        if len(document.rows) == 1:
            partitions = [_partition(row) for row in document.rows[0].partitions]
            parts += [self._text(gettext("Partitions"), "Heading2"), self._table(_PARTITIONS, partitions, _PARTITION_WIDTHS)]
        parts += self._clamped(document)
        return parts

    def _problems(self, rows: Sequence[ReportRow]) -> list[Any]:
        refused = [(row.name, step.name, step.value, step.reason) for row in rows for step in row.refused]
        if not refused:
            return []
        columns = (gettext("Mirror topic"), gettext("Config"), gettext("Value"), gettext("Reason"))
        return [
            self._text(gettext("Configs that the destination rejected"), "Heading2"),
            self._table(columns, refused, (0.25, 0.2, 0.2, 0.35)),
        ]

    def _clamped(self, document: ReportDocument) -> list[Any]:
        parts = [self._text(gettext("Clamped consumer groups"), "Heading2")]
        if not document.clamped:
            return [*parts, self._text(gettext("None."))]
        rows = [
            (line.group, line.topic, line.partition, line.source, line.before, line.problem or line.after)
            for line in document.clamped
        ]
        parts.append(self._table(_CLAMPED, rows, _CLAMPED_WIDTHS))
        if document.more_clamped > 0:
            text = gettext("%(count)s more offsets: use the clamped-offsets resource of the topics.")
            parts.append(self._text(text % {"count": numbers.count(document.more_clamped)}))
        return parts

    def _text(self, text: str, style: str = "BodyText") -> Any:
        from reportlab.platypus import Paragraph  # noqa: PLC0415

        text = printable(text)
        found = self.styles[style]
        if _has_japanese(text):  # has no spaces at which a line could be broken
            found = found.clone(f"{style} of Japanese", wordWrap="CJK")
        return Paragraph(_markup(text), found)

    def _table(self, columns: Sequence[Any], rows: Iterable[Sequence[object]], shares: Sequence[float]) -> Any:
        from reportlab.lib.colors import HexColor  # noqa: PLC0415
        from reportlab.platypus import LongTable, Paragraph  # noqa: PLC0415

        widths = [share * self.width for share in shares]

        def cell(text: str, width: float) -> Any:
            """Return a text that fits into its column as it is, which is much faster than a paragraph."""
            is_plain = len(text) * WIDEST_PT <= width and not _has_japanese(text)
            return text if is_plain else Paragraph(_markup(text), self.cell)

        lines = [[cell(printable(str(value)), width) for value, width in zip(row, widths, strict=True)] for row in rows]
        head = [[Paragraph(f"<b>{_markup(str(column))}</b>", self.cell) for column in columns]] if columns else []
        everywhere = ((0, 0), (-1, -1))
        style = [
            ("VALIGN", *everywhere, "TOP"),
            ("FONT", *everywhere, LATIN_FONT, 8, 10),
            ("LINEBELOW", *everywhere, 0.4, HexColor(_LINE)),
            *([("BACKGROUND", (0, 0), (-1, 0), HexColor(_SHADE))] if head else []),
        ]
        content = [*head, *lines] or [[cell(gettext("none"), widths[0]), *[""] * (len(shares) - 1)]]
        return LongTable(content, colWidths=widths, repeatRows=len(head), style=style, spaceAfter=8)


def _topic(row: ReportRow) -> tuple[str, ...]:
    return (row.name, row.kind, row.writable.exact if row.writable else "", row.not_copied, row.rpo, row.rto)


def _partition(row: Any) -> tuple[object, ...]:
    return (row.partition, row.mirrored_end, row.source_end, row.not_copied)
