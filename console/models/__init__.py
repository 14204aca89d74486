"""Models and their invariants. No decisions and no effects: ``queries`` read them, ``actions`` write them."""

from console.models.access import (
    Account,
    ApiKey,
    AuditEvent,
    GroupMember,
    Invitation,
    RoleBinding,
    UserGroup,
    UserSession,
)
from console.models.acls import SyncedAcl
from console.models.approvals import ApprovalRequest
from console.models.bulkoperations import BulkOperation, BulkOperationTopic
from console.models.clusters import Cluster, Environment, Organization, SourceTopic
from console.models.drills import Drill
from console.models.groups import ClampedOffset, GroupOffset, SyncedGroup
from console.models.lineage import LineageRange
from console.models.linkdrafts import LinkDraft
from console.models.links import ClusterLink, LinkConfig
from console.models.linktasks import AutoCreateFailure, LinkTask
from console.models.mirrors import ConfigRevert, GapRange, MirrorPartition, MirrorTopic, StateTransition, StateTransitionError
from console.models.namespaces import Namespace
from console.models.reports import StopReport
from console.models.restores import RestoreRun
from console.models.samples import LinkSample, LinkSampleSummary, MirrorSample, MirrorSampleSummary
from console.models.verification import GateRun, VerifiedRange, VerifyRun, VerifyWatch
from console.models.workers import CopyWorker

__all__ = [
    "Account",
    "ApiKey",
    "ApprovalRequest",
    "AuditEvent",
    "AutoCreateFailure",
    "BulkOperation",
    "BulkOperationTopic",
    "ClampedOffset",
    "Cluster",
    "ClusterLink",
    "ConfigRevert",
    "CopyWorker",
    "Drill",
    "Environment",
    "GapRange",
    "GateRun",
    "GroupMember",
    "GroupOffset",
    "Invitation",
    "LineageRange",
    "LinkConfig",
    "LinkDraft",
    "LinkSample",
    "LinkSampleSummary",
    "LinkTask",
    "MirrorPartition",
    "MirrorSample",
    "MirrorSampleSummary",
    "MirrorTopic",
    "Namespace",
    "Organization",
    "RestoreRun",
    "RoleBinding",
    "SourceTopic",
    "StateTransition",
    "StateTransitionError",
    "StopReport",
    "SyncedAcl",
    "SyncedGroup",
    "UserGroup",
    "UserSession",
    "VerifiedRange",
    "VerifyRun",
    "VerifyWatch",
]
