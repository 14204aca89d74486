"""The OpenAPI 3 document: what every operation shares, and how one is described beside its view.

The Kafka paths are documented once, under ``/kafka/v3``; ``/v3`` answers the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers

from linkctl import __version__

KAFKA = "Cluster Linking (v3)"
TOPICS, ACLS, GROUPS, BROKERS = "Topic (v3)", "ACL (v3)", "Consumer Group (v3)", "Broker (v3)"
OURS = "Clusterlink additions (v1)"
DESCRIPTION = """\
Cluster linking for stock Apache Kafka: links, mirror topics and what can be done with them.

* Paths below `/kafka/v3` (the same below `/v3`) follow Confluent's Kafka REST v3, so that its clients work unchanged.
  Paths below `/api/v1` are additions of this product.
* Authenticate with HTTP Basic: user name = API key, password = its secret; or with a bearer token made from one
  (`POST /api/v1/tokens`).
* Each API key has a rate, and each address so many failures with a key. Beyond them the answer is 429 with `Retry-After`.
* Errors are always `{"error_code": ..., "message": ...}`.
* **Lag.** A lag that is not known is reported as `-1`, never as 0: 0 means that the mirror was seen to hold every record.
  `last_source_fetch_offset` is `-1` on partitions that were never fetched.
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
        {"name": TOPICS, "description": "Topics of a registered cluster, as the cluster itself tells."},
        {"name": BROKERS, "description": "Brokers of a registered cluster, and partitions on their way between them."},
        {"name": ACLS, "description": "Access control lists of a registered cluster."},
        {"name": GROUPS, "description": "Consumer groups of a registered cluster."},
        {"name": OURS, "description": "What that interface has no words for."},
    ],
}
PATH_PARAMETERS: Mapping[str, str] = {
    "cluster_id": "The id of the Kafka cluster, as Kafka itself names it.",
    "link_name": "The name of the cluster link.",
    "config_name": "The name of the link's config.",
    "mirror_topic_name": "The name of the mirror topic on the destination cluster.",
    "topic_name": "The name of the topic.",
    "name": "The name of the topic's config.",
    "partition_id": "The number of the partition.",
    "broker_id": "The number of the broker.",
    "consumer_id": "The id of the group's member.",
    "consumer_group_id": "The name of the consumer group.",
    "namespace_id": "The namespace.",
    "drill_id": "The number of the drill.",
    "run_id": "The number of the verify run.",
    "restore_id": "The restore's number.",
    "task_name": "The name of a task of the link.",
    "source_topic_name": "The name of a topic on the source cluster.",
}
_FAILURES: Mapping[int | str, str] = {
    400: "A parameter or body cannot be read (400), or Kafka or a rule refuses the request (40002).",
    401: "Authentication failed (40101).",
    403: "The API key's owner has no role that allows this (40301).",
    404: "The cluster, link, mirror or topic does not exist, or may not be seen (404, 40401).",
    429: "Too many requests with this API key, or failures from this address (42901); Retry-After says when to come back.",
    "5XX": "A part of the service does not answer (503, 50302), or something unexpected happened (500).",
}
_BODY_FAILURES: Mapping[int | str, str] = {
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "A required field of the body is missing.",
}


class Error(serializers.Serializer[Any]):
    """Why a request was not carried out."""

    error_code = serializers.IntegerField(help_text="The HTTP status or a five-digit code.")
    message = serializers.CharField(allow_null=True)


class ApiSchema(AutoSchema):
    """Takes everything from ``operation``; nothing is guessed from view names."""

    def get_description(self) -> str:  # type: ignore[override]  # spectacular's own signature
        """Doc strings of views speak to developers of this product, not to its callers."""
        return ""


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """HTTP Basic in the document."""

    target_class = "console.api.authentication.ApiKeyAuthentication"
    name = "api-key"

    def get_security_definition(self, _auto_schema: AutoSchema) -> dict[str, str]:
        """Describe the scheme."""
        return {"type": "http", "scheme": "basic", "description": "User name: API key. Password: its secret."}


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Bearer tokens in the document."""

    target_class = "console.api.authentication.BearerAuthentication"
    name = "access-token"

    def get_security_definition(self, _auto_schema: AutoSchema) -> dict[str, str]:
        """Describe the scheme."""
        return {"type": "http", "scheme": "bearer", "description": "A token of POST /api/v1/tokens."}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The console's session in the document."""

    target_class = "console.api.authentication.ConsoleSessionAuthentication"
    name = "console-session"

    def get_security_definition(self, _auto_schema: AutoSchema) -> dict[str, str]:
        """Describe the scheme."""
        text = "The session of the console's pages; changes also need the header X-CSRFToken."
        return {"type": "apiKey", "in": "cookie", "name": "sessionid", "description": text}


def operation(
    operation_id: str,
    *,
    summary: str,
    answers: Mapping[int, type[serializers.Serializer[Any]] | str],
    body: type[serializers.Serializer[Any]] | None = None,
    parameters: Sequence[OpenApiParameter] = (),
    description: str = "",
    examples: Sequence[OpenApiExample] = (),
    tag: str = KAFKA,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Describe one method of a view. ``answers``: status -> serializer, or a sentence where the body is empty."""
    failures = {**_FAILURES, **(_BODY_FAILURES if body else {})}
    responses = {status: _answer(kind) for status, kind in answers.items()} | {
        status: OpenApiResponse(Error, description=text) for status, text in failures.items()
    }
    return extend_schema(
        operation_id=operation_id,
        summary=summary,
        description=description,
        request=body,
        parameters=list(parameters),
        responses=responses,
        examples=list(examples),
        tags=[tag],
    )


def query_flag(name: str, text: str, *, default: bool = False) -> OpenApiParameter:
    return OpenApiParameter(name, bool, description=text, default=default)


def query_choice(name: str, text: str, *, values: Sequence[str]) -> OpenApiParameter:
    return OpenApiParameter(name, str, description=text, enum=list(values))


def keep_one_prefix(endpoints: Sequence[tuple[Any, ...]], **_: Any) -> list[tuple[Any, ...]]:
    """Document each Kafka path once, and verbs by their present names only."""
    return [one for one in endpoints if not one[0].startswith("/v3/") and ":promote-local-" not in one[0]]


def describe_paths(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Say what each path parameter is."""
    for path in result["paths"].values():
        for method in path.values():
            for parameter in method.get("parameters", ()):
                if parameter["in"] == "path":
                    parameter["description"] = PATH_PARAMETERS[parameter["name"]]
    return result


class BinaryAnswer(serializers.Serializer[Any]):
    """A file."""


def _answer(kind: type[serializers.Serializer[Any]] | str) -> OpenApiResponse:
    if isinstance(kind, str):
        return OpenApiResponse(description=kind)
    if kind is BinaryAnswer:
        return OpenApiResponse(OpenApiTypes.BINARY, description=(kind.__doc__ or "").strip())
    return OpenApiResponse(kind, description=(kind.__doc__ or "").strip())
