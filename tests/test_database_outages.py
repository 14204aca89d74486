"""The product on a real PostgreSQL that stops, hangs, runs out of connections or becomes read-only: 503, never 500."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

import httpx
import psycopg
import pytest
from django.db import OperationalError

from console.config.env import Environment
from console.http import database_outages
from devcluster.demo.services import Console, manage, plan_console, prepare, start_service
from devcluster.ports import LOOPBACK, free_port
from devcluster.postgres import PostgresServer
from devcluster.redis import RedisServer

pytestmark = pytest.mark.timeout(280)
SCENE = """
from django.utils import timezone
from console.models import Cluster, ClusterLink, Environment, MirrorTopic, Organization
now = timezone.now()
made = {"created_at": now}
airports = Organization.objects.create(name="Airports", **made)
demo = Environment.objects.create(organization=airports, name="Demo", slug="demo", **made)
address = {"bootstrap_servers": "127.0.0.1:1", "properties": {"bootstrap.servers": "127.0.0.1:1"}}
east = Cluster.objects.create(environment=demo, name="East", cluster_id="east-id", **address, **made)
since = {"state": "ACTIVE", "state_since": now, "created_by": "owner", **made}
way = {"name": "west-to-east", "source_cluster_id": "west-id", "properties": {"bootstrap.servers": "127.0.0.1:1"}}
link = ClusterLink.objects.create(destination=east, **way, **since)
for number in range(4):
    name = f"orders-{number}"
    MirrorTopic.objects.create(link=link, name=name, source_topic=name, num_partitions=1, **since)
