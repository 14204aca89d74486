"""Rings of mirrors, over one link and over many."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.mirrorability import TopicOfCluster, find_ring, ring_words


def place(text: str) -> TopicOfCluster:
    cluster, _, topic = text.partition(":")
    return TopicOfCluster(cluster, topic)


def ring(mirrors: Mapping[str, str], *, source: str, mirror: str) -> str:
    known = {place(copy): place(original) for copy, original in mirrors.items()}
    return ring_words(find_ring(known.get, source=place(source), mirror=place(mirror)), names={"a": "Austin"})


@pytest.mark.parametrize(
    ("mirrors", "source", "mirror", "found"),
    [
        ({}, "a:x", "b:x", ""),
        ({"b:x": "a:x"}, "b:x", "c:x", ""),  # a chain is not a ring
        ({"b:x": "a:x"}, "b:x", "a:x", "Austin:x → b:x → Austin:x"),
        ({"b:b.x": "a:x"}, "b:b.x", "a:a.b.x", "Austin:x → b:b.x → Austin:a.b.x"),  # other names, same records
        ({"b:x": "a:x", "c:x": "b:x"}, "c:x", "a:x", "Austin:x → a topic that you may not see → c:x → Austin:x"),
        ({"b:x": "z:x", "z:x": "b:x"}, "b:x", "z:x", "a topic that you may not see → b:x → z:x"),
        ({"b:x": "a:x"}, "b:y", "a:y", ""),  # another topic of the same pair
        ({"b:x": "c:x", "c:x": "b:x"}, "b:x", "d:x", ""),  # a ring elsewhere ends the search
    ],
)
def test_a_ring_is_found_and_written_in_the_order_of_flow(
    mirrors: dict[str, str], source: str, mirror: str, found: str
) -> None:
    assert ring(mirrors, source=source, mirror=mirror) == found


places = st.builds(TopicOfCluster, st.sampled_from("abcd"), st.sampled_from("xy"))


@given(st.dictionaries(places, places), places, places)
def test_a_ring_begins_and_ends_on_the_same_cluster(
    known: dict[TopicOfCluster, TopicOfCluster], source: TopicOfCluster, mirror: TopicOfCluster
) -> None:
    found = find_ring(known.get, source=source, mirror=mirror)

    if found:
        assert found[0].cluster == mirror.cluster
        assert found[-2:] == (source, mirror)
        assert all(known[later] == earlier for earlier, later in pairwise(found[:-1]))
