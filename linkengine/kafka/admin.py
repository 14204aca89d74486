"""Administration of a cluster: topics, configs, offsets, consumer groups, ACLs, and the ACLs that guard a mirror.

``ClusterAdmin`` is the only admin client of the engine. It is cheap to create, since the clients behind it are pooled
(``admin_session``). Every call has a time limit and raises only LinkEngineError. Independent of links and mirrors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing

from confluent_kafka.admin import AclOperation

from linkengine.domain.acls import Acl
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import ConfigChange
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import Committed, Group
from linkengine.domain.plans import ClusterProbe, TopicDescription, TopicPartition
from linkengine.kafka import admin_acls, admin_groups, admin_topics, offsets, producers
from linkengine.kafka.admin_groups import Offsets, StillDue
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession
from linkengine.kafka.admin_topics import delete_by_id
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.offsets import OffsetKind
from linkengine.kafka.preflight import broker_facts

__all__ = ["ClusterAdmin", "OffsetKind"]

VISIBLE_TIMEOUT_S = 20.0  # brokers usually show a change within a second; loaded brokers need longer
_POLL_S = 0.05


class ClusterAdmin:
    """Admin calls to a cluster."""

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address
        self._session = AdminSession(address)

    def probe(self) -> ClusterProbe:
        """Describe the cluster over a new login; raise LinkEngineError with the exact reason if the login fails."""
        facts = broker_facts(self.address)
        cluster = self._session.call(
            lambda client: client.describe_cluster(request_timeout=REQUEST_TIMEOUT_S), what="describe the cluster"
        )
        return ClusterProbe(
            cluster_id=cluster.cluster_id or "",
            brokers=len(cluster.nodes),
            kafka_version=facts.release,
            authorizer=facts.authorizer,
        )

    # topics

    def topic_names(self) -> list[str]:
        """Return the topics that the principal may describe, sorted; a single request."""
        return admin_topics.names(self._session)

    def topics(self, names: Iterable[str] | None = None, *, with_configs: bool = True) -> list[TopicDescription]:
        """Return descriptions of the named topics (default: all) that exist and that the principal may describe."""
        chosen = self.topic_names() if names is None else list(names)
        return admin_topics.describe_many(self._session, chosen, with_configs=with_configs)

    def describe(self, topic: str) -> TopicDescription:
        """Return the description of a topic; raise UNKNOWN_TOPIC_OR_PARTITION_ERROR if it does not exist."""
        return admin_topics.describe(self._session, topic)

    def find(self, topic: str) -> TopicDescription | None:
        """Return the description of a topic, or None if it does not exist."""
        try:
            return self.describe(topic)
        except LinkEngineError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR:
                return None
            raise

    def missing_among(self, topics: Iterable[str]) -> frozenset[str]:
        """Return the topics that do not exist, as by ``find``; takes up to two seconds for all of them together."""
        return admin_topics.missing_among(self._session, topics)

    def create_topic(
        self, topic: str, *, partitions: int, replication_factor: int | None = None, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until it is visible; ``replication_factor`` None means the cluster's default."""
        admin_topics.create(
            self._session, topic, partitions=partitions, replication_factor=replication_factor, configs=configs or {}
        )
        self.wait_ready(topic, partitions=partitions)

    def check_creation(
        self, topic: str, *, partitions: int, replication_factor: int | None = None, configs: Mapping[str, str]
    ) -> None:
        """Validate a topic creation on the cluster, including its policy, without creating it; raise if it is refused."""
        admin_topics.create_or_validate(
            self._session,
            topic,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
            validate_only=True,
        )

    def delete_topic(self, topic: str) -> bool:
        """Delete a topic and wait until it is gone; return False if it did not exist."""
        before = self.find(topic)
        deleted = admin_topics.delete(self._session, topic)
        if before is not None:
            self._wait_until(lambda: not self._is_there(before), what=f"topic {topic!r} still exists, though deleted")
        return deleted

    def delete_topic_by_id(self, topic: TopicDescription, *, check_owner: Callable[[], None] = lambda: None) -> bool:
        """Delete the topic of this id only, and wait until it is gone; return False if it was gone already."""
        deleted = delete_by_id(self.address, topic.topic_id, check_owner=check_owner)
        self._wait_until(lambda: not self._is_there(topic), what=f"topic {topic.name!r} still exists, though deleted")
        return deleted

    def _is_there(self, topic: TopicDescription) -> bool:
        found = self.find(topic.name)
        return found is not None and found.topic_id == topic.topic_id

    def add_partitions(self, topic: str, *, total: int) -> None:
        """Increase the partition count of a topic to ``total`` and wait until the new partitions have leaders."""
        admin_topics.grow(self._session, topic, partitions=total)
        self.wait_ready(topic, partitions=total)

    def wait_ready(self, topic: str, *, partitions: int, timeout_s: float = VISIBLE_TIMEOUT_S) -> None:
        """Wait until every partition has a leader; raise TIMEOUT_ERROR after ``timeout_s``."""
        self._wait_until(
            lambda: admin_topics.led_partitions(self._session, topic) >= partitions,
            what=f"topic {topic!r} has no leader in one of its {partitions} partitions",
            timeout_s=timeout_s,
        )

    def rights(self, topic: str) -> frozenset[str]:
        """Return the principal's operations on the topic ("READ", "WRITE", …); DENY rules do not limit super users."""
        return admin_topics.rights(self._session, topic)

    # configs

    def effective_configs(self, topic: str) -> dict[str, str]:
        """Return the configs in force on a topic, including the cluster's defaults."""
        return admin_topics.effective_configs(self._session, topic)

    def effective_configs_of(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the configs in force on many topics; topics whose configs may not be read are left out."""
        return admin_topics.effective_configs_of(self._session, topics)

    def set_configs(self, topic: str, values: Mapping[str, str]) -> None:
        """Set configs of a topic; the other configs stay as they are."""
        self.change_configs(topic, ConfigChange(values=dict(values)))

    def change_configs(self, topic: str, change: ConfigChange) -> None:
        """Set and delete configs of a topic in a single request and wait until they are in force."""
        if change:
            admin_topics.alter_configs(self._session, topic, change)
            self._wait_until(
                lambda: admin_topics.shows(self._session, topic, change),
                what=f"topic {topic!r} does not show its new configs",
            )

    def alter_each(self, changes: Mapping[str, ConfigChange]) -> dict[str, LinkEngineError]:
        """Change configs of many topics with few requests; return the error of each topic whose change was refused."""
        return admin_topics.alter_each(self._session, {topic: change for topic, change in changes.items() if change})

    def wait_for_configs(self, changes: Mapping[str, ConfigChange]) -> None:
        """Wait until the brokers show the changes; raise TIMEOUT_ERROR after VISIBLE_TIMEOUT_S."""
        real = {topic: change for topic, change in changes.items() if change}
        with closing(Cluster(self.address)) as cluster:
            what = f"one of {len(real)} topics does not show its new configs"
            self._wait_until(lambda: not admin_topics.not_shown(cluster, real), what=what)

    # offsets

    def offsets(self, topic: str, kind: OffsetKind, *, partitions: int | None = None) -> dict[int, int]:
        """Return an offset per partition; raise TIMEOUT_ERROR if a partition had no leader for LAG_S seconds."""
        count = self.describe(topic).partitions if partitions is None else partitions
        found = offsets.patient_offsets(self._session, [(topic, partition) for partition in range(count)], kind)
        missing = [partition for partition in range(count) if (topic, partition) not in found]
        if missing:
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR,
                f"Partition {missing[0]} of topic {topic!r} returns no offsets: it has no leader now, does not exist, "
                "or the principal may not DESCRIBE the topic. Try again.",
            )
        return {partition: found[topic, partition] for partition in range(count)}

    def many_offsets(self, partitions: Iterable[tuple[str, int]], kind: OffsetKind) -> dict[tuple[str, int], int]:
        """Return an offset for each of many partitions; partitions without a result now are left out."""
        return offsets.offsets_of(self._session, partitions, kind)

    def offsets_at(self, topic: str, timestamp_ms: int, *, partitions: int) -> dict[int, int]:
        """Return, per partition, the offset of the first stable record at or after a timestamp; -1 if there is none."""
        places = [(topic, partition) for partition in range(partitions)]
        found = offsets.offsets_at(self._session, places, timestamp_ms)
        return {partition: offset for (_, partition), offset in found.items()}

    def trim(self, topic: str, starts: Mapping[int, int]) -> None:
        """Advance log starts (DeleteRecords): partition -> first offset that stays."""
        offsets.trim(self._session, {(topic, partition): offset for partition, offset in starts.items()})

    # consumer groups

    def groups(self) -> tuple[dict[str, Group], str]:
        """Return the groups of all types by name, and why the list may be incomplete ("" if complete); a request per broker."""
        with closing(Cluster(self.address)) as cluster:
            found, failures = admin_groups.list_groups(cluster)
        return found, " ".join(error.message for error in failures.values())

    def committed(
        self, groups: Iterable[str], *, stable_at: Iterable[TopicPartition] | None = None, certain: bool = False
    ) -> tuple[dict[str, dict[TopicPartition, Committed]], dict[str, LinkEngineError]]:
        """Return the committed offsets of groups by topic and partition, and the errors of groups that cannot be read."""
        with closing(Cluster(self.address)) as cluster:
            return admin_groups.committed(cluster, groups, stable_at=stable_at, certain=certain)

    def commit(
        self, offsets: Mapping[str, Offsets], *, still_due: StillDue = lambda offsets: offsets
    ) -> dict[str, dict[TopicPartition, LinkEngineError | None]]:
        """Commit offsets for groups without members; return the errors, GroupInUseError for a group with members."""
        with closing(Cluster(self.address)) as cluster:
            return admin_groups.commit(cluster, offsets, still_due=still_due)

    # ACLs

    def acls(self) -> set[Acl]:
        """Return every ACL; call ``has_authorizer`` first."""
        return admin_acls.describe(self._session)

    def acls_by_broker(self) -> list[set[Acl]]:
        """Return the ACLs that each broker shows; raise LinkEngineError if a silent broker may have others."""
        return admin_acls.describe_by_broker(self.address)

    def create_acls(self, acls: Sequence[Acl]) -> dict[Acl, LinkEngineError]:
        """Create ACLs; return the refusals. Idempotent."""
        return admin_acls.create(self._session, acls)

    def delete_acls(self, acls: Sequence[Acl]) -> dict[Acl, LinkEngineError]:
        """Delete exactly these ACLs; return the refusals. Idempotent."""
        return admin_acls.delete(self._session, acls)

    # guards

    def has_authorizer(self) -> bool:
        """Return whether the cluster enforces ACLs, so that a topic can be made read-only."""
        return broker_facts(self.address).authorizer

    def deny_writes(self, topic: str) -> None:
        """Make a topic (existing or not) read-only for all principals except super users. Idempotent."""
        self._deny(topic, AclOperation.WRITE)

    def allow_writes(self, topic: str) -> None:
        """Undo ``deny_writes``. Idempotent."""
        self._allow_each([topic], AclOperation.WRITE)

    def allow_many_writes(self, topics: Sequence[str]) -> dict[str, LinkEngineError]:
        """Undo ``deny_writes`` for topics with few requests; return the errors by topic. Idempotent."""
        return self._allow(topics, AclOperation.WRITE)

    def denies_writes(self, topic: str) -> bool:
        """Return whether ``deny_writes`` is in force."""
        return admin_acls.denies(self._session, topic, AclOperation.WRITE)

    def lacks_deny_write(self, topic: str) -> bool:
        """Return True if ``deny_writes`` is certainly not in force; False also if the principal may not read ACLs."""
        return admin_acls.is_absent(self._session, topic, AclOperation.WRITE)

    def denies_writes_nowhere(self, topic: str) -> bool:
        """Return True if ``deny_writes`` is in force on no broker; raise LinkEngineError if a broker is silent or refuses."""
        with closing(Cluster(self.address)) as cluster:
            return set(producers.brokers_without_deny_write(cluster, topic)) == set(cluster.brokers())

    def deny_reads(self, topic: str) -> None:
        """Hide a topic's records while its head is being seeded. Idempotent."""
        self._deny(topic, AclOperation.READ)

    def allow_reads(self, topic: str) -> None:
        """Undo ``deny_reads``. Idempotent."""
        self._allow_each([topic], AclOperation.READ)

    def denies_reads(self, topic: str) -> bool:
        """Return whether ``deny_reads`` is in force."""
        return admin_acls.denies(self._session, topic, AclOperation.READ)

    def _deny(self, topic: str, operation: AclOperation) -> None:
        admin_acls.deny(self._session, topic, operation)
        self._wait_until(
            lambda: admin_acls.denies(self._session, topic, operation),
            what=f"DENY {operation.name} on topic {topic!r} is not in force",
        )

    def _allow_each(self, topics: Sequence[str], operation: AclOperation) -> None:
        for error in self._allow(topics, operation).values():
            raise error

    def _allow(self, topics: Sequence[str], operation: AclOperation) -> dict[str, LinkEngineError]:
        refused = admin_acls.allow(self._session, topics, operation)
        for topic, error in list(refused.items()):
            # A user may have removed the rule on a cluster where the link's principal has lost the right to change ACLs.
            if error.code == ErrorCode.AUTHORIZATION_ERROR and admin_acls.is_absent(self._session, topic, operation):
                del refused[topic]
        allowed = [topic for topic in topics if topic not in refused]
        try:
            self._wait_until(
                lambda: not admin_acls.denied_topics(self._session, allowed, operation),
                what=f"DENY {operation.name} on {_named(allowed)} is still in force",
            )
        except LinkEngineError as error:
            refused |= dict.fromkeys(admin_acls.denied_topics(self._session, allowed, operation), error)
        return refused

    def _wait_until(self, shown: Callable[[], bool], *, what: str, timeout_s: float = VISIBLE_TIMEOUT_S) -> None:
        """Wait until the brokers show what the controller has confirmed: brokers apply metadata changes with a delay."""
        deadline = time.monotonic() + timeout_s
        while not shown():
            if time.monotonic() > deadline:
                raise LinkEngineError(
                    ErrorCode.TIMEOUT_ERROR,
                    f"After {timeout_s:.1f} s {what}. Check the brokers and the controller of the cluster, then try again.",
                )
            time.sleep(_POLL_S)


def _named(topics: Sequence[str]) -> str:
    return f"topic {topics[0]!r}" if len(topics) == 1 else f"one of {len(topics)} topics"
