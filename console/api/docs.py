"""Serves the OpenAPI document, generated once per process, and its viewer. Both are public and contain no secrets."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from csp.decorators import csp_update
from django.http import HttpRequest, HttpResponse
from django.urls import path
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.settings import patched_settings
from drf_spectacular.views import SpectacularSwaggerSplitView

from console.api.schema import SETTINGS

_generating = threading.Lock()  # drf-spectacular's settings are global and patched while the document is generated


def schema(_request: HttpRequest) -> HttpResponse:
    """Return the OpenAPI document as JSON."""
    with _generating:
        return HttpResponse(_text(), content_type="application/json")


def document() -> dict[str, Any]:
    """Generate the document; raise ValidationError if it is not valid OpenAPI 3."""
    # Every process imports the URLs, and so this module; jsonschema takes up to a second of processor time to import.
    from drf_spectacular.validation import validate_schema  # noqa: PLC0415

    with patched_settings(SETTINGS):
        generated: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    validate_schema(generated)  # type: ignore[no-untyped-call]
    return generated


@cache
def _text() -> bytes:
    return bytes(OpenApiJsonRenderer().render(document()))


# Swagger UI sets style attributes and embeds its images as data: URLs, which the default policy allows. Only style-src is
# relaxed, and only on this page.
viewer = csp_update({"style-src": ["'unsafe-inline'"]})(
    SpectacularSwaggerSplitView.as_view(url_name="rest-schema", title=SETTINGS["TITLE"])
)

urlpatterns = [  # below /api
    path("schema", schema, name="rest-schema"),
    path("docs/", viewer, name="rest-docs"),
]
