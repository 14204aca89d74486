"""Rows that an action is about, looked at again: somebody may have deleted them since they were looked up."""

from __future__ import annotations

from console.errors import NotFoundError
from console.models import Cluster, ClusterLink, MirrorTopic


def lock_link(link: ClusterLink) -> ClusterLink:
    """Answer the link's row as it is now and keep others from changing it; raise NotFoundError where it has gone.

    Within a transaction.
    """
    rows = ClusterLink.objects.select_for_update(of=("self",)).select_related("destination__environment", "source")
    locked = rows.filter(pk=link.pk).first()
    if locked is None:
        raise NotFoundError(f"Cluster link '{link.name}' has been deleted.", code="UNKNOWN_LINK")
    return locked


def lock_clusters(*cluster_ids: str) -> None:
    """Let nobody else lock the registered clusters of these ids until the commit, always in the same order."""
    rows = Cluster.objects.select_for_update(of=("self",)).filter(cluster_id__in=cluster_ids)
    list(rows.order_by("pk").values_list("pk"))


def check_mirror(mirror: MirrorTopic) -> None:
    """Raise NotFoundError where the mirror's row has gone: what refers to it could not be stored."""
    if not MirrorTopic.objects.filter(pk=mirror.pk).exists():
        raise NotFoundError(f"Mirror topic '{mirror.name}' has been deleted.", code="UNKNOWN_MIRROR")
