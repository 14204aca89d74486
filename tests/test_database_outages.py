"""The product on a real PostgreSQL that stops, hangs, runs out of connections or becomes read-only: 503, never 500."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

import httpx
import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from django.db import OperationalError

from console.config.env import EnvironmentVariables
from console.http import errors as http_errors
from devcluster.demo.services import Console, manage, plan_console, prepare, start_service
from devcluster.kafka import KafkaCluster
from devcluster.ports import LOOPBACK, free_port
from devcluster.postgres import PostgresServer
from devcluster.redis import RedisServer
from tests.console.workflows.reversal import write

pytestmark = pytest.mark.timeout(280)
PAGE_DATA = """
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
REGISTER = """
import json, sys
from django.utils import timezone
from console.clusters.actions import register_cluster
from console.actors import SYSTEM
from console.models import Environment
demo = Environment.objects.get(slug="demo")
for name, properties in json.load(sys.stdin).items():
    register_cluster(environment=demo, name=name, properties=properties, by=SYSTEM, now=timezone.now())
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
        return self.fail_over(LINK, f"orders-{number}")

    def fail_over(self, link: str, name: str) -> httpx.Response:
        return self.rest.post(f"{link}/mirrors:failover", json={"mirror_topic_names": [name]})

    def fail_over_at_once(self, link: str, name: str) -> None:
        """Repeat the request while the database recovers from its crash."""
        began = time.monotonic()
        while (response := self.fail_over(link, name)).status_code == 503:
            assert response.json()["error_code"] == 50302
            assert time.monotonic() - began < 60
            time.sleep(0.05)
        assert_fails_over(response)


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with ExitStack() as stack:
        database = stack.enter_context(PostgresServer(settings={"max_connections": "40"}))
        queue = stack.enter_context(RedisServer())
        planned = plan_console(tmp_path_factory.mktemp("outages"), redis_url=queue.url, spark_url="sc://127.0.0.1:1")
        environment = {**planned.environment, "CLUSTERLINK_DATABASE_URL": database.url}
        console = replace(planned, port=free_port(), environment=environment)
        password = secrets.token_urlsafe(12)
        key = prepare(console, user="owner", password=password)
        manage(console, "shell", "-c", PAGE_DATA)
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
        assert_unavailable(product, "does not respond")
        assert product.failover(0).status_code == 503
    finally:
        product.database.resume_service()
    product.fail_over_at_once(LINK, "orders-0")
    assert product.pages.get("/links/").status_code == 200


@pytest.mark.kafka
def test_a_worker_that_ran_through_the_outage_carries_out_a_failover_at_once(
    product: Product,
    source_cluster: KafkaCluster,
    destination_cluster: KafkaCluster,
    source_admin: AdminClient,
    topic_name: str,
    record_property: Callable[[str, object], None],
) -> None:
    """With real topics, worker and beat, and without Spark, which a failover does not need."""
    link = f"/kafka/v3/clusters/{destination_cluster.cluster_id}/links/real"
    with ExitStack() as stack:
        worker, beat = (start_service(product.console, name) for name in ("worker", "beat"))
        stack.callback(worker.stop)
        stack.callback(beat.stop)
        worker.wait_until(lambda: product.pages.get("/readyz").json()["parts"]["worker"] == "ok", timeout_s=120, poll_s=0.5)
        create_mirror(product, source_cluster, destination_cluster, source_admin, topic_name)
        assert write(destination_cluster, topic_name, "refused") != [None]

        failures = count_failed_steps(worker.log.read_text(errors="replace"))
        product.database.kill()
        try:
            assert_rest_503(product.fail_over(link, topic_name), "does not respond")
            until(lambda: count_failed_steps(worker.log.read_text(errors="replace")) > failures + 1)
        finally:
            product.database.resume_service()
        back_at = time.monotonic()
        product.fail_over_at_once(link, topic_name)
        until(lambda: state_of(product, topic_name) == "STOPPED")
        record_property("seconds_until_stopped", time.monotonic() - back_at)

        assert write(destination_cluster, topic_name, "after the failover") == [None]
        assert worker.running()
        assert beat.running()


def test_a_database_that_hangs_is_reported_within_5_seconds(product: Product) -> None:
    product.database.pause()
    try:
        assert_not_ready(product, "does not respond")
        assert product.rest.get(LINK).status_code == 503
    finally:
        product.database.resume()
    assert_fails_over(product.failover(1))


def test_a_database_without_a_free_connection_is_503(product: Product) -> None:
    taken: list[psycopg.Connection] = []
    try:
        take_free_connections(product, taken)
        end_other_connections(taken)  # those that the web process keeps
        take_free_connections(product, taken)
        assert len(taken) > 10
        assert_unavailable(product, "has no connection left")
    finally:
        for connection in taken:
            connection.close()
    assert_fails_over(product.failover(2))


def take_free_connections(product: Product, taken: list[psycopg.Connection]) -> None:
    with suppress(psycopg.OperationalError):
        while True:
            taken.append(psycopg.connect(product.database.url))


def end_other_connections(taken: list[psycopg.Connection]) -> None:
    own = [connection.info.backend_pid for connection in taken]
    others = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename IS NOT NULL AND pid <> ALL(%s)"
    taken[0].execute(others, [own])


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


def test_connection_uses_the_host_that_accepts_writes(product: Product) -> None:
    user_info = product.database.url.partition("//")[2].partition("@")[0]
    hosts = f"{LOOPBACK}:{free_port()},{LOOPBACK}:{product.database.port}"
    settings = EnvironmentVariables({"X": f"postgres://{user_info}@{hosts}/postgres?target_session_attrs=read-write"}).database(
        "X"
    )
    place = {"host": settings["HOST"], "port": settings["PORT"], "dbname": settings["NAME"]}
    user = {"user": settings["USER"], "password": settings["PASSWORD"]}  # as Django passes them on

    with psycopg.connect(**place, **user, **settings["OPTIONS"]) as connection:
        assert connection.info.port == product.database.port

    _configure(product, "default_transaction_read_only = on")
    try:
        with pytest.raises(psycopg.OperationalError, match="read-only") as caught:
            psycopg.connect(**place, **user, **settings["OPTIONS"])
        assert http_errors.outage_of(_as_django_raises_it(caught.value)) == http_errors.READ_ONLY
    finally:
        _configure(product, "default_transaction_read_only = off")


def create_mirror(
    product: Product, source: KafkaCluster, destination: KafkaCluster, source_admin: AdminClient, topic: str
) -> None:
    """Register both clusters, create a link between them and a mirror topic, and wait until it is ACTIVE."""
    source_admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    properties = {"Source": source.client_properties("link"), "Destination": destination.client_properties("link")}
    manage(product.console, "shell", "-c", REGISTER, text=json.dumps(properties))
    configs = [{"name": name, "value": value} for name, value in properties["Source"].items()]
    links = f"/kafka/v3/clusters/{destination.cluster_id}/links"
    body = {"source_cluster_id": source.cluster_id, "configs": configs}
    for path, content in ((f"{links}?link_name=real", body), (f"{links}/real/mirrors", {"source_topic_name": topic})):
        response = product.rest.post(path, json=content)
        assert response.status_code == 204, response.text
    until(lambda: state_of(product, topic) == "ACTIVE")


def state_of(product: Product, topic: str) -> str:
    """Return a mirror's state as stored; over REST a mirror that is still being set up is ACTIVE."""
    with psycopg.connect(product.database.url) as connection:
        row = connection.execute("SELECT state FROM console_mirrortopic WHERE name = %s", (topic,)).fetchone()
    assert row is not None
    return str(row[0])


