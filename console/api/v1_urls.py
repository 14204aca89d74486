"""URLs below /api/v1."""

from django.urls import path, re_path

import console.api.paths  # noqa: F401 - registers the converters
from console.api.v1 import (
    drills,
    gates,
    groups,
    health,
    history,
    lineage,
    mirrorconfigs,
    mirrorstates,
    namespaces,
    offsets,
    previews,
    records,
    recovering,
    refusals,
    reparenting,
    restores,
    sourcetopics,
    stopreports,
    tasks,
    tokens,
    views,
)
from console.api.views import UnknownEndpointView

_LINK = "clusters/<segment:cluster_id>/links/<segment:link_name>"
_MIRROR = f"{_LINK}/mirrors/<segment:mirror_topic_name>"

_NAMESPACES = "clusters/<segment:cluster_id>/namespaces"

urlpatterns = [
    path(_NAMESPACES, namespaces.NamespaceListView.as_view()),
    path(f"{_NAMESPACES}/<int:namespace_id>", namespaces.NamespaceView.as_view()),
    path(f"{_NAMESPACES}/<int:namespace_id>/link", namespaces.NamespaceFollowerView.as_view()),
    path("tokens", tokens.TokenListView.as_view()),
    path("clusters/<segment:cluster_id>/link-health", health.LinkHealthListView.as_view()),
    path(f"{_LINK}/health", health.LinkHealthView.as_view()),
    path(f"{_LINK}/tasks", tasks.LinkTaskListView.as_view()),
    path(f"{_LINK}/tasks/<segment:task_name>/run", tasks.LinkTaskRunView.as_view()),
    path(f"{_LINK}/source-topics", sourcetopics.SourceTopicListView.as_view()),
    path(f"{_LINK}/source-topics/<segment:source_topic_name>", sourcetopics.SourceTopicView.as_view()),
    path(f"{_LINK}/consumer-groups", groups.GroupListView.as_view()),
    path(f"{_LINK}/acls", groups.AclListView.as_view()),
    path(f"{_LINK}/history", history.LinkHistoryView.as_view()),
    path(f"{_LINK}/rates", views.LinkRatesView.as_view()),
    path(f"{_LINK}/drills", drills.DrillListView.as_view()),
    path(f"{_LINK}/drills/<int:drill_id>", drills.DrillView.as_view()),
    path(f"{_LINK}/drills/<int:drill_id>/cancel", drills.CancelDrillView.as_view()),
    path(f"{_LINK}/stop-reports", stopreports.LinkStopReportListView.as_view()),
    path(f"{_MIRROR}/stop-reports", stopreports.MirrorStopReportListView.as_view()),
    path(f"{_LINK}/previews", previews.PreviewListView.as_view()),
    path("clusters/<segment:cluster_id>/topics/<segment:topic_name>/deletion-preview", previews.TopicDeletionView.as_view()),
    path(f"{_MIRROR}/restores", restores.RestoreRunListView.as_view()),
    path(f"{_MIRROR}/restores/<int:restore_id>/records", restores.RestoreRecordsView.as_view()),
    path(f"{_MIRROR}/gate-runs", gates.GateRunListView.as_view()),
    path(f"{_MIRROR}/gate-overrides", gates.GateOverrideView.as_view()),
    path(f"{_MIRROR}/verify-runs", views.VerifyRunListView.as_view()),
    path(f"{_MIRROR}/verify-runs/<int:run_id>", views.VerifyRunView.as_view()),
    path(f"{_MIRROR}/verification", views.VerificationView.as_view()),
    path(f"{_MIRROR}/verified-ranges", views.VerifiedRangeListView.as_view()),
    path(f"{_MIRROR}/records", records.RecordComparisonView.as_view()),
    path(f"{_MIRROR}/offsets-for-time", offsets.OffsetsForTimeView.as_view()),
    path(f"{_MIRROR}/group-resets", offsets.GroupResetView.as_view()),
    path(f"{_MIRROR}/clamped-offsets", groups.ClampedOffsetListView.as_view()),
    path(f"{_MIRROR}/gaps", views.GapListView.as_view()),
    path(f"{_MIRROR}/refused-configs", refusals.RefusedConfigsView.as_view()),
    path(f"{_MIRROR}/recover", recovering.RecoverView.as_view()),
    path(f"{_MIRROR}/reparent", reparenting.ReparentView.as_view()),
    path(f"{_MIRROR}/lineage", lineage.LineageListView.as_view()),
    path(f"{_MIRROR}/configs", mirrorconfigs.MirrorConfigsView.as_view()),
    path(f"{_MIRROR}/state", mirrorstates.MirrorStateView.as_view()),
    path(f"{_MIRROR}/transitions", views.TransitionListView.as_view()),
    path(f"{_MIRROR}/history", history.MirrorHistoryView.as_view()),
    path(f"{_MIRROR}/partitions", views.PartitionListView.as_view()),
    re_path(r"^[\s\S]*$", UnknownEndpointView.as_view()),
]
