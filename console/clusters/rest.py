"""Clusters, brokers and consumer groups in the Kafka REST interface."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from console.api import kafka_render, kafka_schemas
from console.api.kafka_render import ClusterUrls
from console.api.schema import BROKERS, GROUPS, operation
from console.api.views import RestView, actor_of
from console.clusters import live_queries, rest_shapes
from console.clusters import queries as cluster_queries
from console.errors import NotFoundError

# --- clusters ---------------------------------------------------------------------------------------------------------
#
# Some clients begin with these requests.


class ClusterListView(RestView):
    """/clusters"""

    @operation("listKafkaClusters", summary="List clusters", responses={200: kafka_schemas.ClusterDataList})
    def get(self, request: Request) -> Response:
        """Return the clusters that the actor may see."""
        rows = cluster_queries.list_clusters(by=actor_of(request))
        return Response(
            kafka_render.collection(request, "KafkaClusterList", [kafka_render.cluster(request, row) for row in rows])
        )


class ClusterView(RestView):
    """/clusters/{cluster_id}"""

    @operation("getKafkaCluster", summary="Get cluster", responses={200: kafka_schemas.ClusterData})
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return a cluster."""
        return Response(kafka_render.cluster(request, cluster_queries.get_cluster(cluster_id=cluster_id, by=actor_of(request))))


# --- brokers ----------------------------------------------------------------------------------------------------------
#
# Read-only: addresses, configs, replicas, partition reassignments.


class BrokerListView(RestView):
    """/clusters/{cluster_id}/brokers"""

    @operation("listKafkaBrokers", summary="List brokers", responses={200: rest_shapes.BrokerDataList}, tag=BROKERS)
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the brokers that the cluster has now."""
        urls = ClusterUrls(request, cluster_id)
        data = [rest_shapes.broker(urls, broker) for broker in _query(request, cluster_id, "brokers")]
        return Response(kafka_render.collection(request, "KafkaBrokerList", data))


class BrokerView(RestView):
    """/clusters/{cluster_id}/brokers/{broker_id}"""

    @operation("getKafkaBroker", summary="Get a broker", responses={200: rest_shapes.BrokerData}, tag=BROKERS)
    def get(self, request: Request, cluster_id: str, broker_id: int) -> Response:
        """Return the address of a broker."""
        return Response(rest_shapes.broker(ClusterUrls(request, cluster_id), _broker(request, cluster_id, broker_id)))


class BrokerConfigListView(RestView):
    """/clusters/{cluster_id}/brokers/{broker_id}/configs"""

    @operation(
        "listKafkaBrokerConfigs",
        summary="List a broker's configs",
        responses={200: rest_shapes.BrokerConfigDataList},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str, broker_id: int) -> Response:
        """Return all configs, set or default; they cannot be changed here."""
        urls = ClusterUrls(request, cluster_id)
        data = [rest_shapes.broker_config(urls, broker_id, config) for config in _configs(request, cluster_id, broker_id)]
        return Response(kafka_render.collection(request, "KafkaBrokerConfigList", data))


class BrokerConfigView(RestView):
    """/clusters/{cluster_id}/brokers/{broker_id}/configs/{name}"""

    @operation(
        "getKafkaBrokerConfig", summary="Get a broker's config", responses={200: rest_shapes.BrokerConfigData}, tag=BROKERS
    )
    def get(self, request: Request, cluster_id: str, broker_id: int, name: str) -> Response:
        """Return a config."""
        for config in _configs(request, cluster_id, broker_id):
            if config["name"] == name:
                return Response(rest_shapes.broker_config(ClusterUrls(request, cluster_id), broker_id, config))
        raise NotFoundError(f"Config {name} cannot be found.")


class HeldReplicaListView(RestView):
    """/clusters/{cluster_id}/brokers/{broker_id}/partition-replicas"""

    @operation(
        "listKafkaBrokerReplicas",
        summary="List a broker's replicas",
        responses={200: rest_shapes.ReplicaDataList},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str, broker_id: int) -> Response:
        """Return the replicas of a broker."""
        _broker(request, cluster_id, broker_id)
        urls = ClusterUrls(request, cluster_id)
        found = _query(request, cluster_id, "broker_replicas", broker=broker_id)
        data = [rest_shapes.replica(urls, row["topic"], row["partition"], {**row, "broker": broker_id}) for row in found]
        return Response(kafka_render.collection(request, "KafkaReplicaList", data))


class ClusterConfigListView(RestView):
    """/clusters/{cluster_id}/broker-configs"""

    @operation(
        "listKafkaClusterConfigs",
        summary="List dynamic configs of all brokers",
        responses={200: rest_shapes.ClusterConfigDataList},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the cluster-wide dynamic broker configs."""
        urls = ClusterUrls(request, cluster_id)
        data = [rest_shapes.cluster_config(urls, config) for config in _query(request, cluster_id, "broker_configs")]
        return Response(kafka_render.collection(request, "KafkaClusterConfigList", data))


