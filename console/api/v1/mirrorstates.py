"""The state of a mirror topic: current and prior state, retries, errors."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.schema import ADDITIONS, operation
from console.api.v1.health import HealthData, health_data
from console.api.v1.views import MirrorPartView
from console.api.views import moment
from console.models import MirrorTopic, StateTransitionError
from console.presenters.health import mirror_health_view
from console.queries.health import health_of_mirror
from linkengine.domain.states import MirrorState


class TransitionErrorData(serializers.ModelSerializer[StateTransitionError]):
    """An error or a condition that the mirror waits for; the documentation explains each code."""

    class Meta:
        model = StateTransitionError
        fields = ("code", "message", "since", "last_seen_at")


class MirrorStateData(serializers.ModelSerializer[MirrorTopic]):
    """The state of a mirror, with the names that its transitions use."""

    mirror_topic_name = serializers.CharField(source="name")
    prior_state = serializers.ChoiceField(
        choices=[state.value for state in MirrorState],
        allow_null=True,
        help_text="Null if the mirror had no other state before.",
    )
    retry_count = serializers.IntegerField(help_text="Number of consecutive failed attempts; 0 after a success.")
    retry_at = serializers.DateTimeField(
        allow_null=True, help_text="Earliest time of the next attempt; null if it is immediate or scheduled by the copy worker."
    )
    error_code = serializers.CharField(help_text="Why the mirror is FAILED; empty otherwise.")
    error_message = serializers.CharField()
    error_since = serializers.DateTimeField(
        allow_null=True, help_text="Since when there have been errors without interruption."
    )
    transition_errors = TransitionErrorData(many=True)
    health = serializers.SerializerMethodField()

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
            "health",
        )

    @extend_schema_field(HealthData)
    def get_health(self, instance: MirrorTopic) -> dict[str, str]:
        """Return what is copied, whatever the state is."""
        verdict, errors = health_of_mirror(instance, now=moment())
        return health_data(mirror_health_view(verdict, instance.link, task_error=errors[0][1] if errors else ""))

    def to_representation(self, instance: MirrorTopic) -> dict[str, Any]:
        """Return the fields with an empty prior state as null."""
        values: dict[str, Any] = super().to_representation(instance)
        return {**values, "prior_state": values["prior_state"] or None}


class MirrorStateView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/state"""

    @operation("getMirrorState", summary="Get a mirror's state", responses={200: MirrorStateData}, tag=ADDITIONS)
    def get(self, request: Request, **path: str) -> Response:
        """Return the mirror's state."""
        return Response(MirrorStateData(self.mirror(request, path)).data)
