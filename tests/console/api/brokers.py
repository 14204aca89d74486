"""A fake of a small cluster for the queries and changes of ``console.tasks.clusters``; other tests check real clusters."""

from base64 import b64encode
from dataclasses import asdict
from typing import Any

from console import audit
from console.models.fields import seal
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.record_views import (
    BatchInfo,
    FieldView,
    HeaderView,
    Presence,
    RecordComparison,
    RecordContents,
    SideView,
)
from tests.console.api.actors import SOURCE

MEMBER = {"consumer_id": "c-1", "client_id": "app", "instance_id": None, "assigned": [["plain", 0]]}
GROUP = {
    "group_id": "readers",
    "state": "STABLE",
    "type": "CLASSIC",
    "is_simple": False,
    "assignor": "range",
    "coordinator": 1,
    "members": [MEMBER],
    "error": "",
}
ACL = {
    "resource_type": "TOPIC",
    "resource_name": "plain",
    "pattern_type": "LITERAL",
    "principal": "User:app",
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
}
CONFIG: dict[str, Any] = {
    "name": "retention.ms",
    "value": "1000",
    "is_default": False,
    "is_read_only": False,
    "is_sensitive": False,
    "source": "DYNAMIC_TOPIC_CONFIG",
    "synonyms": [{"name": "retention.ms", "value": "1000", "source": "DYNAMIC_TOPIC_CONFIG"}],
}
TIMED: dict[str, Any] = {
    "partition": 0,
    "offset": 7,
    "record_timestamp_ms": 1_700_000_000_500,
    "searched_to": 7,
    "log_end_offset": 10,
    "is_complete": True,
}
RESET = {"partition": 0, "before": 9, "after": 7, "is_written": False, "message": ""}
RIGHTS = ["DESCRIBE", "READ"]
BROKER = {"broker": 1, "host": "one.example", "port": 9092, "rack": None}
MOVING = {"topic": "plain", "partition": 0, "adding": [3], "removing": [1]}
PROBE = {"cluster_id": SOURCE, "brokers": 1, "kafka_version": "4.3.1", "authorizer": True}


def side(value: bytes | None, presence: Presence = Presence.RECORD, **more: Any) -> SideView:
    """Return one side with a record of this value, or without a record for None."""
    field = FieldView(size=len(value or b""), base64=b64encode(value or b"").decode(), is_cut=False)
    record = RecordContents(
        key=None,
        value=field,
        headers=(HeaderView(name="origin", value=field),),
        header_count=1,
        timestamp_ms=1_700_000_000_500,
        timestamp_type="CreateTime",
        size=40,
    )
    batch = BatchInfo(
        base_offset=5, next_offset=9, record_count=4, size=120, compression="zstd", leader_epoch=3, is_transactional=False
    )
    ends = {"log_start_offset": 0, "last_stable_offset": 10, "log_end_offset": 10, "next_offset": 8}
    has = {} if value is None else {"record": record, "batch": batch}
    return SideView(presence=presence, **{**ends, **has, **more})


def compared(source: SideView, mirror: SideView, *, differing: tuple[str, ...] = ()) -> str:
    """Return what the task ``compare_record`` replies with: offset 7 of partition 0 on both sides."""
    return seal(asdict(RecordComparison(partition=0, offset=7, source=source, mirror=mirror, differing=differing)))


def topic(name: str, *, partitions: int = 3, replication_factor: int = 2) -> dict[str, Any]:
    size = {"partitions": partitions, "replication_factor": replication_factor}
    return {"name": name, "topic_id": "id", "internal": False, "configs": {}, **size}


def partition(number: int, *, leader: int | None = 1) -> dict[str, Any]:
    replicas = [{"broker": 1, "leader": leader == 1, "in_sync": True}, {"broker": 2, "leader": False, "in_sync": False}]
    return {"partition": number, "leader": leader, "replicas": replicas}


