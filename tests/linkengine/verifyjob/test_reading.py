"""The number of Spark slots that reading a topic takes."""

from __future__ import annotations

import pytest

from devcluster.kafka import KafkaCluster
from linkengine.domain.client_properties import address_from_properties
from linkengine.sparkclient import session
from linkengine.verifyjob.reading import READERS, TopicPart, read_topic
from tests.linkengine.verifyjob.recording import Rec, create, write

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]
PARTITIONS = 12


@pytest.mark.parametrize(("gentle", "most"), [(True, 1), (False, READERS)])
def test_many_partitions_take_no_more_slots_than_few(
    spark_connect_url: str, source_cluster: KafkaCluster, topic_name: str, gentle: bool, most: int
) -> None:
    create(source_cluster, topic_name, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        write(source_cluster, topic_name, [Rec()], partition=partition)
    address = address_from_properties(source_cluster.client_properties("admin"))
    starts, ends = dict.fromkeys(range(PARTITIONS), 0), dict.fromkeys(range(PARTITIONS), 1)
    spark = session(spark_connect_url)

    rows = read_topic(spark, TopicPart(address=address, topic=topic_name, starts=starts, ends=ends, gentle=gentle))
    seen = rows.selectExpr("partition", "spark_partition_id() AS task").collect()

    assert len({row["partition"] for row in seen}) == PARTITIONS
    assert len({row["task"] for row in seen}) == most
