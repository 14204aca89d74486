"""ACLs of a cluster: search, create, delete. The ACLs that make mirror topics read-only cannot be deleted here."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.acls import create_acls, delete_acls
from console.api.errors import UnreadableError
from console.api.kafka import browse_answers, browse_bodies, render
from console.api.kafka.browse_render import Place, acl
from console.api.schema import ACLS, operation
from console.api.views import RestView, actor_of, body, choice, moment
from console.queries import brokers, clusters

_WORDS = {
    "resource_type": browse_bodies.RESOURCE_TYPES,
    "pattern_type": browse_bodies.PATTERN_TYPES,
    "operation": browse_bodies.OPERATIONS,
    "permission": browse_bodies.PERMISSIONS,
}
_NAMES = ("resource_name", "principal", "host")


def _parameters(*, required: bool) -> list[OpenApiParameter]:
    words = [
        OpenApiParameter(name, str, description=f"The ACL's {name.replace('_', ' ')}.", enum=list(values), required=required)
        for name, values in _WORDS.items()
    ]
    return words + [OpenApiParameter(name, str, description=f"The ACL's {name.replace('_', ' ')}.") for name in _NAMES]


class AclListView(RestView):
    """/clusters/{cluster_id}/acls"""

    @operation(
        "getKafkaAcls",
        summary="Search ACLs",
        description="A parameter that is omitted matches everything.",
        parameters=_parameters(required=False),
        responses={200: browse_answers.AclDataList},
        tag=ACLS,
    )
    def get(self, request: Request, cluster_id: str) -> Response:
        """Search ACLs."""
        by = actor_of(request)
        cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
        found = brokers.list_acls(cluster=cluster, wanted=_wanted(request), by=by)
        place = Place(request, cluster_id)
        return Response(render.collection(request, "KafkaAclList", [acl(place, rule) for rule in found]))

    @operation(
        "createKafkaAcls",
        summary="Create an ACL",
        body=browse_bodies.CreateAclRequestData,
        responses={201: "The ACL was created."},
        tag=ACLS,
    )
    def post(self, request: Request, cluster_id: str) -> Response:
        """Create an ACL."""
        by = actor_of(request)
        rule = body(request, browse_bodies.CreateAclRequestData)
        cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
        create_acls(cluster=cluster, rules=[rule], by=by, now=moment())
        return Response(status=201, headers={"Location": Place(request, cluster_id).url("acls")})

    @operation(
        "deleteKafkaAcls",
        summary="Delete ACLs",
        description="Deletes all ACLs that match. Refused if an ACL that makes a mirror topic read-only matches.",
        parameters=_parameters(required=True),
        responses={200: browse_answers.DeletedAcls},
        tag=ACLS,
    )
    def delete(self, request: Request, cluster_id: str) -> Response:
        """Delete ACLs."""
        for name in _WORDS:
            if request.query_params.get(name, "UNKNOWN") in ("", "UNKNOWN"):
                raise UnreadableError(
                    f"The query parameter {name} is missing. Specify it, so that no ACLs are deleted by mistake."
                )
        by = actor_of(request)
        cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
        deleted = delete_acls(cluster=cluster, wanted=_wanted(request), by=by, now=moment())
        place = Place(request, cluster_id)
        return Response({"data": [acl(place, rule) for rule in deleted]})


class AclBatchView(RestView):
    """/clusters/{cluster_id}/acls:batch"""

    @operation(
        "batchCreateKafkaAcls",
        summary="Create ACLs",
        body=browse_bodies.CreateAclRequestDataList,
        responses={201: "The ACLs were created."},
        tag=ACLS,
    )
    def post(self, request: Request, cluster_id: str) -> Response:
        """Create several ACLs."""
        by = actor_of(request)
        rules = [dict(rule) for rule in body(request, browse_bodies.CreateAclRequestDataList)["data"]]
        cluster = clusters.get_cluster(cluster_id=cluster_id, by=by)
        create_acls(cluster=cluster, rules=rules, by=by, now=moment())
        return Response(status=201)


def _wanted(request: Request) -> render.Json:
    words = {name: choice(request, name, values=values) or "ANY" for name, values in _WORDS.items()}
    return words | {name: request.query_params.get(name) or None for name in _NAMES}
