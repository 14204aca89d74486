"""Actors: a user (on a page or with an API key), the engine, or a command on the server's terminal."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from console.models import RoleBinding


@dataclass(frozen=True)
class Actor:
    """The actor of a request. Create an actor per request, since it caches the role bindings."""

    name: str  # as the audit shows it
    user: User | None
    request_id: str = ""
    client_address: str = ""
    trusted: bool = False  # may do everything; never set for a request over the network

    @property
    def may_do_all(self) -> bool:
        """Whether roles do not matter: for the console itself, or a superuser."""
        return self.trusted or bool(self.user and self.user.is_active and self.user.is_superuser)

    @cached_property
    def bindings(self) -> tuple[RoleBinding, ...]:
        """The user's role bindings; a single query per actor."""
        if self.user is None or not self.user.is_active:
            return ()
        return tuple(self.user.role_bindings.all())


ENGINE = Actor(name="engine", user=None, trusted=True)
SYSTEM = Actor(name="system", user=None, trusted=True)
