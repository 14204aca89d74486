"""Queries for role bindings, scopes, accounts, API keys, sessions, audit events and approval requests."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import DatabaseError
from django.db.models import Count, Q, QuerySet

from console.access import Permission, can, check_permission, visible_clusters, visible_environments, visible_links, whole_links
from console.access.credentials import hash_secret, read_token
from console.access.permissions import allowing, permissions_of, reach_of
from console.actors import Actor
from console.audit import path_of
from console.http import errors as http_errors
from console.models import (
    Account,
    ApiKey,
    ApprovalRequest,
    AuditEvent,
    Cluster,
    ClusterLink,
    Environment,
    GroupMember,
    Organization,
    RoleBinding,
    UserGroup,
    UserSession,
)
from console.models.access import AuditEventQuerySet

# --- role bindings, API keys, users, groups and sessions --------------------------------------------------------------


_USED_PRECISION = timedelta(minutes=1)  # an update for each request would make read requests write
_TREE = ("organization", "environment__organization", "cluster__environment__organization")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A user with a permission at a place, and the bindings that grant it; no bindings for a superuser."""

    user: User
    bindings: Sequence[RoleBinding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The users who have a permission at a place, and why. ``expired`` are bindings that granted it until they expired."""

    holders: Sequence[Holder]
    expired: Sequence[RoleBinding]
    inactive: bool  # the user of the query is deactivated, or invited and not active yet


def list_bindings(*, by: Actor) -> list[RoleBinding]:
    """Return the bindings at scopes whose access the actor may view, and the actor's own, also by groups."""
    rows = RoleBinding.objects.select_related("user", "group", *_TREE).order_by("user__username", "group__name", "pk")
    if by.may_do_all:
        return list(rows)
    own = {binding.pk for binding in by.bindings}
    view = Permission.VIEW_ACCESS
    return [row for row in rows if row.pk in own or _is_own(row, by) or can(by, view, **reach_of(row))]


def known_user_names(*, by: Actor) -> list[str]:
    """Return the names of the active users that the actor may see: of the role bindings that ``list_bindings`` returns.

    One query.
    """
    if by.may_do_all:
        return list(User.objects.filter(is_active=True).order_by("username").values_list("username", flat=True))
    users = (binding.user for binding in list_bindings(by=by))
    return sorted({user.get_username() for user in users if user is not None and user.is_active})


def my_bindings(*, by: Actor) -> list[RoleBinding]:
    """Return the actor's own bindings and those of the actor's groups, expired ones included."""
    if by.user is None:
        return []
    rows = RoleBinding.objects.of_user(by.user).select_related("user", "group", *_TREE)
    return list(rows.order_by("group__name", "pk"))


def explain(*, permission: Permission, place: dict[str, Any], user: User | None, by: Actor, now: datetime) -> Explanation:
    """Return the users with a permission at a place: ``user`` only, or all users if it is None. At most four queries.

    ``place`` are keywords of ``can``. Users may query their own permissions; those of others need VIEW_ACCESS there.
    Superusers are listed for superusers only: for others, the console's administration is no part of the place.
    """
    if user is None or by.user is None or user.pk != by.user.pk:
        check_permission(by, Permission.VIEW_ACCESS, **place)
    rows = RoleBinding.objects.select_related("user", "group", *_TREE).order_by("pk")
    if user is not None:
        rows = rows.of_user(user)
    granting = allowing(rows, permission, **place)
    expired = [binding for binding in granting if binding.has_expired(now)]
    in_force = [binding for binding in granting if not binding.has_expired(now)]
    held = _by_user(in_force, only=user)
    holders = [Holder(user=holder, bindings=bindings) for holder, bindings in held if holder.is_active]
    if by.may_do_all or user is not None:
        known = {holder.user.pk for holder in holders}
        superusers = User.objects.filter(is_superuser=True, is_active=True, **({"pk": user.pk} if user else {}))
        holders += [Holder(user=found, bindings=()) for found in superusers.order_by("username") if found.pk not in known]
    inactive = user is not None and not user.is_active
    return Explanation(holders=holders, expired=expired, inactive=inactive)


def list_api_keys(*, by: Actor) -> list[ApiKey]:
    """Return the actor's own keys and those of service accounts that the actor manages; for a superuser, all keys.

    A request with a limited API key gets that key only.
    """
    rows = ApiKey.objects.select_related("user__account", "rotated_to", *_TREE).order_by("-created_at", "key")
    if by.key is not None and by.key.is_limited:
        return list(rows.filter(pk=by.key.pk))
    if by.may_do_all:
        return list(rows)
    if by.user is None:
        return []
    managed = _organization_ids(Permission.MANAGE_USERS, by=by)
    service = Q(user__account__kind=Account.Kind.SERVICE, user__account__organization__in=managed)
    return list(rows.filter(Q(user=by.user) | service))


def key_owners(*, by: Actor) -> list[User]:
    """Return the users for whom the actor may create API keys: the actor, then service accounts. One query."""
    service = User.objects.filter(account__kind=Account.Kind.SERVICE, is_active=True).order_by("username")
    if not by.may_do_all:
        service = service.filter(account__organization__in=_organization_ids(Permission.MANAGE_USERS, by=by))
    return [*([by.user] if by.user else []), *service]


def valid_key(*, key: str, secret: str, now: datetime) -> ApiKey | None:
    """Return an API key, with its user, if the secret is correct and key and user are valid; else None."""
    row = _with_limit().filter(key=key).first()
    matches = hmac.compare_digest(row.secret_hash if row else hash_secret(""), hash_secret(secret))
    if row is None or not matches or not row.user.is_active or (row.expires_at is not None and row.expires_at <= now):
        return None
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - _USED_PRECISION)
    if row.last_used_at is None or row.last_used_at < now - _USED_PRECISION:
        try:
            ApiKey.objects.filter(stale, pk=row.pk).update(last_used_at=now)
        except DatabaseError as error:
            if http_errors.outage_of(error) != http_errors.READ_ONLY:  # read requests work with a read-only standby
                raise
    return row


