"""Requests of a link for a second approver: list, get, request, withdraw. Users decide about them in the console only."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.access import approvals
from console.access.approvals import APPROVABLE
from console.access.queries import visible_requests
from console.api.schema import ADDITIONS, TextField, operation
from console.api.views import RestView, actor_of, body, moment
from console.errors import NotFoundError
from console.links import queries as link_queries
from console.mirrors.v1_rest import LIMIT, limit_of
from console.models import ApprovalRequest
from linkengine.domain.states import MirrorEvent


class RequestApprovalData(serializers.Serializer[Any]):
    """An operation that another user is to approve."""

    operation = serializers.ChoiceField(choices=[event.value for event in APPROVABLE])
    mirror_topic_names = serializers.ListField(
        child=TextField(), required=False, help_text="Default: all mirror topics that the link has now."
    )
    reason = TextField(help_text="The approver and the audit log see it.")


class ApprovalRequestData(serializers.ModelSerializer[ApprovalRequest]):
    """A request. It covers these mirror topics only, and none that was created after it."""

    mirror_topic_names = serializers.ListField(
        source="topics", child=serializers.CharField(), help_text="Empty: all mirror topics that the link had at requested_at."
    )
    requested_by = serializers.CharField(source="user.username")
    decided_by = serializers.CharField(source="decided_by.username", allow_null=True, default=None)
    expires_at = serializers.DateTimeField(
        help_text="When the request, or the approval, ends. Its status does not change at that time."
    )

    class Meta:
        model = ApprovalRequest
        fields = (
            "id",
            "status",
            "operation",
            "mirror_topic_names",
            "reason",
            "requested_by",
            "requested_at",
            "expires_at",
            "decided_by",
            "decided_at",
            "decision_reason",
        )


class ApprovalRequestDataList(serializers.Serializer[Any]):
    """The link's approval requests, newest first."""

    data: Any = ApprovalRequestData(many=True)


class ApprovalRequestListView(RestView):
    """…/links/{link_name}/approval-requests"""

    @operation(
        "listApprovalRequests",
        summary="List approval requests",
        parameters=[LIMIT],
        responses={200: ApprovalRequestDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Return the requests of a link."""
        by = actor_of(request)
        link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
        rows = visible_requests(by=by).filter(link=link)[: limit_of(request)]
        return Response({"data": ApprovalRequestData(rows, many=True).data})

    @operation(
        "requestApproval",
        summary="Request the approval of an operation",
        description="For operations that need a second approver in the environment of the link. Another user approves or "
        "rejects the request in the console. Then the owner of this API key carries out the operation as usual.",
        body=RequestApprovalData,
        responses={201: ApprovalRequestData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, cluster_id: str, link_name: str) -> Response:
        """Store a request."""
        by, wanted = actor_of(request), body(request, RequestApprovalData)
        stored = approvals.request_approval(
            link=link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by),
            operation=MirrorEvent(wanted["operation"]),
            topics=wanted.get("mirror_topic_names", ()),
            reason=wanted["reason"],
            by=by,
            now=moment(),
        )
        location = request.build_absolute_uri(f"{request.path}/{stored.pk}")
        return Response(ApprovalRequestData(stored).data, status=201, headers={"Location": location})


class ApprovalRequestView(RestView):
    """…/links/{link_name}/approval-requests/{request_id}"""

    @operation("getApprovalRequest", summary="Get an approval request", responses={200: ApprovalRequestData}, tag=ADDITIONS)
    def get(self, request: Request, cluster_id: str, link_name: str, request_id: int) -> Response:
        """Return a request of this link."""
        return Response(ApprovalRequestData(_found(request, cluster_id, link_name, request_id)).data)


class WithdrawApprovalView(RestView):
    """…/links/{link_name}/approval-requests/{request_id}/withdraw"""

    @operation(
        "withdrawApprovalRequest",
        summary="Withdraw an approval request, or end its approval",
        description="Requests of the owner of this API key only.",
        responses={200: ApprovalRequestData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, cluster_id: str, link_name: str, request_id: int) -> Response:
        """Withdraw a request of the actor."""
        found = _found(request, cluster_id, link_name, request_id)
        approvals.withdraw(request=found, by=actor_of(request), now=moment())
        found.refresh_from_db()
        return Response(ApprovalRequestData(found).data)


def _found(request: Request, cluster_id: str, link_name: str, request_id: int) -> ApprovalRequest:
    by = actor_of(request)
    link = link_queries.get_link(cluster_id=cluster_id, name=link_name, by=by)
    found = visible_requests(by=by).filter(link=link, pk=request_id).first()
    if found is None:
        raise NotFoundError(f"Approval request {request_id} does not exist.", code="UNKNOWN_APPROVAL_REQUEST")
    return found
