"""The pages of the console: first byte, poll, picture, a change of a state in an open page, and a bulk operation.

A web process with PostgreSQL and Redis, without Kafka: rows are created as the engine would write them. There is no worker; the
task of the bulk operation runs in a process of its own.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import httpx
import psycopg
from playwright.sync_api import Browser, Page, sync_playwright

from bench.figures import Figure
from devcluster.browser import FLAGS, browser_path
from devcluster.demo import services
from devcluster.demo.services import Console
from devcluster.postgres import PostgresServer
from devcluster.redis import RedisServer

NAME = "pages of the console"
SMALL, LARGE = 1_000, 10_000  # mirror topics
REQUESTS, FEWEST, LONGEST_S = 100, 20, 10.0  # requests per page; fewer if they take longer than that
CHANGES, LOADS = 50, 5
MOST_SMALL_MS, MOST_LARGE_MS, MOST_POLL_MS = 50.0, 80.0, 10.0  # p95
MOST_CHANGE_S, MOST_CHANGE_WORST_S, MOST_PICTURE_S, MOST_ACCEPT_S = 2.0, 3.0, 1.0, 1.0
MOST_WITHOUT_PROGRESS_S = 2.0
_TIMEOUT_S = 60.0
# Run in the product's shell with the wanted number of mirrors: creates what is missing, prints cookie, key and operation.
_SEED = """
import json, sys
from datetime import timedelta
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone
from console.audit import path_of
from console.models import (
    AuditEvent, BulkOperation, BulkOperationTopic, Cluster, ClusterLink, EndedError, Environment, GapRange, GroupOffset,
    LinkSample, MirrorPartition, MirrorSample, MirrorTopic, Organization, RoleBinding, SourceTopic, StateTransition,
    SyncedGroup, VerifiedRange,
)
wanted, now = int(sys.stdin.read()), timezone.now()
user, is_new = User.objects.get_or_create(username="bench")
if is_new:
    organization = Organization.objects.create(name="Bench", created_at=now)
    environment = Environment.objects.create(organization=organization, name="Bench", slug="bench", created_at=now)
    role = {"role": "OrganizationAdmin", "organization": organization}
    RoleBinding.objects.create(user=user, granted_at=now, granted_by="bench", **role)
    source, destination = (
        Cluster.objects.create(
            environment=environment, name=name, cluster_id=name, bootstrap_servers=f"{name}:9092",
            properties={"bootstrap.servers": f"{name}:9092"}, probed_at=now, created_at=now,
        )
        for name in ("source", "destination")
    )
    for number in range(20):
        ClusterLink.objects.create(
            name=f"link-{number:02}", destination=destination, source=source, source_cluster_id="source", state="ACTIVE",
            properties=source.properties, state_since=now, probed_at=now, topics_at=now, created_at=now, created_by="bench",
        )
link = ClusterLink.objects.get(name="link-00")
names = [f"topic-{number:05}" for number in range(link.mirrors.count(), wanted)]
more = {"link": link, "state": "ACTIVE", "state_since": now, "num_partitions": 3, "created_at": now, "created_by": "bench"}
mirrors = MirrorTopic.objects.bulk_create(MirrorTopic(name=name, source_topic=name, **more) for name in names)
ends = {"source_end": 1_000, "last_high_watermark": 1_000, "mirror_end": 990, "last_source_seen_at": now, "observed_at": now}
MirrorPartition.objects.bulk_create(
    MirrorPartition(mirror=mirror, partition=number, **ends) for mirror in mirrors for number in range(3)
)
common = {"partitions": 3, "retention_ms": 604_800_000, "seen_at": now}
listed = [*names, *(f"other-{name}" for name in names)]
SourceTopic.objects.bulk_create(SourceTopic(link=link, name=name, **common) for name in listed)
SourceTopic.objects.bulk_create(SourceTopic(cluster=link.destination, name=name, is_mirror=True, **common) for name in names)
ago = [now - timedelta(seconds=3_600 * number / len(mirrors)) for number in range(len(mirrors))]  # all within the last hour
AuditEvent.objects.bulk_create(
    AuditEvent(at=at, actor="bench", action="PauseMirrorTopic", resource=path_of(mirror), result="SUCCESS")
    for mirror, at in zip(mirrors, ago)
)
changed = list(zip(mirrors, ago))[::10]
steps = (("ACTIVE", "PAUSED", "pause"), ("PAUSED", "ACTIVE", "resume"))
StateTransition.objects.bulk_create(
    StateTransition(mirror=mirror, from_state=old, to_state=new, event=event, by="bench", at=at)
    for mirror, at in changed for old, new, event in steps
)
EndedError.objects.bulk_create(
    EndedError(mirror=mirror, code="TIMEOUT_ERROR", message="No broker responds.", since=at - timedelta(minutes=1), until=at)
    for mirror, at in changed
)
group = {"link": link, "status": "SYNCED", "kind": "classic", "looked_at": now, "listed_at": now}
groups = SyncedGroup.objects.bulk_create(
    SyncedGroup(name=f"group-of-{mirror.name}", destination_name=f"group-of-{mirror.name}", **group) for mirror, _ in changed
)
offsets = {"source_offset": 990, "destination_offset": 990, "target": 990, "outcome": "EQUAL"}
GroupOffset.objects.bulk_create(
    GroupOffset(group=group, mirror=mirror, partition=number, **offsets)
    for group, (mirror, _) in zip(groups, changed) for number in range(3)
)
common = {"link": link, "operation": "pause", "user": user, "requested_by": "bench", "requested_at": now, "finished_at": now}
operation = BulkOperation.objects.order_by("pk").first() or BulkOperation.objects.create(**common)
BulkOperationTopic.objects.bulk_create(
    BulkOperationTopic(operation=operation, name=name, status="ACCEPTED", done_at=now) for name in names
)
if is_new:
    first = mirrors[0]
    samples = [{"at": now - timedelta(seconds=15 * n), "lag": n, "lag_ms": n, "bytes_per_s": 1e6} for n in range(480)]
    MirrorSample.objects.bulk_create(MirrorSample(mirror=first, **sample) for sample in samples)
    LinkSample.objects.bulk_create(LinkSample(link=link, **sample) for sample in samples)
    spans = [{"mirror": first, "partition": n % 3, "start": 10 * n, "end": 10 * n + 5} for n in range(300)]
    GapRange.objects.bulk_create(GapRange(**span, filled=5, reason="COMPACTED", noted_at=now) for span in spans)
    VerifiedRange.objects.bulk_create(VerifiedRange(**span, first_verified_at=now, verified_at=now) for span in spans)
