"""Clusters: list, get. Some clients begin with these requests."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from console.api.kafka import answers, render
from console.api.schema import operation
from console.api.views import RestView, actor_of
from console.queries import clusters


class ClusterListView(RestView):
    """/clusters"""

    @operation("listKafkaClusters", summary="List clusters", responses={200: answers.ClusterDataList})
    def get(self, request: Request) -> Response:
        """Return the clusters that the actor may see."""
        rows = clusters.list_clusters(by=actor_of(request))
        return Response(render.collection(request, "KafkaClusterList", [render.cluster(request, row) for row in rows]))


class ClusterView(RestView):
    """/clusters/{cluster_id}"""

    @operation("getKafkaCluster", summary="Get cluster", responses={200: answers.ClusterData})
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return a cluster."""
        return Response(render.cluster(request, clusters.get_cluster(cluster_id=cluster_id, by=actor_of(request))))
