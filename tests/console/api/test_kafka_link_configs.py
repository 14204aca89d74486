"""REST API of link configs."""

from typing import Any

import pytest

from console.models import ClusterLink
from tests.console.api.actors import DESTINATION, Rest

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


def test_a_config_that_was_not_set_has_its_default(owner: Rest, configs: str) -> None:
    config = shown(owner, configs, "topic.config.sync.ms")

    assert (config["value"], config["is_default"], config["source"]) == ("5000", True, "DEFAULT_CONFIG")


def test_a_sensitive_config_has_the_value_null(owner: Rest, configs: str) -> None:
    config = shown(owner, configs, "sasl.jaas.config")

    assert config["value"] is None
    assert config["is_sensitive"] is config["sensitive"] is True
    assert config["source"] == "DYNAMIC_CLUSTER_LINK_CONFIG"


def test_the_list_has_every_config_and_no_secrets(owner: Rest, configs: str) -> None:
    response = owner.get(configs)

    assert response.json()["kind"] == "KafkaLinkConfigDataList"
    assert response.json()["metadata"] == {"self": f"http://testserver{configs}", "next": None}
    names = [config["name"] for config in response.json()["data"]]
    assert {"bootstrap.servers", "link.mode", "connection.mode", "acl.sync.ms", "sasl.jaas.config"} <= set(names)
    assert b"hidden" not in response.content


def test_put_sets_and_delete_resets_one_config(owner: Rest, configs: str) -> None:
    response = owner.put(f"{configs}/topic.config.sync.ms", {"value": "9000"})
    assert (response.status_code, response.content) == (204, b"")
    assert shown(owner, configs, "topic.config.sync.ms")["value"] == "9000"

    response = owner.delete(f"{configs}/topic.config.sync.ms")
    assert (response.status_code, response.content) == (204, b"")
    assert shown(owner, configs, "topic.config.sync.ms")["is_default"] is True


@pytest.mark.parametrize("method", ["put", "post"])
def test_alter_takes_several_changes_under_both_methods(owner: Rest, configs: str, link: ClusterLink, method: str) -> None:
    link.configs.create(name="acl.sync.ms", value="2000")
    changes = [
        {"name": "topic.config.sync.ms", "value": "9000"},
        {"name": "consumer.offset.sync.ms", "value": "8000", "operation": "SET"},
        {"name": "acl.sync.ms", "operation": "DELETE"},
    ]

    response = owner.call(method, f"{configs}:alter", {"data": changes})

    assert (response.status_code, response.content) == (204, b"")
    assert shown(owner, configs, "topic.config.sync.ms")["value"] == "9000"
    assert shown(owner, configs, "consumer.offset.sync.ms")["value"] == "8000"
    assert shown(owner, configs, "acl.sync.ms")["is_default"] is True


@pytest.mark.parametrize(("query", "more"), [("?validate_only=true", {}), ("", {"validate_only": True})])
def test_validate_only_changes_nothing_as_parameter_or_in_the_body(owner: Rest, configs: str, query: str, more: Any) -> None:
    response = owner.put(f"{configs}:alter{query}", {"data": [{"name": "topic.config.sync.ms", "value": "9000"}], **more})

    assert response.status_code == 204
    assert shown(owner, configs, "topic.config.sync.ms")["is_default"] is True


def test_an_invalid_change_rejects_the_whole_batch(owner: Rest, configs: str) -> None:
    changes = [{"name": "topic.config.sync.ms", "value": "9000"}, {"name": "no.such.config", "value": "1"}]

    response = owner.put(f"{configs}:alter", {"data": changes})

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)
    assert "no.such.config" in response.json()["message"]
    assert shown(owner, configs, "topic.config.sync.ms")["is_default"] is True


@pytest.mark.parametrize("forgotten", [{}, {"value": None}, {"value": None, "operation": "SET"}])
def test_setting_a_config_without_a_value_is_refused(owner: Rest, configs: str, link: ClusterLink, forgotten: Any) -> None:
    link.configs.create(name="acl.sync.ms", value="2000")

    response = owner.put(f"{configs}:alter", {"data": [{"name": "acl.sync.ms", **forgotten}]})

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)
    assert "needs a value" in response.json()["message"]
    assert shown(owner, configs, "acl.sync.ms")["value"] == "2000"


