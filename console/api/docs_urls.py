"""URLs of the OpenAPI document and its viewer, below /api."""

from django.urls import path

from console.api import docs

urlpatterns = [
    path("schema", docs.schema, name="rest-schema"),
    path("docs/", docs.viewer, name="rest-docs"),
]
