"""Configs of a link over REST."""

from typing import Any

import pytest

from console.models import ClusterLink
from tests.console.api.cast import DESTINATION, Rest

pytestmark = pytest.mark.django_db


@pytest.fixture
def configs(base: str, link: ClusterLink) -> str:
    return f"{base}/links/{link.name}/configs"


def shown(client: Rest, configs: str, name: str) -> Any:
    return client.get(f"{configs}/{name}").json()


def test_a_config_is_shown_with_the_exact_envelope(owner: Rest, configs: str, link: ClusterLink) -> None:
    link.configs.create(name="topic.config.sync.ms", value="7000")

    assert shown(owner, configs, "topic.config.sync.ms") == {
        "kind": "KafkaLinkConfigData",
        "metadata": {"self": f"http://testserver{configs}/topic.config.sync.ms"},
        "cluster_id": DESTINATION,
        "link_name": "from-source",
        "name": "topic.config.sync.ms",
        "value": "7000",
        "is_default": False,
        "is_read_only": False,
        "is_sensitive": False,
        "read_only": False,
        "sensitive": False,
        "source": "DYNAMIC_CLUSTER_LINK_CONFIG",
        "synonyms": [],
    }


def test_what_nobody_set_has_its_default(owner: Rest, configs: str) -> None:
    config = shown(owner, configs, "topic.config.sync.ms")

    assert (config["value"], config["is_default"], config["source"]) == ("5000", True, "DEFAULT_CONFIG")


def test_a_secret_is_null_and_marked(owner: Rest, configs: str) -> None:
    config = shown(owner, configs, "sasl.jaas.config")

    assert config["value"] is None
    assert config["is_sensitive"] is config["sensitive"] is True
    assert config["source"] == "DYNAMIC_CLUSTER_LINK_CONFIG"


def test_the_list_holds_every_config_and_no_secret(owner: Rest, configs: str) -> None:
    answer = owner.get(configs)

    assert answer.json()["kind"] == "KafkaLinkConfigDataList"
    assert answer.json()["metadata"] == {"self": f"http://testserver{configs}", "next": None}
    names = [one["name"] for one in answer.json()["data"]]
    assert {"bootstrap.servers", "link.mode", "connection.mode", "acl.sync.ms", "sasl.jaas.config"} <= set(names)
    assert b"hidden" not in answer.content


def test_put_sets_and_delete_resets_one_config(owner: Rest, configs: str) -> None:
    answer = owner.put(f"{configs}/topic.config.sync.ms", {"value": "9000"})
    assert (answer.status_code, answer.content) == (204, b"")
    assert shown(owner, configs, "topic.config.sync.ms")["value"] == "9000"

    answer = owner.delete(f"{configs}/topic.config.sync.ms")
    assert (answer.status_code, answer.content) == (204, b"")
    assert shown(owner, configs, "topic.config.sync.ms")["is_default"] is True


@pytest.mark.parametrize("method", ["put", "post"])
def test_alter_takes_several_changes_under_both_methods(owner: Rest, configs: str, link: ClusterLink, method: str) -> None:
    link.configs.create(name="acl.sync.ms", value="2000")
    changes = [
        {"name": "topic.config.sync.ms", "value": "9000"},
        {"name": "consumer.offset.sync.ms", "value": "8000", "operation": "SET"},
        {"name": "acl.sync.ms", "operation": "DELETE"},
    ]

    answer = owner.call(method, f"{configs}:alter", {"data": changes})

    assert (answer.status_code, answer.content) == (204, b"")
    assert shown(owner, configs, "topic.config.sync.ms")["value"] == "9000"
    assert shown(owner, configs, "consumer.offset.sync.ms")["value"] == "8000"
    assert shown(owner, configs, "acl.sync.ms")["is_default"] is True


@pytest.mark.parametrize(("query", "more"), [("?validate_only=true", {}), ("", {"validate_only": True})])
def test_validate_only_changes_nothing_wherever_it_is_said(owner: Rest, configs: str, query: str, more: Any) -> None:
    answer = owner.put(f"{configs}:alter{query}", {"data": [{"name": "topic.config.sync.ms", "value": "9000"}], **more})

    assert answer.status_code == 204
    assert shown(owner, configs, "topic.config.sync.ms")["is_default"] is True


def test_one_wrong_change_undoes_all(owner: Rest, configs: str) -> None:
    changes = [{"name": "topic.config.sync.ms", "value": "9000"}, {"name": "no.such.config", "value": "1"}]

    answer = owner.put(f"{configs}:alter", {"data": changes})

    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    assert "no.such.config" in answer.json()["message"]
    assert shown(owner, configs, "topic.config.sync.ms")["is_default"] is True


