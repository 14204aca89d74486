"""Serves the OpenAPI document, written once per process, and the viewer; both are open to everybody and hold no secrets."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from csp.decorators import csp_update
from django.http import HttpRequest, HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.settings import patched_settings
from drf_spectacular.validation import validate_schema
from drf_spectacular.views import SpectacularSwaggerSplitView

from console.api.schema import SETTINGS

_writing = threading.Lock()  # the generator's settings are the process's while it writes


def schema(_request: HttpRequest) -> HttpResponse:
    """Answer the document."""
    with _writing:
        return HttpResponse(_text(), content_type="application/json")


def document() -> dict[str, Any]:
    """Generate the document; raise ValidationError if it is no OpenAPI 3."""
    with patched_settings(SETTINGS):
        generated: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    validate_schema(generated)  # type: ignore[no-untyped-call]
    return generated


@cache
def _text() -> bytes:
    return bytes(OpenApiJsonRenderer().render(document()))


# Swagger UI writes style attributes and shows pictures it carries itself; nothing else is relaxed, and only on this page.
viewer = csp_update({"style-src": ["'unsafe-inline'"]})(
    SpectacularSwaggerSplitView.as_view(url_name="rest-schema", title=SETTINGS["TITLE"])
)