session = SessionStore()
session[SESSION_KEY], session[HASH_SESSION_KEY] = str(user.pk), user.get_session_auth_hash()
session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
session.create()
print(json.dumps([settings.SESSION_COOKIE_NAME, session.session_key, str(operation.pk)]))
"""
# Carries out an operation, whose number is the input, as a worker does; prints when it begins, on a clock that processes share.
_CARRY_OUT = """
import sys, time
from console.models import BulkOperation
from console.tasks.mirrors import advance_bulk_operation
unfinished = BulkOperation.objects.filter(pk=int(sys.stdin.read()), finished_at=None)
print(time.monotonic())
while (operation := unfinished.first()) is not None:
    advance_bulk_operation(operation_id=operation.pk)
"""
_LINKS, _LINK = "/links/", "/links/destination/link-00/"
_MIRROR = f"{_LINK}mirrors/topic-00000/"
_PAGES = (
    ("/environments/", "environments"),
    ("/environments/bench/", "an environment"),
    ("/clusters/destination/", "a cluster"),
    ("/audit/", "audit log"),
    ("/operations/", "operations"),
    ("/operations/{operation}/", "an operation on all mirror topics"),
    (_LINKS, "list of links"),
    (_LINK, "page of a link with 50 of its mirror topics"),
    (f"{_LINK}?sort=-lag", "the same by lag"),
    (f"{_LINK}topics/", "source topics of a link"),
    (f"{_LINK}tasks/", "tasks of a link"),
    (f"{_LINK}groups/", "consumer groups of a link"),
    (f"{_LINK}failover/", "failover page of a link"),
    (f"{_LINK}history/", "history of a link"),
    (f"{_LINK}history/series.json?span=1h", "history of a link: data of the lines"),
    (f"{_LINK}history/events.json?span=1h", "history of a link: states and markers"),
    (f"{_LINK}history/minute/", "history of a link: a minute"),
    ("/topics/", "list of topics"),
    ("/search/?q=topic-000", "search"),
    (_MIRROR, "mirror topic: overview"),
    (f"{_MIRROR}verification/", "mirror topic: verification"),
    (f"{_MIRROR}filled-offsets/", "mirror topic: filled offsets"),
    (f"{_MIRROR}lineage/", "mirror topic: lineage"),
    (f"{_MIRROR}migration-gate/", "mirror topic: migration gate"),
    (f"{_MIRROR}failover-reports/", "mirror topic: failover reports"),
    (f"{_MIRROR}restores/", "mirror topic: restores"),
    (f"{_MIRROR}configs/", "mirror topic: configs"),
    (f"{_MIRROR}history/", "mirror topic: history"),
)
_BADGE = "#bulk tbody tr:first-child .api-state"
# Resolves when the first mirror in the list shows another state.
_CHANGE = """selector => new Promise((resolve) => {
  const shown = () => document.querySelector(selector).textContent.trim(), before = shown();
  new MutationObserver((_, observer) => { if (shown() !== before) { observer.disconnect(); resolve(shown()); } })
    .observe(document.querySelector("#live"), {subtree: true, childList: true, characterData: true});
})"""
_PICTURE = """() => new Promise((resolve) => new PerformanceObserver((list) => resolve(list.getEntries().at(-1).startTime))
  .observe({type: "largest-contentful-paint", buffered: true}))"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The running web process and its database."""

    console: Console
    database_url: str

    def fill(self, mirrors: int) -> tuple[tuple[str, str], str]:
        """Create rows up to a number of mirrors; return name and value of a session cookie, and the number of an operation."""
        printed = services.manage(self.console, "shell", "-v0", "-c", _SEED, text=str(mirrors))
        name, value, operation = map(str, json.loads(printed.splitlines()[-1]))
        with psycopg.connect(self.database_url) as connection:
            connection.execute("ANALYZE")  # autovacuum would do it within a minute, in the middle of the measurement
        return (name, value), operation

    def change(self, state: str) -> None:
        """Change the state of the first mirror, as a worker does."""
        with psycopg.connect(self.database_url) as connection:
            connection.execute("UPDATE console_mirrortopic SET state = %s WHERE name = 'topic-00000'", [state])
            connection.execute("UPDATE console_clusterlink SET sequence = sequence + 1 WHERE name = 'link-00'")


