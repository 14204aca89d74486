"""The values of a draft, and the configs that follow from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.links.drafts import ACL_FILTERS, GROUP_FILTERS, DraftValues, kept_secrets, values_of
from console.models import LinkDraft
from linkengine.domain.linkrules import AUTO_CREATE_FILTERS, check_configs

CONNECTION = {
    "bootstrap.servers": "far.example:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": 'org.apache.kafka.ScramLoginModule required username="link" password="s3cret-word";',
    "ssl.keystore.certificate.chain": "CERTIFICATE",
    "ssl.keystore.key": "KEY",
}
FAR = DraftValues(other_kind="other", connection=CONNECTION, own="east", name="fresh")


def test_values_are_restored_from_json_and_unknown_fields_are_ignored() -> None:
    draft = LinkDraft(values={**FAR.to_json(), "field_of_a_later_version": 1})

    assert values_of(draft) == FAR


def test_values_do_not_show_secrets_in_their_repr() -> None:
    assert "s3cret-word" not in repr(FAR)


def test_registered_cluster_needs_no_connection_configs() -> None:
    values = DraftValues(other="west", own="east", connection=CONNECTION)

    assert values.configs() == {}
    assert values.remote_id == "west"


def test_switches_set_their_configs_and_their_filters() -> None:
    values = replace(FAR, auto_create=True, sync_offsets=True, sync_acls=True)

    configs = values.configs()

    check_configs(configs)
    assert configs["auto.create.mirror.topics.enable"] == "true"
    assert '"name": "*"' in str(configs[AUTO_CREATE_FILTERS])
    assert '"name": "*"' in str(configs[GROUP_FILTERS])
    assert '"resourceType": "any"' in str(configs[ACL_FILTERS])


def test_filters_of_a_switch_that_is_off_are_no_configs() -> None:
    assert replace(FAR, topic_filters='{"topicFilters": []}').configs() == CONNECTION


def test_prefix_is_a_config_only_while_its_switch_is_on() -> None:
    assert replace(FAR, add_prefix=True, prefix="w.").configs()["cluster.link.prefix"] == "w."
    assert "cluster.link.prefix" not in replace(FAR, prefix="w.").configs()


def test_source_side_of_a_link_has_no_switches() -> None:
    values = DraftValues(link_mode="SOURCE", own="west", other="east", auto_create=True, add_prefix=True, prefix="w.")

    assert values.configs() == {"link.mode": "SOURCE"}


JAAS, KEY = "sasl.jaas.config", "ssl.keystore.key"


@pytest.mark.parametrize(
    "change",
    [
        {"bootstrap.servers": "elsewhere.example:9093"},
        {"security.protocol": "SASL_PLAINTEXT"},
        {"sasl.mechanism": "PLAIN"},
        {"ssl.truststore.certificates": "AUTHORITY"},
        {"ssl.endpoint.identification.algorithm": ""},
    ],
)
def test_both_secrets_must_be_entered_again_if_they_would_be_sent_elsewhere(change: dict[str, str]) -> None:
    after = {**CONNECTION, **change}

    assert {secret for secret, _ in kept_secrets(CONNECTION, after, entered=())} == {JAAS, KEY}
    assert {secret for secret, _ in kept_secrets(CONNECTION, after, entered=[JAAS])} == {KEY}
    assert kept_secrets(CONNECTION, after, entered=[JAAS, KEY]) == ()


def test_another_user_name_does_not_count_as_an_entered_password() -> None:
    """The user name is a part of sasl.jaas.config; the password in it is still the stored password."""
    after = {**CONNECTION, "bootstrap.servers": "elsewhere.example:1", JAAS: CONNECTION[JAAS].replace("link", "other")}

    assert [secret for secret, _ in kept_secrets(CONNECTION, after, entered=[KEY])] == [JAAS]


def test_removed_secret_is_sent_to_no_cluster() -> None:
    after = {"bootstrap.servers": "elsewhere.example:1", "security.protocol": "PLAINTEXT"}

    assert kept_secrets(CONNECTION, after, entered=()) == ()


def test_unchanged_recipient_needs_no_secret() -> None:
    after = {**CONNECTION, "ssl.keystore.certificate.chain": "ANOTHER"}

    assert kept_secrets(CONNECTION, after, entered=()) == ()
