"""Namespaces of a cluster: name a group of topics, reserve it, let it follow a link, and see how well it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions import namespaces as actions
from console.api.fields import FlagField, TextField
from console.api.schema import OURS, operation
from console.api.views import RestView, actor_of, body, moment
from console.models import Cluster, Namespace
from console.queries import clusters, links
from console.queries import namespaces as queries
from console.queries.namespaces import NamespaceSummary
from linkengine.domain.namespaces import ReplicationState


class NamespaceData(serializers.Serializer[Any]):
    """All topics of a cluster that begin with the prefix."""

    id = serializers.IntegerField(source="namespace.pk")
    prefix = serializers.CharField(source="namespace.prefix", allow_blank=True)
    reserved = serializers.BooleanField(source="namespace.reserved")
    guarded = serializers.BooleanField(
        source="namespace.guarded", allow_null=True, help_text="The cluster itself keeps others out. Null: not tried yet."
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
        help_text="Topics of the source's namespace that the link does not mirror; null: nobody could list them lately.",
    )

    def get_replication_state(self, summary: NamespaceSummary) -> str:
        """Name the state: DISCONNECTED, CATCHING_UP, FOLLOWING or IN_SYNC."""
        return ReplicationState(summary.state).name


class NamespaceDataList(serializers.Serializer[Any]):
    """The namespaces of a cluster, by prefix."""

    data: Any = NamespaceData(many=True)


class CreateNamespaceRequest(serializers.Serializer[Any]):
    """A namespace to be created."""

    prefix = TextField(allow_blank=True)
    reserved = FlagField(required=False)


class ReserveNamespaceRequest(serializers.Serializer[Any]):
    """Whether others may create topics in it."""

    reserved = FlagField()


class FollowRequest(serializers.Serializer[Any]):
    """The link a namespace shall follow, and the prefix at its source."""

    link_name = TextField()
    leader_prefix = TextField(allow_blank=True, required=False)


class NamespaceListView(RestView):
    """…/clusters/{cluster_id}/namespaces"""

    @operation("listNamespaces", summary="List namespaces", answers={200: NamespaceDataList}, tag=OURS)
    def get(self, request: Request, cluster_id: str) -> Response:
        """List the namespaces of a cluster with their replication states."""
        rows = queries.list_namespaces(cluster=_cluster(request, cluster_id))
        return Response({"data": NamespaceData(rows, many=True).data})

    @operation(
        "createNamespace", summary="Create a namespace", body=CreateNamespaceRequest, answers={201: NamespaceData}, tag=OURS
    )
    def post(self, request: Request, cluster_id: str) -> Response:
        """Name a group of topics."""
        wanted = body(request, CreateNamespaceRequest)
        made = actions.create_namespace(
            cluster=_cluster(request, cluster_id),
            prefix=wanted["prefix"],
            reserved=wanted.get("reserved", False),
            by=actor_of(request),
            now=moment(),
        )
        return _answer(made, status=201)


class NamespaceView(RestView):
    """…/clusters/{cluster_id}/namespaces/{namespace_id}"""

    @operation("getNamespace", summary="Get a namespace", answers={200: NamespaceData}, tag=OURS)
    def get(self, request: Request, **path: Any) -> Response:
        """Show a namespace."""
        return _answer(_namespace(request, path))

    @operation(
        "reserveNamespace", summary="Reserve a namespace", body=ReserveNamespaceRequest, answers={200: NamespaceData}, tag=OURS
    )
    def put(self, request: Request, **path: Any) -> Response:
        """Reserve a namespace, or open it again."""
        reserved = body(request, ReserveNamespaceRequest)["reserved"]
        return _answer(
            actions.reserve(namespace=_namespace(request, path), reserved=reserved, by=actor_of(request), now=moment())
        )

    @operation("deleteNamespace", summary="Delete a namespace", answers={204: "The namespace is forgotten."}, tag=OURS)
    def delete(self, request: Request, **path: Any) -> Response:
        """Forget a namespace; its topics stay."""
        actions.delete_namespace(namespace=_namespace(request, path), by=actor_of(request), now=moment())
        return Response(status=204)


class NamespaceFollowerView(RestView):
    """…/clusters/{cluster_id}/namespaces/{namespace_id}/link"""

    @operation("attachNamespace", summary="Attach a namespace", body=FollowRequest, answers={200: NamespaceData}, tag=OURS)
    def put(self, request: Request, **path: Any) -> Response:
        """Let a namespace follow one at the source of a link."""
        wanted, by = body(request, FollowRequest), actor_of(request)
        link = links.get_link(cluster_id=path["cluster_id"], name=wanted["link_name"], by=by)
        prefix = wanted.get("leader_prefix", "")
        return _answer(
            actions.attach(namespace=_namespace(request, path), link=link, leader_prefix=prefix, by=by, now=moment())
        )

    @operation("detachNamespace", summary="Detach a namespace", answers={200: NamespaceData}, tag=OURS)
    def delete(self, request: Request, **path: Any) -> Response:
        """End the following; the namespace stays reserved."""
        return _answer(actions.detach(namespace=_namespace(request, path), by=actor_of(request), now=moment()))


def _cluster(request: Request, cluster_id: str) -> Cluster:
    return clusters.get_whole_cluster(cluster_id=cluster_id, by=actor_of(request))


def _namespace(request: Request, path: Mapping[str, Any]) -> Namespace:
    return queries.get_namespace(cluster=_cluster(request, path["cluster_id"]), namespace_id=path["namespace_id"])


def _answer(namespace: Namespace, *, status: int = 200) -> Response:
    return Response(NamespaceData(queries.summary_of(namespace)).data, status=status)
