"""Topics, their configs, and ACLs in the Kafka REST interface. Read from the cluster itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from console.access import visible_mirrors
from console.actors import Actor
from console.api import kafka_render, kafka_schemas
from console.api.errors import UnreadableError
from console.api.kafka_render import ClusterUrls
from console.api.schema import ACLS, TOPICS, operation, query_flag
from console.api.views import RestView, actor_of, body, choice, flag, request_time
from console.clusters import live_queries, rest_shapes
from console.clusters import queries as cluster_queries
from console.clusters import topic_actions as actions
from console.clusters.rest_shapes import acl, partition, replica, topic_config
from console.clusters.topic_actions import alter_topic_configs, create_acls, delete_acls
from console.errors import BadRequestError, NotFoundError
from console.http.errors import PARTITION_NOT_FOUND
from console.links.rest import wanted_value
from console.mirrors.actions import request_deletion
from console.mirrors.operation_queries import mirrored_elsewhere
from console.mirrors.queries import find_by_topic
from console.models import Cluster
from linkengine.domain.names import is_internal
from linkengine.domain.states import MirrorState

# --- topics, partitions and replicas ----------------------------------------------------------------------------------


class TopicListView(RestView):
    """/clusters/{cluster_id}/topics"""

    @operation("listKafkaTopics", summary="List topics", responses={200: kafka_schemas.TopicDataList}, tag=TOPICS)
    def get(self, request: Request, cluster_id: str) -> Response:
        """Return the topics that the actor may see, including mirrors that are being set up."""
        by = actor_of(request)
        cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        found = {topic["name"]: _shown(request, cluster, topic) for topic in live_queries.list_topics(cluster=cluster, by=by)}
        for name, shown in _mirrors(request, cluster, by=by).items():
            found.setdefault(name, shown)
        return Response(kafka_render.collection(request, "KafkaTopicList", [found[name] for name in sorted(found)]))

    @operation(
        "createKafkaTopic",
        summary="Create a topic",
        body=rest_shapes.CreateTopicRequestData,
        responses={201: kafka_schemas.TopicData, 200: kafka_schemas.TopicData},
        description="With validate_only the status is 200 and nothing is created. The defaults of partitions_count and "
        "replication_factor are those of the cluster.",
        tag=TOPICS,
    )
    def post(self, request: Request, cluster_id: str) -> Response:
        """Create an ordinary topic."""
        by = actor_of(request)
        wanted = body(request, rest_shapes.CreateTopicRequestData)
        cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        name, only = wanted["topic_name"], wanted.get("validate_only", False)
        size = {"partitions": wanted.get("partitions_count"), "replication_factor": wanted.get("replication_factor")}
        configs = {config["name"]: config["value"] for config in wanted.get("configs", ()) if config.get("value") is not None}
        created = actions.create_topic(
            cluster=cluster, topic=name, configs=configs, validate_only=only, by=by, now=request_time(), **size
        )
        shown = created or {"name": name, "internal": False, **{key: value or 0 for key, value in size.items()}}
        return Response(_shown(request, cluster, shown), status=200 if only else 201)


class TopicView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}"""

    @operation(
        "getKafkaTopic",
        summary="Get topic",
        responses={200: kafka_schemas.TopicData},
        parameters=[query_flag("include_authorized_operations", "Include authorized_operations.")],
        tag=TOPICS,
    )
    def get(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Return a topic."""
        by, with_rights = actor_of(request), flag(request, "include_authorized_operations")
        cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        try:
            found = live_queries.get_topic(cluster=cluster, topic=topic_name, by=by)
        except NotFoundError:
            being_set_up = _mirrors(request, cluster, by=by).get(topic_name)
            if being_set_up is None:
                raise
            return Response(being_set_up)
        shown = _shown(request, cluster, found)
        if with_rights:
            shown["authorized_operations"] = live_queries.query_topic(cluster, "topic_rights", topic=topic_name, by=by)
        return Response(shown)

    @operation(
        "updatePartitionCountKafkaTopic",
        summary="Add partitions to a topic",
        description="Refused for a mirror topic, which automatically gets the partitions of its source topic.",
        body=rest_shapes.UpdatePartitionCountRequestData,
        responses={200: kafka_schemas.TopicData},
        tag=TOPICS,
    )
    def patch(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Add partitions to a topic."""
        by = actor_of(request)
        count = body(request, rest_shapes.UpdatePartitionCountRequestData)["partitions_count"]
        cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        found = actions.grow_topic(cluster=cluster, topic=topic_name, partitions=count, by=by, now=request_time())
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
        cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        mirror = find_by_topic(cluster_id=cluster_id, topic=topic_name, by=by)
        warning = mirrored_elsewhere(cluster_id, topic_name, by=by)
        if mirror is None:
            actions.delete_topic(cluster=cluster, topic=topic_name, by=by, now=request_time())
        else:
            request_deletion(mirror=mirror, by=by, now=request_time())
        return Response(status=204, headers={"Warning": f'299 clusterlink "{_quoted(warning)}"'} if warning else None)


class PartitionListView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/partitions"""

    @operation(
        "listKafkaPartitions",
        summary="List a topic's partitions",
        responses={200: rest_shapes.PartitionDataList},
        tag=TOPICS,
    )
    def get(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Return the partitions of a topic."""
        found = _partitions(request, cluster_id, topic_name)
        urls = ClusterUrls(request, cluster_id)
        data = [partition(urls, topic_name, row) for row in found]
        return Response(kafka_render.collection(request, "KafkaPartitionList", data))


class PartitionView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}"""

    @operation("getKafkaPartition", summary="Get partition", responses={200: rest_shapes.PartitionData}, tag=TOPICS)
    def get(self, request: Request, cluster_id: str, topic_name: str, partition_id: int) -> Response:
        """Return a partition."""
        found = _partition(request, cluster_id, topic_name, partition_id)
        return Response(partition(ClusterUrls(request, cluster_id), topic_name, found))


class ReplicaListView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}/replicas"""

    @operation(
        "listKafkaReplicas", summary="List a partition's replicas", responses={200: rest_shapes.ReplicaDataList}, tag=TOPICS
    )
    def get(self, request: Request, cluster_id: str, topic_name: str, partition_id: int) -> Response:
        """Return the replicas of a partition."""
        found = _partition(request, cluster_id, topic_name, partition_id)
        urls = ClusterUrls(request, cluster_id)
        data = [replica(urls, topic_name, partition_id, row) for row in found["replicas"]]
        return Response(kafka_render.collection(request, "KafkaReplicaList", data))


