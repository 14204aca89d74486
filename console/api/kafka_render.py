"""Renders rows as responses with the kinds, URLs and fields of the Kafka REST interface. Makes no queries itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rest_framework.request import Request

from console.api.kafka_schemas import CATEGORY, mirror_status, short_id, unix_ms
from console.api.views import absolute
from console.links.checks import LinkValidation
from console.models import Cluster, ClusterLink, MirrorPartition, MirrorTopic, StateTransitionError
from linkengine.domain.plans import BrokerDistance
from linkengine.domain.states import LinkMode

Json = dict[str, Any]
UNKNOWN_LAG = -1  # not 0, which would mean that the mirror was measured to hold every record
NEVER_FETCHED = -1
NO_ERROR = "NO_ERROR"


def collection(request: Request, kind: str, data: Sequence[Json]) -> Json:
    """Return a list, which is always complete."""
    return {"kind": kind, "metadata": {"self": request.build_absolute_uri(request.path), "next": None}, "data": list(data)}


def cluster(request: Request, row: Cluster) -> Json:
    path = ("clusters", row.cluster_id)
    related = ("acls", "brokers", "broker-configs", "consumer-groups", "topics")
    return {
        "kind": "KafkaCluster",
        "metadata": {"self": absolute(request, *path), "resource_name": f"crn:///kafka={row.cluster_id}"},
        "cluster_id": row.cluster_id,
        **{name.replace("-", "_"): {"related": absolute(request, *path, name)} for name in related},
        "partition_reassignments": {"related": absolute(request, *path, "topics", "-", "partitions", "-", "reassignment")},
    }


class ClusterUrls:
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


def link(
    request: Request, row: ClusterLink, *, mirrors: Sequence[tuple[str, str]], tasks: Sequence[Json] | None = None
) -> Json:
    """Return a link; ``mirrors`` are (name, state) of the mirrors that the actor may see."""
    cluster_id = row.destination.cluster_id
    return {
        "kind": "KafkaLinkData",
        "metadata": {"self": absolute(request, "clusters", cluster_id, "links", row.name)},
        "link_name": row.name,
        "link_id": str(row.shown_uuid),
        "cluster_link_id": short_id(row.shown_uuid),
        "source_cluster_id": row.source_cluster_id if row.mode == LinkMode.DESTINATION else None,
        "destination_cluster_id": row.source_cluster_id if row.mode == LinkMode.SOURCE else None,
        "remote_cluster_id": row.source_cluster_id if row.mode == LinkMode.BIDIRECTIONAL else None,
        "topic_names": [name for name, _ in mirrors],
        "link_state": row.state,
        "link_error": row.error_code or NO_ERROR,
        "link_error_message": row.error_message or None,
        "tasks": None if tasks is None else list(tasks),
        "category_counts": _categories(row, [state for _, state in mirrors]),
    }


def link_validation(request: Request, found: LinkValidation) -> Json:
    """Return the result of validating a link."""
    distances = found.distances
    return {
        "kind": "KafkaLinkValidationData",
        "metadata": {"self": request.build_absolute_uri(request.path)},
        "source_cluster_id": found.source_cluster_id,
        "source_brokers": None if distances is None else [_distance(distance) for distance in distances],
    }


def _distance(found: BrokerDistance) -> Json:
    rate = found.bytes_per_s
    return {
        "broker_id": found.broker,
        "address": found.address,
        "round_trip_ms": found.round_trip_ms,
        "send_buffer_bytes": found.send_buffer_bytes,
        "receive_buffer_bytes": found.receive_buffer_bytes,
        "limited_by": found.limited_by or None,
        "connection_bytes_per_s": None if rate is None else round(rate),
        "error": found.error or None,
    }


def link_config(request: Request, row: ClusterLink, config: Any) -> Json:
    """Return an effective config; the flags are included under their former names too."""
    cluster_id = row.destination.cluster_id
    return {
        "kind": "KafkaLinkConfigData",
        "metadata": {"self": absolute(request, "clusters", cluster_id, "links", row.name, "configs", config.name)},
        "cluster_id": cluster_id,
        "link_name": row.name,
        "name": config.name,
        "value": config.value,
        "is_default": config.is_default,
        "is_read_only": config.is_read_only,
        "is_sensitive": config.is_sensitive,
        "read_only": config.is_read_only,
        "sensitive": config.is_sensitive,
        "source": "DEFAULT_CONFIG" if config.is_default else "DYNAMIC_CLUSTER_LINK_CONFIG",
        "synonyms": [],
    }


def mirror(
    request: Request,
    row: MirrorTopic,
    *,
    partitions: Iterable[MirrorPartition],
    errors: Iterable[StateTransitionError] | None = None,
) -> Json:
    """Return a mirror topic; ``errors`` is None if the client did not request them."""
    shown = {
        "kind": "KafkaMirrorData",
        "metadata": {"self": mirror_url(request, row.link, row.name)},
        "link_name": row.link.name,
        "mirror_topic_name": row.name,
        "source_topic_name": row.source_topic,
        "num_partitions": row.num_partitions,
        "mirror_lags": mirror_lags(row, partitions),
        "mirror_status": mirror_status(row.state, link_state=row.link.state),
        "mirror_topic_error": _topic_error(row),
        "state_time_ms": unix_ms(row.state_since),
    }
    if errors is not None:
        shown["mirror_state_transition_errors"] = [transition_error(error) for error in errors]
    return shown


def _topic_error(row: MirrorTopic) -> str:
    """Return the error code of a mirror; for a mirror in set-up, whose status is ACTIVE, the code of the last attempt."""
    trouble = row.setup_trouble
    return row.error_code or (trouble.code if trouble else NO_ERROR)


def mirror_lags(row: MirrorTopic, partitions: Iterable[MirrorPartition]) -> list[Json]:
    """Return an entry per partition, including partitions without a report."""
    known: Mapping[int, MirrorPartition] = {row.partition: row for row in partitions}
    numbers = sorted({*range(row.num_partitions), *known})
    return [_lag(number, known.get(number)) for number in numbers]


def transition_error(row: StateTransitionError) -> Json:
    return {"error_code": row.code, "error_message": row.message}


def operation_row(
    request: Request, row: ClusterLink, *, name: str, lags: Sequence[Json], refusal: tuple[int, str] | None = None
) -> Json:
    """Return the result of an operation on a mirror; ``refusal`` is (error code, message)."""
    code, message = refusal or (None, None)
    return {
        "kind": "AlterMirrorsData",
        "metadata": {"self": mirror_url(request, row, name)},
        "mirror_topic_name": name,
        "error_code": code,
        "error_message": message,
        "mirror_lags": list(lags),
        "messages_truncated": None,
        "partition_level_truncation_data": [],
    }


def mirror_url(request: Request, row: ClusterLink, name: str) -> str:
    return absolute(request, "clusters", row.destination.cluster_id, "links", row.name, "mirrors", name)


def topic(request: Request, *, cluster_id: str, name: str, internal: bool, factor: int, partitions: int) -> Json:
    path = ("clusters", cluster_id, "topics", name)
    return {
        "kind": "KafkaTopic",
        "metadata": {"self": absolute(request, *path), "resource_name": f"crn:///kafka={cluster_id}/topic={name}"},
        "cluster_id": cluster_id,
        "topic_name": name,
        "is_internal": internal,
        "replication_factor": factor,
        "partitions_count": partitions,
        "partitions": {"related": absolute(request, *path, "partitions")},
        "configs": {"related": absolute(request, *path, "configs")},
        "partition_reassignments": {"related": absolute(request, *path, "partitions", "-", "reassignment")},
    }


def _lag(number: int, row: MirrorPartition | None) -> Json:
    lag = row.lag if row else None
    fetched = row.last_source_fetch_offset if row else None
    return {
        "partition": number,
        "lag": UNKNOWN_LAG if lag is None else lag,
        "last_source_fetch_offset": NEVER_FETCHED if fetched is None else fetched,
    }


def _categories(row: ClusterLink, states: Iterable[str]) -> list[Json]:
    counts = Counter(CATEGORY[mirror_status(state, link_state=row.state)] for state in states)
    return [{"state_category": name, "count": counts[name]} for name in dict.fromkeys(CATEGORY.values())]
