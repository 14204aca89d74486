"""One envelope for everything that goes wrong, always JSON, never a trace."""

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions

from console import errors
from console.api.errors import CONSOLE_KINDS, Failure, TooLargeError, UnreadableError, failure_of, failure_response
from console.models import ClusterLink
from console.queries import clusters
from linkengine.domain.errors import ErrorCode, LinkEngineError
from tests.console.api.cast import Rest

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
    (TooLargeError(), 413, 413, "The request body is too large."),
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
    (ValueError("secret"), 500, 500, "Internal Server Error. The answer's X-Request-ID finds it in the log."),
]


@pytest.mark.parametrize(("error", "status", "code", "message"), ERRORS)
def test_each_error_has_its_code(error: Exception, status: int, code: int, message: str) -> None:
    assert failure_of(error) == Failure(status=status, error_code=code, message=message)


def test_every_kind_of_ours_has_a_code() -> None:
    kinds = {kind.kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ConsoleError)}

    assert kinds == set(CONSOLE_KINDS)


@pytest.mark.django_db
def test_throttled_answers_say_when_to_come_back() -> None:
    answer = failure_response(exceptions.Throttled(wait=7), {})

    assert (answer.status_code, answer["Retry-After"]) == (429, "7")


@pytest.mark.django_db
class TestOverHttp:
    """What clients see."""

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
    def test_unknown_endpoints_answer_json(self, owner: Rest, prefix: str, path: str) -> None:
        for method in ("get", "post", "put", "patch", "delete"):
            answer = owner.call(method, prefix + path)

            assert answer.status_code == 404
            assert answer["Content-Type"] == "application/json"
            assert answer.json() == {"error_code": 404, "message": "HTTP 404 Not Found"}

    @pytest.mark.parametrize("prefix", ["/kafka/v3", "/v3", "/api/v1"])
    def test_a_prefix_by_itself_is_json_too(self, owner: Rest, prefix: str) -> None:
        answer = owner.get(prefix)

        assert (answer.status_code, answer.json()) == (404, {"error_code": 404, "message": "HTTP 404 Not Found"})

    @pytest.mark.parametrize("accept", ["text/html", "application/xml", "nonsense"])
    def test_the_answer_is_json_whatever_is_asked_for(self, owner: Rest, accept: str) -> None:
        for path in ("/kafka/v3/clusters", "/kafka/v3/clusters/none", "/kafka/v3/none"):
            answer = owner.client.get(path, headers={"accept": accept})
            assert answer["Content-Type"] == "application/json"

    def test_a_wrong_method_is_405_and_names_the_right_ones(self, owner: Rest) -> None:
        answer = owner.call("patch", "/kafka/v3/clusters")

        assert answer.status_code == answer.json()["error_code"] == 405
        assert answer["Allow"] == "GET, HEAD, OPTIONS"

    def test_a_failure_nobody_foresaw_tells_nothing(self, owner: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
        def explode(**_: Any) -> None:
            raise RuntimeError("password=hidden")

        monkeypatch.setattr(clusters, "list_clusters", explode)

        answer = owner.get("/kafka/v3/clusters")

        assert answer.status_code == answer.json()["error_code"] == 500
        assert b"hidden" not in answer.content
        assert b"Traceback" not in answer.content

    @pytest.mark.parametrize("text", ["{", "[1,", "nul", '{"a": NaN}', "\xff", "[" * 100_000])
    def test_a_body_that_is_no_json_is_refused(self, owner: Rest, base: str, text: str) -> None:
        answer = owner.client.post(f"{base}/links?link_name=a", data=text, content_type="application/json")

        assert answer.status_code == answer.json()["error_code"] == 400

    @pytest.mark.parametrize("text", ["[]", '"a"', "5", "null"])
    def test_a_body_that_is_no_object_is_refused(self, owner: Rest, base: str, text: str) -> None:
        answer = owner.client.post(f"{base}/links?link_name=a", data=text, content_type="application/json")

        assert answer.status_code == answer.json()["error_code"] == 400

    def test_a_body_of_another_type_is_refused(self, owner: Rest, base: str) -> None:
        answer = owner.client.post(f"{base}/links?link_name=a", data="a=b", content_type="application/x-www-form-urlencoded")

        assert answer.status_code == answer.json()["error_code"] == 415

    def test_a_charset_is_no_other_type(self, owner: Rest, base: str) -> None:
        answer = owner.client.post(f"{base}/links?link_name=a b", data="{}", content_type="application/json; charset=utf-8")

        assert answer.status_code == 400

    def test_a_body_without_end_is_refused(self, owner: Rest, base: str) -> None:
        text = '{"source_cluster_id": "' + "a" * (1 << 20) + '"}'

        answer = owner.client.post(f"{base}/links?link_name=a", data=text, content_type="application/json")

        assert answer.status_code == answer.json()["error_code"] == 413

    @pytest.mark.parametrize("value", ["", "1", "yes", "maybe"])
    def test_a_flag_is_true_or_false(self, owner: Rest, base: str, link: ClusterLink, value: str) -> None:
        answer = owner.get(f"{base}/links/{link.name}?include_tasks={value}")

        assert answer.status_code == answer.json()["error_code"] == 400
        assert "include_tasks" in answer.json()["message"]

    @pytest.mark.parametrize("query", ["links/-/mirrors?mirror_status=", "acls?operation="])
    def test_a_choice_that_is_there_says_something(self, owner: Rest, base: str, query: str) -> None:
        assert owner.get(f"{base}/{query}").json()["error_code"] == 400

    def test_names_with_nul_are_not_looked_for(self, owner: Rest, base: str) -> None:
        assert owner.get(f"{base}/links/a%00b").status_code == 404
        assert owner.get(f"{base}/links/-/mirrors?mirror_status=%00").status_code == 400

    def test_lone_surrogates_are_refused(self, owner: Rest, base: str) -> None:
        answer = owner.client.post(
            f"{base}/links?link_name=a", data='{"source_cluster_id": "\\ud800"}', content_type="application/json"
        )

        assert answer.status_code == answer.json()["error_code"] == 400
