"""Who acts: a person (through a page or an API key), the engine, or somebody at the terminal of the server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from console.models import RoleBinding


@dataclass(frozen=True)
class Actor:
    """One request's actor. Make a new one per request: it remembers the role bindings it has read."""

    name: str  # as the audit shows it
    user: User | None
    request_id: str = ""
    client_address: str = ""
    trusted: bool = False  # may do everything; never set for somebody who came over the network

    @property
    def may_do_all(self) -> bool:
        """Tell whether roles are of no concern: ourselves, or a superuser."""
        return self.trusted or bool(self.user and self.user.is_active and self.user.is_superuser)

    @cached_property
    def bindings(self) -> tuple[RoleBinding, ...]:
        """The roles the person was granted; one query per actor."""
        if self.user is None or not self.user.is_active:
            return ()
        return tuple(self.user.role_bindings.all())


ENGINE = Actor(name="engine", user=None, trusted=True)
SYSTEM = Actor(name="system", user=None, trusted=True)
