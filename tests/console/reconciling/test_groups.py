"""What a link's configs make of a run of its consumer groups."""

from __future__ import annotations

import pytest

from console.models import ClusterLink
from console.reconciling.groups import sync_of

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("switch", "prefix"), [("true", "west."), ("false", ""), (None, "")])
def test_groups_have_the_links_prefix_only_where_it_is_switched_on(link: ClusterLink, switch: str | None, prefix: str) -> None:
    link.prefix = "west."
    link.save(update_fields=["prefix"])
    if switch is not None:
        link.configs.create(name="consumer.group.prefix.enable", value=switch)

    assert sync_of(ClusterLink.objects.get(pk=link.pk)).group_prefix == prefix
