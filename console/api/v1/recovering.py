"""Letting a mirror topic go on that had failed for a reason somebody has removed."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.operations import operate
from console.api.kafka.words import mirror_status
from console.api.schema import OURS, operation, query_flag
from console.api.v1.views import MirrorPartView
from console.api.views import actor_of, flag, moment
from linkengine.domain.states import MirrorEvent


class RecoverData(serializers.Serializer[Any]):
    """A mirror that goes on or, with validate_only, may go on."""

    mirror_topic_name = serializers.CharField()
    mirror_status = serializers.CharField(help_text="As it is now.")


class RecoverView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/recover"""

    @operation(
        "recoverMirrorTopic",
        summary="Let a failed mirror go on",
        description="Only for mirrors that are FAILED and whose offsets still mean the same as their source's, for example "
        "after rights were missing for too long. Everything else is refused with the reason and the way out.",
        parameters=[query_flag("validate_only", "Check whether it could go on, change nothing.")],
        answers={200: RecoverData},
        tag=OURS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Let the mirror go on."""
        mirror, preview = self.mirror(request, path), flag(request, "validate_only")
        recover = MirrorEvent.RECOVER
        mirror = operate(mirror=mirror, operation=recover, validate_only=preview, by=actor_of(request), now=moment())
        status = mirror_status(mirror.state, link_state=mirror.link.state)
        return Response(RecoverData({"mirror_topic_name": mirror.name, "mirror_status": status}).data)