class ClusterConfigView(RestView):
    """/clusters/{cluster_id}/broker-configs/{name}"""

    @operation(
        "getKafkaClusterConfig",
        summary="Get a dynamic config of all brokers",
        responses={200: rest_shapes.ClusterConfigData},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str, name: str) -> Response:
        """Return a config."""
        for config in _query(request, cluster_id, "broker_configs"):
            if config["name"] == name:
                return Response(rest_shapes.cluster_config(ClusterUrls(request, cluster_id), config))
        raise NotFoundError(f"Config {name} is not set for all brokers.")


class AllReassignmentsView(RestView):
    """/clusters/{cluster_id}/topics/-/partitions/-/reassignment"""

    @operation(
        "listKafkaReassignments",
        summary="List partition reassignments",
        responses={200: rest_shapes.ReassignmentDataList},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the partitions of all topics that are being reassigned."""
        return _reassignment_list(request, cluster_id, None)


class TopicReassignmentsView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/partitions/-/reassignment"""

    @operation(
        "listKafkaTopicReassignments",
        summary="List a topic's partition reassignments",
        responses={200: rest_shapes.ReassignmentDataList},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Return the partitions of a topic that are being reassigned."""
        return _reassignment_list(request, cluster_id, topic_name)


class ReassignmentView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}/reassignment"""

    @operation(
        "getKafkaReassignment",
        summary="Get a partition reassignment",
        responses={200: rest_shapes.ReassignmentData},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str, topic_name: str, partition_id: int) -> Response:
        """Return the reassignment of a partition."""
        for row in _reassignments(request, cluster_id, topic_name):
            if row["partition"] == partition_id:
                return Response(rest_shapes.reassignment(ClusterUrls(request, cluster_id), row))
        raise NotFoundError(f"Partition {partition_id} of topic '{topic_name}' is not being reassigned.")


def _query(request: Request, cluster_id: str, question: str, **arguments: Any) -> list[kafka_render.Json]:
    by = actor_of(request)
    return live_queries.query_brokers(cluster_queries.get_cluster(cluster_id=cluster_id, by=by), question, by=by, **arguments)


def _broker(request: Request, cluster_id: str, number: int) -> kafka_render.Json:
    found = next((row for row in _query(request, cluster_id, "brokers") if row["broker"] == number), None)
    if found is None:
        raise NotFoundError(f"Broker {number} cannot be found on this cluster.", code="UNKNOWN_BROKER")
    return found


def _configs(request: Request, cluster_id: str, number: int) -> list[kafka_render.Json]:
    _broker(request, cluster_id, number)
    return _query(request, cluster_id, "broker_configs", broker=number)


def _reassignments(request: Request, cluster_id: str, topic: str | None) -> list[kafka_render.Json]:
    by = actor_of(request)
    return live_queries.list_reassignments(
        cluster=cluster_queries.get_cluster(cluster_id=cluster_id, by=by), topic=topic, by=by
    )


def _reassignment_list(request: Request, cluster_id: str, topic: str | None) -> Response:
    urls = ClusterUrls(request, cluster_id)
    data = [rest_shapes.reassignment(urls, row) for row in _reassignments(request, cluster_id, topic)]
    return Response(kafka_render.collection(request, "KafkaReassignmentList", data))


# --- consumer groups --------------------------------------------------------------------------------------------------


class GroupListView(RestView):
    """/clusters/{cluster_id}/consumer-groups"""

    @operation(
        "listKafkaConsumerGroups",
        summary="List consumer groups",
        responses={200: rest_shapes.ConsumerGroupDataList},
        tag=GROUPS,
    )
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the groups that the actor may see."""
        by = actor_of(request)
        cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        urls = ClusterUrls(request, cluster_id)
        found, incomplete = live_queries.list_groups(cluster=cluster, by=by)
        listed = kafka_render.collection(request, "KafkaConsumerGroupList", [rest_shapes.group(urls, group) for group in found])
        if incomplete:
            listed["metadata"]["incomplete"] = incomplete
        return Response(listed)


class GroupView(RestView):
    """/clusters/{cluster_id}/consumer-groups/{consumer_group_id}"""

    @operation(
        "getKafkaConsumerGroup", summary="Get a consumer group", responses={200: rest_shapes.ConsumerGroupData}, tag=GROUPS
    )
    def get(self, request: Request, cluster_id: str, consumer_group_id: str) -> Response:
        """Return a group."""
        found = _query_groups(request, cluster_id, consumer_group_id, "group")
        return Response(rest_shapes.group(ClusterUrls(request, cluster_id), found))


class ConsumerListView(RestView):
    """/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/consumers"""

    @operation(
        "listKafkaConsumers", summary="List a group's consumers", responses={200: rest_shapes.ConsumerDataList}, tag=GROUPS
    )
    def get(self, request: Request, cluster_id: str, consumer_group_id: str) -> Response:
        """Return the group's members."""
        members = _query_groups(request, cluster_id, consumer_group_id, "group")["members"]
        urls = ClusterUrls(request, cluster_id)
        data = [rest_shapes.consumer(urls, consumer_group_id, member) for member in members]
        return Response(kafka_render.collection(request, "KafkaConsumerList", data))


class ConsumerView(RestView):
    """/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/consumers/{consumer_id}"""

    @operation("getKafkaConsumer", summary="Get a group's consumer", responses={200: rest_shapes.ConsumerData}, tag=GROUPS)
    def get(self, request: Request, cluster_id: str, consumer_group_id: str, consumer_id: str) -> Response:
        """Return a member."""
        found = _member(request, cluster_id, consumer_group_id, consumer_id)
        return Response(rest_shapes.consumer(ClusterUrls(request, cluster_id), consumer_group_id, found))


class AssignmentListView(RestView):
    """/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/consumers/{consumer_id}/assignments"""

    @operation(
        "listKafkaConsumerAssignments",
        summary="List a consumer's assignments",
        responses={200: rest_shapes.ConsumerAssignmentDataList},
        tag=GROUPS,
    )
    def get(self, request: Request, cluster_id: str, consumer_group_id: str, consumer_id: str) -> Response:
        """Return the partitions that are assigned to a member."""
        found = _member(request, cluster_id, consumer_group_id, consumer_id)
        urls = ClusterUrls(request, cluster_id)
        rows = [rest_shapes.assignment(urls, consumer_group_id, consumer_id, pair) for pair in found["assigned"]]
        return Response(kafka_render.collection(request, "KafkaConsumerAssignmentList", rows))


class AssignmentView(RestView):
    """…/consumers/{consumer_id}/assignments/{topic_name}/partitions/{partition_id}"""

    @operation(
        "getKafkaConsumerAssignment",
        summary="Get a consumer's assignment",
        responses={200: rest_shapes.ConsumerAssignmentData},
        tag=GROUPS,
    )
    def get(self, request: Request, cluster_id: str, consumer_group_id: str, **path: Any) -> Response:
        """Return a partition that is assigned to a member."""
        consumer_id, wanted = path["consumer_id"], [path["topic_name"], path["partition_id"]]
        if wanted not in map(list, _member(request, cluster_id, consumer_group_id, consumer_id)["assigned"]):
            raise NotFoundError(f"Consumer {consumer_id} does not read partition {wanted[1]} of '{wanted[0]}'.")
        return Response(rest_shapes.assignment(ClusterUrls(request, cluster_id), consumer_group_id, consumer_id, wanted))


class LagListView(RestView):
    """/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/lags"""

    @operation(
        "listKafkaConsumerLags", summary="List a group's lags", responses={200: rest_shapes.ConsumerLagDataList}, tag=GROUPS
    )
    def get(self, request: Request, cluster_id: str, consumer_group_id: str) -> Response:
        """Return the group's lag in each partition with a committed offset."""
        lags = _query_groups(request, cluster_id, consumer_group_id, "group_lags")
        urls = ClusterUrls(request, cluster_id)
        data = [rest_shapes.lag(urls, consumer_group_id, row) for row in lags]
        return Response(kafka_render.collection(request, "KafkaConsumerLagList", data))


class LagView(RestView):
    """/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/lags/{topic_name}/partitions/{partition_id}"""

    @operation("getKafkaConsumerLag", summary="Get a group's lag", responses={200: rest_shapes.ConsumerLagData}, tag=GROUPS)
    def get(self, request: Request, cluster_id: str, consumer_group_id: str, **path: Any) -> Response:
        """Return the group's lag in a partition."""
        wanted = (path["topic_name"], path["partition_id"])
        for row in _query_groups(request, cluster_id, consumer_group_id, "group_lags"):
            if (row["topic"], row["partition"]) == wanted:
                return Response(rest_shapes.lag(ClusterUrls(request, cluster_id), consumer_group_id, row))
        raise NotFoundError(
            f"Consumer group {consumer_group_id} has no committed offset in partition {wanted[1]} of '{wanted[0]}'."
        )


class LagSummaryView(RestView):
    """/clusters/{cluster_id}/consumer-groups/{consumer_group_id}/lag-summary"""

    @operation(
        "getKafkaConsumerGroupLagSummary",
        summary="Get a group's largest lag",
        responses={200: rest_shapes.ConsumerGroupLagSummaryData},
        tag=GROUPS,
    )
    def get(self, request: Request, cluster_id: str, consumer_group_id: str) -> Response:
        """Return the largest lag and the sum of the lags."""
        lags = _query_groups(request, cluster_id, consumer_group_id, "group_lags")
        if not lags:
            raise NotFoundError(f"Consumer group {consumer_group_id} has no committed offsets, so it has no lag.")
        return Response(rest_shapes.lag_summary(ClusterUrls(request, cluster_id), consumer_group_id, lags))


def _query_groups(request: Request, cluster_id: str, group: str, question: str) -> Any:
    by = actor_of(request)
    cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
    return live_queries.query_group(cluster, question, group=group, by=by)


def _member(request: Request, cluster_id: str, group: str, consumer_id: str) -> kafka_render.Json:
    for member in _query_groups(request, cluster_id, group, "group")["members"]:
        if member["consumer_id"] == consumer_id:
            return dict(member)
    raise NotFoundError(f"Consumer group {group} has no member {consumer_id}.")
