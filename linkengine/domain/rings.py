"""Rings of mirrors: records that would come back to the cluster they come from, over however many links.

The graph is a forest of pointers: each mirror has one source. It may hold mirrors of links the caller cannot see, hence it is
asked node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple


class Place(NamedTuple):
    """A topic on a cluster."""

    cluster: str
    topic: str


SourceOf = Callable[[Place], Place | None]  # what a topic mirrors, None for an ordinary topic


def find_ring(source_of: SourceOf, *, source: Place, mirror: Place) -> tuple[Place, ...]:
    """Answer the way of the records if ``mirror`` of ``source`` would feed its own cluster, in order of flow; () if not.

    The last place is the new mirror; the first one lies on the same cluster. A ring that is there already ends the search.
    """
    way, place, seen = [mirror, source], source, {source}
    while place.cluster != mirror.cluster:
        above = source_of(place)
        if above is None or above in seen:
            return ()
        way.append(above)
        seen.add(above)
        place = above
    return tuple(reversed(way))


def ring_words(ring: Iterable[Place], *, names: Mapping[str, str]) -> str:
    """Write a ring for people; ``names`` are clusters by id, where known."""
    return " → ".join(f"{names.get(place.cluster, place.cluster)}:{place.topic}" for place in ring)
