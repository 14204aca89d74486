"""Topics of a cluster: list, create, get, add partitions, delete; partitions and replicas. Read from the cluster itself."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from console.access import visible_mirrors
from console.actions import topics as actions
from console.actions.mirrors import delete_mirror
from console.actors import Actor
from console.api.kafka import answers, browse_answers, browse_bodies, render
from console.api.kafka.browse_render import Place, partition, replica
from console.api.schema import TOPICS, operation, query_flag
from console.api.views import RestView, actor_of, body, flag, moment
from console.errors import NotFoundError
from console.http.error_statuses import PARTITION_NOT_FOUND
from console.models import Cluster
from console.queries import brokers, clusters
from console.queries.cautions import mirrored_elsewhere
from console.queries.mirrors import find_by_topic
from linkengine.domain.names import is_internal
from linkengine.domain.states import MirrorState


class TopicListView(RestView):
    """/clusters/{cluster_id}/topics"""

    @operation("listKafkaTopics", summary="List topics", responses={200: answers.TopicDataList}, tag=TOPICS)
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the topics that the actor may see, including mirrors that are being set up."""
        by = actor_of(request)
        cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
        found = {topic["name"]: _shown(request, cluster, topic) for topic in brokers.list_topics(cluster=cluster, by=by)}
        for name, shown in _mirrors(request, cluster, by=by).items():
            found.setdefault(name, shown)
        return Response(render.collection(request, "KafkaTopicList", [found[name] for name in sorted(found)]))

    @operation(
        "createKafkaTopic",
        summary="Create a topic",
        body=browse_bodies.CreateTopicRequestData,
        responses={201: answers.TopicData, 200: answers.TopicData},
        description="With validate_only the status is 200 and nothing is created. The defaults of partitions_count and "
        "replication_factor are those of the cluster.",
        tag=TOPICS,
    )
    def post(self, request: Request, cluster_id: str) -> Response:
        """Create an ordinary topic."""
        by = actor_of(request)
        wanted = body(request, browse_bodies.CreateTopicRequestData)
        cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
        name, only = wanted["topic_name"], wanted.get("validate_only", False)
        size = {"partitions": wanted.get("partitions_count"), "replication_factor": wanted.get("replication_factor")}
        configs = {config["name"]: config["value"] for config in wanted.get("configs", ()) if config.get("value") is not None}
        created = actions.create_topic(
            cluster=cluster, topic=name, configs=configs, validate_only=only, by=by, now=moment(), **size
        )
        shown = created or {"name": name, "internal": False, **{key: value or 0 for key, value in size.items()}}
        return Response(_shown(request, cluster, shown), status=200 if only else 201)


