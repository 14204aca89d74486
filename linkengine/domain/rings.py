"""Rings of mirrors: chains of links through which records would return to the cluster they come from.

Each mirror has one source, so the graph is a forest of pointers. It may include mirrors of links that the caller must not see;
therefore it is traversed node by node through a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """A topic on a cluster."""

    cluster: str
    topic: str


SourceOf = Callable[[Place], Place | None]  # returns the topic that a topic mirrors, None for an ordinary topic


def find_ring(source_of: SourceOf, *, source: Place, mirror: Place) -> tuple[Place, ...]:
    """Return the path of the records if ``mirror`` of ``source`` would feed its own cluster, in order of flow; () if not.

    The last place is the new mirror; the first place is on the same cluster. The search ends at a ring that exists already.
    """
    path, place, seen = [mirror, source], source, {source}
    while place.cluster != mirror.cluster:
        above = source_of(place)
        if above is None or above in seen:
            return ()
        path.append(above)
        seen.add(above)
        place = above
    return tuple(reversed(path))


def ring_words(ring: Sequence[Place], *, names: Mapping[str, str]) -> str:
    """Return a ring as text for a user; ``names`` are the names of the clusters that the user may see, by id.

    The last two places, the source and the new mirror, are part of the user's own request and always named. Other places on
    clusters that the user may not see appear without a name.
    """
    above, requested = ring[:-2], ring[-2:]
    words = [_words(place, names) if place.cluster in names else "a topic that you may not see" for place in above]
    return " → ".join([*words, *(_words(place, names) for place in requested)])


def _words(place: Place, names: Mapping[str, str]) -> str:
    return f"{names.get(place.cluster, place.cluster)}:{place.topic}"