"""
LINK = "/kafka/v3/clusters/east-id/links/west-to-east"
REST = ["/kafka/v3/clusters", "/kafka/v3/clusters/east-id/links", LINK, f"{LINK}/mirrors", f"{LINK}/configs", "/v3/clusters",
        "/api/v1/clusters/east-id/links/west-to-east/stop-reports", "/kafka/v3/no-such-thing"]  # fmt: skip
PAGES = ["/links/", "/environments/", "/topics/", "/access/", "/audit/", "/search/?q=orders", "/admin/", "/no/such/page"]
WORKS = (200, 204, 302, 404)


@dataclass(frozen=True, kw_only=True)
class Product:
    """A web process, its database, and two clients: one with an API key, one signed in."""

    console: Console
    database: PostgresServer
    rest: httpx.Client
    pages: httpx.Client
    password: str

    def failover(self, number: int) -> httpx.Response:
        return self.rest.post(f"{LINK}/mirrors:failover", json={"mirror_topic_names": [f"orders-{number}"]})


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with ExitStack() as stack:
        database = stack.enter_context(PostgresServer(settings={"max_connections": "20"}))
        queue = stack.enter_context(RedisServer())
        planned = plan_console(tmp_path_factory.mktemp("outages"), redis_url=queue.url, spark_url="sc://127.0.0.1:1")
        environment = {**planned.environment, "CLUSTERLINK_DATABASE_URL": database.url}
        console = replace(planned, port=free_port(), environment=environment)
        password = secrets.token_urlsafe(12)
        key = prepare(console, user="owner", password=password)
        manage(console, "shell", "-c", SCENE)
        web = start_service(console, "web")
        stack.callback(web.stop)
        rest = stack.enter_context(
            httpx.Client(base_url=console.base_url, auth=(key["api_key"], key["api_secret"]), timeout=20)
        )
        pages = stack.enter_context(httpx.Client(base_url=console.base_url, timeout=20))
        web.wait_until(lambda: _is_up(rest), timeout_s=120, poll_s=0.5)
        assert _sign_in(pages, password).status_code == 302
        yield Product(console=console, database=database, rest=rest, pages=pages, password=password)


def test_a_database_that_is_stopped_is_503_and_a_failover_works_once_it_is_back(product: Product) -> None:
    product.database.kill()
    try:
        assert_unavailable(product, "does not answer")
        assert product.failover(0).status_code == 503
    finally:
        product.database.resume_service()
    began = time.monotonic()
    while (answer := product.failover(0)).status_code == 503:  # until crash recovery is over
        assert answer.json()["error_code"] == 50302
        assert time.monotonic() - began < 20
        time.sleep(0.05)
    assert_fails_over(answer)
    assert product.pages.get("/links/").status_code == 200


def test_a_database_that_hangs_is_reported_within_5_seconds(product: Product) -> None:
    product.database.pause()
    try:
        assert_not_ready(product, "does not answer")
        assert product.rest.get(LINK).status_code == 503
    finally:
        product.database.resume()
    assert_fails_over(product.failover(1))


def test_a_database_without_a_free_connection_is_503(product: Product) -> None:
    taken: list[psycopg.Connection] = []
    try:
        with suppress(psycopg.OperationalError):
            while True:
                taken.append(psycopg.connect(product.database.url))
        assert len(taken) > 10
        assert_unavailable(product, "has no connection left")
    finally:
        for connection in taken:
            connection.close()
    assert_fails_over(product.failover(2))


def test_a_read_only_database_is_read_and_every_change_is_503(product: Product) -> None:
    _configure(product, "default_transaction_read_only = on")
    try:
        assert_not_ready(product, "accepts no writes")
        for path in REST:
            assert product.rest.get(path).status_code in WORKS, path
        for path in PAGES:
            assert product.pages.get(path).status_code in WORKS, path
        assert_rest_503(product.failover(3), "accepts no writes")
        with httpx.Client(base_url=product.console.base_url) as stranger:  # a sign-in writes a session
            assert_page_503(_sign_in(stranger, product.password), "accepts no writes")
    finally:
        _configure(product, "default_transaction_read_only = off")
    assert_fails_over(product.failover(3))


def test_several_hosts_lead_to_the_one_that_accepts_writes(product: Product) -> None:
    user_info = product.database.url.partition("//")[2].partition("@")[0]
    hosts = f"{LOOPBACK}:{free_port()},{LOOPBACK}:{product.database.port}"
    settings = Environment({"X": f"postgres://{user_info}@{hosts}/postgres?target_session_attrs=read-write"}).database("X")
    place = {"host": settings["HOST"], "port": settings["PORT"], "dbname": settings["NAME"]}
    user = {"user": settings["USER"], "password": settings["PASSWORD"]}  # as Django passes them on

    with psycopg.connect(**place, **user, **settings["OPTIONS"]) as connection:
        assert connection.info.port == product.database.port

    _configure(product, "default_transaction_read_only = on")
    try:
        with pytest.raises(psycopg.OperationalError, match="read-only") as caught:
            psycopg.connect(**place, **user, **settings["OPTIONS"])
        assert database_outages.outage_of(_as_django_raises_it(caught.value)) == database_outages.READ_ONLY
    finally:
        _configure(product, "default_transaction_read_only = off")


def assert_unavailable(product: Product, reason: str) -> None:
    assert_not_ready(product, reason)
    for path in REST:
        assert_rest_503(product.rest.get(path), reason)
    for path in PAGES[:-1]:
        assert_page_503(product.pages.get(path), reason)
    assert product.pages.get("/healthz").status_code == product.pages.get("/static/css/shell.css").status_code == 200
    metrics = product.pages.get("/metrics")
    assert metrics.status_code == 200
    assert "clusterlink_database_up 0.0" in metrics.text
    assert "clusterlink_links" not in metrics.text


def assert_not_ready(product: Product, reason: str) -> None:
    began = time.monotonic()
    answer = product.pages.get("/readyz")
    assert time.monotonic() - began < 5
    assert answer.status_code == 503
    assert answer.json()["parts"]["database"] == reason


def assert_rest_503(answer: httpx.Response, reason: str) -> None:
    assert answer.status_code == 503, (answer.url, answer.text[-500:])
    assert answer.json()["error_code"] == 50302
    assert f"The database {reason}" in answer.json()["message"]
    assert int(answer.headers["Retry-After"]) > 0


def assert_page_503(answer: httpx.Response, reason: str) -> None:
    assert answer.status_code == 503, (answer.url, answer.text[-500:])
    assert answer.headers["Content-Type"].startswith("text/html")
    assert f"The database {reason}" in answer.text
    assert answer.headers["X-Request-ID"] in answer.text
    assert int(answer.headers["Retry-After"]) > 0
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]


def assert_fails_over(answer: httpx.Response) -> None:
    assert answer.status_code == 200, answer.text
    (mirror,) = answer.json()["data"]
    assert mirror["error_message"] in (None, "")


def _configure(product: Product, setting: str) -> None:
    with psycopg.connect(product.database.url, autocommit=True) as connection:
        connection.execute("SET transaction_read_only = off; SET default_transaction_read_only = off")
        connection.execute(f"ALTER SYSTEM SET {setting}")
        connection.execute("SELECT pg_reload_conf()")
    wanted, deadline = (setting.rpartition(" ")[2],), time.monotonic() + 10
    while True:
        with psycopg.connect(product.database.url) as connection:
            if connection.execute("SHOW default_transaction_read_only").fetchone() == wanted:
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _sign_in(client: httpx.Client, password: str) -> httpx.Response:
    page = client.get("/sign-in/")
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    assert token is not None
    return client.post("/sign-in/", data={"csrfmiddlewaretoken": token[1], "username": "owner", "password": password})


def _as_django_raises_it(error: psycopg.OperationalError) -> Exception:
    raised = OperationalError(*error.args)
    raised.__cause__ = error
    return raised


def _is_up(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False
