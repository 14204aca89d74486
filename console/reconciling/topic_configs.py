"""Topic configs of mirrors: which topics still follow their source, and notes of local edits that were reverted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from console import audit
from console.actors import ENGINE
from console.models import ClusterLink, ConfigRevert, MirrorTopic
from console.models.links import show_change
from linkengine.domain.configs import LocalEdit
from linkengine.domain.states import MirrorState, StopReason

KEPT = 20  # per mirror
_FAILING_OVER = Q(state=MirrorState.PENDING_STOPPED, stop_reason=StopReason.FAILOVER)
_FENCED = Q(state=MirrorState.PENDING_STOPPED, fencing_at__isnull=False)
_NO_MIRRORS = Q(state__in=(MirrorState.STOPPED, MirrorState.FAILED)) | _FAILING_OVER | _FENCED


def still_mirrors(link: ClusterLink) -> Callable[[str], bool]:
    """Return a function that checks whether a topic name is a mirror of this link which still follows its source."""
    mirrors = link.mirrors.filter(deletion_requested_at=None).exclude(_NO_MIRRORS)
    return lambda name: mirrors.filter(name=name).exists()


def note_reverts(*, mirror: MirrorTopic, edits: Sequence[LocalEdit], now: datetime) -> None:
    """Store reverted edits and audit them, so that their author learns why. Only the newest notes are kept."""
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
