"""Reverted local edits of mirror topics: an audit event and a note on the mirror, so that their author learns why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from console import audit
from console.actors import ENGINE
from console.models import ConfigRevert, MirrorTopic
from console.models.links import show_change
from linkengine.domain.configs import LocalEdit

KEPT = 20  # per mirror


def note(*, mirror: MirrorTopic, edits: Sequence[LocalEdit], now: datetime) -> None:
    """Store reverted edits; only the newest notes are kept."""
    with transaction.atomic():
        ConfigRevert.objects.bulk_create(
            ConfigRevert(mirror=mirror, name=edit.name, found=edit.found, restored=edit.restored, at=now) for edit in edits
        )
        detail = {edit.name: {"found": edit.found, "restored": edit.restored} for edit in edits}
        audit.record(
            by=ENGINE, action="RevertTopicConfigs", resource=audit.path_of(mirror), now=now, detail={"configs": detail}
        )
        show_change(mirror.link_id)
        old = list(ConfigRevert.objects.filter(mirror=mirror).values_list("pk", flat=True)[KEPT:])
        ConfigRevert.objects.filter(pk__in=old).delete()
