"""What all REST views share: authentication, JSON whatever is asked for, the error envelope, typed query parameters."""

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
from console.api.authentication import ApiKeyAuthentication, BearerAuthentication, ConsoleSessionAuthentication
from console.api.errors import TooLargeError, UnreadableError, answer_failure
from console.api.paths import encode_segment
from console.api.schema import ApiSchema
from console.api.throttling import KeyThrottle

MAX_BODY_BYTES = 1 << 20  # a link with a full chain of certificates has some 30 KB
_TRUE, _FALSE = "true", "false"
_ANY_CHARACTER = ("consumer_group_id", "consumer_id")  # are looked up in a cluster, not in the database


class BoundedJsonParser(JSONParser):
    """JSON up to a size and a depth that no client of these paths needs."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Read the body; raise ParseError for what is no JSON."""
        body = stream.read(MAX_BODY_BYTES + 1)
        if len(body) > MAX_BODY_BYTES:
            raise TooLargeError
        try:
            return super().parse(io.BytesIO(body), media_type, parser_context)
        except RecursionError:
            raise ParseError("JSON parse error - too deeply nested") from None


class AlwaysJson(BaseContentNegotiation):
    """Clients that ask for anything, browsers included, get JSON."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        """Choose by the request's content type; None (415) for anything but JSON."""
        kind = (request.content_type or "").partition(";")[0].strip().lower()
        return next((one for one in parsers if one.media_type == kind), None)

    def select_renderer(self, _request: Request, renderers: Any, _format_suffix: str | None = None) -> tuple[BaseRenderer, str]:
        """Choose the first whatever ``Accept`` says."""
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
        """All failures of all views are worded in one place."""
        return answer_failure

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse what no database can look for, after authentication."""
        super().initial(request, *args, **kwargs)
        if any("\0" in str(value) for name, value in kwargs.items() if name not in _ANY_CHARACTER):
            raise NotFound
        if any("\0" in value for values in request.query_params.lists() for value in values[1]):
            raise UnreadableError("A query parameter holds a NUL character.")


class UnknownEndpointView(RestView):
    """Everything else below a REST prefix."""

    schema = None  # type: ignore[assignment]  # how the framework says "not documented"

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raise NotFound for every method."""
        super().initial(request, *args, **kwargs)
        raise NotFound


def actor_of(request: Request) -> Actor:
    """Answer who acts; an API key is named with its owner, so that the audit tells keys apart."""
    user = request.user
    if not isinstance(user, User):
        raise AuthenticationFailed
    key = f" (API key {request.auth})" if request.auth else ""
    return Actor(
        name=f"{user.get_username()[: 150 - len(key)]}{key}",
        user=user,
        request_id=getattr(request, "request_id", ""),
        client_address=request.META.get("REMOTE_ADDR") or "",
    )


def moment() -> datetime:
    """Read the clock; views are the doors that may."""
    return timezone.now()


def body(request: Request, kind: type[Serializer[Any]]) -> dict[str, Any]:
    """Read and check the body as ``kind``; raise ValidationError naming each field that is wrong."""
    serializer = kind(data=request.data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


def flag(request: Request, name: str, *, default: bool = False) -> bool:
    """Read a boolean query parameter; one that is there must say something."""
    value = request.query_params.get(name)
    if value is None:
        return default
    value = value.lower()
    if value not in (_TRUE, _FALSE):
        raise UnreadableError(f"Cannot deserialize the query parameter {name}: it is true or false.")
    return value == _TRUE


def choice(request: Request, name: str, *, values: Collection[str]) -> str:
    """Read a query parameter that is one of some words; "" if it is not there."""
    value = request.query_params.get(name)
    if value is None:
        return ""
    if value not in values:
        raise UnreadableError(f"Cannot deserialize the query parameter {name}: it is one of {', '.join(values)}.")
    return value


def absolute(request: Request, *parts: str) -> str:
    """Answer the absolute URL of a path below the request's prefix, each part escaped but for the verb's colon."""
    prefix = request.path[: request.path.index("/clusters")]
    return request.build_absolute_uri("/".join((prefix, *map(encode_segment, parts))))
