"""Every REST operation with every role at every scope: it is refused unless the table below permits it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from console.api.schema import document
from console.mirrors import diverged_exports
from console.models import (
    ApprovalRequest,
    Cluster,
    ClusterLink,
    Drill,
    Environment,
    MirrorTopic,
    Namespace,
    Organization,
    RestoreRun,
    RoleBinding,
    VerifyRun,
)
from tests.console.api.actors import DESTINATION, NOW, SOURCE, Rest, make_key
from tests.console.api.brokers import ACL

pytestmark = pytest.mark.django_db

# --- what is expected -------------------------------------------------------------------------------------------------

# Roles with each permission, written down here and not read from ``ROLE_PERMISSIONS``.
POWER: tuple[str, ...] = (
    "DeveloperRead",
    "Auditor",
    "Operator",
    "DeveloperManage",
    "ResourceOwner",
    "CloudClusterAdmin",
    "EnvironmentAdmin",
    "OrganizationAdmin",
)
READERS = {"DeveloperRead", "Auditor"}
OPERATORS = {"Operator"}
DEVELOPERS = {"DeveloperManage", "ResourceOwner", "CloudClusterAdmin", "EnvironmentAdmin", "OrganizationAdmin"}
OWNERS = DEVELOPERS - {"DeveloperManage"}
ADMINS = OWNERS - {"ResourceOwner"}
ROLES = READERS | OPERATORS | DEVELOPERS
VIEW, OPERATE, MANAGE, LINKS, ACLS = ROLES, OPERATORS | DEVELOPERS, DEVELOPERS, OWNERS, ADMINS

# What a role reaches at a scope. "part": an object is visible because the role reaches something in it.
SCOPES: Mapping[str, set[str]] = {
    "organization": {"everything"},
    "environment": {"everything"},
    "cluster": {"everything"},
    "link from-source": {"environment part", "cluster part", "link part", "link", "mirror"},
    "topic orders": {"environment part", "cluster part", "link part", "mirror"},
    "topic salaries": {"environment part", "cluster part", "link part"},  # the link mirrors it as well
    "topic plain": {"environment part", "cluster part", "plain"},
    "group readers": {"environment part", "cluster part", "group"},
    "link other": {"environment part", "cluster part"},
    "source cluster": {"environment part"},
    "another organization": set(),
    "an expired role": set(),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and who may make it: a role with the permission at a scope that reaches the level."""

    path: str
    roles: set[str]
    level: str
    body: Any = None

    def permits(self, role: str, reached: set[str]) -> bool:
        return self.level == "anywhere" or (role in self.roles and bool(reached & {"everything", self.level}))


K, V = f"/kafka/v3/clusters/{DESTINATION}", f"/api/v1/clusters/{DESTINATION}"
L, KL = f"{V}/links/from-source", f"{K}/links/from-source"
M = f"{L}/mirrors/orders"
PLAIN, GROUP = f"{K}/topics/plain", f"{K}/consumer-groups/readers"
CONFIG = {"data": [{"name": "consumer.offset.sync.ms", "value": "7000"}]}
NAMED = {"mirror_topic_names": ["orders"]}
RETENTION = {"data": [{"name": "retention.ms", "value": "7000"}]}
FILTER = "?resource_type=TOPIC&pattern_type=LITERAL&operation=READ&permission=ALLOW"
NEW_LINK = {"source_cluster_id": "elsewhere", "configs": [{"name": "bootstrap.servers", "value": "elsewhere.test:9092"}]}

