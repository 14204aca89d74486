"""Configs of a link: list, get, set, reset, change several at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.linkconfigs import ConfigChange, alter_configs
from console.api.kafka import answers, bodies, render
from console.api.schema import operation, query_flag
from console.api.views import RestView, actor_of, body, flag, moment
from console.errors import BadRequestError, NotFoundError
from console.queries import links as queries
from linkengine.domain.linkconfigs import canonical_name

SET: Literal["SET"] = "SET"
DELETE: Literal["DELETE"] = "DELETE"


class LinkConfigListView(RestView):
    """/clusters/{cluster_id}/links/{link_name}/configs"""

    @operation(
        "listKafkaLinkConfigs", summary="List a link's configs", responses={200: answers.ListLinkConfigsResponseDataList}
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return all configs, set or default."""
        row = queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=actor_of(request))
        data = [render.link_config(request, row, config) for config in queries.effective_configs(link=row)]
        return Response(render.collection(request, "KafkaLinkConfigDataList", data))


class LinkConfigView(RestView):
    """/clusters/{cluster_id}/links/{link_name}/configs/{config_name}"""

    @operation("getKafkaLinkConfigs", summary="Get a link's config", responses={200: answers.ListLinkConfigsResponseData})
    def get(self, request: Request, cluster_id: str, link_name: str, config_name: str) -> Response:
        """Return a config."""
        row = queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=actor_of(request))
        for config in queries.effective_configs(link=row):
            if config.name == canonical_name(config_name):
                return Response(render.link_config(request, row, config))
        raise NotFoundError(f"Config {config_name} cannot be found.")

    @operation(
        "updateKafkaLinkConfig",
        summary="Set a link's config",
        body=bodies.UpdateLinkConfigRequestData,
        responses={204: "The config was set."},
    )
    def put(self, request: Request, cluster_id: str, link_name: str, config_name: str) -> Response:
        """Set a config."""
        wanted = body(request, bodies.UpdateLinkConfigRequestData)
        change = ConfigChange(name=config_name, value=wanted["value"], operation=SET)
        return _alter(request, [change], cluster_id=cluster_id, link_name=link_name)

    @operation(
        "deleteKafkaLinkConfig",
        summary="Reset a link's config to its default",
        responses={204: "The config was reset to its default."},
    )
    def delete(self, request: Request, cluster_id: str, link_name: str, config_name: str) -> Response:
        """Reset a config."""
        change = ConfigChange(name=config_name, value=None, operation=DELETE)
        return _alter(request, [change], cluster_id=cluster_id, link_name=link_name)


class LinkConfigBatchView(RestView):
    """/clusters/{cluster_id}/links/{link_name}/configs:alter"""

    @operation(
        "updateKafkaLinkConfigBatch",
        summary="Change several configs of a link",
        description="Either all changes are applied or none.",
        parameters=[query_flag("validate_only", "Check the changes without applying them.")],
        body=bodies.AlterConfigBatchRequestData,
        responses={204: "The configs were changed, or would be."},
    )
    def put(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Change configs."""
        return _alter_batch(request, cluster_id=cluster_id, link_name=link_name)

    @operation(
        "alterKafkaLinkConfigBatch",
        summary="Change several configs of a link (older clients)",
        parameters=[query_flag("validate_only", "Check the changes without applying them.")],
        body=bodies.AlterConfigBatchRequestData,
        responses={204: "The configs were changed, or would be."},
    )
    def post(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Change configs, for older clients that use POST."""
        return _alter_batch(request, cluster_id=cluster_id, link_name=link_name)


def _alter_batch(request: Request, *, cluster_id: str, link_name: str) -> Response:
    wanted = body(request, bodies.AlterConfigBatchRequestData)
    validate_only = flag(request, "validate_only") or wanted.get("validate_only", False)
    changes = [_change(entry) for entry in wanted["data"]]
    return _alter(request, changes, cluster_id=cluster_id, link_name=link_name, validate_only=validate_only)


def _alter(
    request: Request, changes: Sequence[ConfigChange], *, cluster_id: str, link_name: str, validate_only: bool = False
) -> Response:
    by = actor_of(request)
    row = queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    alter_configs(link=row, changes=changes, validate_only=validate_only, by=by, now=moment())
    return Response(status=204)


def wanted_value(change: dict[str, Any]) -> str | None:
    """Return the new value of a config in a batch, or None to reset it.

    Raises BadRequestError for SET without a value, so that a client that omits the value does not reset the config by mistake.
    """
    name, wanted, value = change["name"], change.get("operation") or SET, change.get("value")
    if wanted not in (SET, DELETE):
        raise BadRequestError(f"Unknown operation '{wanted}' on config '{name}'. Use {SET} or {DELETE}.")
    if wanted == SET and value is None:
        raise BadRequestError(f"Setting config '{name}' needs a value. Give one, or use {DELETE} to reset the config.")
    return value if wanted == SET else None


def _change(change: dict[str, Any]) -> ConfigChange:
    value = wanted_value(change)
    return ConfigChange(name=change["name"], value=value, operation=DELETE if value is None else SET)
