"""The whole product, for tests that drive it through a browser: real processes, real clusters, a person who can sign in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.console.api.service import Service, running

USER_NAME, PASSWORD = "owner", "a-password-for-tests"
_GIVE_PASSWORD = f"""
from django.contrib.auth.models import User
owner = User.objects.get(username={USER_NAME!r})
owner.set_password({PASSWORD!r})
owner.save()
"""


@dataclass(frozen=True, slots=True)
class Stack:
    """A running product: web process, worker and beat, with the given clusters registered."""

    service: Service
    base_url: str


@contextmanager
def running_stack(*, directory: Path, clusters: Mapping[str, Mapping[str, str]]) -> Iterator[Stack]:
    """Run the product for the length of a block; ``owner`` administers its one environment, named Test."""
    with running(directory=directory, clusters=clusters) as service:
        service._manage("shell", "-v0", "-c", _GIVE_PASSWORD)
        yield Stack(service=service, base_url=str(service.client.base_url).rstrip("/"))
