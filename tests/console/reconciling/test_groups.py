"""What a link's configs make of a run of its consumer groups."""

from __future__ import annotations

from typing import Any

import pytest

from console.models import ClusterLink
from console.reconciling.groups import mirrors_of, still_following, sync_of
from linkengine.domain.states import MirrorState, StopReason
from tests.console.conftest import NOW, MakeMirror

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("switch", "prefix"), [("true", "west."), ("false", ""), (None, "")])
def test_groups_have_the_links_prefix_only_where_it_is_switched_on(link: ClusterLink, switch: str | None, prefix: str) -> None:
    link.prefix = "west."
    link.save(update_fields=["prefix"])
    if switch is not None:
        link.configs.create(name="consumer.group.prefix.enable", value=switch)

    assert sync_of(ClusterLink.objects.get(pk=link.pk), []).group_prefix == prefix


@pytest.mark.parametrize(
    ("state", "changes", "chosen", "strictly"),
    [
        (MirrorState.ACTIVE, {}, True, True),
        (MirrorState.SOURCE_UNAVAILABLE, {}, True, True),
        (MirrorState.PAUSED, {}, False, True),  # a gate may look at it
        (MirrorState.PENDING_STOPPED, {"stop_reason": StopReason.PROMOTE}, True, True),
        (MirrorState.PENDING_STOPPED, {"stop_reason": StopReason.PROMOTE, "fencing_at": NOW}, False, False),
        (MirrorState.PENDING_STOPPED, {"stop_reason": StopReason.FAILOVER}, False, False),
        (MirrorState.STOPPED, {}, False, False),
        (MirrorState.PENDING_MIRROR, {}, False, False),
        (MirrorState.ACTIVE, {"deletion_requested_at": NOW}, False, False),
    ],
)
def test_groups_follow_until_a_stop_or_a_deletion_has_taken_hold(
    link: ClusterLink, make_mirror: MakeMirror, state: MirrorState, changes: dict[str, Any], *, chosen: bool, strictly: bool
) -> None:
    mirror = make_mirror("orders", state, num_partitions=2, **changes)

    assert mirrors_of(link) == ([mirror] if chosen else [])
    assert still_following(link, [mirror]) == ({"orders"} if chosen else set())
    assert still_following(link, [mirror], strict=True) == ({"orders"} if strictly else set())
