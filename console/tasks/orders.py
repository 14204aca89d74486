"""Writes the orders of a link's mirrors for its running copy tasks."""

from __future__ import annotations

from collections.abc import Collection

from django.conf import settings

from console.models import ClusterLink, MirrorTopic
from console.reconciling import plans, slicing
from linkengine import jobs


def write_orders(link: ClusterLink, mirrors: Collection[MirrorTopic]) -> None:
    """Say of all mirrors of the link whether to go on, and in which life; raise CoordinationUnavailableError in an outage."""
    jobs.write_orders(
        settings.REDIS_URL,
        plans.link_key(link),
        revision=link.revision,
        wanted=slicing.orders_for(link, mirrors),
        lives=slicing.lives_of(mirrors),
    )
