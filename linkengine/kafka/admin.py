"""Administration of one cluster: topics, configs, offsets, the guards of a mirror. The engine's only admin door.

``ClusterAdmin`` is light: clients behind it are pooled (``admin_session``), so make one wherever it is needed. Every call is
bounded in time and raises LinkEngineError only. Must not know links or mirrors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing

from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # its own type hints leave the name out

from linkengine.domain.aclfilters import Acl
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.configs import ConfigChange
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import Committed, Group, Place
from linkengine.domain.plans import ClusterProbe, TopicDescription
from linkengine.kafka import admin_acls, admin_groups, admin_offsets, admin_topics, topicconfigs, view_topics
from linkengine.kafka.admin_groups import Offsets, StillDue
from linkengine.kafka.admin_offsets import OffsetKind
from linkengine.kafka.admin_session import REQUEST_TIMEOUT_S, AdminSession
from linkengine.kafka.cluster import Cluster
from linkengine.kafka.deletion import delete_by_id
from linkengine.kafka.preflight import broker_facts

__all__ = ["ClusterAdmin", "OffsetKind"]

VISIBLE_TIMEOUT_S = 20.0  # brokers show a change within a second; loaded ones need longer
_LOOK_EVERY_S = 0.05


class ClusterAdmin:
    """Calls to one cluster."""

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address
        self._session = AdminSession(address)

    def probe(self) -> ClusterProbe:
        """Look at the cluster with a fresh login; raise with the precise reason why it does not let us in."""
        facts = broker_facts(self.address)
        cluster = self._session.one(
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
        """List the topics the principal may describe, sorted; one request."""
        return admin_topics.names(self._session)

    def topics(self, names: Iterable[str] | None = None, *, with_configs: bool = True) -> list[TopicDescription]:
        """Describe the named topics (default: all) as far as they exist and may be seen."""
        chosen = self.topic_names() if names is None else list(names)
        return admin_topics.describe_many(self._session, chosen, with_configs=with_configs)

    def describe(self, topic: str) -> TopicDescription:
        """Describe one topic; raise UNKNOWN_TOPIC_OR_PARTITION_ERROR if there is none."""
        return admin_topics.describe(self._session, topic)

    def find(self, topic: str) -> TopicDescription | None:
        """Describe one topic, None if there is none."""
        try:
            return self.describe(topic)
        except LinkEngineError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR:
                return None
            raise

    def missing_among(self, topics: Iterable[str]) -> frozenset[str]:
        """Pick the topics that ``find`` would not find; two seconds for all of them, not for each."""
        return admin_topics.missing_among(self._session, topics)

    def create_topic(
        self, topic: str, *, partitions: int, replication_factor: int | None = None, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until it is there; ``replication_factor`` None means the cluster's default."""
        admin_topics.create(
            self._session, topic, partitions=partitions, replication_factor=replication_factor, configs=configs or {}
        )
        self.wait_ready(topic, partitions=partitions)

    def check_creation(
        self, topic: str, *, partitions: int, replication_factor: int | None = None, configs: Mapping[str, str]
    ) -> None:
        """Have the cluster say whether it would create the topic, by its policy too; changes nothing. Raises its refusal."""
        view_topics.create(
            self._session,
            topic,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
            validate_only=True,
        )

    def delete_topic(self, topic: str) -> bool:
        """Delete a topic and wait until it is gone; answer False if there was none."""
        before = self.find(topic)
        deleted = admin_topics.delete(self._session, topic)
        if before is not None:
            self._wait_until(lambda: not self._is_there(before), what=f"topic {topic!r} is still there, though deleted")
        return deleted

    def delete_topic_by_id(self, topic: TopicDescription) -> bool:
        """Delete exactly this topic, never a later one of its name; wait until it is gone. False if it was gone already."""
        deleted = delete_by_id(self.address, topic.topic_id)
        self._wait_until(lambda: not self._is_there(topic), what=f"topic {topic.name!r} is still there, though deleted")
        return deleted

    def _is_there(self, topic: TopicDescription) -> bool:
        found = self.find(topic.name)
        return found is not None and found.topic_id == topic.topic_id

    def add_partitions(self, topic: str, *, total: int) -> None:
        """Grow the topic to ``total`` partitions and wait until the new ones are there."""
        admin_topics.grow(self._session, topic, partitions=total)
        self.wait_ready(topic, partitions=total)

    def wait_ready(self, topic: str, *, partitions: int, timeout_s: float = VISIBLE_TIMEOUT_S) -> None:
        """Wait until every partition has a leader; raise TIMEOUT_ERROR after the limit."""
        self._wait_until(
            lambda: admin_topics.led_partitions(self._session, topic) >= partitions,
            what=f"topic {topic!r} has no leader in one of its {partitions} partitions",
            timeout_s=timeout_s,
        )

    def rights(self, topic: str) -> frozenset[str]:
        """Read what our principal may do with the topic ("READ", "WRITE", …); a super user passes every DENY."""
        return admin_topics.rights(self._session, topic)

    # configs

    def effective_configs(self, topic: str) -> dict[str, str]:
        """Read the configs in force on a topic, the cluster's defaults included."""
        return admin_topics.effective_configs(self._session, topic)

    def effective_configs_of(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Read the configs in force on many topics; those whose configs may not be read are left out."""
        return admin_topics.effective_configs_of(self._session, topics)

    def set_configs(self, topic: str, values: Mapping[str, str]) -> None:
        """Set configs of a topic; the others stay."""
        self.change_configs(topic, ConfigChange(values=dict(values)))

    def change_configs(self, topic: str, change: ConfigChange) -> None:
        """Set and delete configs of a topic at once and wait until they are in force."""
        if change:
            admin_topics.alter_configs(self._session, topic, change)
            self._wait_until(
                lambda: admin_topics.shows(self._session, topic, change),
                what=f"topic {topic!r} does not show its new configs",
            )

    def alter_each(self, changes: Mapping[str, ConfigChange]) -> dict[str, LinkEngineError]:
        """Change configs of many topics, by few requests; return the error of each topic whose change was refused."""
        return admin_topics.alter_each(self._session, {topic: change for topic, change in changes.items() if change})

    def wait_for_configs(self, changes: Mapping[str, ConfigChange]) -> None:
        """Wait until the brokers show the changes; raise TIMEOUT_ERROR after the limit."""
        real = {topic: change for topic, change in changes.items() if change}
        with closing(Cluster(self.address)) as cluster:
            what = f"one of {len(real)} topics does not show its new configs"
            self._wait_until(lambda: not topicconfigs.not_shown(cluster, real), what=what)

    # offsets

    def offsets(self, topic: str, kind: OffsetKind, *, partitions: int | None = None) -> dict[int, int]:
        """Look up one offset per partition; raise TIMEOUT_ERROR when one has had no leader for LAG_S seconds."""
        count = self.describe(topic).partitions if partitions is None else partitions
        found = admin_offsets.patient_offsets(self._session, [(topic, partition) for partition in range(count)], kind)
        missing = [partition for partition in range(count) if (topic, partition) not in found]
        if missing:
            raise LinkEngineError(
                ErrorCode.TIMEOUT_ERROR,
                f"Partition {missing[0]} of topic {topic!r} does not tell its offsets: it has no leader now, does not exist, "
                "or the principal may not DESCRIBE the topic. Try again.",
            )
        return {partition: found[topic, partition] for partition in range(count)}

    def many_offsets(self, partitions: Iterable[tuple[str, int]], kind: OffsetKind) -> dict[tuple[str, int], int]:
        """Look up one offset of many partitions; those that cannot tell now are left out."""
        return admin_offsets.offsets(self._session, partitions, kind)

    def offsets_at(self, topic: str, timestamp_ms: int, *, partitions: int) -> dict[int, int]:
        """Look up, per partition, the first stable record that is not older than a moment; -1 where there is none."""
        places = [(topic, partition) for partition in range(partitions)]
        found = admin_offsets.offsets_at(self._session, places, timestamp_ms)
        return {partition: offset for (_, partition), offset in found.items()}

    def trim(self, topic: str, starts: Mapping[int, int]) -> None:
        """Move log starts up: partition -> first offset that stays."""
        admin_offsets.trim(self._session, {(topic, partition): offset for partition, offset in starts.items()})

    # consumer groups

    def groups(self) -> tuple[dict[str, Group], str]:
        """List the groups of every type by name, and why the list may be incomplete ("" if it is not); a request per broker."""
        with closing(Cluster(self.address)) as cluster:
            return admin_groups.list_groups(cluster)

    def committed(
        self, groups: Iterable[str], *, stable_at: Iterable[Place] | None = None
    ) -> tuple[dict[str, dict[Place, Committed]], dict[str, LinkEngineError]]:
        """Read what groups have committed, by topic and partition; those that cannot be read come with the reason."""
        with closing(Cluster(self.address)) as cluster:
            return admin_groups.committed(cluster, groups, stable_at=stable_at)

    def commit(
        self, offsets: Mapping[str, Offsets], *, still_due: StillDue = lambda offsets: offsets
    ) -> dict[str, dict[Place, LinkEngineError | None]]:
        """Commit in the names of groups without members; answer the refusals, GroupInUseError where there are members."""
        with closing(Cluster(self.address)) as cluster:
            return admin_groups.commit(cluster, offsets, still_due=still_due)

    # ACLs

    def acls(self) -> set[Acl]:
        """Read every ACL; ask ``has_authorizer`` before."""
        return admin_acls.describe(self._session)

    def create_acls(self, acls: Sequence[Acl]) -> dict[Acl, LinkEngineError]:
        """Create ACLs and answer the refusals. Idempotent."""
        return admin_acls.create(self._session, acls)

    def delete_acls(self, acls: Sequence[Acl]) -> dict[Acl, LinkEngineError]:
        """Delete exactly these ACLs and answer the refusals. Idempotent."""
        return admin_acls.delete(self._session, acls)

    # guards

    def has_authorizer(self) -> bool:
        """Tell whether ACLs are enforced, so that a topic can be made read-only."""
        return broker_facts(self.address).authorizer

    def deny_writes(self, topic: str) -> None:
        """Make a topic (existing or not) read-only for all but super users. Idempotent."""
        self._deny(topic, AclOperation.WRITE)

    def allow_writes(self, topic: str) -> None:
        """Take ``deny_writes`` back. Idempotent."""
        self._allow(topic, AclOperation.WRITE)

    def denies_writes(self, topic: str) -> bool:
        """Tell whether ``deny_writes`` is in force."""
        return admin_acls.denies(self._session, topic, AclOperation.WRITE)

    def deny_reads(self, topic: str) -> None:
        """Hide a topic's records while its head is being seeded. Idempotent."""
        self._deny(topic, AclOperation.READ)

    def allow_reads(self, topic: str) -> None:
        """Take ``deny_reads`` back. Idempotent."""
        self._allow(topic, AclOperation.READ)

    def denies_reads(self, topic: str) -> bool:
        """Tell whether ``deny_reads`` is in force."""
        return admin_acls.denies(self._session, topic, AclOperation.READ)

    def allow_many_writes(self, topics: Sequence[str]) -> None:
        """Take ``deny_writes`` back for many topics, by few requests. Idempotent."""
        admin_acls.allow_many(self._session, topics, AclOperation.WRITE)
        self._wait_until(
            lambda: not admin_acls.denied_topics(self._session, AclOperation.WRITE) & set(topics),
            what=f"DENY WRITE on one of {len(topics)} topics is still in force",
        )

    def _deny(self, topic: str, operation: AclOperation) -> None:
        admin_acls.deny(self._session, topic, operation)
        self._wait_until(
            lambda: admin_acls.denies(self._session, topic, operation),
            what=f"DENY {operation.name} on topic {topic!r} is not in force",
        )

    def _allow(self, topic: str, operation: AclOperation) -> None:
        try:
            admin_acls.allow(self._session, topic, operation)
        except LinkEngineError as error:
            # a person may have removed the rule where our principal lacks the right by now
            if error.code == ErrorCode.AUTHORIZATION_ERROR and admin_acls.is_absent(self._session, topic, operation):
                return
            raise
        self._wait_until(
            lambda: not admin_acls.denies(self._session, topic, operation),
            what=f"DENY {operation.name} on topic {topic!r} is still in force",
        )

    def _wait_until(self, shown: Callable[[], bool], *, what: str, timeout_s: float = VISIBLE_TIMEOUT_S) -> None:
        """Wait for the brokers to show what the controller has confirmed: they follow it, they are not asked by it."""
        deadline = time.monotonic() + timeout_s
        while not shown():
            if time.monotonic() > deadline:
                raise LinkEngineError(
                    ErrorCode.TIMEOUT_ERROR,
                    f"After {timeout_s:.1f} s {what}. Check the brokers and the controller of the cluster, then try again.",
                )
            time.sleep(_LOOK_EVERY_S)
