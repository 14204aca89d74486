"""Looks at the batches of a mirror that its copier did not send knowingly: are they ours, by producer id, or somebody else's?

Blocking; runs beside the loop, on a connection of its own. Reads uncommitted data up to the high watermark.
"""

from __future__ import annotations

import time

from linkengine.batches.view import iter_batches
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.cluster import Cluster, Leader
from linkengine.kafka.codes import BrokerError
from linkengine.kafka.reading import read_batches

PATIENCE_S = 10.0  # for the high watermark to reach the log end


def first_foreign_batch(
    cluster: Cluster, leader: Leader, *, topic: tuple[str, bytes, int], offsets: tuple[int, int], producer_id: int
) -> int | None:
    """Answer the offset of the first batch in ``offsets`` that another producer wrote, None where all are ours."""
    position, end = offsets
    deadline = time.monotonic() + PATIENCE_S
    connection = cluster.open(leader.broker)
    try:
        while position < end:
            error, records = read_batches(connection, topic=topic, leader_epoch=leader.epoch, offset=position)
            if error:
                raise BrokerError(error, f"The mirror {topic[0]}-{topic[2]} cannot be read for a check")
            for _, view in iter_batches(records):
                if view.next_offset > position and view.producer_id != producer_id and view.base_offset < end:
                    return view.base_offset
                position = max(position, view.next_offset)
            if time.monotonic() > deadline:
                raise LinkEngineError(
                    ErrorCode.TIMEOUT_ERROR, f"The mirror {topic[0]}-{topic[2]} could not be checked in time. Retrying."
                )
    finally:
        connection.close()
    return None