def measure_pages() -> Iterator[Figure]:
    """Measure with 1,000 mirrors, then with 10,000."""
    chromium = browser_path()
    with _running() as site:
        cookie, operation = site.fill(SMALL)
        with httpx.Client(base_url=site.console.base_url, cookies=dict([cookie]), timeout=_TIMEOUT_S) as client:
            yield from _first_bytes(client, operation, mirrors=SMALL, most_ms=MOST_SMALL_MS)
            yield from _polls(client)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            try:
                yield _picture(browser, site, cookie)
                yield from _changes(browser, site, cookie)
            finally:
                browser.close()
        cookie, operation = site.fill(LARGE)
        with httpx.Client(base_url=site.console.base_url, cookies=dict([cookie]), timeout=_TIMEOUT_S) as client:
            yield from _first_bytes(client, operation, mirrors=LARGE, most_ms=MOST_LARGE_MS)
    with _running() as site:  # of its own: operations add rows to the pages above
        cookie, _ = site.fill(SMALL)
        with httpx.Client(base_url=site.console.base_url, cookies=dict([cookie]), timeout=_TIMEOUT_S) as client:
            for operation in ("pause", "resume"):  # topics are paused together, and resumed singly
                yield from _bulk(client, site.console, operation)


@contextmanager
def _running() -> Iterator[Site]:
    with tempfile.TemporaryDirectory() as directory, PostgresServer() as database, RedisServer() as redis:
        console = services.plan_console(Path(directory), redis_url=redis.url, spark_url="sc://127.0.0.1:1")
        console = replace(console, environment={**console.environment, "CLUSTERLINK_DATABASE_URL": database.url})
        services.manage(console, "migrate", "--verbosity", "0")
        web = services.start_service(console, "web")
        try:
            web.wait_until(lambda: _is_up(console), timeout_s=_TIMEOUT_S)
            yield Site(console=console, database_url=database.url)
        finally:
            web.stop()


