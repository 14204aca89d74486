"""A task whose caller waits for the reply: compares the record at an offset of a mirror with the source's."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from celery import shared_task

from console.models import MirrorTopic
from console.models.fields import seal
from console.reconciling import plans
from console.tasks.calls import replying
from linkengine import jobs
from linkengine.domain.errors import ErrorCode, LinkEngineError


@shared_task(name="compare_record")
@replying
def compare_record(*, mirror_pk: int, partition: int, offset: int | None, timestamp_ms: int | None) -> str:
    """Return a ``RecordComparison`` as JSON, encrypted: it has the contents of records, and Redis is not confidential."""
    mirror = MirrorTopic.objects.select_related("link__destination", "link__source").filter(pk=mirror_pk).first()
    if mirror is None:
        raise LinkEngineError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, "The mirror topic was deleted from the link.")
    link = mirror.link
    source = jobs.RecordSide(
        address=partial(plans.source_address, link), topic=mirror.source_topic, topic_id=mirror.source_topic_id
    )
    copy = jobs.RecordSide(address=lambda: link.destination.address, topic=mirror.name, topic_id=mirror.mirror_topic_id)
    found = jobs.compare_record(source, copy, partition=partition, offset=offset, timestamp_ms=timestamp_ms)
    return seal(asdict(found))