class ReplicaView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/partitions/{partition_id}/replicas/{broker_id}"""

    @operation("getKafkaReplica", summary="Get a replica", responses={200: rest_shapes.ReplicaData}, tag=TOPICS)
    def get(self, request: Request, cluster_id: str, **path: Any) -> Response:
        """Return the replica of a partition on a broker."""
        topic, number, broker = path["topic_name"], path["partition_id"], path["broker_id"]
        for row in _partition(request, cluster_id, topic, number)["replicas"]:
            if row["broker"] == broker:
                return Response(replica(ClusterUrls(request, cluster_id), topic, number, row))
        raise NotFoundError(f"Partition {number} of topic '{topic}' has no replica on broker {broker}.")


def _quoted(text: str) -> str:
    """Return the text as the content of a quoted-string of an HTTP header (RFC 9110, section 5.6.4)."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _partitions(request: Request, cluster_id: str, topic: str) -> list[kafka_render.Json]:
    by = actor_of(request)
    cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
    return list(live_queries.query_topic(cluster, "partitions", topic=topic, by=by))


def _partition(request: Request, cluster_id: str, topic: str, number: int) -> kafka_render.Json:
    for row in _partitions(request, cluster_id, topic):
        if row["partition"] == number:
            return row
    raise NotFoundError(f"Topic '{topic}' has no partition {number}.", code=PARTITION_NOT_FOUND)


