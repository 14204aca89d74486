"""Charts of a link and of a mirror."""

from __future__ import annotations

from django.test import Client

from tests.browser.page_data import Scene
from tests.console.pages.conftest import htmx


def test_history_tab_shows_charts_with_summaries_and_tables(admin: Client, scene: Scene) -> None:
    text = admin.get(f"{scene.link_url}history/?span=1h").content.decode()

    assert text.count("<figure") == 3
    assert text.count('role="img"') == 3
    assert text.count("Last 1 h: minimum") == 2 * 3
    assert text.count('class="chart-line"') == 3


def test_unknown_time_range_defaults_to_one_hour(admin: Client, scene: Scene) -> None:
    assert "Last 1 h: minimum" in admin.get(f"{scene.link_url}history/?span=nonsense").content.decode()


def test_mirror_page_shows_two_hours_of_charts_as_a_separate_fragment(admin: Client, scene: Scene) -> None:
    url = scene.mirror_url("flights")
    assert "Last two hours" in admin.get(url).content.decode()

    fragment = admin.get(url, **htmx("history")).content.decode()

    assert fragment.count("<figure") == 3
    assert "<h1" not in fragment


def test_mirror_without_samples_has_no_charts(admin: Client, scene: Scene) -> None:
    assert "<figure" not in admin.get(scene.mirror_url("planes")).content.decode()
