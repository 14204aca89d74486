"""What the administration pages share: who acts, and how a refusal is shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest

from console.actors import Actor
from console.errors import ConsoleError


def actor_of(request: HttpRequest) -> Actor:
    """Answer the signed-in member of staff."""
    user = request.user
    assert isinstance(user, User)
    address = request.META.get("REMOTE_ADDR", "")
    return Actor(
        name=user.get_username(), user=user, request_id=getattr(request, "request_id", ""), client_address=str(address)
    )


@contextmanager
def refusals_shown(request: HttpRequest) -> Iterator[None]:
    """Turn a refusal into a message; the page itself goes on."""
    try:
        yield
    except ConsoleError as error:
        messages.error(request, error.message)
