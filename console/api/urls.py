"""URLs of the REST API: the Kafka REST v3 interface, the additions below /api/v1, and the OpenAPI document.

The Kafka paths are below /kafka/v3 and /v3. They have no trailing slash, and a colon before a verb. ``links/-/mirrors`` (all
links) must come before the patterns with a link name, which would match ``-``.
"""

from urllib.parse import unquote

from csp.decorators import csp_update
from django.urls import path, re_path, register_converter
from drf_spectacular.views import SpectacularSwaggerSplitView

from console.access import rest as access_rest
from console.api import schema
from console.api.views import UnknownEndpointView
from console.clusters import namespace_rest, topic_rest
from console.clusters import rest as cluster_rest
from console.history import rest as history_rest
from console.http.middleware import encode_segment
from console.links import health_rest
from console.links import rest as link_rest
from console.links import v1_rest as links_v1_rest
from console.mirrors import offset_rest, operation_rest, v1_rest
from console.mirrors import rest as mirror_rest
from console.verification import failover_rest
from console.verification import rest as verification_rest


class Segment:
    """URL converter of a non-empty path segment, which it decodes."""

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        """Return the decoded segment."""
        return unquote(value)

    def to_url(self, value: str) -> str:
        """Return ``value`` as an encoded segment."""
        return encode_segment(value)


class AnySegment(Segment):
    """URL converter of a path segment that may be empty, like the name of a consumer group."""

    regex = "[^/]*"


register_converter(Segment, "segment")
register_converter(AnySegment, "any_segment")

# --- Kafka REST v3 ----------------------------------------------------------------------------------------------------

_CLUSTER = "clusters/<segment:cluster_id>"
_LINK = f"{_CLUSTER}/links/<segment:link_name>"
_BROKER = f"{_CLUSTER}/brokers/<int:broker_id>"
_TOPIC = f"{_CLUSTER}/topics/<segment:topic_name>"
_GROUP = f"{_CLUSTER}/consumer-groups/<any_segment:consumer_group_id>"

# Names of two verbs in clients of 2024: accepted but not documented.
OLDER_VERBS = {
    "promote-local-and-start-remote-mirror": "reverse-and-start-mirror",
    "promote-local-and-pause-remote-mirror": "reverse-and-pause-mirror",
}

