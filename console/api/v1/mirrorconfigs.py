"""Configs of a mirror topic that follow its source, below /api/v1."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.schema import OURS, operation
from console.api.v1.views import MirrorPartView
from console.models import ConfigRevert
from console.queries.mirrorconfigs import followed_configs, list_reverts

Text = serializers.CharField


class FollowedConfigData(serializers.Serializer[Any]):
    """A config that follows the source."""

    name = Text()
    source_value = Text(help_text="As last read.")
    mirror_value = Text(help_text="What the mirror topic carries: the copy needs some values to differ until it is stopped.")
    always = serializers.BooleanField(help_text="False: topic.config.sync.include may leave it out.")


class ConfigRevertData(serializers.ModelSerializer[ConfigRevert]):
    """A local edit of the mirror topic that was set back."""

    class Meta:
        model = ConfigRevert
        fields = ("name", "found", "restored", "at")


class MirrorConfigs(serializers.Serializer[Any]):
    """What follows the source, and the last local edits that were set back."""

    data: Any = FollowedConfigData(many=True)
    reverted: Any = ConfigRevertData(many=True)


class MirrorConfigsView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/configs"""

    @operation("getMirrorConfigs", summary="Get the configs that follow the source", answers={200: MirrorConfigs}, tag=OURS)
    def get(self, request: Request, **path: str) -> Response:
        """List them by name."""
        mirror = self.mirror(request, path)
        reverted = ConfigRevertData(list_reverts(mirror), many=True).data
        return Response({"data": FollowedConfigData(followed_configs(mirror), many=True).data, "reverted": reverted})
