"""Where a mirror topic stands, where it came from, and how often the engine has tried to get on."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.schema import OURS, operation
from console.api.v1.views import MirrorPartView
from console.models import MirrorTopic, StateTransitionError
from linkengine.domain.states import MirrorState


class TransitionErrorData(serializers.ModelSerializer[StateTransitionError]):
    """What the mirror waits for, or fails at; the code is explained in the documentation."""

    class Meta:
        model = StateTransitionError
        fields = ("code", "message", "since", "last_seen_at")


class MirrorStateData(serializers.ModelSerializer[MirrorTopic]):
    """The state of a mirror, as its history (transitions) names it."""

    mirror_topic_name = serializers.CharField(source="name")
    prior_state = serializers.ChoiceField(
        choices=[one.value for one in MirrorState], allow_null=True, help_text="Null for a mirror that never had another."
    )
    retry_count = serializers.IntegerField(help_text="Tries in a row that did not get on; 0 once one has.")
    retry_at = serializers.DateTimeField(allow_null=True, help_text="Not before; null: at once, or the copier's own pauses.")
    error_code = serializers.CharField(help_text="Why it failed for good; empty unless it has.")
    error_message = serializers.CharField()
    error_since = serializers.DateTimeField(allow_null=True, help_text="Since when trouble lasts without a break.")
    transition_errors = TransitionErrorData(many=True)

    class Meta:
        model = MirrorTopic
        fields = (
            "mirror_topic_name",
            "state",
            "state_since",
            "prior_state",
            "retry_count",
            "retry_at",
            "error_code",
            "error_message",
            "error_since",
            "transition_errors",
        )

    def to_representation(self, instance: MirrorTopic) -> dict[str, Any]:
        """Write "no state" as null."""
        shown: dict[str, Any] = super().to_representation(instance)
        return {**shown, "prior_state": shown["prior_state"] or None}


class MirrorStateView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/state"""

    @operation("getMirrorState", summary="Get a mirror's state", answers={200: MirrorStateData}, tag=OURS)
    def get(self, request: Request, **path: str) -> Response:
        """Show where the mirror stands."""
        return Response(MirrorStateData(self.mirror(request, path)).data)
