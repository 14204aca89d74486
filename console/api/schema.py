"""The OpenAPI 3 document: shared parts, strict fields, and the decorator ``operation`` that describes a method of a view."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from django.core.validators import ProhibitNullCharactersValidator
from django.http import HttpRequest, HttpResponse
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.settings import patched_settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers

from linkctl import __version__

# --- the OpenAPI document and the decorator ``operation`` -------------------------------------------------------------
#
# The Kafka paths are documented once, under ``/kafka/v3``; the same views serve ``/v3``.


KAFKA = "Cluster Linking (v3)"
TOPICS, ACLS, GROUPS, BROKERS = "Topic (v3)", "ACL (v3)", "Consumer Group (v3)", "Broker (v3)"
ADDITIONS = "Clusterlink additions (v1)"
DESCRIPTION = """\
Cluster linking for stock Apache Kafka: cluster links, mirror topics and operations on them.

* Paths below `/kafka/v3` (and the same paths below `/v3`) follow Confluent's Kafka REST v3, so that its clients work unchanged.
  Paths below `/api/v1` are additions of this product.
* Authenticate with HTTP Basic (user name: API key, password: its secret) or with a bearer token of an API key
  (`POST /api/v1/tokens`).
* Requests per API key and failed attempts per client address are limited. Above the limits the status is 429 with
  `Retry-After`.
* Errors have the form `{"error_code": ..., "message": ...}`.
* **Lag.** An unknown lag is reported as `-1`, never as 0: 0 means that the mirror was measured to hold every record.
  `last_source_fetch_offset` is `-1` for partitions that were never fetched.
* Lists are complete: `metadata.next` is always null.
"""
SETTINGS: dict[str, Any] = {
    "TITLE": "Clusterlink REST",
    "DESCRIPTION": DESCRIPTION,
    "VERSION": __version__,
    "SCHEMA_PATH_PREFIX": r"/(kafka/v3|api/v1)",
    "PREPROCESSING_HOOKS": ["console.api.schema.keep_one_prefix"],
    "POSTPROCESSING_HOOKS": ["console.api.schema.describe_paths"],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "PATH_CONVERTER_OVERRIDES": {"segment": str, "any_segment": str},
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "persistAuthorization": False, "validatorUrl": None},
    "TAGS": [
        {"name": KAFKA, "description": "As in Confluent's Kafka REST v3."},
        {"name": TOPICS, "description": "Topics of a registered cluster, read from the cluster itself."},
        {"name": BROKERS, "description": "Brokers of a registered cluster, and partition reassignments."},
        {"name": ACLS, "description": "Access control lists of a registered cluster."},
        {"name": GROUPS, "description": "Consumer groups of a registered cluster."},
        {"name": ADDITIONS, "description": "Resources that Confluent's Kafka REST v3 does not have."},
    ],
}
PATH_PARAMETERS: Mapping[str, str] = {
    "environment": "The environment's name in URLs.",
    "cluster_id": "The id of the Kafka cluster, as its brokers return it.",
    "link_name": "The name of the cluster link.",
    "config_name": "The name of the link's config.",
    "mirror_topic_name": "The name of the mirror topic on the destination cluster.",
    "topic_name": "The name of the topic.",
    "name": "The name of the config.",
    "partition_id": "The number of the partition.",
    "broker_id": "The id of the broker.",
    "consumer_id": "The id of the group's member.",
    "consumer_group_id": "The name of the consumer group.",
    "namespace_id": "The id of the namespace.",
    "drill_id": "The id of the failover drill.",
    "request_id": "The id of the approval request.",
    "api_key": "The API key.",
    "run_id": "The id of the verification run.",
    "restore_id": "The id of the restore.",
    "task_name": "The name of a task of the link.",
    "source_topic_name": "The name of a topic on the source cluster.",
}
_FAILURES: Mapping[int | str, str] = {
    400: "A parameter or the body cannot be parsed (400), or Kafka or a rule refuses the request (40002).",
    401: "Authentication failed (40101).",
    403: "The API key's owner has no role that allows the request (40301).",
    404: "The cluster, link, mirror or topic does not exist or is not visible to the API key's owner (404, 40401).",
    429: "Too many requests with this API key, or failed attempts from this address (42901). Retry after Retry-After seconds.",
    "5XX": "A part of the service is unavailable (503, 50302), or an unexpected error occurred (500).",
}
_BODY_FAILURES: Mapping[int | str, str] = {
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "A required field of the body is missing.",
}


class Error(serializers.Serializer[Any]):
    """The reason why a request failed."""

    error_code = serializers.IntegerField(help_text="The HTTP status or a five-digit code.")
    message = serializers.CharField(allow_null=True)


class ApiSchema(AutoSchema):
    """Generates operations from the decorator ``operation`` only, not from the names and docstrings of views."""

    def get_description(self) -> str:  # type: ignore[override]  # drf-spectacular's signature
        """Return "": the docstrings of views are for developers of this product, not for API clients."""
        return ""


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The security scheme of HTTP Basic."""

    target_class = "console.api.authentication.ApiKeyAuthentication"
    name = "api-key"

    def get_security_definition(self, _auto_schema: AutoSchema) -> dict[str, str]:
        """Describe the scheme."""
        return {"type": "http", "scheme": "basic", "description": "User name: API key. Password: its secret."}


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The security scheme of bearer tokens."""

    target_class = "console.api.authentication.BearerAuthentication"
    name = "access-token"

    def get_security_definition(self, _auto_schema: AutoSchema) -> dict[str, str]:
        """Describe the scheme."""
        return {"type": "http", "scheme": "bearer", "description": "A token of POST /api/v1/tokens."}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The security scheme of the console's session."""

    target_class = "console.api.authentication.ConsoleSessionAuthentication"
    name = "console-session"

    def get_security_definition(self, _auto_schema: AutoSchema) -> dict[str, str]:
        """Describe the scheme."""
        text = "The session of the console's pages. Requests that change something also need the header X-CSRFToken."
        return {"type": "apiKey", "in": "cookie", "name": "sessionid", "description": text}


