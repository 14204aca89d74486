"""Access: accounts, groups, role bindings, API keys, sessions, invitations, audit events, and approval requests."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from django.conf import settings
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import JSONObject
from django.urls import reverse
from django.utils.translation import gettext_lazy, gettext_noop

from console.models.clusters import Cluster, Environment, Organization
from console.models.links import ClusterLink

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from console.models.mirrors import MirrorTopic


class Account(models.Model):
    """The attributes of a user that Django's row does not have: person or service account, organization, preferences.

    The administrators of ``organization`` may invite, deactivate and activate the account; without an organization only
    superusers may. A user without this row is a person without an organization.
    """

    class Kind(models.TextChoices):
        PERSON = "PERSON"
        SERVICE = "SERVICE"  # a program: has API keys, no password, and cannot sign in to the pages

    class Density(models.TextChoices):
        COMFORTABLE = "comfortable", gettext_lazy("Comfortable")
        COMPACT = "compact", gettext_lazy("Compact")

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="account")
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.PERSON)
    organization = models.ForeignKey(Organization, on_delete=models.SET_NULL, null=True, blank=True, related_name="accounts")
    description = models.CharField(max_length=200, blank=True, default="")
    time_zone = models.CharField(max_length=64, blank=True, default="")  # "" shows UTC
    language = models.CharField(max_length=7, blank=True, default="")  # of pages; "" is the language of the browser
    density = models.CharField(max_length=12, choices=Density, default=Density.COMFORTABLE)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    def __str__(self) -> str:
        return f"{self.user_id} {self.kind}"


class Invitation(models.Model):
    """A link with which an invited person sets the first password. Only a hash of its token is stored."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="invitation")
    token_hash = models.CharField(max_length=64, unique=True)  # SHA-256 of 256 random bits, hex
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"invitation of {self.user_id}"


