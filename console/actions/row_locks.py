"""Locks and re-reads rows inside an action's transaction: they may have been deleted since the request looked them up."""

from __future__ import annotations

from console.errors import NotFoundError
from console.models import Cluster, ClusterLink, MirrorTopic


def lock_link(link: ClusterLink) -> ClusterLink:
    """Lock the link's row until the commit and return its current version.

    Needs a transaction. Raises NotFoundError if the link has been deleted.
    """
    rows = ClusterLink.objects.select_for_update(of=("self",)).select_related("destination__environment", "source")
    locked = rows.filter(pk=link.pk).first()
    if locked is None:
        raise NotFoundError(f"Cluster link '{link.name}' has been deleted.", code="UNKNOWN_LINK")
    return locked


def lock_clusters(*cluster_ids: str) -> None:
    """Lock the registered clusters with these Kafka cluster ids until the commit, ordered by key so that no deadlock occurs."""
    rows = Cluster.objects.select_for_update(of=("self",)).filter(cluster_id__in=cluster_ids)
    list(rows.order_by("pk").values_list("pk"))


def check_mirror(mirror: MirrorTopic) -> None:
    """Raise NotFoundError if the mirror has been deleted: rows with a foreign key to it could not be stored."""
    if not MirrorTopic.objects.filter(pk=mirror.pk).exists():
        raise NotFoundError(f"Mirror topic '{mirror.name}' has been deleted.", code="UNKNOWN_MIRROR")
