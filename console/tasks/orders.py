"""Writes the orders of a link's mirrors for its running copy tasks."""

from __future__ import annotations

from collections.abc import Collection

import structlog
from django.conf import settings
from django.db.models import F

from console.models import ClusterLink, MirrorTopic
from console.reconciling import plans, slicing
from linkengine import jobs

_log = structlog.get_logger(__name__)


def write_orders(link: ClusterLink, mirrors: Collection[MirrorTopic]) -> bool:
    """Say of all mirrors of the link whether to go on, and in which life; raise CoordinationUnavailableError in an outage.

    Answers False where the tasks follow orders of a later revision: of somebody who was quicker, or of a database that has
    gone back since. The latter's link moves on by one, each time, until its orders count again.
    """
    written = jobs.write_orders(
        settings.REDIS_URL,
        plans.link_key(link),
        plans.signer_of(link),
        revision=link.revision,
        wanted=slicing.orders_for(link, mirrors),
        lives=slicing.lives_of(mirrors),
    )
    if not written and ClusterLink.objects.filter(pk=link.pk, revision=link.revision).update(revision=F("revision") + 1):
        _log.warning("orders.database_went_back", link=link.name, revision=link.revision)
    return written