class UserSession(models.Model):
    """A browser session of a user, for the list of sessions: Django's own table cannot be searched by user."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="console_sessions")
    session_key = models.CharField(max_length=40, unique=True)
    started_at = models.DateTimeField()
    client_address = models.CharField(max_length=64, blank=True, default="")
    user_agent = models.CharField(max_length=200, blank=True, default="")

    def __str__(self) -> str:
        return f"session of {self.user_id}"


class UserGroup(models.Model):
    """Users of an organization who get roles together. Roles are granted to it within its organization only."""

    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="user_groups")
    name = models.CharField(max_length=150, unique=True)
    description = models.CharField(max_length=200, blank=True, default="")
    # The group of the identity provider whose members are members here; "" for members that are added manually only.
    external_name = models.CharField(max_length=255, blank=True, default="")
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["external_name"],
                condition=~Q(external_name=""),
                name="external_group_is_mapped_once",
                violation_error_message=gettext_noop("Another group is mapped to this group of the identity provider already."),
            )
        ]

    def __str__(self) -> str:
        return self.name


class GroupMember(models.Model):
    """A user in a group."""

    class Origin(models.TextChoices):
        MANUAL = "MANUAL"
        PROVIDER = "PROVIDER"  # the identity provider named the group at the user's last sign-in

    group = models.ForeignKey(UserGroup, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    origin = models.CharField(max_length=10, choices=Origin, default=Origin.MANUAL)
    added_at = models.DateTimeField()
    added_by = models.CharField(max_length=150)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["group", "user"], name="user_is_in_a_group_once")]

    def __str__(self) -> str:
        return f"{self.user_id} in {self.group_id}"


_GRANTED_ALREADY = {
    "user": gettext_noop("The user has this role there already."),
    "group": gettext_noop("The group has this role there already."),
}


def _once_at(scope: str, principal: str = "user") -> models.UniqueConstraint:
    """Return the constraint that a role is granted once per place of this level; a common one would need equal NULLs."""
    prefix = "binding" if principal == "user" else f"{principal}_binding"
    return models.UniqueConstraint(
        fields=[principal, "role", scope, "resource_type", "resource_name", "prefixed"],
        condition=Q(**{f"{scope}__isnull": False}),
        name=f"{prefix}_of_{scope}_is_unique",
        violation_error_message=_GRANTED_ALREADY[principal],
    )


class RoleBindingQuerySet(models.QuerySet["RoleBinding"]):
    """Role bindings."""

    def in_force(self, now: datetime) -> Self:
        """Return those that have not expired."""
        return self.filter(Q(expires_at=None) | Q(expires_at__gt=now))

    def of_user(self, user: User) -> Self:
        """Return those of a user and of the groups that the user is in, expired ones included."""
        return self.filter(Q(user=user) | Q(group__in=GroupMember.objects.filter(user=user).values("group")))


class RoleBinding(models.Model):
    """Grants a principal, a user or a group, a role on a node of the tree organization > environment > cluster > resource.

    Bindings are added and removed, never edited. Exactly one of ``organization``, ``environment`` and ``cluster`` is set;
    ``resource_type`` and ``resource_name`` narrow a cluster binding down to topics, groups or links. After ``expires_at`` a
    binding grants nothing (``Actor.bindings`` leaves it out); the row stays until it is removed.
    """

    class Role(models.TextChoices):
        ORGANIZATION_ADMIN = "OrganizationAdmin"
        ENVIRONMENT_ADMIN = "EnvironmentAdmin"
        CLOUD_CLUSTER_ADMIN = "CloudClusterAdmin"
        RESOURCE_OWNER = "ResourceOwner"
        DEVELOPER_MANAGE = "DeveloperManage"
        OPERATOR = "Operator"
        AUDITOR = "Auditor"
        DEVELOPER_READ = "DeveloperRead"

    class ResourceType(models.TextChoices):
        CLUSTER = "Cluster"
        TOPIC = "Topic"
        GROUP = "Group"
        CLUSTER_LINK = "ClusterLink"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="role_bindings", null=True, blank=True
    )
    group = models.ForeignKey(UserGroup, on_delete=models.CASCADE, related_name="role_bindings", null=True, blank=True)
    role = models.CharField(max_length=30, choices=Role)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, null=True, blank=True)
    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, null=True, blank=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, blank=True)
    resource_type = models.CharField(max_length=20, choices=ResourceType, blank=True, default="")
    resource_name = models.CharField(max_length=249, blank=True, default="")
    prefixed = models.BooleanField(default=False)  # resource_name is a prefix
    granted_at = models.DateTimeField()
    granted_by = models.CharField(max_length=150)
    expires_at = models.DateTimeField(null=True, blank=True)  # null: never
    objects = RoleBindingQuerySet.as_manager()

    cap = ""  # not stored: a role that limits this binding further, in a request with an API key (``ApiKey.narrow``)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=(
                    Q(organization__isnull=False, environment__isnull=True, cluster__isnull=True)
                    | Q(organization__isnull=True, environment__isnull=False, cluster__isnull=True)
                    | Q(organization__isnull=True, environment__isnull=True, cluster__isnull=False)
                ),
                name="binding_has_one_scope",
            ),
            models.CheckConstraint(
                condition=Q(user__isnull=False, group__isnull=True) | Q(user__isnull=True, group__isnull=False),
                name="binding_has_one_principal",
            ),
            models.CheckConstraint(
                condition=Q(resource_type="") | Q(cluster__isnull=False), name="only_cluster_bindings_name_resources"
            ),
            _once_at("organization"),
            _once_at("environment"),
            _once_at("cluster"),
            _once_at("organization", "group"),
            _once_at("environment", "group"),
            _once_at("cluster", "group"),
        ]

    def __str__(self) -> str:
        return f"{self.principal} {self.role}"

    @property
    def principal(self) -> str:
        """The name of the user, or of the group."""
        if self.user is not None:
            return self.user.get_username()
        return self.group.name if self.group is not None else ""

    @property
    def node(self) -> Organization | Environment | Cluster | None:
        """The organization, environment or cluster where the role is granted."""
        return self.organization or self.environment or self.cluster

    @property
    def organization_of_place(self) -> Organization | None:
        """The organization that the place of the binding belongs to."""
        if self.environment is not None:
            return self.environment.organization
        return self.cluster.environment.organization if self.cluster is not None else self.organization

    def has_expired(self, now: datetime) -> bool:
        """Return whether the binding grants nothing any longer."""
        return self.expires_at is not None and self.expires_at <= now


class ApiKey(models.Model):
    """An API key of a user for REST (HTTP Basic: key and secret). The secret is stored as a hash and shown once.

    A key has the permissions of its owner. ``role`` limits them to those that this role has too, and ``organization``,
    ``environment`` or ``cluster`` to what is there and below. A key whose place is deleted is deleted with it.
    """

    key = models.CharField(max_length=32, unique=True)
    secret_hash = models.CharField(max_length=128)  # SHA-256 of a 256-bit random secret, hex
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_keys")
    description = models.CharField(max_length=200, blank=True, default="")
    role = models.CharField(max_length=30, choices=RoleBinding.Role, blank=True, default="")
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, null=True, blank=True)
    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, null=True, blank=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, blank=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150, blank=True, default="")
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    rotated_to = models.OneToOneField(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="rotated_from"
    )  # the key that replaces this one

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=(
                    Q(environment__isnull=True, cluster__isnull=True)
                    | Q(organization__isnull=True, cluster__isnull=True)
                    | Q(organization__isnull=True, environment__isnull=True)
                ),
                name="api_key_has_at_most_one_scope",
            )
        ]

    def __str__(self) -> str:
        return self.key

    @property
    def node(self) -> Organization | Environment | Cluster | None:
        """The place that limits the key; None for every place of its owner."""
        return self.organization or self.environment or self.cluster

    @property
    def is_limited(self) -> bool:
        """Return whether the key may do less than its owner."""
        return bool(self.role or self.organization_id or self.environment_id or self.cluster_id)

    def narrow(self, bindings: Iterable[RoleBinding]) -> tuple[RoleBinding, ...]:
        """Return the bindings limited to the role and the place of this key: copies that are not stored."""
        scope = _path_of(self.node)
        kept: list[RoleBinding] = []
        for binding in bindings:
            place = _path_of(binding.node)
            if _contains(scope, place):
                narrowed = copy(binding)
            elif _contains(place, scope):
                narrowed = RoleBinding(
                    user=binding.user,
                    role=binding.role,
                    organization=self.organization,
                    environment=self.environment,
                    cluster=self.cluster,
                    granted_at=binding.granted_at,
                    granted_by=binding.granted_by,
                    expires_at=binding.expires_at,
                )
            else:
                continue
            narrowed.cap = self.role
            kept.append(narrowed)
        return tuple(kept)


_Path = tuple[int | None, int | None, int | None]


def _path_of(node: Organization | Environment | Cluster | None) -> _Path:
    """Return the keys of the organization, environment and cluster on the way to a node."""
    if isinstance(node, Cluster):
        return (node.environment.organization_id, node.environment_id, node.pk)
    if isinstance(node, Environment):
        return (node.organization_id, node.pk, None)
    return (node.pk if node is not None else None, None, None)


def _contains(outer: _Path, inner: _Path) -> bool:
    return all(key is None or key == other for key, other in zip(outer, inner, strict=True))


class AuditEventQuerySet(models.QuerySet["AuditEvent"]):
    """Audit events."""

    def below(self, resource: str) -> Self:
        """Return those of a resource and of the resources below it."""
        return self.filter(Q(resource=resource) | Q(resource__startswith=f"{resource}/"))

    def actions(self) -> list[str]:
        """Return their distinct actions. One query."""
        return sorted(self.order_by().values_list("action", flat=True).distinct())


class AuditEvent(models.Model):
    """An action of a user or of the engine on a resource, with its result; written in the transaction of the change.

    Never edited, with one exception: a task that changes a cluster adds its row with the result UNKNOWN before it acts and
    completes it afterwards (``console.audit.carried_out``). A row stays UNKNOWN if the worker crashed in between.
    """

    class Result(models.TextChoices):
        SUCCESS = "SUCCESS"
        DENIED = "DENIED"
        FAILURE = "FAILURE"
        UNKNOWN = "UNKNOWN"

    at = models.DateTimeField(db_index=True)
    actor = models.CharField(max_length=150)
    action = models.CharField(max_length=60)  # such as CreateClusterLink
    resource = models.CharField(max_length=600)  # crn-like path: cluster/<id>/link/<name>/mirror/<topic>
    result = models.CharField(max_length=10, choices=Result)
    detail = models.JSONField(default=dict)
    request_id = models.CharField(max_length=64, blank=True, default="")
    client_address = models.CharField(max_length=64, blank=True, default="")
    change_id = models.CharField(max_length=32, null=True, blank=True, unique=True)
    objects = AuditEventQuerySet.as_manager()

    class Meta:
        ordering = ["-at", "-id"]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.resource}"


# --- requests for a second approver -----------------------------------------------------------------------------------


class ApprovalRequestQuerySet(models.QuerySet["ApprovalRequest"]):
    """Requests and approvals."""

    def waiting(self, now: datetime) -> Self:
        """Return the requests that are neither decided nor withdrawn, and have not expired."""
        return self.filter(status=ApprovalRequest.Status.REQUESTED, expires_at__gt=now)

    def as_json(self) -> Self:
        """Return a query of one value, for a subquery: the array of the requests that ``from_json`` creates again."""
        cluster = "link__destination"
        request = JSONObject(
            operation="operation",
            user_id="user_id",
            link="link__name",
            cluster=cluster,
            environment=f"{cluster}__environment",
            organization=f"{cluster}__environment__organization",
        )
        return self.order_by().annotate(json=AsArray(request)).values("json")  # type: ignore[return-value]

    @staticmethod
    def from_json(rows: Iterable[dict[str, Any]]) -> list[ApprovalRequest]:
        """Return requests of which only the requester, the operation and the place of the link are known."""
        found = []
        for row in rows:
            environment = Environment(pk=row["environment"], organization_id=row["organization"])
            link = ClusterLink(name=row["link"], destination=Cluster(pk=row["cluster"], environment=environment))
            found.append(ApprovalRequest(operation=row["operation"], user_id=row["user_id"], link=link))
        return found


class AsArray(Func):
    """All values of a column as a JSON array."""

    function = "JSON_GROUP_ARRAY"
    output_field = models.JSONField()

    def as_postgresql(self, compiler: Any, connection: Any) -> Any:
        return self.as_sql(compiler, connection, function="JSONB_AGG")


class ApprovalRequest(models.Model):
    """A request of a user that another user approves an operation on mirror topics of a link.

    An approval lets the requester carry out the operation on each of these mirror topics once, until ``expires_at``. The
    operation itself is requested afterwards, with its own confirmation and checks. The topics of a request never change: no
    field except the decision is updated, and mirrors that were created after the request are not covered, whatever their names.
    """

    class Status(models.TextChoices):
        REQUESTED = "REQUESTED"
        APPROVED = "APPROVED"
        REJECTED = "REJECTED"
        WITHDRAWN = "WITHDRAWN"

    link = models.ForeignKey(ClusterLink, on_delete=models.CASCADE, related_name="approval_requests")
    operation = models.CharField(max_length=30)  # a MirrorEvent
    topics = models.JSONField(default=list)  # names of mirror topics; empty: all that the link had at ``requested_at``
    reason = models.CharField(max_length=500)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="approval_requests"
    )  # the requester, to whom the approval applies
    requested_at = models.DateTimeField()
    expires_at = models.DateTimeField()  # of the request, and then of the approval
    status = models.CharField(max_length=10, choices=Status, default=Status.REQUESTED)
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    decided_at = models.DateTimeField(null=True)
    decision_reason = models.CharField(max_length=500, blank=True, default="")

    objects = ApprovalRequestQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["expires_at"], condition=Q(status="REQUESTED"), name="waiting_requests")
        ]  # read by every page
        constraints = [
            models.CheckConstraint(
                condition=~Q(status="APPROVED") | Q(decided_by=None) | ~Q(decided_by=F("user")),
                name="approver_is_not_the_requester",
            )
        ]

    def __str__(self) -> str:
        return f"{self.operation} on {self.link_id}"

    def get_absolute_url(self) -> str:
        """Return the URL of its page."""
        return reverse("pages:approval", args=(self.pk,))

    @property
    def is_approved(self) -> bool:
        """Return whether a second user has approved it. It may have expired."""
        return self.status == self.Status.APPROVED

    def covers(self, mirror: MirrorTopic) -> bool:
        """Return whether the request is for this mirror topic, which has to be older than the request.

        A topic that is restored may have no row yet. Then only its name counts.
        """
        if mirror.pk is not None and mirror.created_at > self.requested_at:
            return False
        return not self.topics or mirror.name in self.topics
