"""Runs linkctl against the real REST API in this process; ``boundary`` replaces the worker."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections

from console.models import Cluster
from linkctl.cli import PROGRAM, program
from tests.console.api.actors import Rest, make_client
from tests.console.api.conftest import (
    boundary,
    cluster,
    destination,
    environment,
    link,
    make_mirror,
    no_rate,
    other_side,
    owner,
    reader,
    source,
)

__all__ = [
    "boundary",
    "cluster",
    "destination",
    "environment",
    "link",
    "make_mirror",
    "no_rate",
    "other_side",
    "owner",
    "reader",
    "source",
]
Run = Callable[..., Result]


@pytest.fixture
def run(owner: Rest, destination: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Run:
    """Return a function that runs linkctl as the owner or as another client, and returns click's result."""
    monkeypatch.chdir(tmp_path)
    transport = RawPathTransport(app=get_wsgi_application())

    def call(*arguments: str, as_: Rest = owner, stdin: str = "", **variables: str) -> Result:
        secrets = {"LINKCTL_API_KEY": as_.key, "LINKCTL_API_SECRET": as_.secret, "LINKCTL_CLUSTER": destination.cluster_id}
        environment = {"LINKCTL_URL": "http://testserver", **secrets, **variables}
        with connection_kept():
            return CliRunner().invoke(program, arguments, prog_name=PROGRAM, obj=transport, env=environment, input=stdin)

    return call


def replace_sleep(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], object]) -> None:
    """Replace the sleep between two polls of linkctl, but not that of other threads of this process."""
    monkeypatch.setattr("linkctl.commands.time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))


class RawPathTransport(httpx.WSGITransport):
    """Passes the path as it was sent to the application, as web servers do and httpx's transport does not."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        application = self.app

        def with_raw_path(environ: Any, start_response: Any) -> Any:
            return application({**environ, "RAW_URI": request.url.raw_path.decode()}, start_response)

        self.app = with_raw_path
        try:
            return super().handle_request(request)
        finally:
            self.app = application


@contextmanager
def connection_kept() -> Iterator[None]:
    """Prevent requests from closing the connection of the test's transaction, as Django's test client does."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def read_json(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def any_user() -> Rest:
    return make_client(None, name="anybody", role="")