CASES: Mapping[str, Case] = {
    # the caller's own, and lists of what the caller may see
    "listApiKeys": Case("/api/v1/api-keys", ROLES, "anywhere"),
    "deleteApiKey": Case("/api/v1/api-keys/{key}", ROLES, "anywhere"),
    "createAccessToken": Case("/api/v1/tokens", ROLES, "anywhere", {}),
    "listKafkaClusters": Case("/kafka/v3/clusters", ROLES, "anywhere"),
    "listEnvironmentHealth": Case("/api/v1/environment-health", ROLES, "anywhere"),
    "getEnvironmentHealth": Case("/api/v1/environments/production/health", VIEW, "environment part"),
    "getKafkaCluster": Case(K, VIEW, "cluster part"),
    "getClusterHealth": Case(f"{V}/health", VIEW, "cluster part"),
    "listLinkHealth": Case(f"{V}/link-health", VIEW, "cluster part"),
    "listKafkaLinks": Case(f"{K}/links", VIEW, "cluster part"),
    "listKafkaMirrorTopics": Case(f"{K}/links/-/mirrors", VIEW, "cluster part"),
    "listKafkaTopics": Case(f"{K}/topics", VIEW, "cluster part"),
    "listKafkaConsumerGroups": Case(f"{K}/consumer-groups", VIEW, "cluster part"),
    "listKafkaReassignments": Case(f"{K}/topics/-/partitions/-/reassignment", VIEW, "cluster part"),
    # the whole cluster
    "getKafkaAcls": Case(f"{K}/acls", VIEW, "cluster"),
    "createKafkaAcls": Case(f"{K}/acls", ACLS, "cluster", ACL),
    "batchCreateKafkaAcls": Case(f"{K}/acls:batch", ACLS, "cluster", {"data": [ACL]}),
    "deleteKafkaAcls": Case(f"{K}/acls{FILTER}", ACLS, "cluster"),
    "listKafkaClusterConfigs": Case(f"{K}/broker-configs", VIEW, "cluster"),
    "getKafkaClusterConfig": Case(f"{K}/broker-configs/retention.ms", VIEW, "cluster"),
    "listKafkaBrokers": Case(f"{K}/brokers", VIEW, "cluster"),
    "getKafkaBroker": Case(f"{K}/brokers/1", VIEW, "cluster"),
    "listKafkaBrokerConfigs": Case(f"{K}/brokers/1/configs", VIEW, "cluster"),
    "getKafkaBrokerConfig": Case(f"{K}/brokers/1/configs/retention.ms", VIEW, "cluster"),
    "listKafkaBrokerReplicas": Case(f"{K}/brokers/1/partition-replicas", VIEW, "cluster"),
    "createKafkaLink": Case(f"{K}/links?link_name=new&validate_link=false", LINKS, "cluster", NEW_LINK),
    "createKafkaTopic": Case(f"{K}/topics", MANAGE, "cluster", {"topic_name": "fresh"}),
    "listNamespaces": Case(f"{V}/namespaces", VIEW, "cluster"),
    "createNamespace": Case(f"{V}/namespaces", ACLS, "cluster", {"prefix": "us."}),
    "getNamespace": Case(f"{V}/namespaces/1", VIEW, "cluster"),
    "reserveNamespace": Case(f"{V}/namespaces/1", ACLS, "cluster", {"reserved": True}),
    "deleteNamespace": Case(f"{V}/namespaces/1", ACLS, "cluster"),
    "attachNamespace": Case(f"{V}/namespaces/1/link", ACLS, "cluster", {"link_name": "from-source"}),
    "detachNamespace": Case(f"{V}/namespaces/1/link", ACLS, "cluster"),
    # an ordinary topic, and a consumer group
    "getKafkaTopic": Case(PLAIN, VIEW, "plain"),
    "updatePartitionCountKafkaTopic": Case(PLAIN, MANAGE, "plain", {"partitions_count": 9}),
    "deleteKafkaTopic": Case(PLAIN, MANAGE, "plain"),
    "listKafkaTopicConfigs": Case(f"{PLAIN}/configs", VIEW, "plain"),
    "getKafkaTopicConfig": Case(f"{PLAIN}/configs/retention.ms", VIEW, "plain"),
    "updateKafkaTopicConfig": Case(f"{PLAIN}/configs/retention.ms", MANAGE, "plain", {"value": "7000"}),
    "deleteKafkaTopicConfig": Case(f"{PLAIN}/configs/retention.ms", MANAGE, "plain"),
    "updateKafkaTopicConfigBatch": Case(f"{PLAIN}/configs:alter", MANAGE, "plain", RETENTION),
    "listKafkaPartitions": Case(f"{PLAIN}/partitions", VIEW, "plain"),
    "getKafkaPartition": Case(f"{PLAIN}/partitions/0", VIEW, "plain"),
    "getKafkaReassignment": Case(f"{PLAIN}/partitions/0/reassignment", VIEW, "plain"),
    "listKafkaReplicas": Case(f"{PLAIN}/partitions/0/replicas", VIEW, "plain"),
    "getKafkaReplica": Case(f"{PLAIN}/partitions/0/replicas/1", VIEW, "plain"),
    "listKafkaTopicReassignments": Case(f"{PLAIN}/partitions/-/reassignment", VIEW, "plain"),
    "previewTopicDeletion": Case(f"{V}/topics/plain/deletion-preview", MANAGE, "plain"),
    "getKafkaConsumerGroup": Case(GROUP, VIEW, "group"),
    "listKafkaConsumers": Case(f"{GROUP}/consumers", VIEW, "group"),
    "getKafkaConsumer": Case(f"{GROUP}/consumers/c-1", VIEW, "group"),
    "listKafkaConsumerAssignments": Case(f"{GROUP}/consumers/c-1/assignments", VIEW, "group"),
    "getKafkaConsumerAssignment": Case(f"{GROUP}/consumers/c-1/assignments/plain/partitions/0", VIEW, "group"),
    "getKafkaConsumerGroupLagSummary": Case(f"{GROUP}/lag-summary", VIEW, "group"),
    "listKafkaConsumerLags": Case(f"{GROUP}/lags", VIEW, "group"),
    "getKafkaConsumerLag": Case(f"{GROUP}/lags/plain/partitions/0", VIEW, "group"),
    # a link, as far as it is visible
    "getKafkaLink": Case(KL, VIEW, "link part"),
    "getLinkHealth": Case(f"{L}/health", VIEW, "link part"),
    "listKafkaMirrorTopicsUnderLink": Case(f"{KL}/mirrors", VIEW, "link part"),
    "previewOperation": Case(f"{L}/previews?operation=pause", VIEW, "link part"),
    "listLinkStopReports": Case(f"{L}/stop-reports", VIEW, "link part"),
    "listApprovalRequests": Case(f"{L}/approval-requests", VIEW, "link part"),
    "getApprovalRequest": Case(f"{L}/approval-requests/1", VIEW, "link"),  # another user's
    "withdrawApprovalRequest": Case(f"{L}/approval-requests/2/withdraw", VIEW, "link part"),  # the caller's own
    # the whole link
    "listLinkAcls": Case(f"{L}/acls", VIEW, "link"),
    "listLinkConsumerGroups": Case(f"{L}/consumer-groups", VIEW, "link"),
    "listDrills": Case(f"{L}/drills", VIEW, "link"),
    "startDrill": Case(f"{L}/drills", MANAGE, "link", {}),
    "getDrill": Case(f"{L}/drills/1", VIEW, "link"),
    "cancelDrill": Case(f"{L}/drills/1/cancel", MANAGE, "link"),
    "getLinkHistory": Case(f"{L}/history", VIEW, "link"),
    "getLinkRates": Case(f"{L}/rates", VIEW, "link"),
    "listSourceTopics": Case(f"{L}/source-topics", VIEW, "link"),
    "getSourceTopic": Case(f"{L}/source-topics/orders", VIEW, "link"),
    "listLinkTasks": Case(f"{L}/tasks", VIEW, "link"),
    "runLinkTask": Case(f"{L}/tasks/TopicConfigsSync/run", LINKS, "link"),
    "deleteKafkaLink": Case(KL, LINKS, "link"),
    "listKafkaLinkConfigs": Case(f"{KL}/configs", VIEW, "link"),
    "getKafkaLinkConfigs": Case(f"{KL}/configs/consumer.offset.sync.ms", VIEW, "link"),
    "updateKafkaLinkConfig": Case(f"{KL}/configs/consumer.offset.sync.ms", LINKS, "link", {"value": "7000"}),
    "deleteKafkaLinkConfig": Case(f"{KL}/configs/consumer.offset.sync.ms", LINKS, "link"),
    "alterKafkaLinkConfigBatch": Case(f"{KL}/configs:alter", LINKS, "link", CONFIG),
    "updateKafkaLinkConfigBatch": Case(f"{KL}/configs:alter", LINKS, "link", CONFIG),
    "createKafkaMirrorTopic": Case(f"{KL}/mirrors", MANAGE, "link", {"source_topic_name": "fresh"}),
    # a mirror topic
    "readKafkaMirrorTopic": Case(f"{KL}/mirrors/orders", VIEW, "mirror"),
    "updateKafkaMirrorTopicsFailover": Case(f"{KL}/mirrors:failover", OPERATE, "mirror", NAMED),
    "updateKafkaMirrorTopicsPause": Case(f"{KL}/mirrors:pause", OPERATE, "mirror", NAMED),
    "updateKafkaMirrorTopicsPromote": Case(f"{KL}/mirrors:promote", OPERATE, "mirror", NAMED),
    "updateKafkaMirrorTopicsResume": Case(f"{KL}/mirrors:resume", OPERATE, "mirror", NAMED),
    "updateKafkaMirrorTopicsReverseAndPauseMirror": Case(f"{KL}/mirrors:reverse-and-pause-mirror", OPERATE, "mirror", NAMED),
    "updateKafkaMirrorTopicsReverseAndStartMirror": Case(f"{KL}/mirrors:reverse-and-start-mirror", OPERATE, "mirror", NAMED),
    "updateKafkaMirrorTopicsTruncateAndRestoreMirror": Case(f"{KL}/mirrors:truncate-and-restore", OPERATE, "mirror", NAMED),
    "requestApproval": Case(f"{L}/approval-requests", MANAGE, "mirror", {**NAMED, "operation": "delete", "reason": "a reason"}),
    "listClampedOffsets": Case(f"{M}/clamped-offsets", VIEW, "mirror"),
    "getMirrorConfigs": Case(f"{M}/configs", VIEW, "mirror"),
    "listGaps": Case(f"{M}/gaps", VIEW, "mirror"),
    "overrideGate": Case(f"{M}/gate-overrides", OPERATE, "mirror", {"reason": "a reason"}),
    "listGateRuns": Case(f"{M}/gate-runs", VIEW, "mirror"),
    "startGateRun": Case(f"{M}/gate-runs", OPERATE, "mirror"),
    "resetConsumerGroup": Case(
        f"{M}/group-resets",
        MANAGE,
        "cluster",  # the mirror and the group
        {"consumer_group_id": "readers", "offsets": [{"partition": 0, "offset": 7}], "execute": True},
    ),
    "getMirrorHistory": Case(f"{M}/history", VIEW, "mirror"),
    "listLineage": Case(f"{M}/lineage", VIEW, "mirror"),
    "listOffsetsForTime": Case(f"{M}/offsets-for-time?timestamp_ms=0", VIEW, "mirror"),
    "listPartitions": Case(f"{M}/partitions", VIEW, "mirror"),
    "compareRecord": Case(f"{M}/records?partition=0&offset=7", MANAGE, "mirror"),
    "recoverMirrorTopic": Case(f"{M}/recover", OPERATE, "mirror"),
    "listRefusedConfigs": Case(f"{M}/refused-configs", VIEW, "mirror"),
    "retryRefusedConfigs": Case(f"{M}/refused-configs", OPERATE, "mirror"),
    "reparentMirrorTopic": Case(f"{M}/reparent", MANAGE, "cluster", {"link_name": "other"}),  # both links
    "listRestores": Case(f"{M}/restores", VIEW, "mirror"),
    "getRestoreRecords": Case(f"{M}/restores/1/records", MANAGE, "mirror"),
    "getMirrorState": Case(f"{M}/state", VIEW, "mirror"),
    "listMirrorStopReports": Case(f"{M}/stop-reports", VIEW, "mirror"),
    "listTransitions": Case(f"{M}/transitions", VIEW, "mirror"),
    "getVerification": Case(f"{M}/verification", VIEW, "mirror"),
    "listVerifiedRanges": Case(f"{M}/verified-ranges", VIEW, "mirror"),
    "listVerifyRuns": Case(f"{M}/verify-runs", VIEW, "mirror"),
    "startVerifyRun": Case(f"{M}/verify-runs", OPERATE, "mirror"),
    "getVerifyRun": Case(f"{M}/verify-runs/1", VIEW, "mirror"),
}
METHODS = {
    operation["operationId"]: method for methods in document()["paths"].values() for method, operation in methods.items()
}

