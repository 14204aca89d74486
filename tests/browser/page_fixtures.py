"""Additional rows of the page data: errors, reports, groups, ACLs, samples, namespaces, gate, audit events."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import User

from console.links.drafts import DraftValues
from console.models import (
    Account,
    ApiKey,
    ApprovalRequest,
    AuditEvent,
    BulkOperation,
    BulkOperationTopic,
    ClampedOffset,
    Drill,
    GapRange,
    GateRun,
    GroupMember,
    GroupOffset,
    LinkDraft,
    LinkSample,
    MirrorSample,
    MirrorTopic,
    Namespace,
    RoleBinding,
    StateTransitionError,
    StopReport,
    SyncedAcl,
    SyncedGroup,
    UserGroup,
    VerifyRun,
)
from console.verification.actions import record_checks
from linkengine.domain.acls import AclStatus
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import properties_of
from linkengine.domain.clusterviews import SourceListing
from linkengine.domain.connectionchecks import CheckStatus, ConnectionCheck, ConnectionCheckCode
from linkengine.domain.gates import (
    CanaryRead,
    VerifiedData,
    check_blockers,
    check_canary,
    check_data,
    check_losses,
    check_task,
)
from linkengine.domain.groups import Group, GroupStatus
from linkengine.domain.linktasks import TaskName, TaskState
from linkengine.domain.mirrorability import ListedTopic

if TYPE_CHECKING:
    from tests.browser.page_data import PageData


# Primary keys of the bulk operation, the draft of a link, the service account, the group and the approval request. Later rows
# get the next keys.
OPERATION = DRAFT = SERVICE_ACCOUNT = GROUP = APPROVAL = 90_001

REPORT = 70_001  # primary key of the failover report
REPORTED_OPERATION = 80_001  # number of the operation that requested the stop; it was deleted since


def furnish(page_data: PageData) -> None:
    """Add all rows."""
    _add_errors_and_reports(page_data)
    _add_audit_events(page_data)
    _add_samples(page_data)
    _add_namespaces(page_data)
    _add_gate(page_data)
    _add_operation(page_data)
    _add_people(page_data)
    _add_draft(page_data)


def _add_people(page_data: PageData) -> None:
    """Add a service account, a group with a member and a role, and an approval request of the reader."""
    made = {"created_at": page_data.now, "created_by": "amelia"}
    program = User.objects.create(pk=SERVICE_ACCOUNT, username="terraform-runner", password="!")
    Account.objects.create(user=program, kind=Account.Kind.SERVICE, organization=page_data.organization, **made)
    group = UserGroup.objects.create(pk=GROUP, organization=page_data.organization, name="network-operators", **made)
    GroupMember.objects.create(group=group, user=program, added_at=page_data.now, added_by="amelia")
    RoleBinding.objects.create(
        group=group, role="Operator", cluster=page_data.west, granted_at=page_data.now, granted_by="amelia"
    )
    ApprovalRequest.objects.create(
        pk=APPROVAL,
        link=page_data.link,
        operation="failover",
        topics=["flights"],
        reason="The source data center is down.",
        user=page_data.reader,
        requested_at=page_data.now,
        expires_at=page_data.now + timedelta(hours=24),
    )


def _add_draft(page_data: PageData) -> None:
    """Add the draft of a link to a cluster that is not registered, tested with a failure, with a list of its source."""
    connection = properties_of(
        ClusterAddress(
            bootstrap_servers="far.example:9093",
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="link",
            sasl_password="a-secret-that-no-page-may-show",
            ssl_ca_pem="-----BEGIN CERTIFICATE-----",
        )
    )
    values = DraftValues(
        direction="receive",
        preset="recovery",
        own=page_data.east.cluster_id,
        other_kind="other",
        other_cluster_id="ZmFyLWNsdXN0ZXItaWQtMQ",
        connection=connection,
        auto_create=True,
        sync_offsets=True,
        sync_acls=True,
        name="far-to-east",
    )
    listing = SourceListing(
        topics=(ListedTopic(name="__consumer_offsets", internal=True), ListedTopic(name="flights"), ListedTopic(name="fresh")),
        groups=(Group(name="billing", kind="classic"), Group(name="shared", kind="share")),
        errors={"acls": "The principal may not DESCRIBE the cluster."},
    )
    rows = (
        ConnectionCheck(code=ConnectionCheckCode.DNS, status=CheckStatus.PASSED, finding="The names resolve."),
        ConnectionCheck(
            code=ConnectionCheckCode.TCP,
            status=CheckStatus.FAILED,
            finding="Broker far.example:9093 accepts no connection.",
            fix="Check the port, the firewall between worker and brokers, and that the brokers are running.",
            error_code="BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR",
        ),
        ConnectionCheck(code=ConnectionCheckCode.TLS, status=CheckStatus.NOT_TESTED, finding="Not tested."),
        ConnectionCheck(code=ConnectionCheckCode.READ_TOPICS, status=CheckStatus.WARNING, finding="No READ on 1 topic."),
    )
    tested = {"checks": [asdict(row) for row in rows], "tested_at": page_data.now.isoformat()}
    LinkDraft.objects.create(
        pk=DRAFT,
        user=page_data.admin,
        values=values.to_json(),
        checks={"other": tested},
        listing=listing.to_json(),
        listed_at=page_data.now,
        created_at=page_data.now,
        updated_at=page_data.now,
    )


def _add_operation(page_data: PageData) -> None:
    """Add an operation that has failed for a topic and waits for another; no worker carries it out."""
    operation = BulkOperation.objects.create(
        pk=OPERATION,
        link=page_data.link,
        operation="pause",
        user=page_data.admin,
        requested_by=page_data.admin.username,
        requested_at=page_data.now - timedelta(seconds=20),
    )
    for name, status in (("airports", "ACCEPTED"), ("gates", "FAILED"), ("weather", "WAITING")):
        facts = {} if status == "WAITING" else {"done_at": page_data.now}
        row = BulkOperationTopic(operation=operation, name=name, status=status, **facts)
        if status == "FAILED":
            row.error_code, row.message = (
                "CONFLICT",
                "Topic 'gates' has already stopped its mirror from 'west-to-east'. Only RESTORE and DELETE are possible.",
            )
        row.save()


def _add_errors_and_reports(page_data: PageData) -> None:
    now, mirrors = page_data.now, page_data.mirrors
    StateTransitionError.objects.create(
        mirror=mirrors["weather"],
        code="AUTHENTICATION_ERROR",
        message="Failed to describe the configs of weather: the source refused user 'link'.",
        since=now - timedelta(minutes=4),
        last_seen_at=now - timedelta(seconds=9),
        count=7,
    )
    MirrorTopic.objects.filter(pk=mirrors["delays"].pk).update(
        error_code="SOURCE_TOPIC_MAY_BE_DELETED",
        error_message="The source has had no topic delays for 5 minutes.",
        error_since=now - timedelta(minutes=14),
    )
    GapRange.objects.bulk_create(
        GapRange(mirror=mirrors["flights"], partition=p, start=s, end=e, filled=e - s, reason=r, noted_at=now)
        for p, s, e, r in (
            (0, 0, 1_000, "HEAD"),
            (0, 40_120, 40_121, "TRANSACTION_MARKER"),
            (1, 55_000, 55_200, "ABORTED"),
            (1, 55_200, 55_201, "TRANSACTION_MARKER"),
            (2, 300, 317, "LOST"),
        )
    )
    StopReport.objects.create(
        pk=REPORT,
        operation_number=REPORTED_OPERATION,
        mirror=mirrors["gates"],
        reason="failover",
        requested_by="amelia",
        requested_at=now - timedelta(hours=2, seconds=2),
        writable_at=now - timedelta(hours=2),
        records_not_copied=412,
        source_seen_at=now - timedelta(hours=2, seconds=40),
        rpo_ms=41_300,
        rto_ms=2_140,
        partitions=[
            {"partition": 0, "mirrored_end": 40_000, "source_end": 40_412, "not_copied": 412},
            {"partition": 1, "mirrored_end": 39_120, "source_end": 39_120, "not_copied": 0},
        ],
    )
    _add_groups_and_acls(page_data)
    _add_drill(page_data)
    request = {"requested_by": "amelia", "requested_at": now - timedelta(minutes=9)}
    difference = {"partition": 1, "offset": 812, "kind": "value", "source_value": "N14228,1999", "mirror_value": "N14228,1998"}
    run = {"records_compared": 6_644, "differences": 1, "bytes_compared": 812_112, "duration_ms": 4_310}
    VerifyRun.objects.create(mirror=mirrors["planes"], status="DIFFERENT", first_differences=[difference], **request, **run)
    run = {"records_compared": 336_776, "differences": 0, "bytes_compared": 41_812_112, "duration_ms": 14_310}
    VerifyRun.objects.create(mirror=mirrors["flights"], status="EQUAL", **request, **run)


def _add_gate(page_data: PageData) -> None:
    """Add a failed gate run with each kind of check."""
    request = {"requested_by": "amelia", "requested_at": page_data.now - timedelta(minutes=8)}
    run = GateRun.objects.create(mirror=page_data.mirrors["flights"], status=GateRun.Status.RUNNING, **request)
    checks = [
        check_data(VerifiedData(records=336_776, differences=0)),
        check_losses(17),
        *check_blockers([]),
        check_task(TaskName.CONSUMER_OFFSETS, TaskState.ACTIVE, []),
        check_task(TaskName.ACLS, TaskState.NOT_CONFIGURED, []),
        check_canary([CanaryRead(partition=number, offset=39_999) for number in range(3)]),
    ]
    record_checks(run=run, checks=checks, now=page_data.now)


def _add_drill(page_data: PageData) -> None:
    topics = ["flights", "bookings-of-the-last-seven-years-by-airport-and-airline"]
    good = {"scratch_topic_name": "x", "rto_ms": 2_140, "rpo_ms": 310, "records_not_copied": 0, "note": "", "problem": ""}
    bad = {"writable": False, "problem": "Nothing was compared in partition 0: what the source holds there is not in the copy."}
    report = [
        good | {"mirror_topic_name": topic, "records_compared": 9_120, "differences": 0, "writable": True} for topic in topics
    ]
    clamped = [{"partition": 1, "source_offset": 1_300, "offset_after": 1_000}]
    row = {"partitions": 3, "clamped": 1, "offsets_set_back": 300, "unknown": 1, "clamped_offsets": clamped}
    Drill.objects.create(
        link=page_data.link,
        status="FAILED",
        status_since=page_data.now,
        start_spec="latest",
        requested_by="amelia",
        requested_at=page_data.now - timedelta(minutes=20),
        finished_at=page_data.now,
        topics=topics,
        rto_ms=2_140,
        report=[report[0], report[1] | bad | {"records_compared": 0}],
        groups=[
            row | {"group": name, "mirror_topic_name": topic}
            for name, topic in zip(("app-billing", "app"), topics, strict=True)
        ],
    )


def _add_groups_and_acls(page_data: PageData) -> None:
    now, link = page_data.now, page_data.link
    for group_status in GroupStatus:
        SyncedGroup.objects.create(
            link=link,
            name=f"app-{group_status.lower()}",
            destination_name=f"app-{group_status.lower()}",
            status=group_status,
            listed_at=now,
        )
    group = SyncedGroup.objects.get(name="app-in_use")
    at = {"source_offset": 120, "destination_offset": 118, "target": 120, "outcome": "IN_USE"}
    GroupOffset.objects.create(group=group, mirror=page_data.mirrors["flights"], partition=0, **at)
    stop = {"stopping_since": now - timedelta(hours=2), "at": now, "source_offset": 40_300, "before": 39_000, "after": 40_000}
    ClampedOffset.objects.create(mirror=page_data.mirrors["gates"], report_id=REPORT, group="app-gates", partition=0, **stop)
    for status in AclStatus:
        SyncedAcl.objects.create(
            link=link,
            resource_type="TOPIC",
            resource_name=f"topic-{status.lower()}",
            pattern_type="PREFIXED",
            principal="User:app",
            host="*",
            operation="READ",
            permission="ALLOW",
            status=status,
            is_conflict=status is AclStatus.ALREADY_THERE,
            since=now,
        )


def _add_samples(page_data: PageData) -> None:
    """Add an hour of samples, some with unknown values."""
    samples = [_sample(page_data.now, number) for number in range(120)]
    LinkSample.objects.bulk_create(LinkSample(link=page_data.link, **sample) for sample in samples)
    MirrorSample.objects.bulk_create(MirrorSample(mirror=page_data.mirrors["flights"], **sample) for sample in samples)


def _sample(now: datetime, number: int) -> dict[str, Any]:
    unknown = 60 < number < 72
    return {
        "at": now - timedelta(seconds=30 * (119 - number)),
        "lag": None if unknown else (number * 37) % 900,
        "lag_ms": None if unknown else (number * 37) % 900 * 11,
        "bytes_per_s": 3_302_400.0 + 40_000 * ((number * 7) % 13),
    }


def _add_namespaces(page_data: PageData) -> None:
    dated = {"cluster": page_data.east, "created_at": page_data.now, "created_by": "amelia"}
    Namespace.objects.create(prefix="fl", reserved=True, guarded=True, link=page_data.link, leader_prefix="fl", **dated)
    Namespace.objects.create(prefix="bo", reserved=True, guarded=None, link=page_data.link, leader_prefix="bo", **dated)
    Namespace.objects.create(prefix="orders.", reserved=True, guarded=False, guard_problem="It has no authorizer.", **dated)
    Namespace.objects.create(prefix="free.", **dated)


def _add_audit_events(page_data: PageData) -> None:
    cluster = f"cluster/{page_data.east.cluster_id}"
    path = f"{cluster}/link/{page_data.link.name}"
    rows = (
        ("amelia", "CreateClusterLink", path, "SUCCESS"),
        ("amelia", "CreateMirrorTopic", f"{path}/mirror/flights", "SUCCESS"),
        ("bessie", "OPERATE_MIRROR", f"{path}/mirror/flights", "DENIED"),
        ("amelia", "CreateClusterLink", f"{cluster}/link/other", "FAILURE"),
    )
    for minutes, (actor, action, resource, result) in enumerate(rows):
        AuditEvent.objects.create(
            at=page_data.now - timedelta(minutes=minutes),
            actor=actor,
            action=action,
            resource=resource,
            result=result,
            detail={"reason": "an example"},
            request_id="0123456789abcdef",
            client_address="192.0.2.7",
        )
    ApiKey.objects.create(
        key="ABCDEFGHIJKLMNOP", secret_hash="0" * 64, user=page_data.admin, description="terraform", created_at=page_data.now
    )
