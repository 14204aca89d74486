"""Credentials are rotated during copying: the running copy worker uses the new credentials, and no record is lost."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from django.utils import timezone

from console.actors import SYSTEM
from console.links.actions import LinkConfigChange, alter_configs
from console.models import ClusterLink, MirrorPartition, MirrorTopic, VerifyRun
from console.tasks.links import reconcile_link
from console.tasks.mirrors import setup_mirror, verify_mirror
from devcluster.access import create_acls
from devcluster.kafka import KafkaCluster
from tests.console.conftest import NOW
from tests.console.workflows.conftest import Until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]
Worker = Callable[[], None]
_SHA512 = ScramMechanism.SCRAM_SHA_512


def login(user: str, password: str) -> str:
    return f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{user}" password="{password}";'


class User:
    """A user that may read the source, with changing passwords."""

    def __init__(self, admin: AdminClient) -> None:
        self.admin, self.name = admin, f"rotated-{secrets.token_hex(4)}"
        kinds = (ResourceType.TOPIC, "*"), (ResourceType.BROKER, "kafka-cluster")
        rules = [
            AclBinding(
                kind, name, ResourcePatternType.LITERAL, f"User:{self.name}", "*", AclOperation.ALL, AclPermissionType.ALLOW
            )
            for kind, name in kinds
        ]
        create_acls(admin, rules)

    def change_password(self) -> str:
        """Set a new password and return the JAAS config for it; the old password is refused from then on."""
        password = secrets.token_hex(8)
        change = UserScramCredentialUpsertion(self.name, ScramCredentialInfo(_SHA512, 4096), password.encode())
        self._apply(change)
        return login(self.name, password)

    def delete(self) -> None:
        self._apply(UserScramCredentialDeletion(self.name, _SHA512))

    def _apply(self, change: Any) -> None:
        for done in self.admin.alter_user_scram_credentials([change]).values():
            done.result(30)


def rotate(jaas: str) -> None:
    changes = [LinkConfigChange(name="sasl.jaas.config", value=jaas)]
    alter_configs(link=ClusterLink.objects.get(), changes=changes, by=SYSTEM, now=timezone.now())


def test_credentials_change_while_records_are_copied(
    new_mirror: MirrorTopic,
    link: ClusterLink,
    source_cluster: KafkaCluster,
    source_admin: AdminClient,
    worker: Worker,
    until: Until,
    spark_connect_url: str,
) -> None:
    first, second = User(source_admin), User(source_admin)
    link.properties = link.properties | {"sasl.jaas.config": first.change_password()}
    link.save()
    setup_mirror(mirror_id=new_mirror.pk)
    rows = MirrorPartition.objects.filter(mirror=new_mirror)
    producer = Producer(source_cluster.client("admin"))
    written = [100, 100]

    def write_more() -> None:
        for partition in (0, 1):
            producer.produce(new_mirror.source_topic, b"more", partition=partition)
            written[partition] += 1
        assert producer.flush(30) == 0

    def copied() -> bool:
        reconcile_link(link_id=link.pk)
        worker()
        return list(rows.values_list("mirror_end", flat=True)) == written

    def while_writing(check: Callable[[], Any]) -> Callable[[], Any]:
        """Write and copy, then check: a producer that never stops."""

        def step() -> Any:
            write_more()
            copied()
            return check()

        return step

    def taken_over() -> bool:
        """Return whether all leases were released and acquired again."""
        return not before & set(rows.values_list("copy_run_id", flat=True))

    until(copied)
    before = set(rows.values_list("copy_run_id", flat=True))
    rotate(first.change_password())  # the same user, another password: the old password is refused at once
    until(while_writing(taken_over))
    before = set(rows.values_list("copy_run_id", flat=True))
    rotate(second.change_password())  # another user
    until(while_writing(taken_over))
    first.delete()
    write_more()
    until(copied)

    assert set(rows.values_list("error_code", flat=True)) == {""}
    run = VerifyRun.objects.create(mirror=new_mirror, requested_by="test", requested_at=NOW)
    verify_mirror(run_id=run.pk)
    run.refresh_from_db()
    assert (run.status, run.records_compared) == ("EQUAL", sum(written))
    link.refresh_from_db()
    assert (link.state, link.error_code) == ("ACTIVE", "")
