"""Error responses: a code and a message for every error, always JSON, without internal details."""

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions

from console import errors
from console.api.errors import Failure, TooLargeError, UnreadableError, failure_of, failure_response
from console.clusters import queries as cluster_queries
from console.http.errors import PAGE_STATUS, REST_STATUS
from console.models import ClusterLink
from linkengine.domain.errors import ErrorCode, LinkEngineError
from tests.console.api.actors import Rest

ERRORS: list[tuple[Exception, int, int, str]] = [
    (errors.BadRequestError("no"), 400, 40002, "no"),
    (errors.InvalidInputError("no", field="name"), 400, 40002, "no"),
    (errors.ConflictError("no"), 400, 40002, "no"),
    (errors.DeniedError("no"), 403, 40301, "no"),
    (errors.NotFoundError("no"), 404, 404, "no"),
    (errors.NotFoundError("no", code="TOPIC_NOT_FOUND"), 404, 40401, "no"),
    (errors.UnavailableError("no"), 503, 50302, "no"),
    (LinkEngineError(ErrorCode.MISCONFIGURATION_ERROR, "no"), 400, 40002, "no"),
    (LinkEngineError(ErrorCode.ILLEGAL_STATE, "no"), 400, 40002, "no"),
    (LinkEngineError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, "no"), 404, 40403, "no"),
    (LinkEngineError(ErrorCode.UNSUPPORTED_VERSION_ERROR, "no"), 400, 40035, "no"),
    (errors.NotFoundError("no", code="PARTITION_NOT_FOUND"), 404, 40402, "no"),
    (errors.BrokerFailedError("no"), 500, 50002, "no"),
    (errors.BrokerFailedError("no", code=errors.BROKER_TIMEOUT), 500, 50003, "no"),
    (TooLargeError(), 413, 413, "The request body is too large. At most 1 MiB is allowed."),
    (exceptions.UnsupportedMediaType("text/plain"), 415, 415, 'Unsupported media type "text/plain" in request.'),
    (exceptions.ValidationError({"name": "no"}, code="required"), 422, 422, "name: no"),
    (LinkEngineError(ErrorCode.DESTINATION_UNAVAILABLE, "no"), 503, 50302, "no"),
    (LinkEngineError(ErrorCode.NOT_ENOUGH_REPLICAS_ERROR, "no"), 503, 50302, "no"),
    (UnreadableError("no"), 400, 400, "no"),
    (exceptions.ParseError("no"), 400, 400, "no"),
    (exceptions.NotAuthenticated(), 401, 40101, "Authentication failed"),
    (exceptions.AuthenticationFailed("the secret is wrong"), 401, 40101, "Authentication failed"),
    (exceptions.PermissionDenied("no"), 403, 40301, "no"),
    (PermissionDenied(), 403, 40301, "Request is not authorized"),
    (Http404(), 404, 404, "HTTP 404 Not Found"),
    (exceptions.NotFound(), 404, 404, "HTTP 404 Not Found"),
    (exceptions.MethodNotAllowed("PATCH"), 405, 405, 'Method "PATCH" not allowed.'),
    (exceptions.Throttled(), 429, 42901, "Request was throttled."),
    (ValueError("secret"), 500, 500, "Internal Server Error. Search the log for the response's X-Request-ID."),
]


@pytest.mark.parametrize(("error", "status", "code", "message"), ERRORS)
def test_each_error_has_its_code(error: Exception, status: int, code: int, message: str) -> None:
    assert failure_of(error) == Failure(status=status, error_code=code, message=message)


def test_every_kind_of_console_error_has_a_code() -> None:
    kinds = {kind.kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ConsoleError)}

    assert kinds == set(REST_STATUS) == set(PAGE_STATUS)


@pytest.mark.django_db
def test_throttled_responses_have_retry_after() -> None:
    response = failure_response(exceptions.Throttled(wait=7), {})

    assert (response.status_code, response["Retry-After"]) == (429, "7")


