"""View model of a registered cluster."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from console.presenters import numbers
from console.presenters.badges import Badge
from console.presenters.notes import ErrorNote, error_note
from console.presenters.numbers import Moment, moment
from console.presenters.states import cluster_look

if TYPE_CHECKING:
    from console.models import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """A registered cluster."""

    name: str
    cluster_id: str
    url: str
    bootstrap_servers: str
    look: Badge
    brokers: str
    kafka_version: str
    authorizer: str
    probed: Moment | None
    note: ErrorNote | None


def cluster_row(cluster: Cluster, *, now: datetime) -> ClusterRow:
    """Create the row of a cluster, as of its last probe."""
    return ClusterRow(
        name=cluster.name,
        cluster_id=cluster.cluster_id,
        url=cluster.get_absolute_url(),
        bootstrap_servers=cluster.bootstrap_servers,
        look=cluster_look(probed=cluster.probed_at is not None, error_code=cluster.error_code),
        brokers=numbers.count(cluster.brokers),
        kafka_version=cluster.kafka_version or "unknown",
        authorizer=_authorizer(enabled=cluster.has_authorizer),
        probed=moment(cluster.probed_at, now=now),
        note=error_note(cluster.error_code, cluster.error_message, now=now),
    )


def _authorizer(*, enabled: bool) -> str:
    return "enabled: mirror topics can be read-only" if enabled else "disabled: writes to mirror topics cannot be denied"
