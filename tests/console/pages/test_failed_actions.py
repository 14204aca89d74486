"""A failed action shows what happened, why, what to do, its code and the ID of the request; the form keeps its values."""

from __future__ import annotations

import html
from typing import Any

import pytest
from django.test import Client

from console.models import ClusterLink, MirrorTopic
from console.web.errors import ERROR_HELP
from linkengine.domain.errors import ErrorCode, LinkEngineError
from tests.browser.page_data import PageData
from tests.console.pages.conftest import Queue
from tests.console.pages.test_create_link import begin, choose_clusters

REQUEST = {"X-Request-ID": "request-of-this-test"}
# action below the link's URL, its values, the status, words of the reason
REFUSED = [
    ("mirrors/gates/pause/", {}, 409, "has already stopped its mirror"),
    ("mirrors/flights/resume/", {}, 409, "Cannot resume a mirror topic in state ACTIVE"),
    ("mirrors/new/", {"source_topic": "flights"}, 422, "It is a mirror topic of"),
    ("mirrors/new/", {"source_topic": ""}, 422, "must not be empty"),
    ("delete/", {"confirm": "west-to-east"}, 409, "LINK_IN_USE"),
    ("mirrors/flights/explode/", {}, 404, "Mirror topics have no operation"),
]


def review_of_a_link(client: Client) -> str:
    """Return the URL of the last step of a draft whose clusters are chosen."""
    draft = begin(client)
    choose_clusters(client, draft)
    return f"{draft}review/"


@pytest.mark.parametrize("form", ["review of a link", "mirrors/new/"])
def test_each_error_of_a_cluster_has_code_cause_next_step_and_request_id(
    page_data: PageData, admin: Client, queue: Queue, form: str
) -> None:
    address, values = {
        "review of a link": (review_of_a_link(admin), {"name": "fresh", "intent": "create"}),
        "mirrors/new/": (f"{page_data.link_url}mirrors/new/", {"source_topic": "fares"}),
    }[form]
    for code in ErrorCode:
        queue.response = LinkEngineError(code, f"The cluster returned {code.lower()}.")

        response = admin.post(address, values, headers=REQUEST)

        text, known = html.unescape(response.content.decode()), ERROR_HELP[code]
        assert response.status_code in {409, 422}, code
        for words in (f"The cluster returned {code.lower()}.", code, known.meaning, known.fix, "request-of-this-test"):
            assert words in text, (code, words)
    assert not ClusterLink.objects.filter(name="fresh").exists()
    assert not MirrorTopic.objects.filter(name="fares").exists()


@pytest.mark.parametrize(("action", "values", "status", "words"), REFUSED)
def test_refused_action_names_the_reason_and_the_request(
    page_data: PageData, admin: Client, action: str, values: dict[str, Any], status: int, words: str
) -> None:
    response = admin.post(f"{page_data.link_url}{action}", values, headers=REQUEST)

    text = html.unescape(response.content.decode())
    assert response.status_code == status
    assert words in text
    assert "request-of-this-test" in text


def test_denied_action_names_the_role_and_the_request(page_data: PageData, reader: Client) -> None:
    response = reader.post(f"{page_data.mirror_url('flights')}pause/", headers=REQUEST)

    text = response.content.decode()
    assert response.status_code == 403
    assert "Ask an administrator for the role" in text
    assert "request-of-this-test" in text


def test_internal_error_shows_the_request_id_and_no_details(page_data: PageData, admin: Client, queue: Queue) -> None:
    address = review_of_a_link(admin)
    queue.response, admin.raise_request_exception = ValueError("an internal detail"), False

    response = admin.post(address, {"name": "fresh", "intent": "create"}, headers=REQUEST)

    text = response.content.decode()
    assert response.status_code == 500
    assert "Copying is not affected." in text
    assert "Request ID: request-of-this-test" in text
    assert "an internal detail" not in text
