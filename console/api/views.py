"""Base of all REST views: authentication, JSON for every ``Accept`` header, error responses, typed query parameters."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import IO, Any

from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.exceptions import AuthenticationFailed, NotFound, ParseError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.permissions import IsAuthenticated
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from console.actors import Actor
from console.api.authentication import ApiKeyAuthentication, BearerAuthentication, ConsoleSessionAuthentication, KeyThrottle
from console.api.errors import TooLargeError, UnreadableError, failure_response
from console.api.schema import ApiSchema
from console.http.middleware import encode_segment

MAX_BODY_BYTES = 1 << 20  # a link with a complete certificate chain has about 30 KB
_TRUE, _FALSE = "true", "false"
_ANY_CHARACTER = ("consumer_group_id", "consumer_id")  # looked up on a cluster, not in the database


class BoundedJsonParser(JSONParser):
    """A JSON parser with a limit for size and nesting, both far above what these paths need."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Parse the body; raise ParseError if it is not JSON and TooLargeError if it has more than MAX_BODY_BYTES."""
        body = stream.read(MAX_BODY_BYTES + 1)
        if len(body) > MAX_BODY_BYTES:
            raise TooLargeError
        try:
            return super().parse(io.BytesIO(body), media_type, parser_context)
        except RecursionError:
            raise ParseError("JSON parse error - too deeply nested") from None


class AlwaysJson(BaseContentNegotiation):
    """Content negotiation that always renders JSON, also for browsers."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        """Return the parser for the request's content type, or None (415) if it is not JSON."""
        kind = (request.content_type or "").partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(self, _request: Request, renderers: Any, _format_suffix: str | None = None) -> tuple[BaseRenderer, str]:
        """Return the first renderer, whatever the ``Accept`` header."""
        return renderers[0], renderers[0].media_type


class RestView(APIView):
    """A view below /kafka/v3, /v3 or /api/v1."""

    authentication_classes = [ApiKeyAuthentication, BearerAuthentication, ConsoleSessionAuthentication]
    permission_classes = [IsAuthenticated]
    throttle_classes = [KeyThrottle]
    renderer_classes = [JSONRenderer]
    parser_classes = [BoundedJsonParser]
    content_negotiation_class = AlwaysJson
    schema = ApiSchema()

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response]:
        """Return the function that renders the exceptions of all views."""
        return failure_response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """After authentication, refuse NUL characters, which database queries cannot contain."""
        super().initial(request, *args, **kwargs)
        if any("\0" in str(value) for name, value in kwargs.items() if name not in _ANY_CHARACTER):
            raise NotFound
        if any("\0" in value for values in request.query_params.lists() for value in values[1]):
            raise UnreadableError("A query parameter contains a NUL character. Remove it.")


class UnknownEndpointView(RestView):
    """All other paths below a REST prefix: 404."""

    schema = None  # type: ignore[assignment]  # not documented

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raise NotFound for every method."""
        super().initial(request, *args, **kwargs)
        raise NotFound


def actor_of(request: Request) -> Actor:
    """Return the actor of a request; its name contains the API key, so that the audit log distinguishes keys of a user."""
    user = request.user
    if not isinstance(user, User):
        raise AuthenticationFailed
    key = f" (API key {request.auth})" if request.auth else ""
    return Actor(
        name=f"{user.get_username()[: 150 - len(key)]}{key}",
        user=user,
        request_id=getattr(request, "request_id", ""),
        client_address=request.META.get("REMOTE_ADDR") or "",
        key=request.auth,  # type: ignore[arg-type]  # a key, or None for a session (``console.api.authentication``)
    )


def request_time() -> datetime:
    """Return the current time. Views read the clock and pass the time to actions as ``now``."""
    return timezone.now()


def body(request: Request, kind: type[Serializer[Any]]) -> dict[str, Any]:
    """Return the validated body; raise ValidationError with the name of each invalid field."""
    serializer = kind(data=request.data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


def flag(request: Request, name: str, *, default: bool = False) -> bool:
    """Return a boolean query parameter, or the default if it is missing; raise UnreadableError for other values."""
    value = request.query_params.get(name)
    if value is None:
        return default
    value = value.lower()
    if value not in (_TRUE, _FALSE):
        raise UnreadableError(f"Cannot deserialize the query parameter {name}: it must be true or false.")
    return value == _TRUE


def choice(request: Request, name: str, *, values: Collection[str]) -> str:
    """Return a query parameter that must be one of ``values``, or "" if it is missing."""
    value = request.query_params.get(name)
    if value is None:
        return ""
    if value not in values:
        raise UnreadableError(f"Cannot deserialize the query parameter {name}: it must be one of {', '.join(values)}.")
    return value


def absolute(request: Request, *parts: str) -> str:
    """Return the absolute URL of a path below the request's REST prefix; the parts are percent-encoded."""
    prefix = request.path[: request.path.index("/clusters")]
    return request.build_absolute_uri("/".join((prefix, *map(encode_segment, parts))))
