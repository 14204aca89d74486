"""Bearer tokens, API keys, and requests for the approval of an operation, below /api/v1."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console import audit
from console.access import approvals
from console.access.actions import create_token, delete_api_key
from console.access.approvals import APPROVABLE
from console.access.queries import list_api_keys, visible_requests
from console.actors import Actor
from console.api.authentication import ApiKeyAuthentication
from console.api.schema import ADDITIONS, NumberField, TextField, list_of, operation
from console.api.views import RestView, actor_of, body, request_time
from console.errors import NotFoundError
from console.links.v1_rest import LinkPartView
from console.mirrors.v1_rest import LIMIT, limit_of
from console.models import ApiKey, ApprovalRequest, ClusterLink
from linkengine.domain.states import MirrorEvent

# --- bearer tokens ----------------------------------------------------------------------------------------------------
#
# For clients that send ``Authorization: Bearer``. Creating a token needs an API key with its secret.


class CreateTokenRequestData(serializers.Serializer[Any]):
    """A token to create."""

    expires_in_s = NumberField(
        required=False, min_value=1, help_text="Validity in seconds; the installation has a maximum, which is the default."
    )


class AccessToken(serializers.Serializer[Any]):
    """A bearer token, named as in RFC 6749."""

    access_token = serializers.CharField()
    token_type = serializers.CharField(help_text="Bearer.")
    expires_in = serializers.IntegerField(help_text="Seconds.")


class TokenListView(RestView):
    """/api/v1/tokens"""

    authentication_classes = [ApiKeyAuthentication]  # a token must not create further tokens

    @operation(
        "createAccessToken",
        summary="Create a bearer token",
        description="The token acts as the API key of this request until it expires, or the key expires or is deleted. Tokens "
        "are not stored.",
        body=CreateTokenRequestData,
        responses={201: AccessToken},
        tag=ADDITIONS,
    )
    def post(self, request: Request) -> Response:
        """Create a token."""
        wanted = body(request, CreateTokenRequestData)
        life_s = wanted.get("expires_in_s", settings.API_TOKEN_LIFE_S)
        token = create_token(key=str(request.auth), life_s=life_s, by=actor_of(request), now=request_time())
        return Response({"access_token": token, "token_type": "Bearer", "expires_in": life_s}, status=201)


# --- API keys ---------------------------------------------------------------------------------------------------------
#
# They are created and rotated in the console only: a stolen key must not create its successor.


class ApiKeyData(serializers.ModelSerializer[ApiKey]):
    """An API key, without its secret."""

    owner = serializers.CharField(source="user.username")
    role = serializers.CharField(allow_blank=True, help_text="The role that limits the key; empty: no limit.")
    scope = serializers.SerializerMethodField(help_text="The place that limits the key, as in the audit log; empty: no limit.")
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute; null if the key was never used.")
    replaced_by = serializers.CharField(
        source="rotated_to.key", allow_null=True, default=None, help_text="The key that has replaced this one."
    )

    class Meta:
        model = ApiKey
        fields = ("key", "owner", "description", "role", "scope", "created_at", "expires_at", "last_used_at", "replaced_by")

    def get_scope(self, row: ApiKey) -> str:
        """Return the path of the place."""
        return audit.path_of(row.node) if row.node is not None else ""


ApiKeyDataList = list_of(ApiKeyData, "API keys, newest first.")


class ApiKeyListView(RestView):
    """/api/v1/api-keys"""

    @operation(
        "listApiKeys",
        summary="List API keys",
        description="Keys of the owner of this API key, and of service accounts that the owner manages. A limited API key "
        "lists itself only.",
        responses={200: ApiKeyDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request) -> Response:
        """Return the keys that the actor may see."""
        return Response({"data": ApiKeyData(list_api_keys(by=actor_of(request)), many=True).data})


class ApiKeyView(RestView):
    """/api/v1/api-keys/{api_key}"""

    @operation(
        "deleteApiKey",
        summary="Delete an API key",
        description="The key and its bearer tokens are rejected from then on. A limited API key deletes itself only.",
        responses={204: "The API key was deleted."},
        tag=ADDITIONS,
    )
    def delete(self, request: Request, api_key: str) -> Response:
        """Delete a key."""
        by = actor_of(request)
        found = next((row for row in list_api_keys(by=by) if row.key == api_key), None)
        if found is None:
            raise NotFoundError(f"API key '{api_key}' does not exist.", code="UNKNOWN_API_KEY")
        delete_api_key(api_key=found, by=by, now=request_time())
        return Response(status=204)


# --- approval requests of a link --------------------------------------------------------------------------------------
#
# List, get, request, withdraw. Users decide about them in the console only.


class RequestApprovalData(serializers.Serializer[Any]):
    """An operation that another user is to approve."""

    operation = serializers.ChoiceField(choices=[event.value for event in APPROVABLE])
    mirror_topic_names = serializers.ListField(
        child=TextField(), required=False, help_text="Default: all mirror topics that the link has now."
    )
    reason = TextField(max_length=500, help_text="The approver and the audit log see it.")


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


ApprovalRequestDataList = list_of(ApprovalRequestData, "The link's approval requests, newest first.")


class ApprovalRequestListView(LinkPartView):
    """…/links/{link_name}/approval-requests"""

    @operation(
        "listApprovalRequests",
        summary="List approval requests",
        parameters=[LIMIT],
        responses={200: ApprovalRequestDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the requests of a link."""
        link = self.link(request, path)
        rows = visible_requests(by=actor_of(request)).filter(link=link)[: limit_of(request)]
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
    def post(self, request: Request, **path: str) -> Response:
        """Store a request."""
        by, wanted = actor_of(request), body(request, RequestApprovalData)
        stored = approvals.request_approval(
            link=self.link(request, path),
            operation=MirrorEvent(wanted["operation"]),
            topics=wanted.get("mirror_topic_names", ()),
            reason=wanted["reason"],
            by=by,
            now=request_time(),
        )
        location = request.build_absolute_uri(f"{request.path}/{stored.pk}")
        return Response(ApprovalRequestData(stored).data, status=201, headers={"Location": location})


class ApprovalRequestView(LinkPartView):
    """…/links/{link_name}/approval-requests/{request_id}"""

    @operation("getApprovalRequest", summary="Get an approval request", responses={200: ApprovalRequestData}, tag=ADDITIONS)
    def get(self, request: Request, request_id: int, **path: str) -> Response:
        """Return a request of this link."""
        return Response(ApprovalRequestData(_found(self.link(request, path), request_id, by=actor_of(request))).data)


class WithdrawApprovalView(LinkPartView):
    """…/links/{link_name}/approval-requests/{request_id}/withdraw"""

    @operation(
        "withdrawApprovalRequest",
        summary="Withdraw an approval request, or end its approval",
        description="Requests of the owner of this API key only.",
        responses={200: ApprovalRequestData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, request_id: int, **path: str) -> Response:
        """Withdraw a request of the actor."""
        by = actor_of(request)
        found = _found(self.link(request, path), request_id, by=by)
        approvals.withdraw(request=found, by=by, now=request_time())
        found.refresh_from_db()
        return Response(ApprovalRequestData(found).data)


def _found(link: ClusterLink, request_id: int, *, by: Actor) -> ApprovalRequest:
    found = visible_requests(by=by).filter(link=link, pk=request_id).first()
    if found is None:
        raise NotFoundError(f"Approval request {request_id} does not exist.", code="UNKNOWN_APPROVAL_REQUEST")
    return found
