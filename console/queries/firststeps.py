"""How far an installation, as far as an actor sees it, is from an empty one to a verified mirror."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Exists, OuterRef, Q

from console.access import visible_clusters, visible_environments, visible_links, visible_mirrors
from console.actors import Actor
from console.models import Cluster, ClusterLink, Environment, MirrorTopic, VerifiedRange, VerifyRun
from linkengine.domain.states import MirrorState

_NOT_SET_UP = (MirrorState.PENDING_SETUP, MirrorState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSteps:
    """What exists already. A row is one of those that the next step is about, None if there is none yet."""

    environment: Environment | None
    clusters: int  # two are enough to mirror between them
    cluster: Cluster | None
    link: ClusterLink | None
    mirror: MirrorTopic | None
    set_up: bool
    verified: bool


def first_steps(*, by: Actor) -> FirstSteps:
    """Return what exists already. At most four queries beside the actor's bindings."""
    clusters = list(visible_clusters(by).select_related("environment__organization").order_by("pk")[:2])
    link = visible_links(by).select_related("destination__environment__organization").order_by("pk").first()
    equal = VerifyRun.objects.filter(mirror=OuterRef("pk"), status=VerifyRun.Status.EQUAL)
    ranges = VerifiedRange.objects.filter(mirror=OuterRef("pk"), differences=0)
    mirrors = visible_mirrors(by).select_related("link__destination").annotate(is_verified=Exists(equal) | Exists(ranges))
    mirror = mirrors.filter(Q(link=link)).order_by("-is_verified", "pk").first() if link is not None else None
    return FirstSteps(
        environment=visible_environments(by).select_related("organization").order_by("pk").first(),
        clusters=len(clusters),
        cluster=clusters[0] if clusters else None,
        link=link,
        mirror=mirror,
        set_up=mirror is not None and mirror.state not in _NOT_SET_UP,
        verified=mirror is not None and bool(getattr(mirror, "is_verified", False)),
    )
