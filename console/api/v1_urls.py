"""URLs below /api/v1."""

from django.urls import path, re_path

import console.api.paths  # noqa: F401 - registers the converters
from console.access import approval_rest
from console.access import rest as access_rest
from console.api.views import UnknownEndpointView
from console.clusters import namespace_rest
from console.history import rest as history_rest
from console.links import health_rest
from console.links import v1_rest as link_v1_rest
from console.mirrors import operation_rest, v1_rest
from console.verification import drill_rest, record_rest, report_rest, rest
from console.verification import rest as verification_rest

_LINK = "clusters/<segment:cluster_id>/links/<segment:link_name>"
_MIRROR = f"{_LINK}/mirrors/<segment:mirror_topic_name>"

_NAMESPACES = "clusters/<segment:cluster_id>/namespaces"

urlpatterns = [
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
    path(f"{_LINK}/tasks", link_v1_rest.LinkTaskListView.as_view()),
    path(f"{_LINK}/tasks/<segment:task_name>/run", link_v1_rest.LinkTaskRunView.as_view()),
    path(f"{_LINK}/source-topics", link_v1_rest.SourceTopicListView.as_view()),
    path(f"{_LINK}/source-topics/<segment:source_topic_name>", link_v1_rest.SourceTopicView.as_view()),
    path(f"{_LINK}/consumer-groups", link_v1_rest.GroupListView.as_view()),
    path(f"{_LINK}/acls", link_v1_rest.AclListView.as_view()),
    path(f"{_LINK}/history", history_rest.LinkHistoryView.as_view()),
    path(f"{_LINK}/rates", link_v1_rest.LinkRatesView.as_view()),
    path(f"{_LINK}/drills", drill_rest.DrillListView.as_view()),
    path(f"{_LINK}/drills/<int:drill_id>", drill_rest.DrillView.as_view()),
    path(f"{_LINK}/drills/<int:drill_id>/cancel", drill_rest.CancelDrillView.as_view()),
    path(f"{_LINK}/approval-requests", approval_rest.ApprovalRequestListView.as_view()),
    path(f"{_LINK}/approval-requests/<int:request_id>", approval_rest.ApprovalRequestView.as_view()),
    path(f"{_LINK}/approval-requests/<int:request_id>/withdraw", approval_rest.WithdrawApprovalView.as_view()),
    path(f"{_LINK}/stop-reports", report_rest.LinkStopReportListView.as_view()),
    path(f"{_MIRROR}/stop-reports", report_rest.MirrorStopReportListView.as_view()),
    path(f"{_LINK}/previews", operation_rest.PreviewListView.as_view()),
    path(
        "clusters/<segment:cluster_id>/topics/<segment:topic_name>/deletion-preview", operation_rest.TopicDeletionView.as_view()
    ),
    path(f"{_MIRROR}/restores", operation_rest.RestoreRunListView.as_view()),
    path(f"{_MIRROR}/restores/<int:restore_id>/records", operation_rest.RestoreRecordsView.as_view()),
    path(f"{_MIRROR}/gate-runs", verification_rest.GateRunListView.as_view()),
    path(f"{_MIRROR}/gate-overrides", verification_rest.GateOverrideView.as_view()),
    path(f"{_MIRROR}/verify-runs", rest.VerifyRunListView.as_view(), name="v1-verify-runs"),
    path(f"{_MIRROR}/verify-runs/<int:run_id>", rest.VerifyRunView.as_view()),
    path(f"{_MIRROR}/verification", rest.VerificationView.as_view()),
    path(f"{_MIRROR}/verified-ranges", rest.VerifiedRangeListView.as_view()),
    path(f"{_MIRROR}/records", record_rest.RecordComparisonView.as_view()),
    path(f"{_MIRROR}/offsets-for-time", v1_rest.OffsetsForTimeView.as_view()),
    path(f"{_MIRROR}/group-resets", v1_rest.GroupResetView.as_view()),
    path(f"{_MIRROR}/clamped-offsets", link_v1_rest.ClampedOffsetListView.as_view()),
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
