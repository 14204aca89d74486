"""The client's address: forwarding headers count only if a trusted proxy sends them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory

from console.http.middleware import client_address
from console.models import AuditEvent
from devcluster.demo.services import Console, web_command
from devcluster.ports import LOOPBACK, free_port

PROXIES = ("10.0.0.0/24", "2001:db8:1::/64", "192.0.2.5")


def seen(*, peer: str, **headers: str) -> tuple[str, bool, str | None]:
    """Return address, security and X-Forwarded-For as later code gets them."""
    found: list[HttpRequest] = []

    def view(request: HttpRequest) -> HttpResponse:
        found.append(request)
        return HttpResponse()

    client_address(view)(RequestFactory(REMOTE_ADDR=peer).get("/", headers=headers))
    (request,) = found
    return request.META["REMOTE_ADDR"], request.is_secure(), request.headers.get("X-Forwarded-For")


@pytest.mark.parametrize(
    ("forwarded_for", "client"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("198.51.100.1, 203.0.113.9", "203.0.113.9"),  # the client sent the first address
        ("203.0.113.9, 10.0.0.7", "203.0.113.9"),
        ("198.51.100.1,203.0.113.9,10.0.0.7, 192.0.2.5", "203.0.113.9"),
        ("203.0.113.9:4711", "203.0.113.9"),
        ("[2001:db8:9::1]:443", "2001:db8:9::1"),
        ("2001:db8:9::1, 2001:db8:1::5", "2001:db8:9::1"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("10.0.0.9, 10.0.0.7", "10.0.0.9"),
        ("203.0.113.9, unknown", "10.0.0.1"),
        ("203.0.113.9, nonsense, 10.0.0.7", "10.0.0.7"),
        ("203.0.113.9,", "10.0.0.1"),
        ("2002:a00:1::1", "2002:a00:1::1"),  # contains a trusted IPv4 address but is not trusted
        ("", "10.0.0.1"),
    ],
)
def test_the_client_is_the_rightmost_hop_that_is_no_trusted_proxy(settings: Any, forwarded_for: str, client: str) -> None:
    settings.TRUSTED_PROXIES = PROXIES

    assert seen(peer="10.0.0.1", X_Forwarded_For=forwarded_for)[0] == client


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "10.0.1.1", "198.51.100.7", "", "2002:a00:1::1"])
@pytest.mark.parametrize("proxies", [(), PROXIES])
def test_forwarding_headers_of_other_peers_are_removed(settings: Any, peer: str, proxies: tuple[str, ...]) -> None:
    settings.TRUSTED_PROXIES, settings.SECURE_PROXY_SSL_HEADER = proxies, ("HTTP_X_FORWARDED_PROTO", "https")

    found = seen(peer=peer, X_Forwarded_For="203.0.113.9", X_Forwarded_Proto="https", Forwarded="for=203.0.113.9;proto=https")

    assert found == (peer, False, None)


def test_the_scheme_of_a_trusted_proxy_counts(settings: Any) -> None:
    settings.TRUSTED_PROXIES, settings.SECURE_PROXY_SSL_HEADER = PROXIES, ("HTTP_X_FORWARDED_PROTO", "https")

    assert seen(peer="10.0.0.1", X_Forwarded_Proto="https")[1]
    assert not seen(peer="10.0.0.1", X_Forwarded_Proto="http")[1]


@pytest.mark.django_db
def test_throttle_and_audit_use_the_address_behind_a_trusted_proxy(settings: Any, redis_url: str) -> None:
    settings.TRUSTED_PROXIES, settings.ATTEMPTS_AT_ONCE, settings.ATTEMPT_EVERY_S = PROXIES, 2, 1_000

    def sign_in(client: str) -> int:
        behind = Client(REMOTE_ADDR="10.0.0.1", headers={"x-forwarded-for": f"198.51.100.77, {client}"})
        return behind.post("/sign-in/", {"username": "carol", "password": "guess"}).status_code

    assert [sign_in("203.0.113.21") for _ in range(3)] == [422, 422, 429]
    assert sign_in("203.0.113.22") == 422
    assert AuditEvent.objects.get(action="ThrottleSignIn").client_address == "203.0.113.21"


@pytest.fixture
def web(transactional_db: None, redis_url: str, tmp_path: Path) -> Iterator[httpx.Client]:
    """The web process, started as by the demo."""
    if connection.vendor != "sqlite":
        pytest.skip("the process uses the SQLite file of the tests")
    console, database = Console(directory=tmp_path, port=free_port(), environment={}), connection.settings_dict["NAME"]
    environment = {**os.environ, "CLUSTERLINK_DATABASE_URL": f"sqlite:///{database}", "FORWARDED_ALLOW_IPS": "*"}
    with (tmp_path / "web.log").open("wb") as log:
        process = subprocess.Popen(web_command(console, reload=False), env=environment, stdout=log, stderr=subprocess.STDOUT)
    with httpx.Client(base_url=f"http://{LOOPBACK}:{console.port}") as client:
        deadline = time.monotonic() + 60
        while not _is_up(client):
            assert time.monotonic() < deadline, (tmp_path / "web.log").read_text()
            time.sleep(0.2)
        yield client
    process.terminate()
    process.wait(30)


def _is_up(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").is_success
    except httpx.TransportError:
        return False


def test_a_rotating_forwarded_address_does_not_defeat_the_throttle(web: httpx.Client) -> None:
    def guess(number: int) -> int:
        headers = {"X-Forwarded-For": f"203.0.113.{number}"}
        return web.get("/kafka/v3/clusters", auth=("no-such-key", "guess"), headers=headers).status_code

    statuses = [guess(number) for number in range(14)]

    assert statuses[:10] == [401] * 10
    assert 429 in statuses[10:]
    assert set(AuditEvent.objects.values_list("client_address", flat=True)) == {LOOPBACK}