def key_of_token(*, token: str, now: datetime) -> ApiKey | None:
    """Return the API key of a bearer token, with its user; None if the key was deleted or has expired."""
    key = read_token(token, now=now)
    row = _with_limit().filter(key=key).first() if key else None
    if row is None or not row.user.is_active or (row.expires_at is not None and row.expires_at <= now):
        return None
    return row


def managed_organizations(*, by: Actor) -> list[Organization]:
    """Return the organizations whose users the actor manages. At most one query beside the actor's bindings."""
    if by.may_do_all:
        return list(Organization.objects.order_by("name"))
    found = _organization_ids(Permission.MANAGE_USERS, by=by)
    return list(Organization.objects.filter(pk__in=found).order_by("name")) if found else []


def list_accounts(*, by: Actor) -> QuerySet[User]:
    """Return the users that the actor may see: of organizations whose access the actor may view; for superusers, all."""
    users = User.objects.select_related("account__organization", "invitation").order_by("username")
    if by.may_do_all:
        return users
    return users.filter(account__organization__in=_organization_ids(Permission.VIEW_ACCESS, by=by))


def list_groups(*, by: Actor) -> QuerySet[UserGroup]:
    """Return the groups of organizations whose access the actor may view, with the number of members and roles."""
    counts = {
        "member_count": Count("memberships", distinct=True),
        "role_count": Count("role_bindings", distinct=True),
    }
    groups = UserGroup.objects.select_related("organization").annotate(**counts)
    return groups if by.may_do_all else groups.filter(organization__in=_organization_ids(Permission.VIEW_ACCESS, by=by))


