"""Static files: an image build compresses them, and all that any page loads is small."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.http import HttpResponse
from django.test import RequestFactory
from django_htmx.jinja import htmx_script
from whitenoise.middleware import WhiteNoiseMiddleware

TEMPLATES = Path(__file__).resolve().parents[3] / "templates"
NOT_LOADED = ["admin", "drf_spectacular_sidecar", "rest_framework"]  # by the console's own pages
MOST_BYTES = 150 * 1024


@pytest.fixture
def collected(settings: Any, tmp_path: Path) -> WhiteNoiseMiddleware:
    """Collect the static files as an image build does; return the middleware that serves them."""
    settings.STATIC_ROOT, settings.WHITENOISE_USE_FINDERS = tmp_path, False
    call_command("collectstatic", interactive=False, verbosity=0, ignore_patterns=NOT_LOADED)
    return WhiteNoiseMiddleware(lambda _request: HttpResponse(status=404))


def size(server: WhiteNoiseMiddleware, url: str) -> int:
    """Return the number of bytes that a browser receives for a URL."""
    with closing(server(RequestFactory().get(url, headers={"Accept-Encoding": "gzip, deflate"}))) as response:
        assert (response.status_code, response.get("Content-Encoding")) == (200, "gzip"), url
        return int(response["Content-Length"])


def test_everything_that_pages_load_is_at_most_150_kib(collected: WhiteNoiseMiddleware) -> None:
    text = "".join(template.read_text() for template in TEMPLATES.rglob("*.html"))
    names = set(re.findall(r"{% static '([^']+)' %}", text))
    urls = {f"/static/{name}" for name in names} | set(re.findall(r'src="([^"]+)"', htmx_script()))
    sizes = {url: size(collected, url) for url in urls}

    assert len(sizes) > 12
    assert sum(sizes.values()) <= MOST_BYTES, sizes


def test_style_sheets_load_no_other_files(collected: WhiteNoiseMiddleware, settings: Any) -> None:
    """No fonts either: those of the system are used."""
    for sheet in Path(settings.STATIC_ROOT).rglob("*.css"):
        assert re.findall(r"url\((?!['\"]?data:)[^)]*|@import[^;]*|@font-face", sheet.read_text()) == [], sheet.name
