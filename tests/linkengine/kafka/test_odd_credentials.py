"""User names and passwords with unusual characters authenticate at real brokers: data path, admin client, Spark's reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from devcluster.access import create_acls
from devcluster.kafka import NEWEST, OLDEST, KafkaCluster
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties, properties_of
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.kafka.connection import connect
from linkengine.kafka.preflight import check_reachable
from linkengine.kafka.security import make_client
from linkengine.sparkclient import session
from linkengine.verifyjob.reading import TopicPart, read_topic
from tests.linkengine.verifyjob.recording import Rec, create, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
TOPIC = "odd-credentials"
LOGINS = {
    "a,b=c": "p,=\"'\\;",
    "=": "=2C",
    "=2C": "=3D,",
    "q\"'\\": "line\nbreak\r\ttab",
    " leading": " spaces ",
    "tab\tx": "a\x01b\x7f",
    "unicode": "ß€😀",
    "prepared-1": "\u2168",  # SASLprep would convert these four to IX, a space, nothing, and é
    "prepared-2": "\u00a0x",
    "prepared-3": "a\u00adb",
    "prepared-4": "e\u0301",
}


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster("odd", version=request.param, directory=tmp_path_factory.mktemp("odd")) as cluster:
        create(cluster, TOPIC)
        write(cluster, TOPIC, [Rec(value=b"seen")])
        admin = AdminClient(cluster.client("admin"))
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(name, info, password.encode()) for name, password in LOGINS.items()
        ]
        for result in admin.alter_user_scram_credentials(wanted).values():
            result.result(30)
        topic, literal, allow = ResourceType.TOPIC, ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        create_acls(admin, [AclBinding(topic, TOPIC, literal, "User:*", "*", AclOperation.READ, allow)])
        yield cluster


def address_for(cluster: KafkaCluster, name: str, password: str = "") -> ClusterAddress:
    """Return the address after a round trip through a stored JAAS line."""
    admin = address_from_properties(cluster.client_properties("admin"))
    own = replace(admin, sasl_username=name, sasl_password=password or LOGINS[name])
    return address_from_properties(properties_of(own))


@pytest.mark.parametrize("name", LOGINS)
def test_data_path_and_admin_client_authenticate(cluster: KafkaCluster, name: str) -> None:
    address = address_for(cluster, name)

    check_reachable(address)
    client = make_client(AdminClient, address, {"log_level": 0})

    assert client.describe_cluster(request_timeout=20).result(25).cluster_id == cluster.cluster_id


@pytest.mark.parametrize(
    ("name", "prepared"), [("prepared-1", "IX"), ("prepared-2", " x"), ("prepared-3", "ab"), ("prepared-4", "é")]
)
def test_a_password_after_saslprep_is_another_password(cluster: KafkaCluster, name: str, prepared: str) -> None:
    address = address_for(cluster, name, prepared)
    host, _, port = address.bootstrap_servers.rpartition(":")

    with pytest.raises(LinkEngineError) as refused:
        connect(host, int(port), address=address)

    assert refused.value.code is ErrorCode.AUTHENTICATION_ERROR


@pytest.mark.spark
def test_sparks_reader_authenticates(cluster: KafkaCluster, spark_connect_url: str) -> None:
    spark = session(spark_connect_url)
    for name in LOGINS:
        part = TopicPart(address=address_for(cluster, name), topic=TOPIC, starts={0: 0}, ends={0: 1}, gentle=True)

        assert [bytes(row["value"]) for row in read_topic(spark, part).collect()] == [b"seen"], name
