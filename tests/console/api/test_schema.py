"""The OpenAPI document is valid and complete and has Confluent's names; responses to generated requests conform to it."""

import os
import re
from typing import Any

import pytest
import schemathesis
from django.contrib.staticfiles import finders
from django.core.wsgi import get_wsgi_application
from django.test import Client
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from console.api import urls
from console.api.schema import document
from console.models import ClusterLink
from tests.console.api.actors import DESTINATION, Rest

OPERATIONS = {
    "listKafkaLinks",
    "createKafkaLink",
    "getKafkaLink",
    "deleteKafkaLink",
    "listKafkaLinkConfigs",
    "getKafkaLinkConfigs",
    "updateKafkaLinkConfig",
    "deleteKafkaLinkConfig",
    "updateKafkaLinkConfigBatch",
    "listKafkaMirrorTopicsUnderLink",
    "createKafkaMirrorTopic",
    "listKafkaMirrorTopics",
    "readKafkaMirrorTopic",
    "updateKafkaMirrorTopicsPromote",
    "updateKafkaMirrorTopicsFailover",
    "updateKafkaMirrorTopicsPause",
    "updateKafkaMirrorTopicsResume",
    "updateKafkaMirrorTopicsReverseAndStartMirror",
    "updateKafkaMirrorTopicsReverseAndPauseMirror",
    "updateKafkaMirrorTopicsTruncateAndRestoreMirror",
    "getKafkaCluster",
    # topics, ACLs and consumer groups
    "batchCreateKafkaAcls",
    "createKafkaAcls",
    "createKafkaTopic",
    "deleteKafkaAcls",
    "deleteKafkaTopic",
    "deleteKafkaTopicConfig",
    "getKafkaAcls",
    "getKafkaConsumerGroup",
    "getKafkaTopic",
    "getKafkaTopicConfig",
    "listKafkaConsumerGroups",
    "listKafkaConsumerLags",
    "listKafkaPartitions",
    "listKafkaTopicConfigs",
    "listKafkaTopics",
    "updateKafkaTopicConfig",
    "updateKafkaTopicConfigBatch",
    "updatePartitionCountKafkaTopic",
}
DOCUMENT = document()  # raises ValidationError if it is not valid OpenAPI 3
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
SCHEMA.app = get_wsgi_application()
NAMES = {
    "environment": "production",
    "cluster_id": DESTINATION,
    "link_name": "from-source",
    "mirror_topic_name": "orders",
    "topic_name": "plain",
    "partition_id": 1,
    "consumer_group_id": "readers",
    "task_name": "TopicConfigsSync",
    "source_topic_name": "orders",
    "drill_id": "1",
    "namespace_id": "1",
}
# API_EXAMPLES=100 generates more requests, and new ones in each run. A failure prints the --hypothesis-seed to repeat it.
EXAMPLES = int(os.environ.get("API_EXAMPLES", "5"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]


def operations() -> dict[str, dict[str, Any]]:
    return {method["operationId"]: method for path in DOCUMENT["paths"].values() for method in path.values()}


def test_the_operations_have_confluents_names() -> None:
    assert set(operations()) >= OPERATIONS


def test_every_path_is_documented_once() -> None:
    older = tuple(urls.OLDER_VERBS)
    served = {f"/kafka/v3/{url.pattern}" for url in urls.kafka_patterns[:-1] if not str(url.pattern).endswith(older)}
    served |= {f"/api/v1/{url.pattern}" for url in urls.v1_patterns[:-1]}

    assert set(DOCUMENT["paths"]) == {re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path) for path in served}


def test_every_operation_has_a_summary_and_describes_its_errors() -> None:
    for name, operation in operations().items():
        assert operation["summary"], name
        assert {"400", "401", "403", "404", "429", "5XX"} <= set(operation["responses"]), name
        assert all(parameter.get("description") for parameter in operation.get("parameters", ())), name
        for status, response in operation["responses"].items():
            if status[0] in "45":
                assert response["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Error"}


def test_the_document_describes_an_unknown_lag_as_minus_one() -> None:
    lag = DOCUMENT["components"]["schemas"]["MirrorLag"]["properties"]["lag"]

    assert (lag["type"], lag["format"]) == ("integer", "int64")
    assert "-1" in lag["description"]


def test_the_document_is_public() -> None:
    response = Client().get("/api/schema")

    assert (response.status_code, response["Content-Type"]) == (200, "application/json")
    assert response.json()["openapi"].startswith("3.")


def test_the_viewer_loads_nothing_from_other_hosts() -> None:
    response = Client().get("/api/docs/")

    assert response.status_code == 200
    assert b"http://" not in response.content
    assert b"https://" not in response.content
    for name in ("swagger-ui.css", "swagger-ui-bundle.js", "swagger-ui-standalone-preset.js"):
        assert finders.find(f"drf_spectacular_sidecar/swagger-ui-dist/{name}")


def is_broken(case: Any, location: ParameterLocation) -> bool:
    """Return whether this part of a generated request is deliberately invalid; replacing it would make the request valid."""
    part = case.meta.components.get(location) if case.meta else None
    return part is not None and part.mode.is_negative


@pytest.fixture
def world(owner: Rest, link: ClusterLink, make_mirror: Any) -> Rest:
    make_mirror("orders", lags=((5, 3), None))
    return owner


@SCHEMA.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize="API_EXAMPLES" not in os.environ,  # the suite sends the same requests in every run
    suppress_health_check=list(HealthCheck),
    database=None,
    print_blob=True,
)
def test_responses_to_generated_requests_conform_to_the_document(case: Any, world: Rest) -> None:
    # Half of the requests use names that exist, since generated names nearly always get 404.
    if case.path_parameters and len(str(case.path_parameters)) % 2 and not is_broken(case, ParameterLocation.PATH):
        case.path_parameters = {name: NAMES.get(name, value) for name, value in case.path_parameters.items()}

    case.call_and_validate(headers={"Authorization": world.authorization}, checks=CHECKS)


@pytest.mark.usefixtures("db")  # with the tests that it checks, outside of the unit tests
def test_requests_are_generated_for_every_operation(request: pytest.FixtureRequest) -> None:
    generated = {item.nodeid for item in request.session.items if getattr(item, "operation_label", None)}
    if not generated:
        pytest.fail("This test checks the other tests of this file: run the whole file.")

    assert len(generated) == len(operations())