def count_failed_steps(log: str) -> int:
    """Count the steps of reconcile passes that failed."""
    return log.count("reconcile.step_failed")


def until(condition: Callable[[], bool], *, timeout_s: float = 90.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


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
    response = product.pages.get("/readyz")
    assert time.monotonic() - began < 5
    assert response.status_code == 503
    assert response.json()["parts"]["database"] == reason


def assert_rest_503(response: httpx.Response, reason: str) -> None:
    assert response.status_code == 503, (response.url, response.text[-500:])
    assert response.json()["error_code"] == 50302
    assert f"The database {reason}" in response.json()["message"]
    assert int(response.headers["Retry-After"]) > 0


def assert_page_503(response: httpx.Response, reason: str) -> None:
    assert response.status_code == 503, (response.url, response.text[-500:])
    assert response.headers["Content-Type"].startswith("text/html")
    assert f"The database {reason}" in response.text
    assert response.headers["X-Request-ID"] in response.text
    assert int(response.headers["Retry-After"]) > 0
    assert "default-src 'self'" in response.headers["Content-Security-Policy"]


def assert_fails_over(response: httpx.Response) -> None:
    assert response.status_code == 200, response.text
    (mirror,) = response.json()["data"]
    assert mirror["error_message"] in (None, "")


def _configure(product: Product, setting: str) -> None:
    with psycopg.connect(product.database.url, autocommit=True) as connection:
        connection.execute("SET transaction_read_only = off; SET default_transaction_read_only = off")
        connection.execute(f"ALTER SYSTEM SET {setting}")
        connection.execute("SELECT pg_reload_conf()")
    wanted, deadline = (setting.rpartition(" ")[2],), time.monotonic() + 60
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
