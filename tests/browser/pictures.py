"""Pictures of the pages for `make pictures`: light, dark and on a phone. pytest collects this file only when named."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.db.models import F
from django.utils import timezone
from playwright.sync_api import Page

from console.access.account_actions import invite_user
from console.actors import Actor
from console.mirrors.lineage import open_lineage
from console.models import MirrorPartition, RestoreRun
from console.queue import dispatch
from tests.browser.conftest import Authenticator, Visits
from tests.browser.page_data import PASSWORD, PageData
from tests.browser.page_fixtures import APPROVAL, DRAFT, GROUP, OPERATION, REPORT, REPORTED_OPERATION
from tests.console.api.brokers import compared, side
from tests.console.pages.test_topic_page import config, group, groups

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

FOLDER = Path(__file__).resolve().parents[2] / "var" / "pictures"
VIEWPORTS = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light"), "phone-dark": (390, "dark")}
# Pages whose pictures are also taken in Japanese.
JAPANESE = ("link", "link-failover", "link-failover-review", "mirror", "create-link-configuration")
# The description of a topic as a worker reads it from the cluster.
TOPIC = {
    "topic_configs": [
        asdict(config("cleanup.policy", "compact,delete", "DYNAMIC_TOPIC_CONFIG")),
        asdict(config("retention.ms", "604800000", "DYNAMIC_TOPIC_CONFIG")),
        asdict(config("max.message.bytes", "1048588")),
    ],
    "topic_groups": asdict(groups(group("billing", lag=48_731, max_lag=40_112), group("boarding", lag=None, known=0))),
}


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
    monkeypatch.setattr(dispatch, "call", lambda _task_name, query="", **_values: TOPIC.get(query, record))
    monkeypatch.setattr(dispatch, "send", lambda _task_name, **_values: None)
    add_rows(page_data)
    width, theme = VIEWPORTS[viewport]
    visitor, guest = visits.start(page_data.admin, width=width, theme=theme), visits.start(width=width, theme=theme)
    japanese = visits.start(page_data.admin, width=width, theme=theme, language="ja")
    FOLDER.mkdir(parents=True, exist_ok=True)

    def take(page: Page, name: str) -> None:
        page.wait_for_load_state("networkidle")  # charts load their data
        page.screenshot(path=FOLDER / f"{name}-{viewport}.png", full_page=True)

    pages, measured = pages_of(page_data), page_data.now
    for name, steps in pages.items():
        measured = measure_again(measured)
        take(visitor.go(*steps), name)
        if name in JAPANESE:
            take(japanese.go(*steps), f"{name}-ja")
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

    assert visitor.errors + guest.errors + japanese.errors == []


def add_rows(page_data: PageData) -> None:
    """Add the lineage of a mirror topic, and the restores of another."""
    open_lineage(mirror=page_data.mirrors["flights"], starts={1: 1_000, 2: 2_000}, now=page_data.now - timedelta(days=2))
    exported = {"export_name": "gates-2026.jsonl.gz", "export_records": 412, "export_sha256": "7d" * 32}
    for days, result in ((9, {"in_place": True}), (5, {"exported_at": page_data.now} | exported), (1, {})):
        asked = {"requested_by": "amelia", "requested_at": page_data.now - timedelta(days=days)}
        RestoreRun.objects.create(mirror=page_data.mirrors["gates"], **asked, **result)


def measure_again(before: datetime) -> datetime:
    """Move the measurements of all partitions from a time to now, so that the health is not Unknown; return the new time."""
    now = timezone.now()
    MirrorPartition.objects.update(
        **{name: F(name) + (now - before) for name in ("observed_at", "last_source_seen_at", "caught_up_at")}
    )
    return now


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
        "cluster-topic": (f"{page_data.west.get_absolute_url()}topics/flights/", "#load-topic"),
        "links": ("/links/",),
        "create-link": ("/links/new/",),
        "create-link-test": (f"/links/new/{DRAFT}/source/",),
        "create-link-configuration": (f"/links/new/{DRAFT}/configuration/",),
        "create-link-review": (f"/links/new/{DRAFT}/review/",),
        "link": (link,),
        "link-history": (f"{link}history/",),
        "link-minute": (f"{link}history/minute/?at={minute}",),
        "link-groups": (f"{link}groups/",),
        "link-acls": (f"{link}acls/",),
        "link-filters": (f"{link}filters/",),
        "link-configuration": (f"{link}configuration/",),
        "link-activity": (f"{link}activity/",),
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
        "mirror-filled-offsets": (mirror("flights", "filled-offsets"),),
        "mirror-lineage": (mirror("flights", "lineage"),),
        "mirror-gate": (mirror("flights", "migration-gate"),),
        "mirror-failover-reports": (mirror("gates", "failover-reports"),),
        "mirror-restores": (mirror("gates", "restores"),),
        "mirror-history": (mirror("flights", "history"),),
        "failover": (mirror("bookings", "failover"),),
        "promote": (mirror("flights", "promote"),),
        "delete": (mirror("gates", "delete"),),
        "delete-link": (f"{link}delete/",),
        "operations": ("/operations/",),
        "operation": (f"/operations/{OPERATION}/",),
        "search": ("/search/?q=fl",),
        "access": ("/access/",),
        "grant": ("/access/new/",),
        "roles": ("/access/roles/",),
        "users": ("/access/users/",),
        "groups": ("/access/groups/",),
        "group": (f"/access/groups/{GROUP}/",),
        "api-keys": ("/access/api-keys/",),
        "explain-access": (f"/access/explain/?permission=OPERATE_MIRROR&place={place}",),
        "approvals": ("/access/approvals/",),
        "approval": (f"/access/approvals/{APPROVAL}/",),
        "audit": ("/audit/",),
        "profile": ("/settings/profile/",),
        "states": ("/help/states/",),
    }
