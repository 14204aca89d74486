"""Pictures of the main pages for `make pictures`: light, dark and on a phone. pytest collects this file only when named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import Visits
from tests.browser.page_data import Scene
from tests.browser.page_fixtures import DRAFT, OPERATION

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

FOLDER = Path(__file__).resolve().parents[2] / "var" / "pictures"
LOOKS = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light"), "phone-dark": (390, "dark")}


@pytest.mark.parametrize("look", LOOKS)
def test_take_pictures(scene: Scene, visits: Visits, look: str) -> None:
    width, theme = LOOKS[look]
    visitor = visits.start(scene.admin, width=width, theme=theme)
    FOLDER.mkdir(parents=True, exist_ok=True)

    for name, address in pages_of(scene).items():
        page = visitor.open(address)
        page.wait_for_load_state("networkidle")  # charts load their data
        page.screenshot(path=FOLDER / f"{name}-{look}.png", full_page=True)

    assert visitor.errors == []


def pages_of(scene: Scene) -> dict[str, str]:
    """Return the main pages by the names of their pictures."""
    return {
        "environments": "/environments/",
        "links": "/links/",
        "create-link": "/links/new/",
        "create-link-test": f"/links/new/{DRAFT}/source/",
        "create-link-configuration": f"/links/new/{DRAFT}/configuration/",
        "link": scene.link_url,
        "link-history": f"{scene.link_url}history/",
        "link-groups": f"{scene.link_url}groups/",
        "link-readiness": f"{scene.link_url}readiness/",
        "failover-reports": f"{scene.link_url}stops/",
        "source-topics": f"{scene.link_url}topics/",
        "add-mirror": f"{scene.link_url}mirrors/new/",
        "mirror": scene.mirror_url("flights"),
        "mirror-verification": scene.mirror_url("planes", "verification"),
        "mirror-failover-reports": scene.mirror_url("gates", "failover-reports"),
        "failover": f"{scene.mirror_url('bookings')}failover/",
        "operation": f"/operations/{OPERATION}/",
        "access": "/access/",
        "audit": "/audit/",
    }
