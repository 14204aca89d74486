"""What a failover of the mirror topics of a link would cost now, from the newest reports. The clusters are not contacted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import OuterRef, Subquery

from console.mirrors import loss
from console.mirrors.progress import CurrentMirror
from console.models import SourceTopic
from console.models.mirrors import MirrorTopicQuerySet
from console.queries.figures import Figures, figures_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverRisk:
    """The records at risk and the time lag of mirrors that are not stopped. Unknown is None, never 0."""

    records: Mapping[int, int | None]  # by primary key of the mirror
    rpo_ms: int | None  # of the worst partition
    never_seen: int  # partitions that lack records since an unknown time, and mirrors without partitions

    @property
    def known_records(self) -> int:
        """The records at risk of the mirrors for which they are known."""
        return sum(count for count in self.records.values() if count is not None)

    @property
    def unknown(self) -> int:
        """The number of mirrors whose records at risk are unknown."""
        return sum(count is None for count in self.records.values())


def failover_risk(mirrors: MirrorTopicQuerySet, current: Sequence[CurrentMirror], *, now: datetime) -> FailoverRisk:
    """Return the risk of mirrors; ``current`` is the current progress of those that are not stopped. One query.

    A mirror that was added since ``current`` was read is unknown.
    """
    topics = SourceTopic.objects.filter(link=OuterRef("link"), name=OuterRef("source_topic"))
    chosen = mirrors.unstopped().order_by().annotate(listed=Subquery(topics.values("partitions")[:1]))
    rows = {mirror.pk: mirror.partitions for mirror in current}
    records = {
        pk: loss.missing_records(rows.get(pk, ()), partitions=max(own, listed or 0))
        for pk, own, listed in chosen.values_list("pk", "num_partitions", "listed")
    }
    total = Figures()
    for pk in records:
        figures_of(rows.get(pk, ()), now=now, into=total)
    total.add_unseen(sum(not rows.get(pk) for pk in records))
    return FailoverRisk(records=records, rpo_ms=total.oldest_ms(now), never_seen=total.never)
