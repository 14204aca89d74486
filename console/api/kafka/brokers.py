"""Brokers of a cluster, read-only: addresses, configs, replicas, partition reassignments."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from console.api.kafka import browse_answers, browse_render, render
from console.api.kafka.browse_render import Place
from console.api.schema import BROKERS, operation
from console.api.views import RestView, actor_of
from console.errors import NotFoundError
from console.queries import brokers, clusters


class BrokerListView(RestView):
    """/clusters/{cluster_id}/brokers"""

    @operation("listKafkaBrokers", summary="List brokers", responses={200: browse_answers.BrokerDataList}, tag=BROKERS)
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the brokers that the cluster has now."""
        place = Place(request, cluster_id)
        data = [browse_render.broker(place, broker) for broker in _query(request, cluster_id, "brokers")]
        return Response(render.collection(request, "KafkaBrokerList", data))


class BrokerView(RestView):
    """/clusters/{cluster_id}/brokers/{broker_id}"""

    @operation("getKafkaBroker", summary="Get a broker", responses={200: browse_answers.BrokerData}, tag=BROKERS)
    def get(self, request: Request, cluster_id: str, broker_id: int) -> Response:
        """Return the address of a broker."""
        return Response(browse_render.broker(Place(request, cluster_id), _broker(request, cluster_id, broker_id)))


class BrokerConfigListView(RestView):
    """/clusters/{cluster_id}/brokers/{broker_id}/configs"""

    @operation(
        "listKafkaBrokerConfigs",
        summary="List a broker's configs",
        responses={200: browse_answers.BrokerConfigDataList},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str, broker_id: int) -> Response:
        """Return all configs, set or default; they cannot be changed here."""
        place = Place(request, cluster_id)
        data = [browse_render.broker_config(place, broker_id, config) for config in _configs(request, cluster_id, broker_id)]
        return Response(render.collection(request, "KafkaBrokerConfigList", data))


class BrokerConfigView(RestView):
    """/clusters/{cluster_id}/brokers/{broker_id}/configs/{name}"""

    @operation(
        "getKafkaBrokerConfig", summary="Get a broker's config", responses={200: browse_answers.BrokerConfigData}, tag=BROKERS
    )
    def get(self, request: Request, cluster_id: str, broker_id: int, name: str) -> Response:
        """Return a config."""
        for config in _configs(request, cluster_id, broker_id):
            if config["name"] == name:
                return Response(browse_render.broker_config(Place(request, cluster_id), broker_id, config))
        raise NotFoundError(f"Config {name} cannot be found.")


class HeldReplicaListView(RestView):
    """/clusters/{cluster_id}/brokers/{broker_id}/partition-replicas"""

    @operation(
        "listKafkaBrokerReplicas",
        summary="List a broker's replicas",
        responses={200: browse_answers.ReplicaDataList},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str, broker_id: int) -> Response:
        """Return the replicas of a broker."""
        _broker(request, cluster_id, broker_id)
        place = Place(request, cluster_id)
        found = _query(request, cluster_id, "broker_replicas", broker=broker_id)
        data = [browse_render.replica(place, row["topic"], row["partition"], {**row, "broker": broker_id}) for row in found]
        return Response(render.collection(request, "KafkaReplicaList", data))


class ClusterConfigListView(RestView):
    """/clusters/{cluster_id}/broker-configs"""

    @operation(
        "listKafkaClusterConfigs",
        summary="List dynamic configs of all brokers",
        responses={200: browse_answers.ClusterConfigDataList},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the cluster-wide dynamic broker configs."""
        place = Place(request, cluster_id)
        data = [browse_render.cluster_config(place, config) for config in _query(request, cluster_id, "broker_configs")]
        return Response(render.collection(request, "KafkaClusterConfigList", data))


class ClusterConfigView(RestView):
    """/clusters/{cluster_id}/broker-configs/{name}"""

    @operation(
        "getKafkaClusterConfig",
        summary="Get a dynamic config of all brokers",
        responses={200: browse_answers.ClusterConfigData},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str, name: str) -> Response:
        """Return a config."""
        for config in _query(request, cluster_id, "broker_configs"):
            if config["name"] == name:
                return Response(browse_render.cluster_config(Place(request, cluster_id), config))
        raise NotFoundError(f"Config {name} is not set for all brokers.")


class AllReassignmentsView(RestView):
    """/clusters/{cluster_id}/topics/-/partitions/-/reassignment"""

    @operation(
        "listKafkaReassignments",
        summary="List partition reassignments",
        responses={200: browse_answers.ReassignmentDataList},
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
        responses={200: browse_answers.ReassignmentDataList},
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
        responses={200: browse_answers.ReassignmentData},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str, topic_name: str, partition_id: int) -> Response:
        """Return the reassignment of a partition."""
        for row in _reassignments(request, cluster_id, topic_name):
            if row["partition"] == partition_id:
                return Response(browse_render.reassignment(Place(request, cluster_id), row))
        raise NotFoundError(f"Partition {partition_id} of topic '{topic_name}' is not being reassigned.")


def _query(request: Request, cluster_id: str, question: str, **arguments: Any) -> list[render.Json]:
    by = actor_of(request)
    return brokers.query_brokers(clusters.get_cluster(cluster_id=cluster_id, by=by), question, by=by, **arguments)


def _broker(request: Request, cluster_id: str, number: int) -> render.Json:
    found = next((row for row in _query(request, cluster_id, "brokers") if row["broker"] == number), None)
    if found is None:
        raise NotFoundError(f"Broker {number} cannot be found on this cluster.", code="UNKNOWN_BROKER")
    return found


def _configs(request: Request, cluster_id: str, number: int) -> list[render.Json]:
    _broker(request, cluster_id, number)
    return _query(request, cluster_id, "broker_configs", broker=number)


def _reassignments(request: Request, cluster_id: str, topic: str | None) -> list[render.Json]:
    by = actor_of(request)
    return brokers.list_reassignments(cluster=clusters.get_cluster(cluster_id=cluster_id, by=by), topic=topic, by=by)


def _reassignment_list(request: Request, cluster_id: str, topic: str | None) -> Response:
    place = Place(request, cluster_id)
    data = [browse_render.reassignment(place, row) for row in _reassignments(request, cluster_id, topic)]
    return Response(render.collection(request, "KafkaReassignmentList", data))