def _shown(request: Request, cluster: Cluster, found: kafka_render.Json) -> kafka_render.Json:
    return kafka_render.topic(
        request,
        cluster_id=cluster.cluster_id,
        name=found["name"],
        internal=found["internal"],
        factor=found["replication_factor"],
        partitions=found["partitions"],
    )


def _mirrors(request: Request, cluster: Cluster, *, by: Actor) -> dict[str, kafka_render.Json]:
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


# --- configs of a topic -----------------------------------------------------------------------------------------------
#
# Configs that a mirror syncs cannot be changed.


class TopicConfigListView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/configs"""

    @operation(
        "listKafkaTopicConfigs",
        summary="List a topic's configs",
        responses={200: rest_shapes.TopicConfigDataList},
        tag=TOPICS,
    )
    def get(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Return all configs, set or default."""
        urls = ClusterUrls(request, cluster_id)
        data = [topic_config(urls, topic_name, config) for config in _configs(request, cluster_id, topic_name)]
        return Response(kafka_render.collection(request, "KafkaTopicConfigList", data))


class TopicConfigView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/configs/{name}"""

    @operation("getKafkaTopicConfig", summary="Get a topic's config", responses={200: rest_shapes.TopicConfigData}, tag=TOPICS)
    def get(self, request: Request, cluster_id: str, topic_name: str, name: str) -> Response:
        """Return a config."""
        for config in _configs(request, cluster_id, topic_name):
            if config["name"] == name:
                return Response(topic_config(ClusterUrls(request, cluster_id), topic_name, config))
        raise NotFoundError(f"Config {name} cannot be found.")

    @operation(
        "updateKafkaTopicConfig",
        summary="Set a topic's config",
        body=rest_shapes.UpdateConfigRequestData,
        responses={204: "The config was set."},
        tag=TOPICS,
    )
    def put(self, request: Request, cluster_id: str, topic_name: str, name: str) -> Response:
        """Set a config, or reset it if the value is null."""
        value = body(request, rest_shapes.UpdateConfigRequestData)["value"]
        return _alter(request, [(name, value)], cluster_id=cluster_id, topic=topic_name)

    @operation(
        "deleteKafkaTopicConfig",
        summary="Reset a topic's config to its default",
        responses={204: "The config was reset to its default."},
        tag=TOPICS,
    )
    def delete(self, request: Request, cluster_id: str, topic_name: str, name: str) -> Response:
        """Reset a config."""
        return _alter(request, [(name, None)], cluster_id=cluster_id, topic=topic_name)


class TopicConfigBatchView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/configs:alter"""

    @operation(
        "updateKafkaTopicConfigBatch",
        summary="Change several configs of a topic",
        description="Either all changes are applied or none.",
        body=kafka_schemas.AlterConfigBatchRequestData,
        responses={204: "The configs were changed, or would be."},
        tag=TOPICS,
    )
    def post(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Change configs."""
        wanted = body(request, kafka_schemas.AlterConfigBatchRequestData)
        only = wanted.get("validate_only", False)
        changes = [(change["name"], wanted_value(change)) for change in wanted["data"]]
        return _alter(request, changes, cluster_id=cluster_id, topic=topic_name, validate_only=only)


def _configs(request: Request, cluster_id: str, topic: str) -> list[kafka_render.Json]:
    by = actor_of(request)
    cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
    return list(live_queries.query_topic(cluster, "topic_configs", topic=topic, by=by))


def _alter(
    request: Request, changes: Sequence[tuple[str, str | None]], *, cluster_id: str, topic: str, validate_only: bool = False
) -> Response:
    by = actor_of(request)
    cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
    wanted = dict(changes)
    if len(wanted) != len(changes):
        raise BadRequestError("A config is named twice. Name each config once.")
    values = {name: value for name, value in wanted.items() if value is not None}
    deletions = [name for name, value in wanted.items() if value is None]
    alter_topic_configs(
        cluster=cluster,
        topic=topic,
        values=values,
        deletions=deletions,
        validate_only=validate_only,
        by=by,
        now=request_time(),
    )
    return Response(status=204)


# --- ACLs -------------------------------------------------------------------------------------------------------------
#
# The ACLs that make mirror topics read-only cannot be deleted here.


_WORDS = {
    "resource_type": rest_shapes.RESOURCE_TYPES,
    "pattern_type": rest_shapes.PATTERN_TYPES,
    "operation": rest_shapes.OPERATIONS,
    "permission": rest_shapes.PERMISSIONS,
}
_NAMES = ("resource_name", "principal", "host")


def _parameters(*, required: bool) -> list[OpenApiParameter]:
    words = [
        OpenApiParameter(name, str, description=f"The ACL's {name.replace('_', ' ')}.", enum=list(values), required=required)
        for name, values in _WORDS.items()
    ]
    return words + [OpenApiParameter(name, str, description=f"The ACL's {name.replace('_', ' ')}.") for name in _NAMES]


class AclListView(RestView):
    """/clusters/{cluster_id}/acls"""

    @operation(
        "getKafkaAcls",
        summary="Search ACLs",
        description="A parameter that is omitted matches everything.",
        parameters=_parameters(required=False),
        responses={200: rest_shapes.AclDataList},
        tag=ACLS,
    )
    def get(self, request: Request, cluster_id: str) -> Response:
        """Search ACLs."""
        by = actor_of(request)
        cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        found = live_queries.list_acls(cluster=cluster, wanted=_wanted(request), by=by)
        urls = ClusterUrls(request, cluster_id)
        return Response(kafka_render.collection(request, "KafkaAclList", [acl(urls, rule) for rule in found]))

    @operation(
        "createKafkaAcls",
        summary="Create an ACL",
        body=rest_shapes.CreateAclRequestData,
        responses={201: "The ACL was created."},
        tag=ACLS,
    )
    def post(self, request: Request, cluster_id: str) -> Response:
        """Create an ACL."""
        by = actor_of(request)
        rule = body(request, rest_shapes.CreateAclRequestData)
        cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        create_acls(cluster=cluster, rules=[rule], by=by, now=request_time())
        return Response(status=201, headers={"Location": ClusterUrls(request, cluster_id).url("acls")})

    @operation(
        "deleteKafkaAcls",
        summary="Delete ACLs",
        description="Deletes all ACLs that match. Refused if an ACL that makes a mirror topic read-only matches.",
        parameters=_parameters(required=True),
        responses={200: rest_shapes.DeletedAcls},
        tag=ACLS,
    )
    def delete(self, request: Request, cluster_id: str) -> Response:
        """Delete ACLs."""
        for name in _WORDS:
            if request.query_params.get(name, "UNKNOWN") in ("", "UNKNOWN"):
                raise UnreadableError(
                    f"The query parameter {name} is missing. Specify it, so that no ACLs are deleted by mistake."
                )
        by = actor_of(request)
        cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        deleted = delete_acls(cluster=cluster, wanted=_wanted(request), by=by, now=request_time())
        urls = ClusterUrls(request, cluster_id)
        return Response({"data": [acl(urls, rule) for rule in deleted]})


class AclBatchView(RestView):
    """/clusters/{cluster_id}/acls:batch"""

    @operation(
        "batchCreateKafkaAcls",
        summary="Create ACLs",
        body=rest_shapes.CreateAclRequestDataList,
        responses={201: "The ACLs were created."},
        tag=ACLS,
    )
    def post(self, request: Request, cluster_id: str) -> Response:
        """Create several ACLs."""
        by = actor_of(request)
        rules = [dict(rule) for rule in body(request, rest_shapes.CreateAclRequestDataList)["data"]]
        cluster = cluster_queries.get_cluster(cluster_id=cluster_id, by=by)
        create_acls(cluster=cluster, rules=rules, by=by, now=request_time())
        return Response(status=201)


def _wanted(request: Request) -> kafka_render.Json:
    words = {name: choice(request, name, values=values) or "ANY" for name, values in _WORDS.items()}
    return words | {name: request.query_params.get(name) or None for name in _NAMES}
