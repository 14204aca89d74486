"""URLs: pages, REST under both prefixes that clients use, the admin site, health and metrics."""

from django.conf import settings
from django.contrib import admin
from django.urls import URLPattern, include, path, re_path
from django.utils.module_loading import import_string
from django.views.generic import RedirectView

from console.api.urls import document_patterns, kafka_patterns, v1_patterns
from console.api.views import UnknownEndpointView
from console.http import health, metrics


def provider_urls() -> list[URLPattern]:
    """Return the two URLs of the sign-in with OpenID Connect, if it is configured; no other URL of django-allauth is served."""
    if not settings.OIDC_ISSUER:
        return []
    found: list[URLPattern] = import_string("console.access.identity_provider.urls")()  # imports django-allauth
    return found


handler500 = "console.http.errors.handle_500"
urlpatterns = [
    path("kafka/v3/", include((kafka_patterns, "kafka"))),
    path("v3/", include((kafka_patterns, "kafka"), namespace="kafka-short")),
    re_path(r"^(?:kafka/v3|v3|api/v1)$", UnknownEndpointView.as_view()),  # the prefixes themselves: JSON errors, as below them
    path("api/v1/", include(v1_patterns)),
    path("api/", include(document_patterns)),
    path("admin/password_change/", RedirectView.as_view(pattern_name="pages:password")),  # is throttled and audited
    path("admin/", admin.site.urls),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    *provider_urls(),
    path("", include("console.web.urls")),
]
