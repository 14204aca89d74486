"""Loads the link of many mirrors once: a copy per mirror, with clusters and secrets to decrypt, takes seconds per thousand."""

from __future__ import annotations

from typing import TypeVar

from django.db.models import Prefetch, QuerySet

from console.access.visibility import with_sight
from console.actors import Actor
from console.models import ClusterLink, MirrorTopic

_Mirror = TypeVar("_Mirror", bound=MirrorTopic)  # or a mirror with annotations


def with_links(mirrors: QuerySet[_Mirror], *, by: Actor | None = None) -> QuerySet[_Mirror]:
    """Load links, clusters and configs with the mirrors, by two more queries; mirrors of a link share an object.

    ``by`` is the reading user, if any (``access.with_sight``).
    """
    links = ClusterLink.objects.select_related("destination__environment__organization", "source")
    if by is not None:
        links = with_sight(links, by)
    return mirrors.prefetch_related(Prefetch("link", queryset=links.prefetch_related("configs")))