def operation(
    operation_id: str,
    *,
    summary: str,
    responses: Mapping[int, type[serializers.Serializer[Any]] | str],
    body: type[serializers.Serializer[Any]] | None = None,
    parameters: Sequence[OpenApiParameter] = (),
    description: str = "",
    examples: Sequence[OpenApiExample] = (),
    tag: str = KAFKA,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Describe a method of a view. ``responses`` maps a status to a serializer, or to a sentence if there is no body."""
    failures = {**_FAILURES, **(_BODY_FAILURES if body else {})}
    described = {status: _response(kind) for status, kind in responses.items()} | {
        status: OpenApiResponse(Error, description=text) for status, text in failures.items()
    }
    return extend_schema(
        operation_id=operation_id,
        summary=summary,
        description=description,
        request=body,
        parameters=list(parameters),
        responses=described,
        examples=list(examples),
        tags=[tag],
    )


def query_flag(name: str, text: str, *, default: bool = False) -> OpenApiParameter:
    return OpenApiParameter(name, bool, description=text, default=default)


def query_choice(name: str, text: str, *, values: Sequence[str]) -> OpenApiParameter:
    return OpenApiParameter(name, str, description=text, enum=list(values))


def keep_one_prefix(endpoints: Sequence[tuple[Any, ...]], **_: Any) -> list[tuple[Any, ...]]:
    """Return the endpoints without the duplicates below /v3 and without the former names of verbs."""
    return [endpoint for endpoint in endpoints if not endpoint[0].startswith("/v3/") and ":promote-local-" not in endpoint[0]]


def describe_paths(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the descriptions of path parameters."""
    for path in result["paths"].values():
        for method in path.values():
            for parameter in method.get("parameters", ()):
                if parameter["in"] == "path":
                    parameter["description"] = PATH_PARAMETERS[parameter["name"]]
    return result


def list_of(
    row: type[serializers.Serializer[Any]],
    description: str,
    base: type[serializers.Serializer[Any]] = serializers.Serializer,
) -> type[serializers.Serializer[Any]]:
    """Return the serializer of a list, named after that of its rows, which are in ``data``. ``base`` has its other fields."""
    return type(f"{row.__name__}List", (base,), {"__doc__": description, "data": row(many=True)})


class BinaryResponse(serializers.Serializer[Any]):
    """A file."""


def _response(kind: type[serializers.Serializer[Any]] | str) -> OpenApiResponse:
    if isinstance(kind, str):
        return OpenApiResponse(description=kind)
    if kind is BinaryResponse:
        return OpenApiResponse(OpenApiTypes.BINARY, description=(kind.__doc__ or "").strip())
    return OpenApiResponse(kind, description=(kind.__doc__ or "").strip())


# --- strict serializer fields -----------------------------------------------------------------------------------------
#
# Each accepts values of its JSON type only and neither converts nor trims them.


class TextField(serializers.CharField):
    """A JSON string; blanks are kept."""

    default_error_messages = {"invalid": "Cannot deserialize the value: it is not a string."}

    def __init__(self, **options: Any) -> None:
        """Allow blank text: the actions refuse it where it is wrong, with a specific message."""
        super().__init__(**{"allow_blank": True, "trim_whitespace": False, **options})

    def to_internal_value(self, data: Any) -> str:
        """Refuse numbers and booleans."""
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class AnyTextField(TextField):
    """A JSON string of any characters, for values that are not used in database queries."""

    def __init__(self, **options: Any) -> None:
        """Allow NUL, which Django REST framework prohibits by default."""
        super().__init__(**options)
        self.validators = [check for check in self.validators if not isinstance(check, ProhibitNullCharactersValidator)]


class NumberField(serializers.IntegerField):
    """A JSON number without a fraction."""

    default_error_messages = {"invalid": "Cannot deserialize the value: it is not a whole number."}

    def to_internal_value(self, data: Any) -> int:
        """Refuse strings and booleans."""
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return int(super().to_internal_value(data))


class FlagField(serializers.BooleanField):
    """JSON true or false."""

    default_error_messages = {"invalid": "Cannot deserialize the value: it must be true or false."}

    def to_internal_value(self, data: Any) -> bool:
        """Refuse strings and numbers that Django REST framework would convert to a boolean."""
        if not isinstance(data, bool):
            self.fail("invalid")
        return bool(data)


@extend_schema_field(OpenApiTypes.INT64)
class OffsetField(serializers.IntegerField):
    """A Kafka offset or a count in a response."""


# --- serving the document ---------------------------------------------------------------------------------------------
#
# Generated once per process. It is public and contains no secrets.


_generating = threading.Lock()  # drf-spectacular's settings are global and patched while the document is generated


def respond(_request: HttpRequest) -> HttpResponse:
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
