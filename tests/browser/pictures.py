"""Pictures of the pages for `make pictures`: light, dark and on a phone. pytest collects this file only when named."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page

from console.access.account_actions import invite_user
from console.actors import Actor
from console.queue import dispatch
from tests.browser.conftest import Authenticator, Visits
from tests.browser.page_data import PASSWORD, PageData
from tests.browser.page_fixtures import APPROVAL, DRAFT, OPERATION, REPORT, REPORTED_OPERATION
from tests.console.api.brokers import compared, side

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

FOLDER = Path(__file__).resolve().parents[2] / "var" / "pictures"
VIEWPORTS = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light"), "phone-dark": (390, "dark")}


@pytest.mark.parametrize("viewport", VIEWPORTS)
def test_take_pictures(
    page_data: PageData,
    visits: Visits,
    authenticator: Authenticator,
    viewport: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = compared(
        side(b'{"flight": "UA 12", "delay": 40}'), side(b'{"flight": "UA 12", "delay": 41}'), differing=("value",)
    )
    monkeypatch.setattr(dispatch, "call", lambda _task_name, **_values: record)
    monkeypatch.setattr(dispatch, "send", lambda _task_name, **_values: None)
    width, theme = VIEWPORTS[viewport]
    visitor, guest = visits.start(page_data.admin, width=width, theme=theme), visits.start(width=width, theme=theme)
    FOLDER.mkdir(parents=True, exist_ok=True)

    def take(page: Page, name: str) -> None:
        page.wait_for_load_state("networkidle")  # charts load their data
        page.screenshot(path=FOLDER / f"{name}-{viewport}.png", full_page=True)

    for name, steps in pages_of(page_data).items():
        take(visitor.go(*steps), name)
    by = Actor(name="amelia", user=page_data.admin)
    _user, token = invite_user(name="dorothy", organization=page_data.organization, by=by, now=page_data.now)
    take(guest.open("/sign-in/"), "sign-in")
    take(guest.open(f"/invitation/{token}/"), "invitation")
    page = visitor.open("/settings/second-factor/")
    take(page, "second-factor")
    page.fill("#password", PASSWORD)
    page.fill("#code", "123456")
    page.click("main button[type=submit]")
    take(page, "recovery-codes")

    assert visitor.errors + guest.errors == []


def pages_of(page_data: PageData) -> dict[str, tuple[str, ...]]:
    """Return the pages by the names of their pictures: an address, and what is clicked there."""
    link, mirror = page_data.link_url, page_data.mirror_url
    minute = int((page_data.now - timedelta(minutes=9)).timestamp())
    place = f"cluster:{page_data.west.pk}"
    return {
        "first-steps": ("/help/first-steps/",),
        "environments": ("/environments/",),
        "environment": ("/environments/production/",),
        "register-cluster": ("/environments/production/clusters/new/",),
        "cluster": (page_data.east.get_absolute_url(),),
        "cluster-topics": (f"{page_data.west.get_absolute_url()}topics/",),
        "links": ("/links/",),
        "create-link": ("/links/new/",),
        "create-link-test": (f"/links/new/{DRAFT}/source/",),
        "create-link-configuration": (f"/links/new/{DRAFT}/configuration/",),
        "create-link-review": (f"/links/new/{DRAFT}/review/",),
        "link": (link,),
        "link-history": (f"{link}history/",),
        "link-minute": (f"{link}history/minute/?at={minute}",),
        "link-groups": (f"{link}groups/",),
        "link-tasks": (f"{link}tasks/",),
        "link-readiness": (f"{link}readiness/",),
        "link-drills": (f"{link}drills/",),
        "link-failover": (f"{link}failover/",),
        "link-failover-review": (f"{link}failover/", "#pick-all", "#review"),
        "link-bulk-failover": (link, "[data-pick] >> nth=0", "#bulk-failover"),
        "failover-reports": (f"{link}stops/",),
        "failover-report": (f"/failover-reports/{REPORT}/",),
        "failover-report-operation": (f"/failover-reports/operations/{REPORTED_OPERATION}/",),
        "source-topics": (f"{link}topics/",),
        "add-mirror": (f"{link}mirrors/new/",),
        "edit-link": (f"{link}configuration/edit/",),
        "mirror": (mirror("flights"),),
        "mirror-configs": (mirror("flights", "configs"),),
        "mirror-records": (f"{mirror('flights', 'records')}?partition=0&offset=7",),
        "mirror-verification": (mirror("planes", "verification"),),
        "mirror-failover-reports": (mirror("gates", "failover-reports"),),
        "failover": (mirror("bookings", "failover"),),
        "operations": ("/operations/",),
        "operation": (f"/operations/{OPERATION}/",),
        "search": ("/search/?q=fl",),
        "access": ("/access/",),
        "users": ("/access/users/",),
        "explain-access": (f"/access/explain/?permission=OPERATE_MIRROR&place={place}",),
        "approvals": ("/access/approvals/",),
        "approval": (f"/access/approvals/{APPROVAL}/",),
        "audit": ("/audit/",),
        "profile": ("/settings/profile/",),
        "states": ("/help/states/",),
    }
