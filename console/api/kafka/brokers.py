"""Brokers of a cluster, read-only: who is there, their configs, what they hold, which partitions are being moved."""

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

    @operation("listKafkaBrokers", summary="List brokers", answers={200: browse_answers.BrokerDataList}, tag=BROKERS)
    def get(self, request: Request, cluster_id: str) -> Response:
        """List the brokers that are there now."""
        place = Place(request, cluster_id)
        data = [browse_render.broker(place, one) for one in _ask(request, cluster_id, "brokers")]
        return Response(render.collection(request, "KafkaBrokerList", data))


class BrokerView(RestView):
    """/clusters/{cluster_id}/brokers/{broker_id}"""

    @operation("getKafkaBroker", summary="Get a broker", answers={200: browse_answers.BrokerData}, tag=BROKERS)
    def get(self, request: Request, cluster_id: str, broker_id: int) -> Response:
        """Show where clients find a broker."""
        return Response(browse_render.broker(Place(request, cluster_id), _broker(request, cluster_id, broker_id)))


class BrokerConfigListView(RestView):
    """/clusters/{cluster_id}/brokers/{broker_id}/configs"""

    @operation(
        "listKafkaBrokerConfigs",
        summary="List a broker's configs",
        answers={200: browse_answers.BrokerConfigDataList},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str, broker_id: int) -> Response:
        """List all configs, set or not; they cannot be changed here."""
        place = Place(request, cluster_id)
        data = [browse_render.broker_config(place, broker_id, one) for one in _configs(request, cluster_id, broker_id)]
        return Response(render.collection(request, "KafkaBrokerConfigList", data))


class BrokerConfigView(RestView):
    """/clusters/{cluster_id}/brokers/{broker_id}/configs/{name}"""

    @operation(
        "getKafkaBrokerConfig", summary="Get a broker's config", answers={200: browse_answers.BrokerConfigData}, tag=BROKERS
    )
    def get(self, request: Request, cluster_id: str, broker_id: int, name: str) -> Response:
        """Show one config."""
        for one in _configs(request, cluster_id, broker_id):
            if one["name"] == name:
                return Response(browse_render.broker_config(Place(request, cluster_id), broker_id, one))
        raise NotFoundError(f"Config {name} cannot be found.")


class HeldReplicaListView(RestView):
    """/clusters/{cluster_id}/brokers/{broker_id}/partition-replicas"""

    @operation(
        "listKafkaBrokerReplicas",
        summary="List a broker's replicas",
        answers={200: browse_answers.ReplicaDataList},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str, broker_id: int) -> Response:
        """List the copies of partitions that a broker holds."""
        _broker(request, cluster_id, broker_id)
        place = Place(request, cluster_id)
        found = _ask(request, cluster_id, "broker_replicas", broker=broker_id)
        data = [browse_render.replica(place, one["topic"], one["partition"], {**one, "broker": broker_id}) for one in found]
        return Response(render.collection(request, "KafkaReplicaList", data))


class ClusterConfigListView(RestView):
    """/clusters/{cluster_id}/broker-configs"""

    @operation(
        "listKafkaClusterConfigs",
        summary="List configs set for all brokers",
        answers={200: browse_answers.ClusterConfigDataList},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str) -> Response:
        """List what was set for all brokers while they run."""
        place = Place(request, cluster_id)
        data = [browse_render.cluster_config(place, one) for one in _ask(request, cluster_id, "broker_configs")]
        return Response(render.collection(request, "KafkaClusterConfigList", data))


class ClusterConfigView(RestView):
    """/clusters/{cluster_id}/broker-configs/{name}"""

    @operation(
        "getKafkaClusterConfig",
        summary="Get a config set for all brokers",
        answers={200: browse_answers.ClusterConfigData},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str, name: str) -> Response:
        """Show one config."""
        for one in _ask(request, cluster_id, "broker_configs"):
            if one["name"] == name:
                return Response(browse_render.cluster_config(Place(request, cluster_id), one))
        raise NotFoundError(f"Config {name} is not set for all brokers.")


class AllReassignmentsView(RestView):
    """/clusters/{cluster_id}/topics/-/partitions/-/reassignment"""

    @operation(
        "listKafkaReassignments",
        summary="List partitions that are being moved",
        answers={200: browse_answers.ReassignmentDataList},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str) -> Response:
        """List the partitions of all topics that are on their way to other brokers."""
        return _moving(request, cluster_id, None)


class TopicReassignmentsView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/partitions/-/reassignment"""

    @operation(
        "listKafkaTopicReassignments",
        summary="List partitions of a topic that are being moved",
        answers={200: browse_answers.ReassignmentDataList},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """List the partitions of a topic that are on their way to other brokers."""
        return _moving(request, cluster_id, topic_name)


class ReassignmentView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}/reassignment"""

    @operation(
        "getKafkaReassignment",
        summary="Get where a partition moves",
        answers={200: browse_answers.ReassignmentData},
        tag=BROKERS,
    )
    def get(self, request: Request, cluster_id: str, topic_name: str, partition_id: int) -> Response:
        """Show where a partition is on its way to."""
        for one in _reassignments(request, cluster_id, topic_name):
            if one["partition"] == partition_id:
                return Response(browse_render.reassignment(Place(request, cluster_id), one))
        raise NotFoundError(f"Partition {partition_id} of topic '{topic_name}' is not being moved.")


def _ask(request: Request, cluster_id: str, question: str, **asked: Any) -> list[render.Json]:
    by = actor_of(request)
    return brokers.ask_brokers(clusters.get_cluster(cluster_id=cluster_id, by=by), question, by=by, **asked)


def _broker(request: Request, cluster_id: str, number: int) -> render.Json:
    found = next((one for one in _ask(request, cluster_id, "brokers") if one["broker"] == number), None)
    if found is None:
        raise NotFoundError(f"Broker {number} cannot be found on this cluster.", code="UNKNOWN_BROKER")
    return found


def _configs(request: Request, cluster_id: str, number: int) -> list[render.Json]:
    _broker(request, cluster_id, number)
    return _ask(request, cluster_id, "broker_configs", broker=number)


def _reassignments(request: Request, cluster_id: str, topic: str | None) -> list[render.Json]:
    by = actor_of(request)
    return brokers.list_reassignments(cluster=clusters.get_cluster(cluster_id=cluster_id, by=by), topic=topic, by=by)


def _moving(request: Request, cluster_id: str, topic: str | None) -> Response:
    place = Place(request, cluster_id)
    data = [browse_render.reassignment(place, one) for one in _reassignments(request, cluster_id, topic)]
    return Response(render.collection(request, "KafkaReassignmentList", data))
