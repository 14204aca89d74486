"""API keys: list and delete. They are created and rotated in the console: a stolen key must not create its successor."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console import audit
from console.actions.api_keys import delete_api_key
from console.api.schema import ADDITIONS, operation
from console.api.views import RestView, actor_of, moment
from console.errors import NotFoundError
from console.models import ApiKey
from console.queries.access import list_api_keys


class ApiKeyData(serializers.ModelSerializer[ApiKey]):
    """An API key, without its secret."""

    owner = serializers.CharField(source="user.username")
    role = serializers.CharField(allow_blank=True, help_text="The role that limits the key; empty: no limit.")
    scope = serializers.SerializerMethodField(help_text="The place that limits the key, as in the audit log; empty: no limit.")
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute; null if the key was never used.")
    replaced_by = serializers.CharField(
        source="rotated_to.key", allow_null=True, default=None, help_text="The key that has replaced this one."
    )

    class Meta:
        model = ApiKey
        fields = ("key", "owner", "description", "role", "scope", "created_at", "expires_at", "last_used_at", "replaced_by")

    def get_scope(self, row: ApiKey) -> str:
        """Return the path of the place."""
        return audit.path_of(row.node) if row.node is not None else ""


class ApiKeyDataList(serializers.Serializer[Any]):
    """API keys, newest first."""

    data: Any = ApiKeyData(many=True)


class ApiKeyListView(RestView):
    """/api/v1/api-keys"""

    @operation(
        "listApiKeys",
        summary="List API keys",
        description="Keys of the owner of this API key, and of service accounts that the owner manages. A limited API key "
        "lists itself only.",
        responses={200: ApiKeyDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request) -> Response:
        """Return the keys that the actor may see."""
        return Response({"data": ApiKeyData(list_api_keys(by=actor_of(request)), many=True).data})


class ApiKeyView(RestView):
    """/api/v1/api-keys/{api_key}"""

    @operation(
        "deleteApiKey",
        summary="Delete an API key",
        description="The key and its bearer tokens are rejected from then on. A limited API key deletes itself only.",
        responses={204: "The API key was deleted."},
        tag=ADDITIONS,
    )
    def delete(self, request: Request, api_key: str) -> Response:
        """Delete a key."""
        by = actor_of(request)
        found = next((row for row in list_api_keys(by=by) if row.key == api_key), None)
        if found is None:
            raise NotFoundError(f"API key '{api_key}' does not exist.", code="UNKNOWN_API_KEY")
        delete_api_key(api_key=found, by=by, now=moment())
        return Response(status=204)
