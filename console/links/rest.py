"""Cluster links and their configs in the Kafka REST interface."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from console.access import visible_mirrors
from console.actors import Actor
from console.api import kafka_render, kafka_schemas
from console.api.errors import UnreadableError
from console.api.schema import operation, query_flag
from console.api.views import RestView, actor_of, body, flag, request_time
from console.clusters import queries as cluster_queries
from console.errors import BadRequestError, NotFoundError
from console.links import actions as link_actions
from console.links import queries as link_queries
from console.links.actions import LinkConfigChange, alter_configs
from console.links.checks import LinkValidation
from console.links.task_queries import TaskView, list_tasks
from console.models import ClusterLink
from linkengine.domain.linkconfigs import canonical_name

# --- links ------------------------------------------------------------------------------------------------------------


_VALIDATE_ONLY = query_flag("validate_only", "Check the request without changing anything.")
_EXAMPLE = OpenApiExample(
    "SASL_SSL",
    request_only=True,
    value={
        "source_cluster_id": "4L6g3nShT-eMCtK--X86sw",
        "configs": [
            {"name": "bootstrap.servers", "value": "source.example.com:9093"},
            {"name": "security.protocol", "value": "SASL_SSL"},
            {"name": "sasl.mechanism", "value": "SCRAM-SHA-512"},
            {
                "name": "sasl.jaas.config",
                "value": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="link" password="...";',
            },
        ],
    },
)


class LinkListView(RestView):
    """/clusters/{cluster_id}/links"""

    @operation("listKafkaLinks", summary="List cluster links", responses={200: kafka_schemas.ListLinksResponseDataList})
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the links of a destination cluster."""
        by = actor_of(request)
        cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        rows = [summary.link for summary in link_queries.list_links(by=by, cluster_id=cluster_id)]
        mirrors = _mirror_states(rows, by=by)
        data = [kafka_render.link(request, row, mirrors=mirrors[row.pk]) for row in rows]
        return Response(kafka_render.collection(request, "KafkaLinkDataList", data))

    @operation(
        "createKafkaLink",
        summary="Create a cluster link",
        description="The link is created on the destination cluster, which mirrors from the source. By default it is "
        "validated: the source must be reachable with these configs and have the expected cluster id. With validate_only "
        "nothing is created, and the response (200, an addition of this product) has the round trip time to each broker of the "
        "source and, if it is long, the socket buffer that limits the throughput of a connection.",
        parameters=[
            OpenApiParameter("link_name", str, required=True, description="The name of the new link."),
            _VALIDATE_ONLY,
            query_flag("validate_link", "Connect to the source cluster before the link is stored.", default=True),
        ],
        body=kafka_schemas.CreateLinkRequestData,
        responses={200: kafka_schemas.LinkValidationData, 204: "The link was created."},
        examples=[_EXAMPLE],
    )
    def post(self, request: Request, cluster_id: str) -> Response:
        """Create a link."""
        by = actor_of(request)
        wanted = body(request, kafka_schemas.CreateLinkRequestData)
        name = request.query_params.get("link_name", "")
        if not name:
            raise UnreadableError("The query parameter link_name is missing. Give the name of the new link.")
        link_or_validation = link_actions.create_link(
            destination=cluster_queries.get_cluster(cluster_id=cluster_id, by=by),
            name=name,
            source_cluster_id=_other_cluster(wanted, cluster_id=cluster_id),
            cluster_link_id=wanted.get("cluster_link_id", ""),
            configs=config_map(wanted.get("configs", ())),
            validate_only=flag(request, "validate_only"),
            validate_link=flag(request, "validate_link", default=True),
            by=by,
            now=request_time(),
        )
        if isinstance(link_or_validation, LinkValidation):
            return Response(kafka_render.link_validation(request, link_or_validation))
        return Response(status=204)