def _is_up(console: Console) -> bool:
    try:
        return httpx.get(f"{console.base_url}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def _first_bytes(client: httpx.Client, operation: str, *, mirrors: int, most_ms: float) -> Iterator[Figure]:
    for path, what in _PAGES:
        found = _p95_ms(partial(_first_byte_s, client, path.format(operation=operation), expect=200))
        yield Figure(
            what=f"{what}, {mirrors:,} mirror topics: first byte, p95", unit="ms", found=found, goal=most_ms, most=True
        )


def _polls(client: httpx.Client) -> Iterator[Figure]:
    """Measure polls of a page that has not changed, which get 204; a page is drawn anew every few seconds."""
    headers = {"HX-Request": "true", "HX-Target": "live"}

    def poll() -> float:
        seen = re.findall(r'name="seen" value="([^"]+)"', client.get(_LINK).text)[0]
        return _first_byte_s(client, f"{_LINK}?seen={seen}", expect=204, headers=headers)

    yield Figure(what="poll of an unchanged page: p95", unit="ms", found=_p95_ms(poll), goal=MOST_POLL_MS, most=True, digits=1)


def _bulk(client: httpx.Client, console: Console, operation: str) -> Iterator[Figure]:
    """Operate on all mirrors, as a browser does without scripts, and read the page of the operation until it is done."""
    token = _hidden(client.get(_LINK).raise_for_status().text)["csrfmiddlewaretoken"]
    requested = client.post(f"{_LINK}bulk/", data={"operation": operation, "all": "1", "csrfmiddlewaretoken": token})
    sent_at = time.perf_counter()
    response = client.post(f"{_LINK}bulk/", data=_hidden(requested.text))
    accepted_s = time.perf_counter() - sent_at
    path = response.headers.get("Location", "")
    if response.status_code != 302 or not path.startswith("/operations/"):
        raise RuntimeError(f"The operation was not accepted: {response.status_code}")
    began, shown = _carry_out(client, console, path)
    without_s = max(later - earlier for earlier, later in pairwise([began, *shown]))
    what = f"{operation} of {SMALL:,} topics on the pages"
    yield Figure(what=f"{what}: accepted", unit="s", found=accepted_s, goal=MOST_ACCEPT_S, most=True, digits=2)
    yield Figure(what=f"{what}: all shown as done", unit="s", found=shown[-1] - began, digits=2)
    yield Figure(what=f"{what}: steps of progress", unit="", found=len(shown))
    yield Figure(
        what=f"{what}: longest time without progress",
        unit="s",
        found=without_s,
        goal=MOST_WITHOUT_PROGRESS_S,
        most=True,
        digits=2,
    )


def _carry_out(client: httpx.Client, console: Console, path: str) -> tuple[float, list[float]]:
    """Carry out an operation; return when it began, and when its page showed further topics as processed."""
    shown: dict[int, float] = {}
    with ThreadPoolExecutor(1) as pool:
        number = path.strip("/").rpartition("/")[2]
        carried = pool.submit(services.manage, console, "shell", "-v0", "-c", _CARRY_OUT, text=number)
        over = False
        while not over:
            over = carried.done()
            processed = re.findall(r"<strong>([\d,]+) of", client.get(path).text)[0]
            shown.setdefault(int(processed.replace(",", "")), time.monotonic())
    if max(shown) != SMALL:
        raise RuntimeError(f"The operation ended with {max(shown):,} of {SMALL:,} topics.")
    return float(carried.result().split()[-1]), [at for count, at in shown.items() if count]


def _hidden(text: str) -> dict[str, str]:
    """Return the hidden fields of a page, which a browser submits."""
    return dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', text))


def _picture(browser: Browser, site: Site, cookie: tuple[str, str]) -> Figure:
    """Load the page of a link with an empty cache."""
    found: list[float] = []
    for _ in range(LOADS):
        page = _open(browser, site, cookie)
        found.append(page.evaluate(_PICTURE) / 1000)
        page.context.close()
    what = f"first load of a link's page, largest contentful paint, worst of {LOADS}"
    return Figure(what=what, unit="s", found=max(found), goal=MOST_PICTURE_S, most=True, digits=2)


def _changes(browser: Browser, site: Site, cookie: tuple[str, str]) -> Iterator[Figure]:
    """Change a state at any moment between two polls; measure until the open page shows it."""
    page, found = _open(browser, site, cookie), list[float]()
    for number in range(CHANGES):
        time.sleep(random.uniform(0.0, 1.0))
        page.evaluate(f"selector => {{ window.change = ({_CHANGE})(selector) }}", _BADGE)
        began = time.perf_counter()
        site.change("ACTIVE" if number % 2 else "PAUSED")
        page.evaluate("() => window.change")
        found.append(time.perf_counter() - began)
    page.context.close()
    what = f"change of a state shown without a reload, {CHANGES} times"
    yield Figure(what=f"{what}: p95", unit="s", found=_p95(found), goal=MOST_CHANGE_S, most=True, digits=2)
    yield Figure(what=f"{what}: longest", unit="s", found=max(found), goal=MOST_CHANGE_WORST_S, most=True, digits=2)


def _open(browser: Browser, site: Site, cookie: tuple[str, str]) -> Page:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_cookies([{"name": cookie[0], "value": cookie[1], "url": site.console.base_url}])
    page = context.new_page()
    page.goto(f"{site.console.base_url}{_LINK}?sort=name", wait_until="load")
    return page


def _first_byte_s(client: httpx.Client, path: str, *, expect: int, headers: dict[str, str] | None = None) -> float:
    began = time.perf_counter()
    with client.stream("GET", path, headers=headers) as response:
        elapsed_s = time.perf_counter() - began
        if response.status_code != expect:
            raise RuntimeError(f"{path}: {response.status_code} instead of {expect}")
        response.read()
    return elapsed_s


def _p95_ms(measure: Callable[[], float]) -> float:
    for _ in range(FEWEST // 2):  # templates and query plans are compiled
        measure()
    found, began = list[float](), time.monotonic()
    while len(found) < FEWEST or (len(found) < REQUESTS and time.monotonic() - began < LONGEST_S):
        found.append(measure())
    return 1_000 * _p95(found)


def _p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1))]