def grantable_groups(*, by: Actor) -> list[UserGroup]:
    """Return the groups that the actor may name in a role binding: those of organizations in which the actor has a role."""
    if by.may_do_all:
        return list(UserGroup.objects.select_related("organization"))
    environments = [binding.environment_id for binding in by.bindings if binding.environment_id]
    clusters = [binding.cluster_id for binding in by.bindings if binding.cluster_id]
    organizations = Organization.objects.filter(
        Q(pk__in=[binding.organization_id for binding in by.bindings if binding.organization_id])
        | Q(environments__in=environments)
        | Q(environments__clusters__in=clusters)
    )
    return list(UserGroup.objects.select_related("organization").filter(organization__in=organizations))


def members_of(group: UserGroup) -> list[GroupMember]:
    """Return the members of a group."""
    return list(group.memberships.select_related("user").order_by("user__username"))


def my_sessions(*, by: Actor, now: datetime) -> list[UserSession]:
    """Return the sessions of the actor that have not ended, newest first."""
    if by.user is None:
        return []
    alive = Session.objects.filter(expire_date__gt=now).values("session_key")
    return list(UserSession.objects.filter(user=by.user, session_key__in=alive).order_by("-started_at"))


def _with_limit() -> QuerySet[ApiKey]:
    return ApiKey.objects.select_related("user", "organization", "environment", "cluster__environment")


def _organization_ids(permission: Permission, *, by: Actor) -> list[int]:
    """Return the keys of the organizations on which the actor has a permission; for actors that may not do everything."""
    granting = (binding for binding in by.bindings if permission in permissions_of(binding))
    return sorted({binding.organization_id for binding in granting if binding.organization_id is not None})


def _is_own(binding: RoleBinding, by: Actor) -> bool:
    return by.user is not None and binding.user_id == by.user.pk


def _by_user(bindings: Sequence[RoleBinding], *, only: User | None) -> list[tuple[User, list[RoleBinding]]]:
    """Return the users whom bindings reach, directly or by a group, each with these bindings, by name."""
    found: dict[int, tuple[User, list[RoleBinding]]] = {}
    if only is not None:
        return [(only, list(bindings))] if bindings else []
    groups = {binding.group_id for binding in bindings if binding.group_id}
    members: dict[int, list[User]] = {}
    if groups:
        for member in GroupMember.objects.filter(group__in=groups).select_related("user"):
            members.setdefault(member.group_id, []).append(member.user)
    for binding in bindings:
        users = members.get(binding.group_id or 0, []) if binding.user is None else [binding.user]
        for user in users:
            found.setdefault(user.pk, (user, []))[1].append(binding)
    return sorted(found.values(), key=lambda pair: pair[0].get_username())


# --- the scopes that a user may grant or view, for forms --------------------------------------------------------------


class NodeKeyword(TypedDict, total=False):
    """A scope as keyword arguments of the action. Exactly one level is set."""

    organization: Organization
    environment: Environment
    cluster: Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPlace:
    """A scope. ``key`` is its value in the form."""

    key: str
    label: str
    node: Organization | Environment | Cluster

    @property
    def keyword(self) -> NodeKeyword:
        """The scope as a keyword of actions and of ``can``."""
        if isinstance(self.node, Organization):
            return {"organization": self.node}
        return {"environment": self.node} if isinstance(self.node, Environment) else {"cluster": self.node}


def grantable_places(by: Actor) -> list[GrantPlace]:
    """List the scopes whose access the actor manages, or that of a topic or link there, top down. Two queries."""
    return [place for place in viewable_places(by) if _manages(by, place.node)]


def viewable_places(by: Actor) -> list[GrantPlace]:
    """List the scopes of which the actor may see at least one row, top down. Two queries."""
    environments = list(visible_environments(by).select_related("organization").order_by("name"))
    clusters = list(visible_clusters(by).select_related("environment__organization").order_by("name"))
    organizations = {environment.organization_id: environment.organization for environment in environments}.values()
    places = [_place("organization", organization, organization.name) for organization in organizations]
    paths = {environment.pk: f"{environment.organization.name} / {environment.name}" for environment in environments}
    places += [_place("environment", environment, paths[environment.pk]) for environment in environments]
    for cluster in clusters:
        environment = cluster.environment
        places.append(_place("cluster", cluster, f"{environment.organization.name} / {environment.name} / {cluster.name}"))
    return places


