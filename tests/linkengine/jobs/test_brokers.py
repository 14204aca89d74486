"""Real brokers of the oldest and the newest version on either side, with every security protocol: copy and verify."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from devcluster.kafka import OLDEST, KafkaCluster
from devcluster.tokens import TokenEndpoint
from linkengine import jobs
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties
from linkengine.domain.mirrorjobs import MirrorSetup
from linkengine.domain.plans import CopyPlan, PartitionAssignment, VerifyPlan, producer_id_for
from linkengine.kafka.admin import ClusterAdmin
from linkengine.sparkclient import session
from tests.linkengine.jobs.copyworkers import copy_worker
from tests.signing import SECRETS, SIGNER

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
RECORDS = 300
COPIED_WITHIN_S = 120.0
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


@dataclass(frozen=True, kw_only=True)
class OldCluster:
    cluster: KafkaCluster
    tokens: TokenEndpoint

    @property
    def admin(self) -> ClusterAddress:
        return address_from_properties(self.cluster.client_properties("admin"))

    @property
    def ways_in(self) -> dict[str, ClusterAddress]:
        """An address for each security protocol and mechanism, by name."""
        passwords = {
            f"tls-{mechanism.lower()}": self.cluster.client_properties("link", mechanism=mechanism)
            | self.cluster.listener_properties("PASSWORDS")
            for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
        }
        others = {
            "tls": self.cluster.listener_properties("TLS"),
            "mutual-tls": self.cluster.listener_properties("MTLS"),
            "tls-oauthbearer": self.tokens.client_properties() | self.cluster.listener_properties("TOKENS"),
        }
        return {name: address_from_properties(properties) for name, properties in (passwords | others).items()}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldCluster]:
    """A broker of the oldest version with a listener for every security protocol."""
    cluster = KafkaCluster("old", version=OLDEST, directory=tmp_path_factory.mktemp("old"))
    with TokenEndpoint() as tokens, cluster.with_listeners(jwks_url=tokens.jwks_url):
        yield OldCluster(cluster=cluster, tokens=tokens)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A mirror from its set-up to its verification."""

    source: ClusterAddress
    destination: ClusterAddress
    source_topic: str
    mirror_topic: str
    redis_url: str
    spark_url: str
    link_id: str

    def fill(self, admin: ClusterAddress, cluster: KafkaCluster) -> None:
        ClusterAdmin(admin).create_topic(self.source_topic, partitions=1)
        producer = Producer({**cluster.client("admin"), "enable.idempotence": True})
        for number in range(RECORDS):
            producer.produce(self.source_topic, f"value {number}", key=str(number), partition=0)
        assert producer.flush(60) == 0

    def copy(self) -> None:
        """Set up the mirror and copy until it has all records."""
        setup = MirrorSetup(
            link_id=self.link_id, mirror_id=self.link_id, source=self.source, destination=self.destination,
            source_topic=self.source_topic, mirror_topic=self.mirror_topic,
        )  # fmt: skip
        created = jobs.set_up_mirror_topic(setup, assignments_factory=self._assignments)
        plan = CopyPlan(
            link_id=self.link_id, revision=1, source=self.source, destination=self.destination,
            assignments=self._assignments(1, created.source_topic_id), signing_keys=SIGNER.texts(),
        )  # fmt: skip
        with copy_worker(redis_url=self.redis_url, spark_url=self.spark_url) as name:
            jobs.write_assignments(self.redis_url, self.link_id, {name: plan}, secrets=SECRETS)
            self._wait_until_copied()

    def verify(self) -> tuple[int, int]:
        """Return how many records were compared, and how many differ."""
        plan = VerifyPlan(
            source=self.source, destination=self.destination, source_topic=self.source_topic, mirror_topic=self.mirror_topic
        )
        report = jobs.verify(plan, spark_url=self.spark_url)
        return report.records_compared, report.differences

    def _assignments(self, partitions: int, source_topic_id: str) -> tuple[PartitionAssignment, ...]:
        return tuple(
            PartitionAssignment(
                mirror_id=self.link_id, partition=partition, source_topic=self.source_topic, mirror_topic=self.mirror_topic,
                source_topic_id=source_topic_id, producer_id=producer_id_for(7, int(self.link_id[:5], 16), partition),
            )
            for partition in range(partitions)
        )  # fmt: skip

    def _wait_until_copied(self) -> None:
        deadline = time.monotonic() + COPIED_WITHIN_S
        while (reports := jobs.read_progress(self.redis_url, self.link_id, SIGNER)) == [] or reports[0].mirror_end != RECORDS:
            assert time.monotonic() < deadline, f"not copied in time: {reports}"
            time.sleep(0.1)


@pytest.fixture
def parts(redis_url: str, spark_connect_url: str) -> dict[str, str]:
    """Arguments of every loop besides clusters and names."""
    return {"redis_url": redis_url, "spark_url": spark_connect_url}


def test_an_old_source_is_mirrored_to_a_new_cluster_with_every_security_protocol(
    old: OldCluster, destination: ClusterAddress, topic_name: str, parts: dict[str, str]
) -> None:
    loops = {
        name: Loop(
            source=address, destination=destination, source_topic=f"{topic_name}-{name}", mirror_topic=f"{topic_name}-{name}",
            link_id=uuid4().hex, **parts,
        )
        for name, address in old.ways_in.items()
    }  # fmt: skip
    for loop in loops.values():
        loop.fill(old.admin, old.cluster)
    allow_token_endpoint(old.tokens.url, parts["spark_url"])

    with ThreadPoolExecutor(len(loops)) as pool:
        list(pool.map(Loop.copy, loops.values()))

    assert {name: loop.verify() for name, loop in loops.items()} == dict.fromkeys(loops, (RECORDS, 0))
    assert old.tokens.given > 0


def test_new_and_old_sources_are_mirrored_to_an_old_cluster(
    old: OldCluster, source_cluster: KafkaCluster, topic_name: str, parts: dict[str, str]
) -> None:
    new = address_from_properties(source_cluster.client_properties("admin"))
    mirror = old.ways_in["tls-oauthbearer"]
    loops = {
        "new to old": (
            Loop(
                source=new, destination=mirror, source_topic=topic_name, mirror_topic=topic_name, link_id=uuid4().hex, **parts
            ),
            new,
            source_cluster,
        ),
        "old to old": (
            Loop(
                source=old.ways_in["mutual-tls"], destination=old.ways_in["tls-plain"], source_topic=f"{topic_name}-source",
                mirror_topic=f"{topic_name}-mirror", link_id=uuid4().hex, **parts,
            ),
            old.admin,
            old.cluster,
        ),
    }  # fmt: skip
    allow_token_endpoint(old.tokens.url, parts["spark_url"])
    for loop, admin, cluster in loops.values():
        loop.fill(admin, cluster)

    with ThreadPoolExecutor(len(loops)) as pool:
        list(pool.map(lambda row: row[0].copy(), loops.values()))

    assert {name: loop.verify() for name, (loop, _, _) in loops.items()} == dict.fromkeys(loops, (RECORDS, 0))


def allow_token_endpoint(url: str, spark_url: str) -> None:
    """Set a system property of Spark's JVM, as an operator does with a flag, without a restart."""
    session(spark_url).sql(f"SELECT java_method('java.lang.System', 'setProperty', '{ALLOWED_URLS}', '{url}')").collect()
