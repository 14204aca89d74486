"""Cluster links: list, create, get, delete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from console.access import visible_mirrors
from console.actions import links as actions
from console.actions.linkchecks import LinkValidation
from console.actors import Actor
from console.api.errors import UnreadableError
from console.api.kafka import answers, bodies, render
from console.api.schema import operation, query_flag
from console.api.views import RestView, actor_of, body, flag, moment
from console.errors import BadRequestError
from console.models import ClusterLink
from console.queries import clusters
from console.queries import links as queries
from console.queries.linktasks import TaskView, list_tasks

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

    @operation("listKafkaLinks", summary="List cluster links", responses={200: answers.ListLinksResponseDataList})
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the links of a destination cluster."""
        by = actor_of(request)
        clusters.get_cluster(cluster_id=cluster_id, by=by)
        rows = [summary.link for summary in queries.list_links(by=by, cluster_id=cluster_id)]
        mirrors = _mirror_states(rows, by=by)
        data = [render.link(request, row, mirrors=mirrors[row.pk]) for row in rows]
        return Response(render.collection(request, "KafkaLinkDataList", data))

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
        body=bodies.CreateLinkRequestData,
        responses={200: answers.LinkValidationData, 204: "The link was created."},
        examples=[_EXAMPLE],
    )
    def post(self, request: Request, cluster_id: str) -> Response:
        """Create a link."""
        by = actor_of(request)
        wanted = body(request, bodies.CreateLinkRequestData)
        name = request.query_params.get("link_name", "")
        if not name:
            raise UnreadableError("The query parameter link_name is missing. Give the name of the new link.")
        link_or_validation = actions.create_link(
            destination=clusters.get_cluster(cluster_id=cluster_id, by=by),
            name=name,
            source_cluster_id=_other_cluster(wanted, cluster_id=cluster_id),
            cluster_link_id=wanted.get("cluster_link_id", ""),
            configs=config_map(wanted.get("configs", ())),
            validate_only=flag(request, "validate_only"),
            validate_link=flag(request, "validate_link", default=True),
            by=by,
            now=moment(),
        )
        if isinstance(link_or_validation, LinkValidation):
            return Response(render.link_validation(request, link_or_validation))
        return Response(status=204)


class LinkView(RestView):
    """/clusters/{cluster_id}/links/{link_name}"""

    @operation(
        "getKafkaLink",
        summary="Get a cluster link",
        parameters=[query_flag("include_tasks", "Include the state of the link's tasks.")],
        responses={200: answers.ListLinksResponseData},
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return a link."""
        by, include_tasks = actor_of(request), flag(request, "include_tasks")
        find = queries.get_whole_link if include_tasks else queries.get_link
        row = find(cluster_id=cluster_id, name=link_name, by=by)
        states = [_task(task) for task in list_tasks(link=row)] if include_tasks else None
        return Response(render.link(request, row, mirrors=_mirror_states([row], by=by)[row.pk], tasks=states))

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
        row = queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
        force, validate_only = flag(request, "force"), flag(request, "validate_only")
        actions.delete_link(link=row, force=force, validate_only=validate_only, by=by, now=moment())
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
