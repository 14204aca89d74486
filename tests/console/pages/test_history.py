"""Charts of a link and of a mirror."""

from __future__ import annotations

from django.test import Client

from tests.browser.scene import Scene
from tests.console.pages.conftest import htmx


def test_a_link_shows_charts_with_words_and_tables(admin: Client, scene: Scene) -> None:
    text = admin.get(f"{scene.link_url}history/?span=1h").content.decode()

    assert text.count("<figure") == 3
    assert text.count('role="img"') == 3
    assert text.count("Last 1 h: minimum") == 2 * 3
    assert text.count('class="chart-line"') == 3


def test_an_unknown_span_is_an_hour(admin: Client, scene: Scene) -> None:
    assert "Last 1 h: minimum" in admin.get(f"{scene.link_url}history/?span=nonsense").content.decode()


def test_a_mirror_shows_its_last_two_hours_and_renews_them_alone(admin: Client, scene: Scene) -> None:
    url = scene.mirror_url("flights")
    assert "Last two hours" in admin.get(url).content.decode()

    fragment = admin.get(url, **htmx("history")).content.decode()

    assert fragment.count("<figure") == 3
    assert "<h1" not in fragment


def test_a_mirror_without_samples_shows_no_empty_charts(admin: Client, scene: Scene) -> None:
    assert "<figure" not in admin.get(scene.mirror_url("planes")).content.decode()
