"""Configs of a topic: list, get, set, reset, change several at once. Configs that a mirror syncs cannot be changed."""

from __future__ import annotations

from collections.abc import Sequence

from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.topics import alter_topic_configs
from console.api.kafka import bodies, browse_answers, browse_bodies, render
from console.api.kafka.browse_render import Place, topic_config
from console.api.kafka.link_configs import wanted_value
from console.api.schema import TOPICS, operation
from console.api.views import RestView, actor_of, body, moment
from console.errors import BadRequestError, NotFoundError
from console.queries import brokers, clusters


class TopicConfigListView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/configs"""

    @operation(
        "listKafkaTopicConfigs",
        summary="List a topic's configs",
        responses={200: browse_answers.TopicConfigDataList},
        tag=TOPICS,
    )
    def get(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Return all configs, set or default."""
        place = Place(request, cluster_id)
        data = [topic_config(place, topic_name, config) for config in _configs(request, cluster_id, topic_name)]
        return Response(render.collection(request, "KafkaTopicConfigList", data))


class TopicConfigView(RestView):
    """/clusters/{cluster_id}/topics/{topic_name}/configs/{name}"""

    @operation(
        "getKafkaTopicConfig", summary="Get a topic's config", responses={200: browse_answers.TopicConfigData}, tag=TOPICS
    )
    def get(self, request: Request, cluster_id: str, topic_name: str, name: str) -> Response:
        """Return a config."""
        for config in _configs(request, cluster_id, topic_name):
            if config["name"] == name:
                return Response(topic_config(Place(request, cluster_id), topic_name, config))
        raise NotFoundError(f"Config {name} cannot be found.")

    @operation(
        "updateKafkaTopicConfig",
        summary="Set a topic's config",
        body=browse_bodies.UpdateConfigRequestData,
        responses={204: "The config was set."},
        tag=TOPICS,
    )
    def put(self, request: Request, cluster_id: str, topic_name: str, name: str) -> Response:
        """Set a config, or reset it if the value is null."""
        value = body(request, browse_bodies.UpdateConfigRequestData)["value"]
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
        body=bodies.AlterConfigBatchRequestData,
        responses={204: "The configs were changed, or would be."},
        tag=TOPICS,
    )
    def post(self, request: Request, cluster_id: str, topic_name: str) -> Response:
        """Change configs."""
        wanted = body(request, bodies.AlterConfigBatchRequestData)
        only = wanted.get("validate_only", False)
        changes = [(change["name"], wanted_value(change)) for change in wanted["data"]]
        return _alter(request, changes, cluster_id=cluster_id, topic=topic_name, validate_only=only)


def _configs(request: Request, cluster_id: str, topic: str) -> list[render.Json]:
    by = actor_of(request)
    cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
    return list(brokers.query_topic(cluster, "topic_configs", topic=topic, by=by))


def _alter(
    request: Request, changes: Sequence[tuple[str, str | None]], *, cluster_id: str, topic: str, validate_only: bool = False
) -> Response:
    by = actor_of(request)
    cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
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
        now=moment(),
    )
    return Response(status=204)
