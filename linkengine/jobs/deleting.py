"""Delete a mirror topic and the rules that guarded it."""

from __future__ import annotations

import time

from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.admin import ClusterAdmin

GONE_TIMEOUT_S = 30.0  # brokers forget a topic within a second; a loaded controller may need longer
_LOOK_EVERY_S = 0.1


def delete_mirror(*, destination: ClusterAddress, mirror_topic: str) -> bool:
    """Delete the topic, wait until it is gone, remove its rules; answer False if there was no topic. Safe to repeat.

    The rules go last: while the topic is there, nobody may write to it.
    """
    admin = ClusterAdmin(destination)
    deleted = admin.delete_topic(mirror_topic)
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while admin.find(mirror_topic) is not None:
        if time.monotonic() > deadline:
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR,
                f"Topic {mirror_topic!r} is still there {GONE_TIMEOUT_S:.0f} s after its deletion. Check the controller of the "
                "destination cluster; deleting again is safe.",
            )
        time.sleep(_LOOK_EVERY_S)
    admin.allow_writes(mirror_topic)
    admin.allow_reads(mirror_topic)
    return deleted
