"""The totals of a link as its page shows them."""

from __future__ import annotations

from django.utils import timezone

from console.actors import Actor
from console.links.health_queries import observe_links
from console.mirrors import queries as mirror_queries
from console.models import ClusterLink


def link_figures(*, link: ClusterLink, by: Actor) -> mirror_queries.LinkFigures:
    """Return the totals of the mirrors that an actor may see."""
    now = timezone.now()
    return mirror_queries.link_figures(observe_links([link], by=by, now=now, failing={})[link.pk], now=now)
