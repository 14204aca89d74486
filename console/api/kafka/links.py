"""Cluster links: list, create, show, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions import links as actions
from console.actions.linkchecks import LinkValidation
from console.api.errors import UnreadableError
from console.api.kafka import answers, bodies, reads, render, tasks
from console.api.schema import operation, query_flag
from console.api.views import RestView, actor_of, body, flag, moment
from console.errors import BadRequestError
from console.queries import clusters
from console.queries import links as queries

_VALIDATE_ONLY = query_flag("validate_only", "Check the request and change nothing.")
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

    @operation("listKafkaLinks", summary="List cluster links", answers={200: answers.ListLinksResponseDataList})
    def get(self, request: Request, cluster_id: str) -> Response:
        """List the links of a destination cluster."""
        by = actor_of(request)
        clusters.get_cluster(cluster_id=cluster_id, by=by)
        rows = [summary.link for summary in queries.list_links(by=by, cluster_id=cluster_id)]
        mirrors = reads.mirror_states(rows, by=by)
        data = [render.link(request, row, mirrors=mirrors[row.pk]) for row in rows]
        return Response(render.collection(request, "KafkaLinkDataList", data))

    @operation(
        "createKafkaLink",
        summary="Create a cluster link",
        description="Created on the destination cluster, which mirrors from the source. By default the source is asked whether "
        "it can be reached with these configs and has the expected id. With validate_only nothing is created, and the answer "
        "(200, an addition of this product) has the round trip to each broker of the source and, where it is long, the socket "
        "buffer that limits a connection.",
        parameters=[
            OpenApiParameter("link_name", str, required=True, description="The new link's name."),
            _VALIDATE_ONLY,
            query_flag("validate_link", "Ask the source cluster before anything is stored.", default=True),
        ],
        body=bodies.CreateLinkRequestData,
        answers={200: answers.LinkValidationData, 204: "The link was created."},
        examples=[_EXAMPLE],
    )
    def post(self, request: Request, cluster_id: str) -> Response:
        """Create a link."""
        by = actor_of(request)
        wanted = body(request, bodies.CreateLinkRequestData)
        name = request.query_params.get("link_name", "")
        if not name:
            raise UnreadableError("The query parameter link_name is missing.")
        made = actions.create_link(
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
        if isinstance(made, LinkValidation):
            return Response(render.link_validation(request, made))
        return Response(status=204)


class LinkView(RestView):
    """/clusters/{cluster_id}/links/{link_name}"""

    @operation(
        "getKafkaLink",
        summary="Get a cluster link",
        parameters=[query_flag("include_tasks", "Tell what the link's jobs are doing.")],
        answers={200: answers.ListLinksResponseData},
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Show a link."""
        by, wants_tasks = actor_of(request), flag(request, "include_tasks")
        find = queries.get_whole_link if wants_tasks else queries.get_link
        row = find(cluster_id=cluster_id, name=link_name, by=by)
        shown = tasks.link_tasks(row) if wants_tasks else None
        return Response(render.link(request, row, mirrors=reads.mirror_states([row], by=by)[row.pk], tasks=shown))

    @operation(
        "deleteKafkaLink",
        summary="Delete a cluster link",
        description="Refused while mirror topics are attached that are not stopped, unless force is true: then they are failed "
        "over first.",
        parameters=[query_flag("force", "Fail attached mirror topics over first."), _VALIDATE_ONLY],
        answers={200: "The link was deleted, or would be."},
    )
    def delete(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Delete a link."""
        by = actor_of(request)
        row = queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
        force, validate_only = flag(request, "force"), flag(request, "validate_only")
        actions.delete_link(link=row, force=force, validate_only=validate_only, by=by, now=moment())
        return Response(status=200)


def config_map(configs: Sequence[dict[str, Any]]) -> dict[str, str | None]:
    """Read a list of configs; raise BadRequestError for a name that comes twice, since either value could be meant."""
    values: dict[str, str | None] = {}
    for config in configs:
        if config["name"] in values:
            raise BadRequestError(f"Config '{config['name']}' is given twice.")
        values[config["name"]] = config["value"]
    return values


def _other_cluster(wanted: dict[str, Any], *, cluster_id: str) -> str:
    """Answer the id of the cluster at the other end, however the link's mode calls it; the path names this one."""
    names = ("source_cluster_id", "destination_cluster_id", "remote_cluster_id")
    given = {name: wanted[name] for name in names if wanted.get(name) not in (None, "", cluster_id)}
    if len(set(given.values())) > 1:
        raise BadRequestError(
            f"{' and '.join(given)} name different clusters. A link joins the cluster of the path to one other."
        )
    if not given and wanted.get("source_cluster_id") == cluster_id:
        raise BadRequestError("Source and destination are the same cluster. Name another source.", field="source_cluster_id")
    return next(iter(given.values()), "")