kafka_patterns = [
    path("clusters", cluster_rest.ClusterListView.as_view()),
    path(_CLUSTER, cluster_rest.ClusterView.as_view()),
    path(f"{_CLUSTER}/links", link_rest.LinkListView.as_view(), name="links"),
    path(f"{_CLUSTER}/links/-/mirrors", mirror_rest.AllMirrorsView.as_view()),
    path(_LINK, link_rest.LinkView.as_view(), name="link"),
    path(f"{_LINK}/configs", link_rest.LinkConfigListView.as_view()),
    path(f"{_LINK}/configs:alter", link_rest.LinkConfigBatchView.as_view(), name="link-configs"),
    path(f"{_LINK}/configs/<segment:config_name>", link_rest.LinkConfigView.as_view()),
    path(f"{_LINK}/mirrors", mirror_rest.MirrorListView.as_view(), name="mirrors"),
    *(path(f"{_LINK}/mirrors:{verb}", view) for verb, view in mirror_rest.VERBS.items()),
    *(path(f"{_LINK}/mirrors:{old}", mirror_rest.VERBS[verb]) for old, verb in OLDER_VERBS.items()),
    path(f"{_LINK}/mirrors/<segment:mirror_topic_name>", mirror_rest.MirrorView.as_view(), name="mirror"),
    path(f"{_CLUSTER}/brokers", cluster_rest.BrokerListView.as_view()),
    path(_BROKER, cluster_rest.BrokerView.as_view()),
    path(f"{_BROKER}/configs", cluster_rest.BrokerConfigListView.as_view()),
    path(f"{_BROKER}/configs/<segment:name>", cluster_rest.BrokerConfigView.as_view()),
    path(f"{_BROKER}/partition-replicas", cluster_rest.HeldReplicaListView.as_view()),
    path(f"{_CLUSTER}/broker-configs", cluster_rest.ClusterConfigListView.as_view()),
    path(f"{_CLUSTER}/broker-configs/<segment:name>", cluster_rest.ClusterConfigView.as_view()),
    path(f"{_CLUSTER}/topics/-/partitions/-/reassignment", cluster_rest.AllReassignmentsView.as_view()),
    path(f"{_CLUSTER}/topics", topic_rest.TopicListView.as_view()),
    path(_TOPIC, topic_rest.TopicView.as_view(), name="topic"),
    path(f"{_TOPIC}/configs", topic_rest.TopicConfigListView.as_view()),
    path(f"{_TOPIC}/configs:alter", topic_rest.TopicConfigBatchView.as_view()),
    path(f"{_TOPIC}/configs/<segment:name>", topic_rest.TopicConfigView.as_view()),
    path(f"{_TOPIC}/partitions", topic_rest.PartitionListView.as_view()),
    path(f"{_TOPIC}/partitions/-/reassignment", cluster_rest.TopicReassignmentsView.as_view()),
    path(f"{_TOPIC}/partitions/<int:partition_id>/reassignment", cluster_rest.ReassignmentView.as_view()),
    path(f"{_TOPIC}/partitions/<int:partition_id>", topic_rest.PartitionView.as_view()),
    path(f"{_TOPIC}/partitions/<int:partition_id>/replicas", topic_rest.ReplicaListView.as_view()),
    path(f"{_TOPIC}/partitions/<int:partition_id>/replicas/<int:broker_id>", topic_rest.ReplicaView.as_view()),
    path(f"{_CLUSTER}/acls", topic_rest.AclListView.as_view()),
    path(f"{_CLUSTER}/acls:batch", topic_rest.AclBatchView.as_view()),
    path(f"{_CLUSTER}/consumer-groups", cluster_rest.GroupListView.as_view()),
    path(_GROUP, cluster_rest.GroupView.as_view()),
    path(f"{_GROUP}/consumers", cluster_rest.ConsumerListView.as_view()),
    path(f"{_GROUP}/consumers/<segment:consumer_id>", cluster_rest.ConsumerView.as_view()),
    path(f"{_GROUP}/consumers/<segment:consumer_id>/assignments", cluster_rest.AssignmentListView.as_view()),
    path(
        f"{_GROUP}/consumers/<segment:consumer_id>/assignments/<segment:topic_name>/partitions/<int:partition_id>",
        cluster_rest.AssignmentView.as_view(),
    ),
    path(f"{_GROUP}/lags", cluster_rest.LagListView.as_view()),
    path(f"{_GROUP}/lags/<segment:topic_name>/partitions/<int:partition_id>", cluster_rest.LagView.as_view()),
    path(f"{_GROUP}/lag-summary", cluster_rest.LagSummaryView.as_view()),
    re_path(r"^[\s\S]*$", UnknownEndpointView.as_view()),
]

# --- additions below /api/v1 ------------------------------------------------------------------------------------------

_MIRROR = f"{_LINK}/mirrors/<segment:mirror_topic_name>"
_NAMESPACES = "clusters/<segment:cluster_id>/namespaces"