def lag(number: int, *, behind: int | None) -> dict[str, Any]:
    end = None if behind is None else 10 + behind
    names = {"consumer_id": "c-1", "client_id": "app", "instance_id": None}
    return {"topic": "plain", "partition": number, "current_offset": 10, "log_end_offset": end, "lag": behind, **names}


class SmallCluster:
    """A cluster with a topic ``plain``, a consumer group ``readers`` and an ACL; ``queries`` has every query."""

    def __init__(self) -> None:
        self.queries: list[tuple[str, dict[str, Any]]] = []
        self.topics = {"plain": topic("plain")}
        self.lags = [lag(0, behind=4), lag(1, behind=6)]
        self.groups: dict[str, dict[str, Any]] = {"readers": GROUP}
        self.incomplete = ""
        self.timed = [[TIMED]]  # consecutive results; the last is repeated
        self.refusal: dict[str, Any] = {}
        self.error: LinkEngineError | None = None
        self.sides = (side(b"same"), side(b"same"))  # at every offset
        self.differing: tuple[str, ...] = ()

    def response(self, task_name: str, kwargs: dict[str, Any]) -> Any:
        """Return the result that a worker would return."""
        if task_name == "change_cluster":
            with audit.carried_out(kwargs["entry"], change_id=kwargs["change_id"]) as attempt:
                attempt.found = self._response(kwargs["query"], kwargs["arguments"])
            return attempt.found
        if task_name == "compare_record":
            self.queries.append((task_name, kwargs))
            if self.error:
                raise self.error
            return compared(*self.sides, differing=self.differing)
        if task_name != "query_cluster":
            return PROBE if task_name in ("check_link", "probe_address") else {}
        return self._response(kwargs["query"], kwargs["arguments"])

    def _response(self, query: str, arguments: dict[str, Any]) -> Any:
        self.queries.append((query, arguments))
        if self.error:
            raise self.error
        if query in ("topic", "topic_rights", "partitions", "topic_configs", "grow_topic", "alter_topic_configs"):
            return self._of_topic(query, arguments)
        return self._of_cluster(query, arguments)

    def _of_topic(self, query: str, arguments: dict[str, Any]) -> Any:
        found = self.topics.get(arguments["topic"])
        if found is None:
            raise LinkEngineError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, "This server does not host this topic-partition.")
        partitions = [partition(0), partition(1), partition(2, leader=None)]
        responses = {
            "topic": found,
            "topic_rights": RIGHTS,
            "partitions": partitions,
            "topic_configs": [CONFIG],
            "alter_topic_configs": None,
        }
        return {**found, "partitions": arguments["partitions"]} if query == "grow_topic" else responses[query]

    def _of_cluster(self, query: str, arguments: dict[str, Any]) -> Any:
        if query == "create_topic":
            size = {"partitions": arguments["partitions"] or 1, "replication_factor": arguments["replication_factor"] or 1}
            return None if arguments["validate_only"] else topic(arguments["topic"], **size)
        if query in ("group", "group_lags") and arguments["group_id"] not in self.groups:
            return None
        responses: dict[str, Any] = {
            "brokers": [BROKER, {**BROKER, "broker": 2}],
            "broker_configs": [{**CONFIG, "source": "STATIC_BROKER_CONFIG"}],
            "broker_replicas": [{"topic": "plain", "partition": 0, "leader": True, "in_sync": True}],
            "reassignments": [MOVING],
            "topics": list(self.topics.values()),
            "delete_topic": arguments.get("topic") in self.topics,
            "acls": [ACL],
            "create_acls": None,
            "delete_acls": [ACL],
            "groups": {"groups": list(self.groups.values()), "incomplete": self.incomplete},
            "group": self.groups.get(arguments.get("group_id", "")),
            "group_lags": self.lags,
            "offsets_for_time": self.timed.pop(0) if len(self.timed) > 1 else self.timed[0],
            "reset_group": [{**RESET, "is_written": arguments.get("execute", False), **self.refusal}],
        }
        return responses[query]
