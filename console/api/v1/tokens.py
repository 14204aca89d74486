"""Bearer tokens, for clients that send ``Authorization: Bearer``. Creating a token needs an API key with its secret."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.api_keys import create_token
from console.api.authentication import ApiKeyAuthentication
from console.api.fields import NumberField
from console.api.schema import ADDITIONS, operation
from console.api.views import RestView, actor_of, body, moment


class CreateTokenRequestData(serializers.Serializer[Any]):
    """A token to create."""

    expires_in_s = NumberField(
        required=False, min_value=1, help_text="Validity in seconds; the installation has a maximum, which is the default."
    )


class AccessToken(serializers.Serializer[Any]):
    """A bearer token, named as in RFC 6749."""

    access_token = serializers.CharField()
    token_type = serializers.CharField(help_text="Bearer.")
    expires_in = serializers.IntegerField(help_text="Seconds.")


class TokenListView(RestView):
    """/api/v1/tokens"""

    authentication_classes = [ApiKeyAuthentication]  # a token must not create further tokens

    @operation(
        "createAccessToken",
        summary="Create a bearer token",
        description="The token acts as the API key of this request until it expires, or the key expires or is deleted. Tokens "
        "are not stored.",
        body=CreateTokenRequestData,
        responses={201: AccessToken},
        tag=ADDITIONS,
    )
    def post(self, request: Request) -> Response:
        """Create a token."""
        wanted = body(request, CreateTokenRequestData)
        life_s = wanted.get("expires_in_s", settings.API_TOKEN_LIFE_S)
        token = create_token(key=str(request.auth), life_s=life_s, by=actor_of(request), now=moment())
        return Response({"access_token": token, "token_type": "Bearer", "expires_in": life_s}, status=201)
