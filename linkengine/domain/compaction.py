"""When the mirror of a compacted topic is compacted itself: not while records without a key are still to be copied.

A compacted topic takes no record without a key, but may hold some from before it was compacted, until its cleaner removes
them. The mirror takes them as long as its policy is ``delete`` (with unlimited retention it deletes nothing), and treats
them as the source does once it is compacted (``docs/adr/0002-compacted-mirrors.md``). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from linkengine.domain.configs import ConfigChange, is_compacted

POLICY = "cleanup.policy"
OPEN = "delete"


def with_compaction_in_time(
    change: ConfigChange, *, wanted: Mapping[str, str], present: Mapping[str, str], keyless: bool, copied: Callable[[], bool]
) -> ConfigChange:
    """Answer the change with the policy that the copy allows now.

    ``keyless``: the mirror has refused a record without a key. ``copied``: it holds all that its source had when the
    source's policy was read; asked only where that decides.
    """
    if not is_compacted(wanted) or wanted.get("retention.ms") != "-1":  # a retention of its own would delete records
        return change
    if is_compacted(present):
        return replace(change, values={**change.values, POLICY: OPEN}) if keyless else change
    if POLICY in change.values and not copied():
        return replace(change, values={name: value for name, value in change.values.items() if name != POLICY})
    return change
