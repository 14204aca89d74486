from __future__ import annotations

import json

from linkengine.domain.acls import Acl
from linkengine.domain.clusterviews import SourceListing, listing_from_json
from linkengine.domain.groups import Group
from linkengine.domain.mirrorability import ListedTopic

ACL = Acl(
    resource_type="TOPIC",
    resource_name="flights",
    pattern_type="LITERAL",
    principal="User:app",
    host="*",
    operation="READ",
    permission="ALLOW",
)


def test_listing_is_restored_from_json() -> None:
    listing = SourceListing(
        topics=(
            ListedTopic(name="flights"),
            ListedTopic(name="__consumer_offsets", internal=True),
            ListedTopic(name="west.x", is_mirror=True),
        ),
        groups=(Group(name="billing", kind="classic"), Group(name="a\0b")),
        acls=(ACL,),
        cut=("acls",),
    )

    assert listing_from_json(json.loads(json.dumps(listing.to_json()))) == listing


def test_unknown_lists_stay_unknown() -> None:
    listing = SourceListing(errors={"topics": "No right.", "groups": "No right.", "acls": "No right."})

    restored = listing_from_json(listing.to_json())

    assert (restored.topics, restored.groups, restored.acls) == (None, None, None)
    assert restored.synced_groups is None
    assert restored.errors["topics"] == "No right."


def test_groups_of_other_types_are_not_counted_as_synced() -> None:
    groups = tuple(Group(name=kind or "old", kind=kind) for kind in ("classic", "consumer", "share", "streams", ""))

    synced = SourceListing(groups=groups).synced_groups

    assert synced is not None
    assert [group.name for group in synced] == ["classic", "consumer", "old"]
