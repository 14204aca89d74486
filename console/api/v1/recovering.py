"""Recovery of a failed mirror topic after the cause was removed."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.operations import operate
from console.api.kafka.words import mirror_status
from console.api.schema import ADDITIONS, operation, query_flag
from console.api.v1.views import MirrorPartView
from console.api.views import actor_of, flag, moment
from linkengine.domain.states import MirrorEvent


class RecoverData(serializers.Serializer[Any]):
    """A mirror that was recovered or, with validate_only, can be recovered."""

    mirror_topic_name = serializers.CharField()
    mirror_status = serializers.CharField(help_text="The current status.")


class RecoverView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/recover"""

    @operation(
        "recoverMirrorTopic",
        summary="Recover a failed mirror",
        description="Resumes copying. Only for mirrors that are FAILED and whose offsets still correspond to their source's, "
        "for example after a missing ACL was added. Otherwise the request is refused with the reason and the alternative.",
        parameters=[query_flag("validate_only", "Only check whether the mirror can be recovered.")],
        responses={200: RecoverData},
        tag=ADDITIONS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Recover the mirror."""
        mirror, preview = self.mirror(request, path), flag(request, "validate_only")
        recover = MirrorEvent.RECOVER
        mirror = operate(mirror=mirror, operation=recover, validate_only=preview, by=actor_of(request), now=moment())
        status = mirror_status(mirror.state, link_state=mirror.link.state)
        return Response(RecoverData({"mirror_topic_name": mirror.name, "mirror_status": status}).data)
