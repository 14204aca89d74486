"""The OpenAPI document is valid, complete and named as clients know it; generated requests find nothing that breaks it."""

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

from console.api import kafka_urls, v1_urls
from console.api.docs import document
from console.models import ClusterLink
from tests.console.api.cast import DESTINATION, Rest

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
    # neighbours
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
DOCUMENT = document()  # raises if it is no OpenAPI 3
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
SCHEMA.app = get_wsgi_application()
NAMES = {
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
# More of them, and new ones, now and then: API_EXAMPLES=100. A failure tells how to see it again (--hypothesis-seed).
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


def test_the_operations_have_the_names_that_clients_know() -> None:
    assert set(operations()) >= OPERATIONS


def test_every_path_is_documented_once() -> None:
    older = tuple(kafka_urls.OLDER_VERBS)
    served = {f"/kafka/v3/{one.pattern}" for one in kafka_urls.urlpatterns[:-1] if not str(one.pattern).endswith(older)}
    served |= {f"/api/v1/{one.pattern}" for one in v1_urls.urlpatterns[:-1]}

    assert set(DOCUMENT["paths"]) == {re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path) for path in served}


def test_every_operation_says_what_it_is_and_how_it_fails() -> None:
    for name, operation in operations().items():
        assert operation["summary"], name
        assert {"400", "401", "403", "404", "429", "5XX"} <= set(operation["responses"]), name
        assert all(one.get("description") for one in operation.get("parameters", ())), name
        for status, answer in operation["responses"].items():
            if status[0] in "45":
                assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Error"}


def test_the_document_says_that_unknown_lag_is_no_zero() -> None:
    lag = DOCUMENT["components"]["schemas"]["MirrorLag"]["properties"]["lag"]

    assert (lag["type"], lag["format"]) == ("integer", "int64")
    assert "-1" in lag["description"]


def test_the_document_is_served_to_everybody() -> None:
    answer = Client().get("/api/schema")

    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
    assert answer.json()["openapi"].startswith("3.")


def test_the_viewer_needs_nothing_from_other_hosts() -> None:
    answer = Client().get("/api/docs/")

    assert answer.status_code == 200
    assert b"http://" not in answer.content
    assert b"https://" not in answer.content
    for name in ("swagger-ui.css", "swagger-ui-bundle.js", "swagger-ui-standalone-preset.js"):
        assert finders.find(f"drf_spectacular_sidecar/swagger-ui-dist/{name}")


def is_broken(case: Any, location: ParameterLocation) -> bool:
    """Tell whether this part of a request was made not to fit; mended, the request would rightly be accepted."""
    part = case.meta.components.get(location) if case.meta else None
    return part is not None and part.mode.is_negative


@pytest.fixture
def world(owner: Rest, link: ClusterLink, make_mirror: Any) -> Rest:
    make_mirror("orders", lags=((5, 3), None))
    return owner


@SCHEMA.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize="API_EXAMPLES" not in os.environ,  # every run of the suite asks the same; a search asks something new
    suppress_health_check=list(HealthCheck),
    database=None,
    print_blob=True,
)
def test_generated_requests_keep_to_the_document(case: Any, world: Rest) -> None:
    # Half of the requests are about things that exist; a made-up name rarely gets beyond 404.
    if case.path_parameters and len(str(case.path_parameters)) % 2 and not is_broken(case, ParameterLocation.PATH):
        case.path_parameters = {name: NAMES.get(name, value) for name, value in case.path_parameters.items()}

    case.call_and_validate(headers={"Authorization": world.authorization}, checks=CHECKS)


def test_every_operation_is_asked(request: pytest.FixtureRequest) -> None:
    generated = {item.nodeid for item in request.session.items if getattr(item, "operation_label", None)}
    if not generated:
        pytest.fail("This test looks at its neighbours: run the whole file.")

    assert len(generated) == len(operations())