# --- the requests -----------------------------------------------------------------------------------------------------


@pytest.fixture
def caller(environment: Environment) -> tuple[User, Rest]:
    user = User.objects.create_user("caller")
    key, secret = make_key(user)
    return user, Rest(key.key, secret)


@pytest.fixture
def places(
    caller: tuple[User, Rest], link: ClusterLink, source: Cluster, make_mirror: Any, settings: Any, tmp_path: Path
) -> dict[str, dict[str, Any]]:
    """An object of each kind, and the place of each scope as the fields of a role binding."""
    cluster, environment, until = link.destination, link.destination.environment, timezone.now() + timedelta(hours=1)
    environment.approval_operations = ["delete"]
    environment.save()
    orders: MirrorTopic = make_mirror("orders")
    make_mirror("salaries")
    dated = {"state_since": NOW, "created_at": NOW, "created_by": "owner", "properties": {}}
    ClusterLink.objects.create(name="other", destination=cluster, source=source, source_cluster_id=SOURCE, **dated)
    drill = {"status": "RUNNING", "status_since": NOW, "start_spec": "latest", "requested_by": "owner", "requested_at": NOW}
    Drill.objects.create(pk=1, link=link, topics=["orders"], **drill)
    Namespace.objects.create(pk=1, cluster=cluster, prefix="eu.", created_at=NOW, created_by="owner")
    VerifyRun.objects.create(pk=1, mirror=orders, status="EQUAL", requested_by="owner", requested_at=NOW)
    settings.EXPORT_DIR = str(tmp_path)
    with diverged_exports.writing("orders-1.jsonl.gz") as sink:
        sink(b"{}\n")
    export = {
        "export_name": "orders-1.jsonl.gz",
        "export_records": 1,
        "exported_at": NOW,
        "requested_by": "owner",
        "requested_at": NOW,
    }
    RestoreRun.objects.create(pk=1, mirror=orders, **export)
    for number, user in enumerate((User.objects.create_user("colleague"), caller[0]), start=1):
        wanted = {"operation": "delete", "topics": ["salaries"], "reason": "a reason", "user": user}
        ApprovalRequest.objects.create(pk=number, link=link, requested_at=NOW, expires_at=until, **wanted)
    organization = Organization.objects.create(name="Other", created_at=NOW)

    def on(kind: str, name: str) -> dict[str, Any]:
        return {"cluster": cluster, "resource_type": kind, "resource_name": name}

    return {
        "organization": {"organization": environment.organization},
        "environment": {"environment": environment},
        "cluster": {"cluster": cluster},
        "link from-source": on("ClusterLink", "from-source"),
        "topic orders": on("Topic", "orders"),
        "topic salaries": on("Topic", "salaries"),
        "topic plain": on("Topic", "plain"),
        "group readers": on("Group", "readers"),
        "link other": on("ClusterLink", "other"),
        "source cluster": {"cluster": source},
        "another organization": {"organization": organization},
        "an expired role": {"environment": environment, "expires_at": NOW},
    }