class TopicView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}"""

    @operation(
        "getKafkaTopic",
        summary="Get topic",
        responses={200: answers.TopicData},
        parameters=[query_flag("include_authorized_operations", "Include authorized_operations.")],
        tag=TOPICS,
    )
    def get(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Return a topic."""
        by, with_rights = actor_of(request), flag(request, "include_authorized_operations")
        cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
        try:
            found = brokers.get_topic(cluster=cluster, topic=topic_name, by=by)
        except NotFoundError:
            being_set_up = _mirrors(request, cluster, by=by).get(topic_name)
            if being_set_up is None:
                raise
            return Response(being_set_up)
        shown = _shown(request, cluster, found)
        if with_rights:
            shown["authorized_operations"] = brokers.query_topic(cluster, "topic_rights", topic=topic_name, by=by)
        return Response(shown)

    @operation(
        "updatePartitionCountKafkaTopic",
        summary="Add partitions to a topic",
        description="Refused for a mirror topic, which automatically gets the partitions of its source topic.",
        body=browse_bodies.UpdatePartitionCountRequestData,
        responses={200: answers.TopicData},
        tag=TOPICS,
    )
    def patch(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Add partitions to a topic."""
        by = actor_of(request)
        count = body(request, browse_bodies.UpdatePartitionCountRequestData)["partitions_count"]
        cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
        found = actions.grow_topic(cluster=cluster, topic=topic_name, partitions=count, by=by, now=moment())
        return Response(_shown(request, cluster, found))

    @operation(
        "deleteKafkaTopic",
        summary="Delete a topic",
        description="Deletes the topic with its records on its cluster. If it is a mirror topic, also a stopped one, the "
        "mirror is deleted with it. If mirror topics copy from the topic, the response has a Warning header; "
        "/api/v1/clusters/{cluster_id}/topics/{topic_name}/deletion-preview returns the same text before the deletion.",
        responses={204: "The topic was deleted; a mirror topic is being deleted."},
        tag=TOPICS,
    )
    def delete(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Delete a topic."""
        by = actor_of(request)
        cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
        mirror = find_by_topic(cluster_id=cluster_id, topic=topic_name, by=by)
        warning = mirrored_elsewhere(cluster_id, topic_name, by=by)
        if mirror is None:
            actions.delete_topic(cluster=cluster, topic=topic_name, by=by, now=moment())
        else:
            delete_mirror(mirror=mirror, by=by, now=moment())
        return Response(status=204, headers={"Warning": f'299 clusterlink "{_quoted(warning)}"'} if warning else None)


class PartitionListView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/partitions"""

    @operation(
        "listKafkaPartitions",
        summary="List a topic's partitions",
        responses={200: browse_answers.PartitionDataList},
        tag=TOPICS,
    )
    def get(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Return the partitions of a topic."""
        found = _partitions(request, cluster_id, topic_name)
        place = Place(request, cluster_id)
        data = [partition(place, topic_name, row) for row in found]
        return Response(render.collection(request, "KafkaPartitionList", data))


class PartitionView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}"""

    @operation("getKafkaPartition", summary="Get partition", responses={200: browse_answers.PartitionData}, tag=TOPICS)
    def get(self, request: Request, cluster_id: str, topic_name: str, partition_id: int) -> Response:
        """Return a partition."""
        found = _partition(request, cluster_id, topic_name, partition_id)
        return Response(partition(Place(request, cluster_id), topic_name, found))


class ReplicaListView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}/replicas"""

    @operation(
        "listKafkaReplicas", summary="List a partition's replicas", responses={200: browse_answers.ReplicaDataList}, tag=TOPICS
    )
    def get(self, request: Request, cluster_id: str, topic_name: str, partition_id: int) -> Response:
        """Return the replicas of a partition."""
        found = _partition(request, cluster_id, topic_name, partition_id)
        place = Place(request, cluster_id)
        data = [replica(place, topic_name, partition_id, row) for row in found["replicas"]]
        return Response(render.collection(request, "KafkaReplicaList", data))


class ReplicaView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}/replicas/{broker_id}"""

    @operation("getKafkaReplica", summary="Get a replica", responses={200: browse_answers.ReplicaData}, tag=TOPICS)
    def get(self, request: Request, cluster_id: str, **path: Any) -> Response:
        """Return the replica of a partition on a broker."""
        topic, number, broker = path["topic_name"], path["partition_id"], path["broker_id"]
        for row in _partition(request, cluster_id, topic, number)["replicas"]:
            if row["broker"] == broker:
                return Response(replica(Place(request, cluster_id), topic, number, row))
        raise NotFoundError(f"Partition {number} of topic '{topic}' has no replica on broker {broker}.")


def _quoted(text: str) -> str:
    """Return the text as the content of a quoted-string of an HTTP header (RFC 9110, section 5.6.4)."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _partitions(request: Request, cluster_id: str, topic: str) -> list[render.Json]:
    by = actor_of(request)
    cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
    return list(brokers.query_topic(cluster, "partitions", topic=topic, by=by))


def _partition(request: Request, cluster_id: str, topic: str, number: int) -> render.Json:
    for row in _partitions(request, cluster_id, topic):
        if row["partition"] == number:
            return row
    raise NotFoundError(f"Topic '{topic}' has no partition {number}.", code=PARTITION_NOT_FOUND)


def _shown(request: Request, cluster: Cluster, found: render.Json) -> render.Json:
    return render.topic(
        request,
        cluster_id=cluster.cluster_id,
        name=found["name"],
        internal=found["internal"],
        factor=found["replication_factor"],
        partitions=found["partitions"],
    )


def _mirrors(request: Request, cluster: Cluster, *, by: Actor) -> dict[str, render.Json]:
    """Return the mirrors that are being set up as topics, by name: they may not exist on the cluster yet."""
    rows = list(visible_mirrors(by).filter(link__destination=cluster))
    return {
        row.name: _shown(
            request,
            cluster,
            {
                "name": row.name,
                "internal": is_internal(row.name),
                "replication_factor": row.replication_factor or 0,
                "partitions": row.num_partitions,
            },
        )
        for row in rows
        if row.state == MirrorState.PENDING_SETUP
    }