@pytest.mark.parametrize("forgotten", [{}, {"value": None}, {"value": None, "operation": "SET"}])
def test_setting_without_a_value_is_refused_and_loses_nothing(
    owner: Rest, configs: str, link: ClusterLink, forgotten: Any
) -> None:
    link.configs.create(name="acl.sync.ms", value="2000")

    answer = owner.put(f"{configs}:alter", {"data": [{"name": "acl.sync.ms", **forgotten}]})

    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    assert "needs a value" in answer.json()["message"]
    assert shown(owner, configs, "acl.sync.ms")["value"] == "2000"


def test_an_unknown_operation_is_refused(owner: Rest, configs: str) -> None:
    answer = owner.put(f"{configs}:alter", {"data": [{"name": "acl.sync.ms", "operation": "APPEND"}]})

    message = "The operation on config 'acl.sync.ms' is 'APPEND'; it can be SET or DELETE."
    assert answer.json() == {"error_code": 40002, "message": message}


def test_a_read_only_config_cannot_be_set(owner: Rest, configs: str) -> None:
    answer = owner.put(f"{configs}/num.cluster.link.fetchers", {"value": "2"})

    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)


def test_mirrors_may_be_created_sooner_down_to_once_a_second(owner: Rest, configs: str) -> None:
    taken = owner.put(f"{configs}/metadata.max.age.ms", {"value": "1000"})
    refused = owner.put(f"{configs}/metadata.max.age.ms", {"value": "999"})

    assert taken.status_code == 204
    assert (refused.status_code, refused.json()["error_code"]) == (400, 40002)
    assert owner.get(f"{configs}/metadata.max.age.ms").json()["value"] == "1000"


def test_an_unknown_config_is_not_found(owner: Rest, configs: str) -> None:
    answer = owner.get(f"{configs}/no.such.config")

    assert answer.status_code == 404
    assert answer.json() == {"error_code": 404, "message": "Config no.such.config cannot be found."}


def test_the_old_address_of_alter_is_no_config_name(owner: Rest, configs: str) -> None:
    assert owner.get(f"{configs}:alter").status_code == 405


def test_a_reader_may_not_change_configs(reader: Rest, configs: str) -> None:
    assert reader.get(configs).status_code == 200
    for answer in (
        reader.put(f"{configs}/acl.sync.ms", {"value": "2000"}),
        reader.delete(f"{configs}/acl.sync.ms"),
        reader.put(f"{configs}:alter", {"data": []}),
    ):
        assert (answer.status_code, answer.json()["error_code"]) == (403, 40301)


REDIRECTED = (
    ("bootstrap.servers", "attacker.test:9093"),
    ("security.protocol", "SASL_PLAINTEXT"),
    ("sasl.mechanism", "SCRAM-SHA-512"),
    ("sasl.oauthbearer.token.endpoint.url", "http://attacker.test/"),
    ("ssl.truststore.certificates", "attacker's authority"),
    ("ssl.endpoint.identification.algorithm", ""),
)
JAAS = {"name": "sasl.jaas.config", "value": 'PlainLoginModule required username="u" password="retyped";'}


@pytest.mark.parametrize(("name", "value"), REDIRECTED)
def test_no_call_sends_the_stored_secret_elsewhere(owner: Rest, configs: str, link: ClusterLink, name: str, value: str) -> None:
    """Not by one config, not by a batch of them, and not by a dry run; with the secret the same batch is taken."""
    change = {"name": name, "value": value}
    before = dict(link.properties)
    for answer in (
        owner.put(f"{configs}/{name}", {"value": value}),
        owner.put(f"{configs}:alter", {"data": [change, {"name": "acl.sync.ms", "value": "9000"}]}),
        owner.put(f"{configs}:alter?validate_only=true", {"data": [change]}),
        owner.post(f"{configs}:alter", {"data": [change]}),
    ):
        assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
        assert "has to contain sasl.jaas.config" in answer.json()["message"]
        assert b"hidden" not in answer.content
    link.refresh_from_db()
    assert (link.properties, link.configs.count()) == (before, 0)

    for data in ([change, JAAS], [JAAS, change]):
        assert owner.put(f"{configs}:alter", {"data": data}).status_code == 204
    link.refresh_from_db()
    assert link.properties == before | {name: value, "sasl.jaas.config": JAAS["value"]}


@pytest.mark.parametrize("name", ["bootstrap.servers", "security.protocol", "sasl.mechanism"])
def test_a_reset_is_a_change_of_the_recipient(owner: Rest, configs: str, link: ClusterLink, name: str) -> None:
    batch = {"data": [{"name": name, "operation": "DELETE"}]}
    for answer in (owner.delete(f"{configs}/{name}"), owner.put(f"{configs}:alter", batch)):
        assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    link.refresh_from_db()
    assert name in link.properties


def test_a_password_is_rotated_by_itself(owner: Rest, configs: str, link: ClusterLink) -> None:
    assert owner.put(f"{configs}/sasl.jaas.config", {"value": JAAS["value"]}).status_code == 204
    link.refresh_from_db()
    assert link.properties["sasl.jaas.config"] == JAAS["value"]
