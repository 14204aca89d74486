"""Topics of a cluster as far as links need them: seen on the last look, and mirrors, which can be deleted here."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from console.access import Permission, can
from console.actions.mirrors import delete_mirror
from console.actors import Actor
from console.api.kafka import answers, reads, render
from console.api.schema import operation
from console.api.views import RestView, actor_of, moment
from console.errors import BadRequestError
from console.models import Cluster, MirrorTopic, RoleBinding, SourceTopic
from console.queries import clusters
from console.queries.mirrors import find_by_topic
from linkengine.domain.naming import is_internal


class TopicListView(RestView):
    """/clusters/{cluster_id}/topics"""

    @operation(
        "listKafkaTopics",
        summary="List topics",
        description="The topics seen on the last look at the cluster, and its mirror topics.",
        answers={200: answers.TopicDataList},
    )
    def get(self, request: Request, cluster_id: str) -> Response:
        """List the topics the caller may see."""
        by = actor_of(request)
        cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
        found = _topics(request, cluster, by=by)
        return Response(render.collection(request, "KafkaTopicList", [found[name] for name in sorted(found)]))


class TopicView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}"""

    @operation("getKafkaTopic", summary="Get topic", answers={200: answers.TopicData})
    def get(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Show a topic."""
        by = actor_of(request)
        cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
        found = _topics(request, cluster, by=by, name=topic_name).get(topic_name)
        if found is None:
            raise reads.no_topic(topic_name)
        return Response(found)

    @operation(
        "deleteKafkaTopic",
        summary="Delete a mirror topic",
        description="Deletes the topic on its cluster, records included, and ends the mirror. Only mirror topics, stopped ones "
        "too, can be deleted here.",
        answers={204: "The topic is being deleted; the mirror is gone when the topic is."},
    )
    def delete(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Delete a mirror topic."""
        by = actor_of(request)
        cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
        mirror = find_by_topic(cluster_id=cluster_id, topic=topic_name, by=by)
        if mirror is None:
            if topic_name not in _topics(request, cluster, by=by, name=topic_name):
                raise reads.no_topic(topic_name)
            raise BadRequestError(f"Topic '{topic_name}' is no mirror topic. Only mirror topics can be deleted here.")
        delete_mirror(mirror=mirror, by=by, now=moment())
        return Response(status=204)


def _topics(request: Request, cluster: Cluster, *, by: Actor, name: str = "") -> dict[str, render.Json]:
    """Write topics by name; a mirror's own row knows its partitions earlier than the last look does."""
    seen = SourceTopic.objects.filter(cluster=cluster, **({"name": name} if name else {}))
    shown = {row.name: _seen(request, cluster, row) for row in seen if _visible(cluster, row.name, by=by)}
    for mirror in reads.cluster_mirrors(cluster, by=by):
        if name in ("", mirror.name) and (mirror.name not in shown):
            shown[mirror.name] = _mirror(request, cluster, mirror)
    return shown


def _visible(cluster: Cluster, name: str, *, by: Actor) -> bool:
    return can(by, Permission.VIEW, cluster=cluster, resource_type=RoleBinding.ResourceType.TOPIC, resource_name=name)


def _seen(request: Request, cluster: Cluster, row: SourceTopic) -> render.Json:
    return render.topic(
        request,
        cluster_id=cluster.cluster_id,
        name=row.name,
        internal=row.internal,
        factor=row.replication_factor,
        partitions=row.partitions,
    )


def _mirror(request: Request, cluster: Cluster, row: MirrorTopic) -> render.Json:
    return render.topic(
        request,
        cluster_id=cluster.cluster_id,
        name=row.name,
        internal=is_internal(row.name),
        factor=row.replication_factor or 0,
        partitions=row.num_partitions,
    )