def test_an_unknown_operation_is_refused(owner: Rest, configs: str) -> None:
    response = owner.put(f"{configs}:alter", {"data": [{"name": "acl.sync.ms", "operation": "APPEND"}]})

    message = "Unknown operation 'APPEND' on config 'acl.sync.ms'. Use SET or DELETE."
    assert response.json() == {"error_code": 40002, "message": message}


def test_a_read_only_config_cannot_be_set(owner: Rest, configs: str) -> None:
    response = owner.put(f"{configs}/num.cluster.link.fetchers", {"value": "2"})

    assert (response.status_code, response.json()["error_code"]) == (400, 40002)


def test_the_metadata_interval_has_a_minimum_of_1_s(owner: Rest, configs: str) -> None:
    accepted = owner.put(f"{configs}/metadata.max.age.ms", {"value": "1000"})
    refused = owner.put(f"{configs}/metadata.max.age.ms", {"value": "999"})

    assert accepted.status_code == 204
    assert (refused.status_code, refused.json()["error_code"]) == (400, 40002)
    assert owner.get(f"{configs}/metadata.max.age.ms").json()["value"] == "1000"


def test_an_unknown_config_is_not_found(owner: Rest, configs: str) -> None:
    response = owner.get(f"{configs}/no.such.config")

    assert response.status_code == 404
    assert response.json() == {"error_code": 404, "message": "Config no.such.config cannot be found."}


def test_the_path_of_configs_alter_is_not_a_config_name(owner: Rest, configs: str) -> None:
    assert owner.get(f"{configs}:alter").status_code == 405


def test_a_reader_may_not_change_configs(reader: Rest, configs: str) -> None:
    assert reader.get(configs).status_code == 200
    for response in (
        reader.put(f"{configs}/acl.sync.ms", {"value": "2000"}),
        reader.delete(f"{configs}/acl.sync.ms"),
        reader.put(f"{configs}:alter", {"data": []}),
    ):
        assert (response.status_code, response.json()["error_code"]) == (403, 40301)


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
def test_a_stored_secret_is_not_redirected_by_any_request(
    owner: Rest, configs: str, link: ClusterLink, name: str, value: str
) -> None:
    """A single config, a batch and a dry run are refused; with the secret the same batch is accepted."""
    change = {"name": name, "value": value}
    before = dict(link.properties)
    for response in (
        owner.put(f"{configs}/{name}", {"value": value}),
        owner.put(f"{configs}:alter", {"data": [change, {"name": "acl.sync.ms", "value": "9000"}]}),
        owner.put(f"{configs}:alter?validate_only=true", {"data": [change]}),
        owner.post(f"{configs}:alter", {"data": [change]}),
    ):
        assert (response.status_code, response.json()["error_code"]) == (400, 40002)
        assert "must contain sasl.jaas.config" in response.json()["message"]
        assert b"hidden" not in response.content
    link.refresh_from_db()
    assert (link.properties, link.configs.count()) == (before, 0)

    for data in ([change, JAAS], [JAAS, change]):
        assert owner.put(f"{configs}:alter", {"data": data}).status_code == 204
    link.refresh_from_db()
    assert link.properties == before | {name: value, "sasl.jaas.config": JAAS["value"]}


@pytest.mark.parametrize("name", ["bootstrap.servers", "security.protocol", "sasl.mechanism"])
def test_resetting_a_connection_config_needs_the_secret_too(owner: Rest, configs: str, link: ClusterLink, name: str) -> None:
    batch = {"data": [{"name": name, "operation": "DELETE"}]}
    for response in (owner.delete(f"{configs}/{name}"), owner.put(f"{configs}:alter", batch)):
        assert (response.status_code, response.json()["error_code"]) == (400, 40002)
    link.refresh_from_db()
    assert name in link.properties


def test_a_password_can_be_changed_alone(owner: Rest, configs: str, link: ClusterLink) -> None:
    assert owner.put(f"{configs}/sasl.jaas.config", {"value": JAAS["value"]}).status_code == 204
    link.refresh_from_db()
    assert link.properties["sasl.jaas.config"] == JAAS["value"]
