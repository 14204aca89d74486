"""The URLs of all pages in the scene."""

from __future__ import annotations

from tests.browser.page_data import EAST, MIRRORS, WEST
from tests.browser.page_fixtures import OPERATION

_LINK = f"/links/{EAST}/west-to-east/"
_FAILED = f"/links/{EAST}/south-archive/"

# Pages without a session.
OPEN = ("/sign-in/",)  # an invitation needs a token, see tests/console/pages/test_people.py
# Pages that an administrator of the organization sees with status 200.
PAGES = (
    "/environments/",
    "/environments/?tab=links",
    "/environments/production/",
    "/environments/production/clusters/new/",
    f"/clusters/{WEST}/",
    f"/clusters/{WEST}/topics/",
    f"/clusters/{WEST}/topics/?q=fl",
    f"/clusters/{WEST}/namespaces/",
    f"/clusters/{EAST}/namespaces/",
    "/links/",
    "/links/?q=nothing-has-this-name",
    "/links/new/",
    "/links/new/?direction=both",
    _LINK,
    f"{_LINK}?state=FAILED",
    f"{_LINK}?sort=-lag",
    f"{_LINK}tasks/",
    f"{_LINK}topics/",
    f"{_LINK}topics/flights/",
    f"{_LINK}topics/no-such-topic/",
    f"{_LINK}filters/",
    f"{_LINK}configuration/",
    f"{_LINK}configuration/?all=1",
    f"{_LINK}configuration/edit/",
    f"{_LINK}groups/",
    f"{_LINK}groups/?status=IN_USE",
    f"{_LINK}acls/",
    f"{_LINK}acls/?status=conflicts",
    f"{_LINK}configuration/set/topic.config.sync.ms/",
    f"{_LINK}activity/",
    f"{_LINK}history/",
    f"{_LINK}history/?span=24h",
    f"{_LINK}history/?span=30d&topic=flights",
    f"{_LINK}history/?from=1700000000&to=1700003600",
    f"{_LINK}history/samples/?span=1h",
    f"{_LINK}history/minute/",
    f"{_LINK}readiness/",
    f"{_LINK}stops/",
    f"{_LINK}drills/",
    f"{_LINK}delete/",
    f"{_LINK}mirrors/new/",
    *(f"{_LINK}mirrors/{name}/" for name, *_ in MIRRORS),
    f"{_LINK}mirrors/flights/records/",
    f"{_LINK}mirrors/flights/samples/",
    f"{_LINK}mirrors/flights/minute/",
    f"{_LINK}mirrors/flights/pause/",
    f"{_LINK}mirrors/airports/resume/",
    f"{_LINK}mirrors/flights/promote/",
    f"{_LINK}mirrors/flights/failover/",
    f"{_LINK}mirrors/flights/delete/",
    _FAILED,
    f"{_FAILED}history/",
    f"{_FAILED}stops/",
    f"{_FAILED}mirrors/new/",
    f"{_FAILED}delete/",
    "/topics/",
    "/topics/?q=fl",
    "/search/",
    "/search/?q=fl",
    "/operations/",
    f"/operations/{OPERATION}/",
    f"/operations/{OPERATION}/?status=FAILED",
    "/access/",
    "/access/new/",
    "/access/explain/",
    "/access/users/",
    "/access/users/?q=a",
    "/access/groups/",
    "/access/approvals/",
    "/access/approvals/new/",
    "/access/approvals/environments/production/",
    "/access/roles/",
    "/access/me/",
    "/access/password/",
    "/access/api-keys/",
    "/access/api-keys/ABCDEFGHIJKLMNOP/rotate/",
    "/access/api-keys/ABCDEFGHIJKLMNOP/delete/",
    "/settings/profile/",
    "/audit/",
    "/audit/?result=DENIED",
    "/help/states/",
    "/help/first-steps/",
)
# Error pages with their status.
REFUSALS = (
    ("/nothing-here/", 404),
    (f"/links/{EAST}/no-such-link/", 404),
    (f"{_LINK}mirrors/gates/pause/", 409),
    (f"{_LINK}bulk/?operation=failover", 422),
    ("/operations/1/", 404),
)
# Pages similar to other pages; slow tests omit them.
LOOKS_ALIKE = frozenset(
    f"{_LINK}mirrors/{name}/" for name in ("airports", "bookings", "crews", "invoices", "journeys", "kiosks", "lounges")
) | {f"{_LINK}mirrors/airports/resume/", "/links/?q=nothing-has-this-name", f"{_LINK}?sort=-lag", "/topics/?q=fl"}
