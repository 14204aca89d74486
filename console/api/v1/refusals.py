"""Configs that the destination refused when a mirror was stopped, and their retry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.refusals import retry_refused_configs
from console.api.schema import OURS, operation
from console.api.v1.views import MirrorPartView
from console.api.views import actor_of, moment
from console.policies import refused_steps
from linkengine.domain.mirrorjobs import RefusedStep


class RefusedConfigData(serializers.Serializer[Any]):
    """A config that the destination does not accept."""

    name = serializers.CharField(help_text="A topic config; fillers: the empty records at the head, which cannot be retried.")
    value = serializers.CharField(allow_null=True, help_text="What it should be; null: the cluster's default.")
    code = serializers.CharField()
    message = serializers.CharField(help_text="Why the destination refused it.")


class RefusedConfigDataList(serializers.Serializer[Any]):
    """All of them; an empty list where nothing is refused."""

    data: Any = RefusedConfigData(many=True)


class RefusedConfigsView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/refused-configs"""

    @operation(
        "listRefusedConfigs",
        summary="List configs that the destination refused when the mirror was stopped",
        description="As far as no retry has resolved them. The topic is writable; these configs have the mirror's values.",
        answers={200: RefusedConfigDataList},
        tag=OURS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """List what is refused."""
        return _answer(refused_steps(self.mirror(request, path)))

    @operation(
        "retryRefusedConfigs",
        summary="Retry configs that the destination refused when the mirror was stopped",
        description="Returns what is refused again. A config that was set to another value since is left as it is.",
        answers={200: RefusedConfigDataList},
        tag=OURS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Retry all of them."""
        mirror, by = self.mirror(request, path), actor_of(request)
        retry_refused_configs(mirror=mirror, by=by, now=moment())
        return _answer(refused_steps(mirror))


def _answer(steps: Iterable[RefusedStep]) -> Response:
    return Response(RefusedConfigDataList({"data": [asdict(step) for step in steps]}).data)
