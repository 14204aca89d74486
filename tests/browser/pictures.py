"""Pictures of the main pages for `make pictures`: light, dark and on a phone. pytest collects this file only when named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import Visits
from tests.browser.page_data import PageData
from tests.browser.page_fixtures import DRAFT, OPERATION

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

FOLDER = Path(__file__).resolve().parents[2] / "var" / "pictures"
VIEWPORTS = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light"), "phone-dark": (390, "dark")}


@pytest.mark.parametrize("viewport", VIEWPORTS)
def test_take_pictures(page_data: PageData, visits: Visits, viewport: str) -> None:
    width, theme = VIEWPORTS[viewport]
    visitor = visits.start(page_data.admin, width=width, theme=theme)
    FOLDER.mkdir(parents=True, exist_ok=True)

    for name, address in pages_of(page_data).items():
        page = visitor.open(address)
        page.wait_for_load_state("networkidle")  # charts load their data
        page.screenshot(path=FOLDER / f"{name}-{viewport}.png", full_page=True)

    assert visitor.errors == []


def pages_of(page_data: PageData) -> dict[str, str]:
    """Return the main pages by the names of their pictures."""
    return {
        "environments": "/environments/",
        "links": "/links/",
        "create-link": "/links/new/",
        "create-link-test": f"/links/new/{DRAFT}/source/",
        "create-link-configuration": f"/links/new/{DRAFT}/configuration/",
        "link": page_data.link_url,
        "link-history": f"{page_data.link_url}history/",
        "link-groups": f"{page_data.link_url}groups/",
        "link-readiness": f"{page_data.link_url}readiness/",
        "failover-reports": f"{page_data.link_url}stops/",
        "source-topics": f"{page_data.link_url}topics/",
        "add-mirror": f"{page_data.link_url}mirrors/new/",
        "mirror": page_data.mirror_url("flights"),
        "mirror-verification": page_data.mirror_url("planes", "verification"),
        "mirror-failover-reports": page_data.mirror_url("gates", "failover-reports"),
        "failover": f"{page_data.mirror_url('bookings')}failover/",
        "operation": f"/operations/{OPERATION}/",
        "access": "/access/",
        "audit": "/audit/",
    }
