"""The totals and the failover readiness of a link as its pages show them."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone

from console.actors import ENGINE, Actor
from console.links.health_queries import observe_links
from console.links.readiness_queries import link_readiness
from console.mirrors import queries as mirror_queries
from console.models import ClusterLink
from linkengine.domain.failover import Readiness


def link_figures(*, link: ClusterLink, by: Actor) -> mirror_queries.LinkFigures:
    """Return the totals of the mirrors that an actor may see."""
    now = timezone.now()
    return mirror_queries.link_figures(observe_links([link], by=by, now=now, failing={})[link.pk], now=now)


def readiness_of(link: ClusterLink, *, now: datetime) -> Readiness:
    """Return the readiness of a link, of which a user sees all mirrors."""
    failing = {link.pk: [task for task in link.tasks.all() if task.error_count]}
    return link_readiness(link, observe_links([link], by=ENGINE, now=now, failing=failing)[link.pk], now=now)
