"""/api/schema and /api/docs/: the OpenAPI document and a viewer that needs nothing from other hosts."""

from csp.decorators import csp_update
from django.urls import path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from console.api.schema import SETTINGS

# Swagger UI writes style attributes of its own; nothing else is relaxed, and only here.
_VIEWER_POLICY = {"style-src": ["'unsafe-inline'"]}

urlpatterns = [
    path("schema", SpectacularAPIView.as_view(custom_settings=SETTINGS), name="schema"),
    path(
        "docs/",
        csp_update(_VIEWER_POLICY)(SpectacularSwaggerSplitView.as_view(url_name="schema", title=SETTINGS["TITLE"])),
        name="docs",
    ),
]