v1_patterns = [
    path(_NAMESPACES, namespace_rest.NamespaceListView.as_view()),
    path(f"{_NAMESPACES}/<int:namespace_id>", namespace_rest.NamespaceView.as_view()),
    path(f"{_NAMESPACES}/<int:namespace_id>/link", namespace_rest.NamespaceFollowerView.as_view()),
    path("tokens", access_rest.TokenListView.as_view()),
    path("api-keys", access_rest.ApiKeyListView.as_view()),
    path("api-keys/<segment:api_key>", access_rest.ApiKeyView.as_view()),
    path("environment-health", health_rest.EnvironmentHealthListView.as_view()),
    path("environments/<segment:environment>/health", health_rest.EnvironmentHealthView.as_view()),
    path("clusters/<segment:cluster_id>/health", health_rest.ClusterHealthView.as_view()),
    path("clusters/<segment:cluster_id>/link-health", health_rest.LinkHealthListView.as_view()),
    path(f"{_LINK}/health", health_rest.LinkHealthView.as_view()),
    path(f"{_LINK}/tasks", links_v1_rest.LinkTaskListView.as_view()),
    path(f"{_LINK}/tasks/<segment:task_name>/run", links_v1_rest.LinkTaskRunView.as_view()),
    path(f"{_LINK}/source-topics", links_v1_rest.SourceTopicListView.as_view()),
    path(f"{_LINK}/source-topics/<segment:source_topic_name>", links_v1_rest.SourceTopicView.as_view()),
    path(f"{_LINK}/consumer-groups", links_v1_rest.GroupListView.as_view()),
    path(f"{_LINK}/acls", links_v1_rest.AclListView.as_view()),
    path(f"{_LINK}/history", history_rest.LinkHistoryView.as_view()),
    path(f"{_LINK}/rates", v1_rest.LinkRatesView.as_view()),
    path(f"{_LINK}/drills", failover_rest.DrillListView.as_view()),
    path(f"{_LINK}/drills/<int:drill_id>", failover_rest.DrillView.as_view()),
    path(f"{_LINK}/drills/<int:drill_id>/cancel", failover_rest.CancelDrillView.as_view()),
    path(f"{_LINK}/approval-requests", access_rest.ApprovalRequestListView.as_view()),
    path(f"{_LINK}/approval-requests/<int:request_id>", access_rest.ApprovalRequestView.as_view()),
    path(f"{_LINK}/approval-requests/<int:request_id>/withdraw", access_rest.WithdrawApprovalView.as_view()),
    path(f"{_LINK}/stop-reports", failover_rest.LinkStopReportListView.as_view()),
    path(f"{_MIRROR}/stop-reports", failover_rest.MirrorStopReportListView.as_view()),
    path(f"{_LINK}/previews", operation_rest.PreviewListView.as_view()),
    path(
        "clusters/<segment:cluster_id>/topics/<segment:topic_name>/deletion-preview", operation_rest.TopicDeletionView.as_view()
    ),
    path(f"{_MIRROR}/restores", operation_rest.RestoreRunListView.as_view()),
    path(f"{_MIRROR}/restores/<int:restore_id>/records", operation_rest.RestoreRecordsView.as_view()),
    path(f"{_MIRROR}/gate-runs", verification_rest.GateRunListView.as_view()),
    path(f"{_MIRROR}/gate-overrides", verification_rest.GateOverrideView.as_view()),
    path(f"{_MIRROR}/verify-runs", verification_rest.VerifyRunListView.as_view(), name="v1-verify-runs"),
    path(f"{_MIRROR}/verify-runs/<int:run_id>", verification_rest.VerifyRunView.as_view()),
    path(f"{_MIRROR}/verification", verification_rest.VerificationView.as_view()),
    path(f"{_MIRROR}/verified-ranges", verification_rest.VerifiedRangeListView.as_view()),
    path(f"{_MIRROR}/records", verification_rest.RecordComparisonView.as_view()),
    path(f"{_MIRROR}/offsets-for-time", offset_rest.OffsetsForTimeView.as_view()),
    path(f"{_MIRROR}/group-resets", offset_rest.GroupResetView.as_view()),
    path(f"{_MIRROR}/clamped-offsets", links_v1_rest.ClampedOffsetListView.as_view()),
    path(f"{_MIRROR}/gaps", v1_rest.GapListView.as_view()),
    path(f"{_MIRROR}/refused-configs", operation_rest.RefusedConfigsView.as_view()),
    path(f"{_MIRROR}/recover", operation_rest.RecoverView.as_view(), name="v1-recover"),
    path(f"{_MIRROR}/reparent", operation_rest.ReparentView.as_view()),
    path(f"{_MIRROR}/lineage", v1_rest.LineageListView.as_view()),
    path(f"{_MIRROR}/configs", v1_rest.MirrorConfigsView.as_view()),
    path(f"{_MIRROR}/state", v1_rest.MirrorStateView.as_view()),
    path(f"{_MIRROR}/transitions", v1_rest.TransitionListView.as_view()),
    path(f"{_MIRROR}/history", history_rest.MirrorHistoryView.as_view()),
    path(f"{_MIRROR}/partitions", v1_rest.PartitionListView.as_view()),
    re_path(r"^[\s\S]*$", UnknownEndpointView.as_view()),
]

# --- the OpenAPI document, below /api ---------------------------------------------------------------------------------

# Swagger UI sets style attributes and embeds its images as data: URLs, which the default policy allows. Only style-src is
# relaxed, and only on this page.
viewer = csp_update({"style-src": ["'unsafe-inline'"]})(
    SpectacularSwaggerSplitView.as_view(url_name="rest-schema", title=schema.SETTINGS["TITLE"])
)

document_patterns = [
    path("schema", schema.respond, name="rest-schema"),
    path("docs/", viewer, name="rest-docs"),
]
