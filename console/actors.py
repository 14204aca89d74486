"""Actors: a user (on a page or with an API key), the engine, or a command on the server's terminal."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from django.db.models import Subquery
from django.utils import timezone

from console.models import ApprovalRequest, Organization, RoleBinding

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from console.models import ApiKey
    from console.models.approvals import ApprovalRequestQuerySet


@dataclass(frozen=True)
class Actor:
    """The actor of a request. Create an actor per request, since it caches the role bindings."""

    name: str  # as the audit shows it
    user: User | None
    request_id: str = ""
    client_address: str = ""
    trusted: bool = False  # may do everything; never set for a request over the network
    key: ApiKey | None = None  # the API key of the request, which may be limited to a role and a place
    for_fragment: bool = False  # of a request for a part of a page, such as a poll, which shows no approval requests

    @property
    def may_do_all(self) -> bool:
        """Return whether roles do not matter: for the console itself, or a superuser without a limited API key."""
        return self.trusted or (self._is_superuser and not self._is_limited)

    @cached_property
    def bindings(self) -> tuple[RoleBinding, ...]:
        """The role bindings of the user and of the user's groups that are in force now; a single query per actor.

        With those that no API key limits come the requests of other users that wait for an approval, wherever they are, unless
        they are ``for_fragment``: the subquery takes as long as the rest of a poll.
        All permission checks and all lists of visible rows read the roles here. Expired bindings are left out, and an API key
        that is limited to a role or a place limits them.
        """
        if self.user is None or not self.user.is_active:
            return ()
        now = timezone.now()
        if self.key is None or not self._is_limited:
            rows = RoleBinding.objects.of_user(self.user).in_force(now)
            return tuple(rows if self.for_fragment else rows.annotate(waiting_requests=Subquery(self._waiting().as_json())))
        if self._is_superuser:
            return self.key.narrow(_of_superuser(self.user))
        rows = RoleBinding.objects.of_user(self.user).in_force(now)
        return self.key.narrow(rows.select_related("user", "organization", "environment", "cluster__environment"))

    @property
    def waiting_requests(self) -> list[ApprovalRequest]:
        """The requests that came with ``bindings``: requester, operation and place of the link.

        A query if they are ``for_fragment``, as for an error page instead of the fragment.
        """
        if self.for_fragment:
            return list(self._waiting().select_related("link__destination__environment"))
        found = getattr(self.bindings[0], "waiting_requests", None) if self.bindings else None
        return ApprovalRequest.objects.from_json(found or ())

    def _waiting(self) -> ApprovalRequestQuerySet:
        return ApprovalRequest.objects.waiting(timezone.now()).exclude(user=self.user)

    @property
    def _is_superuser(self) -> bool:
        return bool(self.user and self.user.is_active and self.user.is_superuser)

    @property
    def _is_limited(self) -> bool:
        return self.key is not None and self.key.is_limited


def _of_superuser(user: User) -> list[RoleBinding]:
    """Return bindings that are equal to the rights of a superuser within all organizations, to be limited by an API key."""
    role, now = RoleBinding.Role.ORGANIZATION_ADMIN, timezone.now()
    return [
        RoleBinding(user=user, role=role, organization=organization, granted_at=now, granted_by="superuser")
        for organization in Organization.objects.all()
    ]


ENGINE = Actor(name="engine", user=None, trusted=True)
SYSTEM = Actor(name="system", user=None, trusted=True)
