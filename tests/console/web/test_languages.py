"""Texts of the engine on pages in another language."""

from __future__ import annotations

import pytest
from django.template import Context, Template
from django.utils import translation
from django.utils.safestring import mark_safe

from console.errors import ConflictError, from_engine
from console.languages import mark_english, translated
from console.web.request_handling import problem_of
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.messages import gettext_lazy, join_messages, ngettext_lazy

SENTENCE = "The broker refused <b>it</b>."


def shown(text: object, *, language: str) -> str:
    with translation.override(language):
        return Template("{{ text|mark_english }}").render(Context({"text": text}))


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        (SENTENCE, '<span lang="en">The broker refused &lt;b&gt;it&lt;/b&gt;.</span>'),
        (
            "リンクは失敗しています: It is 'gone', <a>.",
            'リンクは失敗しています<span lang="en">: It is &#x27;gone&#x27;, &lt;a&gt;.</span>',
        ),
        ("group グループ has <gone> away", 'group グループ <span lang="en">has &lt;gone&gt; away</span>'),
        ("トピック 'flights' は ACTIVE です。", "トピック &#x27;flights&#x27; は ACTIVE です。"),
        ("2026-01-01 12:00:00 UTC", "2026-01-01 12:00:00 UTC"),
        ("flights", "flights"),
        ("<", "&lt;"),
        ("", ""),
    ],
)
def test_english_is_marked_on_a_page_in_japanese(text: str, marked: str) -> None:
    assert shown(text, language="ja") == marked


def test_a_page_in_english_has_no_marks() -> None:
    assert shown(SENTENCE, language="en") == "The broker refused &lt;b&gt;it&lt;/b&gt;."


def test_html_that_is_safe_already_is_not_changed() -> None:
    text = mark_safe("<em>some more words</em>")

    with translation.override("ja"):
        assert mark_english(text) is text


def test_a_message_is_translated_with_its_values() -> None:
    age = gettext_lazy("%(span)s ago", span=gettext_lazy("%(number)s d", number=3))
    message = join_messages("; ", [gettext_lazy("the last failover drill passed %(age)s", age=age), "an error of a broker"])
    records = ngettext_lazy("%(topic)s: %(count)s record differs.", "%(topic)s: %(count)s records differ.", 2, topic="x")

    assert (translated(message), translated(records)) == (message, records)
    with translation.override("ja"):
        assert translated(message) == "最後のフェイルオーバー訓練は3 日前に合格しました; an error of a broker"
        assert translated(records) == "x: 2 件のレコードが異なります。"
        assert translated("an error of a broker") == "an error of a broker"


def test_an_error_stays_english_and_its_page_is_translated() -> None:
    error = ConflictError(
        gettext_lazy("Cluster link '%(link)s' is paused. Set cluster.link.paused to false first.", link="west")
    )
    engine = from_engine(LinkEngineError(ErrorCode.INVALID_TOPIC, gettext_lazy("The topic name is empty.")))

    with translation.override("ja"):
        assert error.message == "Cluster link 'west' is paused. Set cluster.link.paused to false first."
        assert (
            problem_of(error)["message"]
            == "クラスターリンク 'west' は一時停止中です。先に cluster.link.paused を false に設定してください。"
        )
        assert problem_of(engine)["message"] == "トピック名が空です。"
