"""Mirror topics: list, create, get."""

from __future__ import annotations

from collections.abc import Iterable

from rest_framework.request import Request
from rest_framework.response import Response

from console.actions import mirrors as actions
from console.api.kafka import answers, bodies, render
from console.api.kafka.links import config_map
from console.api.kafka.words import MIRROR_STATUSES
from console.api.schema import operation, query_choice, query_flag
from console.api.views import RestView, actor_of, body, choice, flag, moment
from console.queries import clusters, links
from console.queries import mirrors as queries

_STATUS = query_choice("mirror_status", "Only mirror topics with this status.", values=MIRROR_STATUSES)


class MirrorListView(RestView):
    """/clusters/{cluster_id}/links/{link_name}/mirrors"""

    @operation(
        "listKafkaMirrorTopicsUnderLink",
        summary="List a link's mirror topics",
        parameters=[_STATUS],
        responses={200: answers.ListMirrorTopicsResponseDataList},
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return the mirrors of a link."""
        by = actor_of(request)
        row = links.get_link(cluster_id=cluster_id, name=link_name, by=by)
        return _listed(request, queries.list_mirrors(link=row, by=by))

    @operation(
        "createKafkaMirrorTopic",
        summary="Create a mirror topic",
        description="The response does not wait for the topic, which is created on the destination within seconds.",
        parameters=[query_flag("validate_only", "Only check the topic on both clusters. An addition of this product.")],
        body=bodies.CreateMirrorTopicRequestData,
        responses={204: "The mirror topic is being created, or would be."},
    )
    def post(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Create a mirror."""
        by = actor_of(request)
        wanted = body(request, bodies.CreateMirrorTopicRequestData)
        actions.create_mirror(
            link=links.get_link(cluster_id=cluster_id, name=link_name, by=by),
            source_topic=wanted["source_topic_name"],
            mirror_topic=wanted.get("mirror_topic_name"),
            replication_factor=wanted.get("replication_factor"),
            configs=config_map(wanted.get("configs", ())),
            validate_only=flag(request, "validate_only"),
            by=by,
            now=moment(),
        )
        return Response(status=204)


class AllMirrorsView(RestView):
    """/clusters/{cluster_id}/links/-/mirrors"""

    @operation(
        "listKafkaMirrorTopics",
        summary="List the mirror topics of all links",
        parameters=[_STATUS],
        responses={200: answers.ListMirrorTopicsResponseDataList},
    )
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the mirrors of a cluster."""
        by = actor_of(request)
        clusters.get_cluster(cluster_id=cluster_id, by=by)
        return _listed(request, queries.list_mirrors(cluster_id=cluster_id, by=by))


class MirrorView(RestView):
    """/clusters/{cluster_id}/links/{link_name}/mirrors/{mirror_topic_name}"""

    @operation(
        "readKafkaMirrorTopic",
        summary="Get a mirror topic",
        parameters=[query_flag("include_state_transition_errors", "Include the errors of pending state transitions.")],
        responses={200: answers.ListMirrorTopicsResponseData},
    )
    def get(self, request: Request, cluster_id: str, link_name: str, mirror_topic_name: str) -> Response:
        """Return a mirror."""
        by = actor_of(request)
        row = queries.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_topic_name, by=by)
        errors = row.transition_errors.all() if flag(request, "include_state_transition_errors") else None
        return Response(render.mirror(request, row, partitions=row.partitions.all(), errors=errors))


def _listed(request: Request, summaries: Iterable[queries.MirrorSummary]) -> Response:
    """Return the mirrors with the requested status, which is a status of this interface and not a ``MirrorState``."""
    wanted = choice(request, "mirror_status", values=MIRROR_STATUSES)
    rendered = [render.mirror(request, summary.mirror, partitions=summary.partitions) for summary in summaries]
    data = [mirror for mirror in rendered if wanted in ("", mirror["mirror_status"])]
    return Response(render.collection(request, "KafkaMirrorDataList", data))
