"""Queries that only these responses need: names and states of mirrors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from console.access import visible_mirrors
from console.actors import Actor
from console.models import Cluster, ClusterLink, MirrorTopic


def mirror_states(links: Iterable[ClusterLink], *, by: Actor) -> dict[int, list[tuple[str, str]]]:
    """Return (name, state) of the mirrors that the actor may see, by link id, with a single query."""
    found: dict[int, list[tuple[str, str]]] = defaultdict(list)
    rows = visible_mirrors(by).filter(link__in=[link.pk for link in links]).order_by("name")
    for link_id, name, state in rows.values_list("link_id", "name", "state"):
        found[link_id].append((name, state))
    return found


def cluster_mirrors(cluster: Cluster, *, by: Actor) -> list[MirrorTopic]:
    """Return the cluster's mirror topics that the actor may see, with a single query."""
    return list(visible_mirrors(by).filter(link__destination=cluster))
