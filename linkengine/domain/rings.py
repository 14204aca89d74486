"""Rings of mirrors: records that would come back to the cluster they come from, over however many links.

The graph is a forest of pointers: each mirror has one source. It may hold mirrors of links the caller cannot see, hence it is
asked node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


def ring_words(ring: Sequence[Place], *, names: Mapping[str, str]) -> str:
    """Write a ring for a person; ``names`` are those of the clusters that the person may see, by id.

    The last two places, the source and the new mirror, are in the person's own request. Of the others on clusters that may not
    be seen nothing is written but that they are there.
    """
    above, asked = ring[:-2], ring[-2:]
    words = [_words(place, names) if place.cluster in names else "a topic that you may not see" for place in above]
    return " → ".join([*words, *(_words(place, names) for place in asked)])


def _words(place: Place, names: Mapping[str, str]) -> str:
    return f"{names.get(place.cluster, place.cluster)}:{place.topic}"
