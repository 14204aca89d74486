"""A failover report as a PDF file.

Uses the fonts that every PDF viewer has, which cover Latin-1; other characters, in the names of consumer groups and in reasons,
are written as ``U+0444``. The JSON has them. These fonts have no Japanese, so the file is in English in every language of the
console. ReportLab is imported when a file is made: few processes ever make one.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from console.verification.report_presenters import ReportDocument, ReportRow

LANGUAGE = "en"  # of all files; the texts of the document have to be in it as well
MARGIN_MM = 16
WIDEST_PT = 6.0  # an upper bound of the mean width of a character at 8 points
_SHADE, _LINE = "#eef1f4", "#c6ccd3"
_TOPICS = ("Mirror topic", "Operation", "Writable", "Not copied", "RPO", "RTO")
_TOPIC_WIDTHS = (0.34, 0.12, 0.22, 0.12, 0.1, 0.1)  # shares of the width
_CLAMPED = ("Group", "Mirror topic", "Partition", "Source offset", "Before", "After")
_CLAMPED_WIDTHS = (0.3, 0.3, 0.1, 0.1, 0.1, 0.1)
_PARTITIONS = ("Partition", "Mirrored end", "Last known source end", "Not copied")
_PARTITION_WIDTHS = (0.25, 0.25, 0.25, 0.25)


def to_pdf(document: ReportDocument, *, more: int = 0) -> bytes:
    """Return the report as a PDF file. ``more`` topics are not listed in it."""
    from reportlab.lib.pagesizes import A4  # noqa: PLC0415 - see the module's docstring
    from reportlab.lib.units import mm  # noqa: PLC0415
    from reportlab.platypus import SimpleDocTemplate  # noqa: PLC0415

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
        invariant=1,  # equal reports are equal files
    )
    footer = printable(f"{document.title}, made {document.created}")

    def number_page(canvas: Any, _template: Any) -> None:
        canvas.setFont("Helvetica", 8)
        canvas.drawString(margin, margin / 2, footer[:110])
        canvas.drawRightString(A4[0] - margin, margin / 2, f"Page {canvas.getPageNumber()}")

    story = _Story(template.width).document(document, more=more)
    template.build(story, onFirstPage=number_page, onLaterPages=number_page)
    return target.getvalue()


def printable(text: str) -> str:
    """Return a text in which characters beyond Latin-1, and control characters, are replaced by their code points."""
    return "".join(character if _has_glyph(character) else f"U+{ord(character):04X} " for character in text)


def _has_glyph(character: str) -> bool:
    return character == "\n" or (ord(character) < 0x100 and character.isprintable()) or character == "\N{EN DASH}"


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
            responses = [("confirmed" if confirmed else "not confirmed", text) for text, confirmed in document.checklist]
            parts += [self._text("Checklist for clients", "Heading2"), self._table((), responses, (0.2, 0.8))]
        parts += [self._text("Topics", "Heading2"), self._table(_TOPICS, map(_topic, document.rows), _TOPIC_WIDTHS)]
        if more:
            parts.append(self._text(f"{more:,} more topics are in the JSON only."))
        parts += self._problems(document.rows)
        if len(document.rows) == 1:
            partitions = [_partition(row) for row in document.rows[0].partitions]
            parts += [self._text("Partitions", "Heading2"), self._table(_PARTITIONS, partitions, _PARTITION_WIDTHS)]
        parts += self._clamped(document)
        return parts

    def _problems(self, rows: Sequence[ReportRow]) -> list[Any]:
        refused = [(row.name, step.name, step.value, step.reason) for row in rows for step in row.refused]
        if not refused:
            return []
        columns = ("Mirror topic", "Config", "Value", "Reason")
        return [
            self._text("Configs that the destination rejected", "Heading2"),
            self._table(columns, refused, (0.25, 0.2, 0.2, 0.35)),
        ]

    def _clamped(self, document: ReportDocument) -> list[Any]:
        parts = [self._text("Clamped consumer groups", "Heading2")]
        if not document.clamped:
            return [*parts, self._text("None.")]
        rows = [
            (line.group, line.topic, line.partition, line.source, line.before, line.problem or line.after)
            for line in document.clamped
        ]
        parts.append(self._table(_CLAMPED, rows, _CLAMPED_WIDTHS))
        if document.more_clamped > 0:
            parts.append(self._text(f"{document.more_clamped:,} more offsets: use the clamped-offsets resource of the topics."))
        return parts

    def _text(self, text: str, style: str = "BodyText") -> Any:
        from reportlab.platypus import Paragraph  # noqa: PLC0415

        return Paragraph(escape(printable(text)), self.styles[style])

    def _table(self, columns: Sequence[str], rows: Iterable[Sequence[object]], shares: Sequence[float]) -> Any:
        from reportlab.lib.colors import HexColor  # noqa: PLC0415
        from reportlab.platypus import LongTable, Paragraph  # noqa: PLC0415

        widths = [share * self.width for share in shares]

        def cell(text: str, width: float) -> Any:
            """Return a text that fits into its column as it is, which is much faster than a paragraph."""
            return text if len(text) * WIDEST_PT <= width else Paragraph(escape(text), self.cell)

        lines = [[cell(printable(str(value)), width) for value, width in zip(row, widths, strict=True)] for row in rows]
        head = [[Paragraph(f"<b>{escape(column)}</b>", self.cell) for column in columns]] if columns else []
        everywhere = ((0, 0), (-1, -1))
        style = [
            ("VALIGN", *everywhere, "TOP"),
            ("FONT", *everywhere, "Helvetica", 8, 10),
            ("LINEBELOW", *everywhere, 0.4, HexColor(_LINE)),
            *([("BACKGROUND", (0, 0), (-1, 0), HexColor(_SHADE))] if head else []),
        ]
        content = [*head, *lines] or [["none", *[""] * (len(shares) - 1)]]
        return LongTable(content, colWidths=widths, repeatRows=len(head), style=style, spaceAfter=8)


def _topic(row: ReportRow) -> tuple[str, ...]:
    return (row.name, row.kind, row.writable.exact if row.writable else "", row.not_copied, row.rpo, row.rto)


def _partition(row: Any) -> tuple[object, ...]:
    return (row.partition, row.mirrored_end, row.source_end, row.not_copied)