@pytest.mark.django_db
class TestOverHttp:
    """Error responses as clients receive them."""

    @pytest.mark.parametrize(
        "path",
        [
            "",
            "nothing",
            "clusters/",
            "clusters/a/links/",
            "clusters/a/nothing",
            "clusters/a/links/b/mirrors/c/d",
            "a.html",
            "ä",
            "a%0Ab",
        ],
    )
    @pytest.mark.parametrize("prefix", ["/kafka/v3/", "/v3/", "/api/v1/"])
    def test_unknown_endpoints_return_json(self, owner: Rest, prefix: str, path: str) -> None:
        for method in ("get", "post", "put", "patch", "delete"):
            response = owner.call(method, prefix + path)

            assert response.status_code == 404
            assert response["Content-Type"] == "application/json"
            assert response.json() == {"error_code": 404, "message": "HTTP 404 Not Found"}

    @pytest.mark.parametrize("prefix", ["/kafka/v3", "/v3", "/api/v1"])
    def test_a_rest_prefix_without_a_path_returns_json(self, owner: Rest, prefix: str) -> None:
        response = owner.get(prefix)

        assert (response.status_code, response.json()) == (404, {"error_code": 404, "message": "HTTP 404 Not Found"})

    @pytest.mark.parametrize("accept", ["text/html", "application/xml", "nonsense"])
    def test_the_response_is_json_for_every_accept_header(self, owner: Rest, accept: str) -> None:
        for path in ("/kafka/v3/clusters", "/kafka/v3/clusters/none", "/kafka/v3/none"):
            response = owner.client.get(path, headers={"accept": accept})
            assert response["Content-Type"] == "application/json"

    def test_a_wrong_method_is_405_and_lists_the_allowed_methods(self, owner: Rest) -> None:
        response = owner.call("patch", "/kafka/v3/clusters")

        assert response.status_code == response.json()["error_code"] == 405
        assert response["Allow"] == "GET, HEAD, OPTIONS"

    def test_an_unexpected_error_reveals_no_details(self, owner: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
        def explode(**_: Any) -> None:
            raise RuntimeError("password=hidden")

        monkeypatch.setattr(cluster_queries, "list_clusters", explode)

        response = owner.get("/kafka/v3/clusters")

        assert response.status_code == response.json()["error_code"] == 500
        assert b"hidden" not in response.content
        assert b"Traceback" not in response.content

    @pytest.mark.parametrize("text", ["{", "[1,", "nul", '{"a": NaN}', "\xff", "[" * 100_000])
    def test_a_body_that_is_not_json_is_refused(self, owner: Rest, base: str, text: str) -> None:
        response = owner.client.post(f"{base}/links?link_name=a", data=text, content_type="application/json")

        assert response.status_code == response.json()["error_code"] == 400

    @pytest.mark.parametrize("text", ["[]", '"a"', "5", "null"])
    def test_a_body_that_is_not_an_object_is_refused(self, owner: Rest, base: str, text: str) -> None:
        response = owner.client.post(f"{base}/links?link_name=a", data=text, content_type="application/json")

        assert response.status_code == response.json()["error_code"] == 400

    def test_a_body_of_another_media_type_is_refused(self, owner: Rest, base: str) -> None:
        response = owner.client.post(f"{base}/links?link_name=a", data="a=b", content_type="application/x-www-form-urlencoded")

        assert response.status_code == response.json()["error_code"] == 415

    def test_a_charset_parameter_of_the_media_type_is_accepted(self, owner: Rest, base: str) -> None:
        response = owner.client.post(f"{base}/links?link_name=a b", data="{}", content_type="application/json; charset=utf-8")

        assert response.status_code == 400

    def test_a_body_of_more_than_1_mib_is_refused(self, owner: Rest, base: str) -> None:
        text = '{"source_cluster_id": "' + "a" * (1 << 20) + '"}'

        response = owner.client.post(f"{base}/links?link_name=a", data=text, content_type="application/json")

        assert response.status_code == response.json()["error_code"] == 413

    @pytest.mark.parametrize("value", ["", "1", "yes", "maybe"])
    def test_a_boolean_parameter_must_be_true_or_false(self, owner: Rest, base: str, link: ClusterLink, value: str) -> None:
        response = owner.get(f"{base}/links/{link.name}?include_tasks={value}")

        assert response.status_code == response.json()["error_code"] == 400
        assert "include_tasks" in response.json()["message"]

    @pytest.mark.parametrize("query", ["links/-/mirrors?mirror_status=", "acls?operation="])
    def test_an_empty_enum_parameter_is_refused(self, owner: Rest, base: str, query: str) -> None:
        assert owner.get(f"{base}/{query}").json()["error_code"] == 400

    def test_names_with_nul_are_refused_without_a_query(self, owner: Rest, base: str) -> None:
        assert owner.get(f"{base}/links/a%00b").status_code == 404
        assert owner.get(f"{base}/links/-/mirrors?mirror_status=%00").status_code == 400

    def test_lone_surrogates_are_refused(self, owner: Rest, base: str) -> None:
        response = owner.client.post(
            f"{base}/links?link_name=a", data='{"source_cluster_id": "\\ud800"}', content_type="application/json"
        )

        assert response.status_code == response.json()["error_code"] == 400
