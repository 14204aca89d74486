"""Namespaces of a cluster: list, create, reserve, attach to a link, detach, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.schema import ADDITIONS, FlagField, TextField, list_of, operation
from console.api.views import RestView, actor_of, body, request_time
from console.clusters import actions as cluster_actions
from console.clusters import queries as cluster_queries
from console.clusters.queries import NamespaceSummary
from console.links import queries as link_queries
from console.models import Cluster, Namespace
from linkengine.domain.names import ReplicationState


class NamespaceData(serializers.Serializer[Any]):
    """A namespace: all topics of a cluster whose names begin with the prefix."""

    id = serializers.IntegerField(source="namespace.pk")
    prefix = serializers.CharField(source="namespace.prefix", allow_blank=True)
    reserved = serializers.BooleanField(source="namespace.reserved")
    guarded = serializers.BooleanField(
        source="namespace.guarded",
        allow_null=True,
        help_text="True if an ACL on the cluster prevents others from creating topics; null until that was tried.",
    )
    guard_problem = serializers.CharField(source="namespace.guard_problem", allow_blank=True)
    link_name = serializers.CharField(source="namespace.link.name", allow_null=True, default=None)
    leader_prefix = serializers.CharField(source="namespace.leader_prefix", allow_blank=True)
    replication_state = serializers.SerializerMethodField()
    mirrors = serializers.IntegerField()
    unmirrored_topics = serializers.ListField(
        child=serializers.CharField(),
        source="unmirrored",
        allow_null=True,
        help_text="Topics of the source's namespace that the link does not mirror; null if they could not be listed recently.",
    )

    def get_replication_state(self, summary: NamespaceSummary) -> str:
        """Return DISCONNECTED, CATCHING_UP, FOLLOWING or IN_SYNC."""
        return ReplicationState(summary.state).name


NamespaceDataList = list_of(NamespaceData, "The namespaces of a cluster, by prefix.")


class CreateNamespaceRequest(serializers.Serializer[Any]):
    """A namespace to create."""

    prefix = TextField(allow_blank=True)
    reserved = FlagField(required=False)


class ReserveNamespaceRequest(serializers.Serializer[Any]):
    """Whether the namespace is reserved for its link."""

    reserved = FlagField()


class FollowRequest(serializers.Serializer[Any]):
    """The link to attach, and the prefix of the namespace at its source."""

    link_name = TextField()
    leader_prefix = TextField(allow_blank=True, required=False)


class NamespaceListView(RestView):
    """…/clusters/{cluster_id}/namespaces"""

    @operation("listNamespaces", summary="List namespaces", responses={200: NamespaceDataList}, tag=ADDITIONS)
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the namespaces of a cluster with their replication states."""
        rows = cluster_queries.list_namespaces(cluster=_cluster(request, cluster_id))
        return Response({"data": NamespaceData(rows, many=True).data})

    @operation(
        "createNamespace",
        summary="Create a namespace",
        body=CreateNamespaceRequest,
        responses={201: NamespaceData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, cluster_id: str) -> Response:
        """Create a namespace."""
        wanted = body(request, CreateNamespaceRequest)
        created = cluster_actions.create_namespace(
            cluster=_cluster(request, cluster_id),
            prefix=wanted["prefix"],
            reserved=wanted.get("reserved", False),
            by=actor_of(request),
            now=request_time(),
        )
        return _response(created, status=201)


class NamespaceView(RestView):
    """…/clusters/{cluster_id}/namespaces/{namespace_id}"""

    @operation("getNamespace", summary="Get a namespace", responses={200: NamespaceData}, tag=ADDITIONS)
    def get(self, request: Request, **path: Any) -> Response:
        """Return a namespace."""
        return _response(_namespace(request, path))

    @operation(
        "reserveNamespace",
        summary="Reserve a namespace",
        body=ReserveNamespaceRequest,
        responses={200: NamespaceData},
        tag=ADDITIONS,
    )
    def put(self, request: Request, **path: Any) -> Response:
        """Reserve a namespace, or end the reservation."""
        reserved = body(request, ReserveNamespaceRequest)["reserved"]
        return _response(
            cluster_actions.reserve(
                namespace=_namespace(request, path), reserved=reserved, by=actor_of(request), now=request_time()
            )
        )

    @operation(
        "deleteNamespace",
        summary="Delete a namespace",
        responses={204: "The namespace is being deleted; its topics are kept."},
        tag=ADDITIONS,
    )
    def delete(self, request: Request, **path: Any) -> Response:
        """Delete a namespace; its topics are kept."""
        cluster_actions.delete_namespace(namespace=_namespace(request, path), by=actor_of(request), now=request_time())
        return Response(status=204)


class NamespaceFollowerView(RestView):
    """…/clusters/{cluster_id}/namespaces/{namespace_id}/link"""

    @operation(
        "attachNamespace", summary="Attach a namespace", body=FollowRequest, responses={200: NamespaceData}, tag=ADDITIONS
    )
    def put(self, request: Request, **path: Any) -> Response:
        """Attach a namespace to a link, so that it follows a namespace of the link's source."""
        wanted, by = body(request, FollowRequest), actor_of(request)
        link = link_queries.get_link(cluster_id=path["cluster_id"], name=wanted["link_name"], by=by)
        prefix = wanted.get("leader_prefix", "")
        return _response(
            cluster_actions.attach(
                namespace=_namespace(request, path), link=link, leader_prefix=prefix, by=by, now=request_time()
            )
        )

    @operation("detachNamespace", summary="Detach a namespace", responses={200: NamespaceData}, tag=ADDITIONS)
    def delete(self, request: Request, **path: Any) -> Response:
        """Detach a namespace; it stays reserved."""
        return _response(cluster_actions.detach(namespace=_namespace(request, path), by=actor_of(request), now=request_time()))


def _cluster(request: Request, cluster_id: str) -> Cluster:
    return cluster_queries.get_whole_cluster(cluster_id=cluster_id, by=actor_of(request))


def _namespace(request: Request, path: Mapping[str, Any]) -> Namespace:
    return cluster_queries.get_namespace(cluster=_cluster(request, path["cluster_id"]), namespace_id=path["namespace_id"])


def _response(namespace: Namespace, *, status: int = 200) -> Response:
    return Response(NamespaceData(cluster_queries.summary_of(namespace)).data, status=status)
