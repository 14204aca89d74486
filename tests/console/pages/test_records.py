"""The Records page of a mirror topic: permissions, audit, and what it shows of both sides."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.errors import UnavailableError
from console.models import AuditEvent, GapRange, RoleBinding
from console.verification import actions
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.record_views import Presence
from linkengine.domain.states import GapReason
from tests.browser.page_data import PageData, make_person
from tests.console.api.brokers import compared, side
from tests.console.pages.conftest import Queue, client_of
from tests.console.pages.test_reading_records import READS, find_a_difference

EQUAL = compared(side(b"secret"), side(b"secret"))


def text_of(response: Any) -> str:
    """Return the visible text of a page."""
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split()))


@pytest.fixture
def url(page_data: PageData) -> str:
    return f"{page_data.mirror_url('flights')}records/"


@pytest.mark.parametrize("role", RoleBinding.Role)
def test_records_are_shown_by_role(page_data: PageData, queue: Queue, url: str, role: RoleBinding.Role) -> None:
    queue.response = EQUAL
    client = client_of(make_person("dora", role, page_data.organization, page_data.now))

    form, shown = client.get(url), client.get(f"{url}?partition=0&offset=7")

    status = 200 if role in READS else 403
    assert (form.status_code, shown.status_code) == (status, status)
    assert ("secret" in text_of(shown)) == (role in READS)
    assert queue.called == (["compare_record"] if role in READS else [])
    link = 'id="compare-records"' in client.get(page_data.mirror_url("flights")).content.decode()
    assert link == (role in READS)


def test_user_without_a_role_gets_not_found(stranger: Client, queue: Queue, url: str) -> None:
    assert stranger.get(f"{url}?partition=0&offset=7").status_code == 404
    assert queue.called == []


def test_each_read_is_audited_without_contents(page_data: PageData, admin: Client, queue: Queue, url: str) -> None:
    queue.response = EQUAL
    admin.get(url)
    assert not AuditEvent.objects.filter(action="ReadRecord").exists()

    admin.get(f"{url}?partition=0&offset=7")

    row = AuditEvent.objects.get(action="ReadRecord")
    assert (row.actor, row.result, row.detail) == ("amelia", "SUCCESS", {"partition": 0, "offset": 7})
    assert row.resource.endswith("/mirror/flights")


def test_page_needs_few_queries(admin: Client, queue: Queue, url: str) -> None:
    queue.response = EQUAL
    with CaptureQueriesContext(connection) as queries:
        admin.get(f"{url}?partition=0&offset=7")

    assert len(queries) <= 8  # session, user, mirror with link and clusters, gap ledger, audit row


@pytest.mark.parametrize(
    ("differing", "badge", "other"), [((), ("EQUAL", "Equal"), "Differs"), (("value",), ("DIFFERENT", "Differs"), "Equal")]
)
def test_page_says_whether_the_records_are_equal(
    admin: Client, queue: Queue, url: str, differing: tuple[str, ...], badge: tuple[str, str], other: str
) -> None:
    queue.response = compared(side(b"secret"), side(b"other" if differing else b"secret"), differing=differing)

    response = admin.get(f"{url}?partition=0&offset=7")

    result = response.content.decode().split('id="verdict"')[1]
    assert re.findall(r'class="badge-state \w+" title="(\w+)">.*?</svg>(\w+)</span>', result) == [badge]
    assert other not in text_of(response)


def test_both_records_are_shown_with_their_difference(admin: Client, queue: Queue, url: str) -> None:
    mirror = side(b'{"a": 1.10, "b": ["x", {}]}')
    queue.response = compared(side(b"\xff\x00 bytes"), mirror, differing=("value",))

    response = admin.get(f"{url}?partition=0&offset=7")

    text = text_of(response)
    assert "The records differ in: value." in text
    assert "Source, us-west" in text
    assert "Mirror, us-east" in text
    assert "2023-11-14 22:13:20 UTC (1700000000500 ms)" in text
    assert "zstd" in text
    assert "ff 00 20 62" in text
    page = unescape(response.content.decode())
    assert '{\n  "a": 1.10,\n  "b": [\n    "x",\n    {}\n  ]\n}' in page
    assert "?partition=0&offset=6" in page
    assert "?partition=0&offset=8" in page


def test_times_are_read_and_shown_in_the_time_zone_of_the_user(
    page_data: PageData, queue: Queue, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.response, asked = EQUAL, list[Any]()

    def compare(**values: Any) -> Any:
        asked.append(values["timestamp_ms"])
        return actions.compare_record(**values)

    monkeypatch.setattr("console.verification.pages.compare_record", compare)
    client = client_of(page_data.admin)
    client.post("/settings/profile/", {"time_zone": "Asia/Tokyo", "density": "comfortable"})

    assert "Or time (Asia/Tokyo)" in text_of(client.get(url))
    text = text_of(client.get(f"{url}?partition=0&time=2023-11-15T07:13:20"))
    client.get(f"{url}?partition=0&time=2023-11-14T22:13:20Z")

    assert "2023-11-15 07:13:20 JST (1700000000500 ms)" in text
    assert asked == [1_700_000_000_000] * 2


def test_filler_is_shown_with_its_reason(page_data: PageData, admin: Client, queue: Queue, url: str) -> None:
    queue.response = compared(side(None, Presence.BEFORE_START), side(None, Presence.TRANSACTION_MARKER, marker="COMMIT"))
    rows = {"mirror": page_data.mirrors["flights"], "partition": 0, "noted_at": page_data.now}
    GapRange.objects.filter(mirror=page_data.mirrors["flights"]).delete()
    GapRange.objects.create(start=7, end=8, filled=1, reason=GapReason.ABORTED, **rows)

    text = text_of(admin.get(f"{url}?partition=0&offset=7"))

    assert "Filler" in text
    assert "Aborted transaction" in text


def test_side_that_could_not_be_read_has_the_reason(admin: Client, queue: Queue, url: str) -> None:
    lost = side(None, Presence.UNREADABLE, message="The source does not respond.", log_end_offset=None)
    queue.response = compared(lost, side(b"still shown"))

    text = text_of(admin.get(f"{url}?partition=0&offset=7"))

    assert "The source does not respond." in text
    assert "still shown" in text
    assert "Unknown" in text


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (
            UnavailableError("The worker did not finish compare_record within 30 seconds.", code="WORKER_UNAVAILABLE"),
            503,
            "within",
        ),
        (LinkEngineError(ErrorCode.INVALID_REQUEST_ERROR, "There is no record since then."), 422, "no record since then"),
        (LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The lookup took too long."), 422, "took too long"),
    ],
)
def test_form_stays_with_the_error_of_a_failed_read(
    admin: Client, queue: Queue, url: str, error: Exception, status: int, message: str
) -> None:
    queue.response = error

    response = admin.get(f"{url}?partition=0&time=2026-11-25T20:00:00")

    assert response.status_code == status
    assert message in text_of(response)
    assert 'value="2026-11-25T20:00:00"' in response.content.decode()
    assert AuditEvent.objects.get(action="ReadRecord").result == "FAILURE"


@pytest.mark.parametrize(
    "query",
    [
        "partition=0&offset=x",
        "partition=&offset=1",
        "partition=7&offset=1",
        "partition=0&time=soon",
        "partition=0&time=1969-12-31T23:59:59",
        f"partition=0&offset={'9' * 30}",
    ],
)
def test_wrong_input_is_explained(admin: Client, queue: Queue, url: str, query: str) -> None:
    response = admin.get(f"{url}?{query}")

    assert response.status_code == 422
    assert 'role="alert"' in response.content.decode()
    assert queue.called == []


def test_alarm_links_to_the_differences_and_a_difference_to_its_record(page_data: PageData) -> None:
    find_a_difference(page_data.mirrors["flights"])
    target = f'href="{page_data.mirror_url("flights")}records/?partition=1&amp;offset=1207"'
    tab, seen = page_data.mirror_url("flights", "verification"), {}
    for role in (RoleBinding.Role.DEVELOPER_READ, RoleBinding.Role.DEVELOPER_MANAGE):
        client = client_of(make_person(role.lower(), role, page_data.organization, page_data.now))
        assert f'href="{tab}#verify">View the differences<' in client.get(page_data.mirror_url("flights")).content.decode()
        seen[role] = client.get(tab).content.decode().count(target)

    assert seen == {RoleBinding.Role.DEVELOPER_READ: 0, RoleBinding.Role.DEVELOPER_MANAGE: 1}


def test_mirror_named_new_has_the_page_too(page_data: PageData, admin: Client, queue: Queue) -> None:
    queue.response = EQUAL
    mirror = page_data.mirrors["flights"]
    mirror.name = "new"
    mirror.save()

    assert admin.get(f"{page_data.link_url}mirrors/new/-/records/?partition=0&offset=7").status_code == 200