@contextmanager
def undone() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def is_refused(response: Any) -> bool:
    """Return whether the request was refused because of roles: 403, 404, or one of these as the result of a topic."""
    assert response.status_code < 500, response.content
    if response.streaming:  # the file of a restore; ``close`` would also close the connection to the database
        for close in response._resource_closers:
            close()
    if response.status_code != 200 or not response.get("Content-Type", "").startswith("application/json"):
        return response.status_code in {401, 403, 404}
    rows = json.loads(response.content or b"null")
    found = rows.get("data", []) if isinstance(rows, dict) else []
    return any(isinstance(row, dict) and row.get("error_code") in {403, 404} for row in found)


def test_the_table_has_every_operation() -> None:
    assert set(CASES) == set(METHODS)
    assert set(RoleBinding.Role.values) == ROLES == set(POWER)


@pytest.mark.parametrize("operation", CASES)
def test_operation_needs_its_permission_at_its_scope(
    operation: str, caller: tuple[User, Rest], places: dict[str, dict[str, Any]]
) -> None:
    """Every role at the narrowest scope that suffices; elsewhere the least and the most powerful role that matter."""
    user, client = caller
    case = CASES[operation]
    assert set(places) == set(SCOPES)

    def refused(role: str, *scopes: str) -> bool:
        with undone():
            for scope in scopes:
                RoleBinding.objects.create(user=user, role=role, granted_at=NOW, granted_by="test", **places[scope])
            return is_refused(client.call(METHODS[operation], case.path.format(key=client.key), case.body))

    reaching = [scope for scope, reached in SCOPES.items() if case.permits("OrganizationAdmin", reached)]
    others = [scope for scope in SCOPES if scope not in reaching]
    least = next(role for role in POWER if role in case.roles)

    assert {role for role in POWER if not refused(role, reaching[-1])} == (ROLES if case.level == "anywhere" else case.roles)
    assert [scope for scope in reaching if refused(least, scope)] == []
    if others and not refused("OrganizationAdmin", *others):  # several together may suffice
        assert [scope for scope in others if not refused("OrganizationAdmin", scope)] == []


def test_refusals_do_not_reveal_that_the_objects_exist(caller: tuple[User, Rest], places: dict[str, dict[str, Any]]) -> None:
    """A cluster or environment of another organization is refused with the words for an unknown one."""
    client, wrong, unknown = caller[1], [], SOURCE[::-1]
    for operation, case in CASES.items():
        if case.level == "anywhere":
            continue
        refused = client.call(METHODS[operation], case.path, case.body)
        path = case.path.replace(DESTINATION, unknown).replace("production", "unknown")
        missing = client.call(METHODS[operation], path, case.body)
        words = missing.content.decode().replace(unknown, DESTINATION).replace("unknown", "production")
        if (refused.status_code, missing.status_code) != (404, 404) or refused.content.decode() != words:
            wrong.append((operation, refused.content, missing.content))

    assert wrong == []
