"""Renders results of live cluster queries as responses of the Kafka REST interface. Makes no queries itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework.request import Request

from console.api.views import absolute

Json = dict[str, Any]
UNKNOWN = -1  # not 0, which would mean that the lag was measured and no record is missing


class Place:
    """Builds the URLs of a cluster's resources for a request."""

    def __init__(self, request: Request, cluster_id: str) -> None:
        self._request, self.cluster_id = request, cluster_id

    def url(self, *parts: object) -> str:
        return absolute(self._request, "clusters", self.cluster_id, *map(str, parts))

    def link(self, *parts: object) -> Json:
        return {"related": self.url(*parts)}

    def resource(self, kind: str, *parts: object) -> Json:
        """Return the common fields of a resource: kind, URL, resource name and cluster id."""
        pairs = zip(parts[::2], parts[1::2], strict=False)
        name = "/".join(f"{str(noun).removesuffix('s')}={value}" for noun, value in pairs)
        metadata = {"self": self.url(*parts), "resource_name": f"crn:///kafka={self.cluster_id}/{name}".rstrip("/")}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster_id}


def partition(place: Place, topic: str, found: Json) -> Json:
    path = ("topics", topic, "partitions", found["partition"])
    shown = {
        **place.resource("KafkaPartition", *path),
        "topic_name": topic,
        "partition_id": found["partition"],
        "replicas": place.link(*path, "replicas"),
        "reassignment": place.link(*path, "reassignment"),
    }
    if found["leader"] is not None:
        shown["leader"] = place.link(*path, "replicas", found["leader"])
    return shown


def replica(place: Place, topic: str, number: int, found: Json) -> Json:
    return {
        **place.resource("KafkaReplica", "topics", topic, "partitions", number, "replicas", found["broker"]),
        "topic_name": topic,
        "partition_id": number,
        "broker_id": found["broker"],
        "is_leader": found["leader"],
        "is_in_sync": found["in_sync"],
        "broker": place.link("brokers", found["broker"]),
    }


def broker(place: Place, found: Json) -> Json:
    path = ("brokers", found["broker"])
    return {
        **place.resource("KafkaBroker", *path),
        "broker_id": found["broker"],
        **{name: found[name] for name in ("host", "port", "rack")},
        "configs": place.link(*path, "configs"),
        "partition_replicas": place.link(*path, "partition-replicas"),
    }


def broker_config(place: Place, number: int, found: Json) -> Json:
    return {**place.resource("KafkaBrokerConfig", "brokers", number, "configs", found["name"]), "broker_id": number, **found}


def cluster_config(place: Place, found: Json) -> Json:
    return {**place.resource("KafkaClusterConfig", "broker-configs", found["name"]), "config_type": "BROKER", **found}


def reassignment(place: Place, found: Json) -> Json:
    path = ("topics", found["topic"], "partitions", found["partition"])
    return {
        **place.resource("KafkaReassignment", *path, "reassignment"),
        "topic_name": found["topic"],
        "partition_id": found["partition"],
        "adding_replicas": found["adding"],
        "removing_replicas": found["removing"],
        "replicas": place.link(*path, "replicas"),
    }


def topic_config(place: Place, topic: str, found: Json) -> Json:
    return {**place.resource("KafkaTopicConfig", "topics", topic, "configs", found["name"]), "topic_name": topic, **found}


def acl(place: Place, found: Json) -> Json:
    metadata = {"self": place.url("acls")}
    return {"kind": "KafkaAcl", "metadata": metadata, "cluster_id": place.cluster_id, **found}


def group(place: Place, found: Json) -> Json:
    """Return a group. A group that cannot be described has an error message and the broker list as coordinator."""
    path = ("consumer-groups", found["group_id"])
    coordinator = ("brokers", found["coordinator"]) if found["coordinator"] >= 0 else ("brokers",)
    shown = {
        **place.resource("KafkaConsumerGroup", *path),
        "consumer_group_id": found["group_id"],
        "is_simple": found["is_simple"],
        "partition_assignor": found["assignor"],
        "state": found["state"],
        "type": found["type"],
        "is_mixed_consumer_group": False,
        "coordinator": place.link(*coordinator),
        "consumers": place.link(*path, "consumers"),
        "lag_summary": place.link(*path, "lag-summary"),
    }
    return {**shown, "error_message": found["error"]} if found.get("error") else shown


def consumer(place: Place, group_id: str, found: Json) -> Json:
    path = ("consumer-groups", group_id, "consumers", found["consumer_id"])
    return {
        **place.resource("KafkaConsumer", *path),
        "consumer_group_id": group_id,
        "consumer_id": found["consumer_id"],
        "instance_id": found["instance_id"],
        "client_id": found["client_id"],
        "assignments": place.link(*path, "assignments"),
    }


def assignment(place: Place, group_id: str, consumer_id: str, pair: Sequence[Any]) -> Json:
    topic, number = pair
    path = ("consumer-groups", group_id, "consumers", consumer_id, "assignments", topic, "partitions", number)
    return {
        **place.resource("KafkaConsumerAssignment", *path),
        "consumer_group_id": group_id,
        "consumer_id": consumer_id,
        "topic_name": topic,
        "partition_id": number,
        "partition": place.link("topics", topic, "partitions", number),
        "lag": place.link("consumer-groups", group_id, "lags", topic, "partitions", number),
    }


def lag(place: Place, group_id: str, found: Json) -> Json:
    path = ("consumer-groups", group_id, "lags", found["topic"], "partitions", found["partition"])
    return {
        **place.resource("KafkaConsumerLag", *path),
        "consumer_group_id": group_id,
        "topic_name": found["topic"],
        "partition_id": found["partition"],
        "current_offset": found["current_offset"],
        "log_end_offset": _known(found["log_end_offset"]),
        "lag": _known(found["lag"]),
        **{name: found[name] for name in ("consumer_id", "instance_id", "client_id")},
    }


def lag_summary(place: Place, group_id: str, lags: Sequence[Json]) -> Json:
    """Return the largest lag and the sum of the lags (at least one); an unknown lag counts as the largest."""
    worst = max(lags, key=lambda row: (row["lag"] is None, row["lag"] or 0))
    unknown = worst["lag"] is None
    path = ("consumer-groups", group_id)
    return {
        **place.resource("KafkaConsumerGroupLagSummary", *path, "lag-summary"),
        "consumer_group_id": group_id,
        **{f"max_lag_{name}": worst[name] for name in ("consumer_id", "instance_id", "client_id")},
        "max_lag_topic_name": worst["topic"],
        "max_lag_partition_id": worst["partition"],
        "max_lag": _known(worst["lag"]),
        "total_lag": UNKNOWN if unknown else sum(row["lag"] for row in lags),
        "max_lag_consumer": place.link(*path, "consumers", worst["consumer_id"]),
        "max_lag_partition": place.link("topics", worst["topic"], "partitions", worst["partition"]),
    }


def _known(number: int | None) -> int:
    return UNKNOWN if number is None else number
