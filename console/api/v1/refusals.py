"""Configs that the destination refused when a mirror was stopped: list, retry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.actions.refusals import retry_refused_configs
from console.api.schema import ADDITIONS, operation
from console.api.v1.views import MirrorPartView
from console.api.views import actor_of, moment
from console.mirrors.rules import refused_steps
from linkengine.domain.mirrorjobs import RefusedStep


class RefusedConfigData(serializers.Serializer[Any]):
    """A config that the destination refused."""

    name = serializers.CharField(
        help_text="A topic config, or fillers for the empty records at the head, whose deletion cannot be retried."
    )
    value = serializers.CharField(allow_null=True, help_text="The value to set; null for the cluster's default.")
    code = serializers.CharField()
    message = serializers.CharField(help_text="Why the destination refused it.")


class RefusedConfigDataList(serializers.Serializer[Any]):
    """The refused configs; empty if there are none."""

    data: Any = RefusedConfigData(many=True)


class RefusedConfigsView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/refused-configs"""

    @operation(
        "listRefusedConfigs",
        summary="List configs that the destination refused when the mirror was stopped",
        description="Without those that a retry has resolved. The topic is writable; these configs still have the mirror's "
        "values.",
        responses={200: RefusedConfigDataList},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the refused configs."""
        return _response(refused_steps(self.mirror(request, path)))

    @operation(
        "retryRefusedConfigs",
        summary="Retry configs that the destination refused when the mirror was stopped",
        description="Returns the configs that are refused again. A config that was set to another value since then is not "
        "changed.",
        responses={200: RefusedConfigDataList},
        tag=ADDITIONS,
    )
    def post(self, request: Request, **path: str) -> Response:
        """Retry all refused configs."""
        mirror, by = self.mirror(request, path), actor_of(request)
        retry_refused_configs(mirror=mirror, by=by, now=moment())
        return _response(refused_steps(mirror))


def _response(steps: Iterable[RefusedStep]) -> Response:
    return Response(RefusedConfigDataList({"data": [asdict(step) for step in steps]}).data)