def _place(kind: str, node: Organization | Environment | Cluster, label: str) -> GrantPlace:
    return GrantPlace(key=f"{kind}:{node.pk}", label=label, node=node)


def _manages(by: Actor, node: Organization | Environment | Cluster) -> bool:
    if isinstance(node, Organization):
        return can(by, Permission.MANAGE_ACCESS, organization=node)
    if isinstance(node, Environment):
        return can(by, Permission.MANAGE_ACCESS, environment=node)
    on_cluster = (binding for binding in by.bindings if binding.cluster_id == node.pk)
    manages_resource = any(Permission.MANAGE_ACCESS in permissions_of(binding) for binding in on_cluster)
    return manages_resource or can(by, Permission.MANAGE_ACCESS, cluster=node)


# --- audit events -----------------------------------------------------------------------------------------------------


def readable_events(*, by: Actor) -> AuditEventQuerySet:
    """Return the events of the scopes whose audit log the actor may view, and the actor's own.

    Raises DeniedError if the actor may view no audit log.
    """
    if by.may_do_all:
        return AuditEvent.objects.all()
    scope = Q(actor=by.name)
    for path in _paths(_audit_bindings(by)):
        scope |= Q(resource=path) | Q(resource__startswith=f"{path}/")
    return AuditEvent.objects.filter(scope)


def readable_events_of(link: ClusterLink, *, by: Actor) -> AuditEventQuerySet:
    """Return the ``readable_events`` of a link and its mirror topics. No query for the scopes."""
    events = AuditEvent.objects.below(path_of(link))
    if by.may_do_all or allowing(_audit_bindings(by), Permission.VIEW_AUDIT, cluster=link.destination):
        return events
    return events.filter(actor=by.name)


def _audit_bindings(by: Actor) -> list[RoleBinding]:
    """Return the bindings by which the actor views an audit log; raise DeniedError if there are none."""
    bindings = [row for row in by.bindings if Permission.VIEW_AUDIT in permissions_of(row) and not row.resource_type]
    if not bindings:
        check_permission(by, Permission.VIEW_AUDIT)
    return bindings


def _paths(bindings: Sequence[RoleBinding]) -> list[str]:
    """Return the audit paths of the scopes of these bindings and of all scopes below."""
    organizations = Organization.objects.filter(pk__in=[row.organization_id for row in bindings if row.organization_id])
    named = Q(pk__in=[row.environment_id for row in bindings if row.environment_id])
    environments = Environment.objects.filter(named | Q(organization__in=organizations))
    named = Q(pk__in=[row.cluster_id for row in bindings if row.cluster_id])
    clusters = Cluster.objects.filter(named | Q(environment__in=environments))
    return [*map(path_of, organizations), *map(path_of, environments), *map(path_of, clusters)]


# --- approval requests ------------------------------------------------------------------------------------------------


def visible_requests(*, by: Actor) -> QuerySet[ApprovalRequest]:
    """Return the requests on links that the actor may see as a whole, and the actor's own: requests name mirror topics."""
    requests = ApprovalRequest.objects.select_related(
        "user", "decided_by", "link__destination__environment__organization", "link__source__environment"
    )
    if by.may_do_all:
        return requests
    own = Q(user=by.user) & Q(link__in=visible_links(by).values("pk"))
    return requests.filter(own | Q(link__in=whole_links(by).values("pk")))


def governed_environments(*, by: Actor) -> list[Environment]:
    """Return the environments in which the actor may choose the operations that need an approval. One query."""
    organizations = [binding.organization_id for binding in by.bindings if binding.organization_id]
    rows = Environment.objects.select_related("organization").order_by("name")
    rows = rows if by.may_do_all else rows.filter(organization__in=organizations)
    return [row for row in rows if can(by, Permission.MANAGE_ORGANIZATION, organization=row.organization)]
