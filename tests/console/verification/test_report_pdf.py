"""A failover report as a PDF file."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.utils import translation

from console.links.presenters import Tile
from console.verification.report_pdf import JAPANESE_FONT, printable, to_pdf
from console.verification.report_presenters import ClampedLine, RefusedRow, ReportDocument, ReportRow, StopPartition
from console.web.numbers import UNKNOWN


def document(topics: int = 1, **values: Any) -> ReportDocument:
    rows = [
        ReportRow(
            name=f"topic-{number}",
            url="",
            page_url="",
            link_name="west-to-east",
            link_url="",
            kind="Failed over",
            by="amelia",
            requested=None,
            writable=None,
            rto="2 s",
            rpo="41 s",
            not_copied=UNKNOWN,
            loses=True,
            sentence="",
            partitions=[StopPartition(partition=0, mirrored_end="5", source_end="7", not_copied="2")],
            groups=[],
            refused=[RefusedRow(name="retention.ms", value="9", reason="7 d at most.", resolved=None)],
            retriable=False,
        )
        for number in range(topics)
    ]
    about: dict[str, Any] = {
        "title": "Failover of <b>topic & others",
        "file_name": "report",
        "facts": [("Reason", "us-west is <down> & gone")],
        "notes": ["Unknown."],
        "tiles": [Tile(label="Worst RPO", value=UNKNOWN, hint="data loss window")],
        "checklist": [("Producers are stopped.", True)],
        "rows": rows,
        "clamped": [ClampedLine(topic="t" * 249, group="группа", partition=0, source="1", before="2", after="3", problem="")],
        "more_clamped": 2,
        "created": "2026-01-01 12:00:00 UTC",
    }
    return ReportDocument(**(about | values))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("Zürich", "Zürich"),
        (UNKNOWN, UNKNOWN),
        ("фон", "U+0444 U+043E U+043D "),
        ("a\0b", "aU+0000 b"),
        ("訓練、ラグ", "訓練、ラグ"),
        ("“a” 5 €…", "“a” 5 €…"),
        ("\u3000①㈱髙﨑ﾊﾝ→※№〜―", "\u3000①㈱髙﨑ﾊﾝ→※№〜―"),
        ("Ω\ue000", "U+03A9 U+E000 "),
        ("한", "U+D55C "),
        ("丷", "U+4E37 "),
    ],
)
def test_characters_without_a_glyph_are_shown_as_code_points(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_file_is_a_pdf_and_equal_for_equal_reports() -> None:
    pytest.importorskip("reportlab")
    made = to_pdf(document(), more=0)

    assert made.startswith(b"%PDF-")
    assert made == to_pdf(document(), more=0)
    assert made != to_pdf(document(title="Failover of another"), more=0)


def test_long_report_has_several_pages_and_an_empty_one_has_one() -> None:
    pytest.importorskip("reportlab")

    assert to_pdf(document(topics=200), more=7).count(b"/Type /Page\n") > 3
    assert to_pdf(document(checklist=[], clamped=[], notes=[], facts=[], tiles=[])).count(b"/Type /Page\n") == 1


REASON = (
    "西日本のデータセンターで大規模な停電が発生し、承認を得て、①フェイルオーバーを実施しました…(SRE チーム)。㈱髙﨑 → INC-417。"
    * 8
)


def test_text_of_a_japanese_report_is_complete_and_no_number_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """No viewer of PDF files is at hand, so the test decodes the strings that the pages show."""
    pytest.importorskip("reportlab")
    from reportlab import rl_config  # noqa: PLC0415

    monkeypatch.setattr(rl_config, "pageCompression", 0)
    offset, group = "40,300,000,000", "予約グループ" * 20
    clamped = [ClampedLine(topic="便", group=group, partition=7, source=offset, before=offset, after=offset, problem="")]
    with translation.override("ja"):
        lines = shown_lines(to_pdf(document(facts=[("理由", REASON)], notes=["注意。" * 400], clamped=clamped)))

    whole = "".join(lines)
    for text in (REASON, group, "注意。" * 400, "クランプされたコンシューマーグループ", "確認済み"):
        assert text.replace(" ", "") in whole.replace(" ", "")
    assert lines.count(offset) == 3
    assert "U+" not in whole


def shown_lines(made: bytes) -> list[str]:
    """Return the lines of text that an uncompressed file shows, in their order, decoded by the font of each string."""
    fonts = {name: base for base, name in re.findall(rb"/BaseFont /(\S+).*?/Name /(F\d[^ /]*)", made, re.DOTALL)}
    lines: list[str] = []
    for block in re.findall(rb"\nBT (.*?) ET\n", made, re.DOTALL):
        line, font = "", b""
        for name, string, end in re.findall(rb"/(F\d\S*) [\d.]+ Tf|\(((?:[^()\\]|\\.)*)\) Tj|(T\*)", block, re.DOTALL):
            if name:
                font = fonts[name]
            elif end:
                lines, line = [*lines, line], ""
            else:
                line += decoded(string, "utf-16-be" if font == JAPANESE_FONT.encode() else "cp1252")
        lines.append(line)
    return [line.strip() for line in lines if line.strip()]


def decoded(string: bytes, encoding: str) -> str:
    """Return the text of a PDF string (ISO 32000-1, 7.3.4.2)."""

    def unescaped(found: re.Match[bytes]) -> bytes:
        letters = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
        return bytes([int(found[1], 8)]) if found[1].isdigit() else letters.get(found[1], found[1])

    return re.sub(rb"\\([0-7]{1,3}|.)", unescaped, string, flags=re.DOTALL).decode(encoding)


def test_a_japanese_report_has_its_texts_in_a_japanese_font(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("reportlab")
    from reportlab import rl_config  # noqa: PLC0415
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont  # noqa: PLC0415

    monkeypatch.setattr(rl_config, "pageCompression", 0)
    written = UnicodeCIDFont(JAPANESE_FONT).formatForPdf
    made = to_pdf(document(checklist=[("Consumers of these topics are stopped on the source cluster.", True)], clamped=[]))
    with translation.override("ja"):
        japanese = to_pdf(
            document(title="フェイルオーバー: 便", notes=["長い文" * 3_000], facts=[("理由", "us-west is down")]), more=7
        )

    assert b"Checklist for clients" in made
    assert JAPANESE_FONT.encode() not in made
    for text in ("クライアントのチェックリスト", "フェイルオーバー", "便", "理由", "確認済み", "パーティション", " ページ"[1:]):
        assert written(text).encode("latin-1") in japanese, text
    for latin in (b"us-west is down", b"topic-0", b"retention.ms"):
        assert latin in japanese
    assert b"/FontFile" not in japanese  # a viewer uses a font of its system
    assert japanese.count(b"/Type /Page\n") > 2  # the text has no spaces, but its lines are broken
