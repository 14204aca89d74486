"""Consumer groups of a cluster: list, get, members, assignments, lags."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from console.api.kafka import browse_answers, browse_render, render
from console.api.kafka.browse_render import Place
from console.api.schema import GROUPS, operation
from console.api.views import RestView, actor_of
from console.errors import NotFoundError
from console.queries import brokers, clusters


class GroupListView(RestView):
    """/clusters/{cluster_id}/consumer-groups"""

    @operation(
        "listKafkaConsumerGroups",
        summary="List consumer groups",
        responses={200: browse_answers.ConsumerGroupDataList},
        tag=GROUPS,
    )
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the groups that the actor may see."""
        by = actor_of(request)
        cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
        place = Place(request, cluster_id)
        found, incomplete = brokers.list_groups(cluster=cluster, by=by)
        listed = render.collection(request, "KafkaConsumerGroupList", [browse_render.group(place, group) for group in found])
        if incomplete:
            listed["metadata"]["incomplete"] = incomplete
        return Response(listed)


class GroupView(RestView):
    """/clusters/{cluster_id}/consumer-groups/{consumer_group_id}"""

    @operation(
        "getKafkaConsumerGroup", summary="Get a consumer group", responses={200: browse_answers.ConsumerGroupData}, tag=GROUPS
    )
    def get(self, request: Request, cluster_id: str, consumer_group_id: str) -> Response:
        """Return a group."""
        found = _query(request, cluster_id, consumer_group_id, "group")
        return Response(browse_render.group(Place(request, cluster_id), found))


class ConsumerListView(RestView):
    """/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/consumers"""

    @operation(
        "listKafkaConsumers", summary="List a group's consumers", responses={200: browse_answers.ConsumerDataList}, tag=GROUPS
    )
    def get(self, request: Request, cluster_id: str, consumer_group_id: str) -> Response:
        """Return the group's members."""
        members = _query(request, cluster_id, consumer_group_id, "group")["members"]
        place = Place(request, cluster_id)
        data = [browse_render.consumer(place, consumer_group_id, member) for member in members]
        return Response(render.collection(request, "KafkaConsumerList", data))


class ConsumerView(RestView):
    """/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/consumers/{consumer_id}"""

    @operation("getKafkaConsumer", summary="Get a group's consumer", responses={200: browse_answers.ConsumerData}, tag=GROUPS)
    def get(self, request: Request, cluster_id: str, consumer_group_id: str, consumer_id: str) -> Response:
        """Return a member."""
        found = _member(request, cluster_id, consumer_group_id, consumer_id)
        return Response(browse_render.consumer(Place(request, cluster_id), consumer_group_id, found))


class AssignmentListView(RestView):
    """/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/consumers/{consumer_id}/assignments"""

    @operation(
        "listKafkaConsumerAssignments",
        summary="List a consumer's assignments",
        responses={200: browse_answers.ConsumerAssignmentDataList},
        tag=GROUPS,
    )
    def get(self, request: Request, cluster_id: str, consumer_group_id: str, consumer_id: str) -> Response:
        """Return the partitions that are assigned to a member."""
        found = _member(request, cluster_id, consumer_group_id, consumer_id)
        place = Place(request, cluster_id)
        rows = [browse_render.assignment(place, consumer_group_id, consumer_id, pair) for pair in found["assigned"]]
        return Response(render.collection(request, "KafkaConsumerAssignmentList", rows))


class AssignmentView(RestView):
    """…/consumers/{consumer_id}/assignments/{topic_name}/partitions/{partition_id}"""

    @operation(
        "getKafkaConsumerAssignment",
        summary="Get a consumer's assignment",
        responses={200: browse_answers.ConsumerAssignmentData},
        tag=GROUPS,
    )
    def get(self, request: Request, cluster_id: str, consumer_group_id: str, **path: Any) -> Response:
        """Return a partition that is assigned to a member."""
        consumer_id, wanted = path["consumer_id"], [path["topic_name"], path["partition_id"]]
        if wanted not in map(list, _member(request, cluster_id, consumer_group_id, consumer_id)["assigned"]):
            raise NotFoundError(f"Consumer {consumer_id} does not read partition {wanted[1]} of '{wanted[0]}'.")
        return Response(browse_render.assignment(Place(request, cluster_id), consumer_group_id, consumer_id, wanted))


class LagListView(RestView):
    """/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/lags"""

    @operation(
        "listKafkaConsumerLags", summary="List a group's lags", responses={200: browse_answers.ConsumerLagDataList}, tag=GROUPS
    )
    def get(self, request: Request, cluster_id: str, consumer_group_id: str) -> Response:
        """Return the group's lag in each partition with a committed offset."""
        lags = _query(request, cluster_id, consumer_group_id, "group_lags")
        place = Place(request, cluster_id)
        data = [browse_render.lag(place, consumer_group_id, row) for row in lags]
        return Response(render.collection(request, "KafkaConsumerLagList", data))


class LagView(RestView):
    """/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/lags/{topic_name}/partitions/{partition_id}"""

    @operation("getKafkaConsumerLag", summary="Get a group's lag", responses={200: browse_answers.ConsumerLagData}, tag=GROUPS)
    def get(self, request: Request, cluster_id: str, consumer_group_id: str, **path: Any) -> Response:
        """Return the group's lag in a partition."""
        wanted = (path["topic_name"], path["partition_id"])
        for row in _query(request, cluster_id, consumer_group_id, "group_lags"):
            if (row["topic"], row["partition"]) == wanted:
                return Response(browse_render.lag(Place(request, cluster_id), consumer_group_id, row))
        raise NotFoundError(
            f"Consumer group {consumer_group_id} has no committed offset in partition {wanted[1]} of '{wanted[0]}'."
        )


class LagSummaryView(RestView):
    """/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/lag-summary"""

    @operation(
        "getKafkaConsumerGroupLagSummary",
        summary="Get a group's largest lag",
        responses={200: browse_answers.ConsumerGroupLagSummaryData},
        tag=GROUPS,
    )
    def get(self, request: Request, cluster_id: str, consumer_group_id: str) -> Response:
        """Return the largest lag and the sum of the lags."""
        lags = _query(request, cluster_id, consumer_group_id, "group_lags")
        if not lags:
            raise NotFoundError(f"Consumer group {consumer_group_id} has no committed offsets, so it has no lag.")
        return Response(browse_render.lag_summary(Place(request, cluster_id), consumer_group_id, lags))


def _query(request: Request, cluster_id: str, group: str, question: str) -> Any:
    by = actor_of(request)
    cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
    return brokers.query_group(cluster, question, group=group, by=by)


def _member(request: Request, cluster_id: str, group: str, consumer_id: str) -> render.Json:
    for member in _query(request, cluster_id, group, "group")["members"]:
        if member["consumer_id"] == consumer_id:
            return dict(member)
    raise NotFoundError(f"Consumer group {group} has no member {consumer_id}.")
