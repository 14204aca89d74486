"""Which topics are mirrors at this moment; checked right before a topic is changed as a mirror."""

from __future__ import annotations

from collections.abc import Callable

from django.db.models import Q

from console.models import ClusterLink
from linkengine.domain.states import MirrorState, StopReason

_FAILING_OVER = Q(state=MirrorState.PENDING_STOPPED, stop_reason=StopReason.FAILOVER)
_FENCED = Q(state=MirrorState.PENDING_STOPPED, fencing_at__isnull=False)
_NO_MIRRORS = Q(state__in=(MirrorState.STOPPED, MirrorState.FAILED)) | _FAILING_OVER | _FENCED


def still_mirrors(link: ClusterLink) -> Callable[[str], bool]:
    """Return a function that checks whether a topic name is a mirror of this link which still follows its source."""
    mirrors = link.mirrors.filter(deletion_requested_at=None).exclude(_NO_MIRRORS)
    return lambda name: mirrors.filter(name=name).exists()
