"""Record contents of differences are shown only to users with the permission READ_RECORDS."""

from __future__ import annotations

import pytest
from django.utils import timezone

from console.models import MirrorTopic, RoleBinding, VerifyRun
from console.reconciling import coverage
from linkengine.domain.plans import VerifyReport
from linkengine.domain.ranges import CheckedRange, RecordDifference
from tests.browser.page_data import EAST, PageData, make_person
from tests.console.pages.conftest import client_of

READS = set(RoleBinding.Role) - {RoleBinding.Role.DEVELOPER_READ, RoleBinding.Role.OPERATOR, RoleBinding.Role.AUDITOR}


@pytest.mark.parametrize("role", RoleBinding.Role)
def test_record_contents_are_shown_by_role(page_data: PageData, role: RoleBinding.Role) -> None:
    difference = {"partition": 0, "offset": 7, "kind": "value", "source_value": "secret-of-the-source", "mirror_value": "other"}
    VerifyRun.objects.create(
        mirror=page_data.mirrors["flights"], status="DIFFERENT", requested_by="amelia", requested_at=timezone.now(),
        differences=1, first_differences=[difference],
    )  # fmt: skip
    person = make_person("dora", role, page_data.organization, page_data.now)

    text = client_of(person).get(page_data.mirror_url("flights", "verification")).content.decode()

    assert "First differences" in text
    assert ("secret-of-the-source" in text) == (role in READS)
    assert ("Record contents are hidden" in text) == (role not in READS)


def find_a_difference(mirror: MirrorTopic, kind: str = "value") -> None:
    """Record a difference found by continuous verification, without a verification run."""
    difference = RecordDifference(
        partition=1, offset=1_207, kind=kind, source_value="secret-of-the-source", mirror_value="secret-of-the-mirror"
    )
    part = CheckedRange(partition=1, start=1_200, end=1_300, records=100, hash="0" * 32, differences=1)
    report = VerifyReport(
        records_compared=100, differences=1, first_differences=(difference,), bytes_compared=1, duration_ms=1, checked=(part,)
    )
    coverage.note_report(mirror=mirror, report=report, now=timezone.now())


@pytest.mark.parametrize("kind", ["key", "value", "headers"])
def test_difference_alarm_has_the_offset_and_no_record_contents(page_data: PageData, kind: str) -> None:
    find_a_difference(page_data.mirrors["flights"], kind)
    client = client_of(make_person("dora", RoleBinding.Role.DEVELOPER_READ, page_data.organization, page_data.now))
    rest = f"/kafka/v3/clusters/{EAST}/links/west-to-east"
    places = (
        page_data.mirror_url("flights"),
        f"{page_data.link_url}tasks/",
        f"{rest}/mirrors/flights?include_state_transition_errors=true",
        f"{rest}?include_tasks=true",
        f"/api/v1/clusters/{EAST}/links/west-to-east/tasks",
    )

    message = f"partition 1, offset 1207: {'other' if kind == 'headers' else 'another'} {kind}."
    for address in (*places, page_data.link_url, "/links/", "/topics/", "/metrics", "/readyz"):
        response = client.get(address).content.decode()
        assert "secret" not in response, address
        assert (message in response) == (address in places), address


@pytest.mark.parametrize("role", [RoleBinding.Role.DEVELOPER_READ, RoleBinding.Role.DEVELOPER_MANAGE])
def test_differences_of_continuous_verification_are_shown_by_role(page_data: PageData, role: RoleBinding.Role) -> None:
    find_a_difference(page_data.mirrors["airports"])
    person = make_person("dora", role, page_data.organization, page_data.now)

    text = client_of(person).get(page_data.mirror_url("airports", "verification")).content.decode()

    assert "First differences" in text
    assert ("secret-of-the-source" in text, "secret-of-the-mirror" in text) == ((role in READS),) * 2
    assert ("Record contents are hidden" in text) == (role not in READS)
