"""Configs that a mirror topic syncs from its source, below /api/v1."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.schema import ADDITIONS, operation
from console.api.v1.views import MirrorPartView
from console.models import ConfigRevert
from console.queries.mirrorconfigs import followed_configs, list_reverts

Text = serializers.CharField


class FollowedConfigData(serializers.Serializer[Any]):
    """A config that is synced from the source."""

    name = Text()
    source_value = Text(help_text="As last read.")
    mirror_value = Text(
        help_text="The mirror topic's value. Mirroring needs some values to differ until the mirror is stopped."
    )
    always = serializers.BooleanField(help_text="False if topic.config.sync.include can exclude the config.")


class ConfigRevertData(serializers.ModelSerializer[ConfigRevert]):
    """A local change of the mirror topic that was reverted."""

    class Meta:
        model = ConfigRevert
        fields = ("name", "found", "restored", "at")


class MirrorConfigs(serializers.Serializer[Any]):
    """The synced configs, and the last local changes that were reverted."""

    data: Any = FollowedConfigData(many=True)
    reverted: Any = ConfigRevertData(many=True)


class MirrorConfigsView(MirrorPartView):
    """…/mirrors/{mirror_topic_name}/configs"""

    @operation(
        "getMirrorConfigs",
        summary="Get the configs that a mirror syncs from its source",
        responses={200: MirrorConfigs},
        tag=ADDITIONS,
    )
    def get(self, request: Request, **path: str) -> Response:
        """Return the synced configs by name."""
        mirror = self.mirror(request, path)
        reverted = ConfigRevertData(list_reverts(mirror), many=True).data
        return Response({"data": FollowedConfigData(followed_configs(mirror), many=True).data, "reverted": reverted})