class LinkView(RestView):
    """/clusters/{cluster_id}/links/{link_name}"""

    @operation(
        "getKafkaLink",
        summary="Get a cluster link",
        parameters=[query_flag("include_tasks", "Include the state of the link's tasks.")],
        responses={200: kafka_schemas.ListLinksResponseData},
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return a link."""
        by, include_tasks = actor_of(request), flag(request, "include_tasks")
        find = link_queries.get_whole_link if include_tasks else link_queries.get_link
        row = find(cluster_id=cluster_id, name=link_name, by=by)
        states = [_task(task) for task in list_tasks(link=row)] if include_tasks else None
        return Response(kafka_render.link(request, row, mirrors=_mirror_states([row], by=by)[row.pk], tasks=states))

    @operation(
        "deleteKafkaLink",
        summary="Delete a cluster link",
        description="Refused while the link has mirror topics that are not stopped, unless force is true; these are failed "
        "over first then.",
        parameters=[query_flag("force", "Fail over mirror topics that are not stopped first."), _VALIDATE_ONLY],
        responses={200: "The link was deleted, or would be."},
    )
    def delete(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Delete a link."""
        by = actor_of(request)
        row = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
        force, validate_only = flag(request, "force"), flag(request, "validate_only")
        link_actions.delete_link(link=row, force=force, validate_only=validate_only, by=by, now=request_time())
        return Response(status=200)


def config_map(configs: Sequence[dict[str, Any]]) -> dict[str, str | None]:
    """Return a list of configs as a mapping; raise BadRequestError for a duplicate name, since the value is ambiguous."""
    values: dict[str, str | None] = {}
    for config in configs:
        if config["name"] in values:
            raise BadRequestError(f"Config '{config['name']}' is given twice. Give each config once.")
        values[config["name"]] = config["value"]
    return values


def _other_cluster(wanted: dict[str, Any], *, cluster_id: str) -> str:
    """Return the id of the other cluster, from whichever field the client used; the path has this cluster's id."""
    names = ("source_cluster_id", "destination_cluster_id", "remote_cluster_id")
    given = {name: wanted[name] for name in names if wanted.get(name) not in (None, "", cluster_id)}
    if len(set(given.values())) > 1:
        raise BadRequestError(
            f"{' and '.join(given)} name different clusters. Give the id of one cluster, to which the cluster of the path is "
            "linked."
        )
    if not given and wanted.get("source_cluster_id") == cluster_id:
        raise BadRequestError("Source and destination are the same cluster. Name another source.", field="source_cluster_id")
    return next(iter(given.values()), "")


def _mirror_states(links: Iterable[ClusterLink], *, by: Actor) -> dict[int, list[tuple[str, str]]]:
    """Return (name, state) of the mirrors that the actor may see, by link id, with a single query."""
    found: dict[int, list[tuple[str, str]]] = defaultdict(list)
    rows = visible_mirrors(by).filter(link__in=[link.pk for link in links]).order_by("name")
    for link_id, name, state in rows.values_list("link_id", "name", "state"):
        found[link_id].append((name, state))
    return found


def _task(task: TaskView) -> dict[str, Any]:
    """Return a task for ``include_tasks``: the four tasks of Confluent's interface and two of this product."""
    errors = [{"error_code": error.code, "error_message": error.message} for error in task.errors]
    return {"task_name": task.name, "state": task.state, "errors": errors}


# --- configs of a link ------------------------------------------------------------------------------------------------


SET: Literal["SET"] = "SET"
DELETE: Literal["DELETE"] = "DELETE"


class LinkConfigListView(RestView):
    """/clusters/{cluster_id}/links/{link_name}/configs"""

    @operation(
        "listKafkaLinkConfigs", summary="List a link's configs", responses={200: kafka_schemas.ListLinkConfigsResponseDataList}
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return all configs, set or default."""
        row = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=actor_of(request))
        data = [kafka_render.link_config(request, row, config) for config in link_queries.effective_configs(link=row)]
        return Response(kafka_render.collection(request, "KafkaLinkConfigDataList", data))


class LinkConfigView(RestView):
    """/clusters/{cluster_id}/links/{link_name}/configs/{config_name}"""

    @operation("getKafkaLinkConfigs", summary="Get a link's config", responses={200: kafka_schemas.ListLinkConfigsResponseData})
    def get(self, request: Request, cluster_id: str, link_name: str, config_name: str) -> Response:
        """Return a config."""
        row = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=actor_of(request))
        for config in link_queries.effective_configs(link=row):
            if config.name == canonical_name(config_name):
                return Response(kafka_render.link_config(request, row, config))
        raise NotFoundError(f"Config {config_name} cannot be found.")

    @operation(
        "updateKafkaLinkConfig",
        summary="Set a link's config",
        body=kafka_schemas.UpdateLinkConfigRequestData,
        responses={204: "The config was set."},
    )
    def put(self, request: Request, cluster_id: str, link_name: str, config_name: str) -> Response:
        """Set a config."""
        wanted = body(request, kafka_schemas.UpdateLinkConfigRequestData)
        change = LinkConfigChange(name=config_name, value=wanted["value"], operation=SET)
        return _alter(request, [change], cluster_id=cluster_id, link_name=link_name)

    @operation(
        "deleteKafkaLinkConfig",
        summary="Reset a link's config to its default",
        responses={204: "The config was reset to its default."},
    )
    def delete(self, request: Request, cluster_id: str, link_name: str, config_name: str) -> Response:
        """Reset a config."""
        change = LinkConfigChange(name=config_name, value=None, operation=DELETE)
        return _alter(request, [change], cluster_id=cluster_id, link_name=link_name)


class LinkConfigBatchView(RestView):
    """/clusters/{cluster_id}/links/{link_name}/configs:alter"""

    @operation(
        "updateKafkaLinkConfigBatch",
        summary="Change several configs of a link",
        description="Either all changes are applied or none.",
        parameters=[query_flag("validate_only", "Check the changes without applying them.")],
        body=kafka_schemas.AlterConfigBatchRequestData,
        responses={204: "The configs were changed, or would be."},
    )
    def put(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Change configs."""
        return _alter_batch(request, cluster_id=cluster_id, link_name=link_name)

    @operation(
        "alterKafkaLinkConfigBatch",
        summary="Change several configs of a link (older clients)",
        parameters=[query_flag("validate_only", "Check the changes without applying them.")],
        body=kafka_schemas.AlterConfigBatchRequestData,
        responses={204: "The configs were changed, or would be."},
    )
    def post(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Change configs, for older clients that use POST."""
        return _alter_batch(request, cluster_id=cluster_id, link_name=link_name)


def _alter_batch(request: Request, *, cluster_id: str, link_name: str) -> Response:
    wanted = body(request, kafka_schemas.AlterConfigBatchRequestData)
    validate_only = flag(request, "validate_only") or wanted.get("validate_only", False)
    changes = [_change(entry) for entry in wanted["data"]]
    return _alter(request, changes, cluster_id=cluster_id, link_name=link_name, validate_only=validate_only)


def _alter(
    request: Request, changes: Sequence[LinkConfigChange], *, cluster_id: str, link_name: str, validate_only: bool = False
) -> Response:
    by = actor_of(request)
    row = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    alter_configs(link=row, changes=changes, validate_only=validate_only, by=by, now=request_time())
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


def _change(change: dict[str, Any]) -> LinkConfigChange:
    value = wanted_value(change)
    return LinkConfigChange(name=change["name"], value=value, operation=DELETE if value is None else SET)
