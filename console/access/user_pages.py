"""Users, service accounts, invitations and groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop, ngettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.access import Permission, account_actions, can
from console.access import actions as access_actions
from console.access import queries as access_queries
from console.access.credentials import UserNameField
from console.access.pages import BINDINGS, access_context
from console.access.presenters import account_row, binding_row
from console.actors import Actor
from console.errors import ConsoleError
from console.models import Account, Organization, UserGroup
from console.web.forms import ConsoleForm
from console.web.lists import ROWS_AT_ONCE, Column, Filter, Listing
from console.web.numbers import moment
from console.web.request_handling import actor_of, done, page, problem_of, reply, status_of

_NAME = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}


class _InOrganizationForm(ConsoleForm):
    """A name and one of the organizations whose users the user manages."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=150, widget=forms.TextInput(attrs=_NAME))
    organization = forms.ChoiceField(label=gettext_lazy("Organization"))

    def __init__(self, *args: Any, organizations: list[Organization], **kwargs: Any) -> None:
        """Offer the organizations."""
        super().__init__(*args, **kwargs)
        self._organizations = {str(organization.pk): organization for organization in organizations}
        choices = [(key, organization.name) for key, organization in self._organizations.items()]
        self.fields["organization"].choices = choices  # type: ignore[attr-defined]

    def keywords(self) -> dict[str, Any]:
        """Return the values as keywords of the action."""
        values = dict(self.cleaned_data)
        return {**values, "organization": self._organizations[values["organization"]]}


class InvitationForm(_InOrganizationForm):
    """A user to invite."""


class ServiceAccountForm(_InOrganizationForm):
    """A service account to create."""

    description = forms.CharField(label=gettext_lazy("Description"), required=False, max_length=200)


class GroupForm(_InOrganizationForm):
    """A group to create."""

    description = forms.CharField(label=gettext_lazy("Description"), required=False, max_length=200)
    external_name = forms.CharField(
        label=gettext_lazy("Group of the identity provider"),
        required=False,
        max_length=255,
        help_text=gettext_lazy(
            "Its members become members of this group when they sign in. Administrators of the installation only."
        ),
    )


class MemberForm(ConsoleForm):
    """A user to add to a group."""

    user = UserNameField(suggestions="user-names")


USERS = Listing(
    noun=gettext_noop("user"),
    plural=gettext_noop("users"),
    columns=(
        Column(title=gettext_lazy("Name"), key="name", by=("username",)),
        Column(title=gettext_lazy("Kind"), key="kind", by=("is_superuser", "account__kind"), optional=True),
        Column(title=gettext_lazy("Organization"), key="organization", by=("account__organization__name",), optional=True),
        Column(title=gettext_lazy("Status")),
        Column(title=gettext_lazy("Last sign-in"), key="signed-in", by=("last_login",), descends=True, optional=True),
    ),
    default="name",
    search=("username", "account__description"),
    search_label=gettext_lazy("User name or description"),
    filters=(
        Filter(
            name="kind",
            label=gettext_lazy("Kind"),
            every=gettext_lazy("All kinds"),
            options=[("person", gettext_lazy("Users")), ("service", gettext_lazy("Service accounts"))],
            by=lambda kind: (
                Q(account__kind=Account.Kind.SERVICE) if kind == "service" else ~Q(account__kind=Account.Kind.SERVICE)
            ),
        ),
        Filter(
            name="status",
            label=gettext_lazy("Status"),
            every=gettext_lazy("All statuses"),
            options=[
                ("active", gettext_lazy("Active")),
                ("invited", gettext_lazy("Invited")),
                ("deactivated", gettext_lazy("Deactivated")),
            ],
            by=lambda status: (
                Q(is_active=True) if status == "active" else Q(is_active=False, invitation__isnull=status == "deactivated")
            ),
        ),
    ),
    export={
        "user": "name",
        "kind": "kind",
        "organization": "organization",
        "status": "status",
        "description": "description",
        "since": lambda row: row.since and row.since.iso,
        "last_sign_in": lambda row: row.last_sign_in and row.last_sign_in.iso,
    },
)
GROUPS = Listing(
    noun=gettext_noop("group"),
    plural=gettext_noop("groups"),
    columns=(
        Column(title=gettext_lazy("Group"), key="name", by=("name",)),
        Column(title=gettext_lazy("Organization"), key="organization", by=("organization__name",)),
        Column(title=gettext_lazy("Identity provider's group"), key="external", by=("external_name",)),
        Column(title=gettext_lazy("Members"), key="members", by=("member_count",), css="number", descends=True),
        Column(title=gettext_lazy("Roles"), key="roles", by=("role_count",), css="number", descends=True),
    ),
    default="name",
    search=("name", "description", "external_name"),
    search_label=gettext_lazy("Group or description"),
    filters=(
        Filter(
            name="origin",
            label=gettext_lazy("Members"),
            every=gettext_lazy("All groups"),
            options=[
                ("provider", gettext_lazy("Of the identity provider")),
                ("manual", gettext_lazy("Members added manually only")),
            ],
            by=lambda origin: Q(external_name="") if origin == "manual" else ~Q(external_name=""),
        ),
    ),
    export={
        "group": "name",
        "organization": "organization.name",
        "identity_provider_group": "external_name",
        "description": "description",
        "members": "member_count",
        "roles": "role_count",
        "created_at": "created_at",
        "created_by": "created_by",
    },
)


@page("access")
@require_GET
def users(request: HttpRequest) -> HttpResponse:
    """List the users and service accounts of the organizations whose access the user may view."""
    by, now = actor_of(request), timezone.now()
    listed = USERS.read(request)
    found = listed.select(access_queries.list_accounts(by=by))
    if listed.format:
        users = found.iterator(chunk_size=ROWS_AT_ONCE)
        return listed.csv("users", (account_row(user, now=now, manageable=False) for user in users))
    shown = listed.page(found)
    managed = access_queries.managed_organizations(by=by)
    rows = [account_row(user, now=now, manageable=_manages(user, managed, by=by)) for user in shown]
    return reply(
        request, "access/users.html", access_context("users") | {"list": listed, "rows": rows, "may_manage": bool(managed)}
    )


@page("access")
@require_http_methods(["GET", "POST"])
def invite(request: HttpRequest) -> HttpResponse:
    """Invite a user and show the invitation link once."""
    by, now = actor_of(request), timezone.now()
    form = InvitationForm(request.POST or None, organizations=_managed(by))
    title = gettext("Invite user")
    context = access_context("users", last=title) | {"form": form, "title": title, "kind": "user"}
    if request.method == "GET" or not form.is_valid():
        return reply(request, "access/new_account.html", context, status=200 if request.method == "GET" else 422)
    try:
        user, token = account_actions.invite_user(**form.keywords(), by=by, now=now)
    except ConsoleError as error:
        return _refused(request, context, form, error)
    return _invitation_page(request, user, token)


@page("access")
@require_http_methods(["GET", "POST"])
def new_service_account(request: HttpRequest) -> HttpResponse:
    """Create a service account."""
    by, now = actor_of(request), timezone.now()
    form = ServiceAccountForm(request.POST or None, organizations=_managed(by))
    title = gettext("Create service account")
    context = access_context("users", last=title) | {"form": form, "title": title, "kind": "service"}
    if request.method == "GET" or not form.is_valid():
        return reply(request, "access/new_account.html", context, status=200 if request.method == "GET" else 422)
    try:
        user = account_actions.create_service_account(**form.keywords(), by=by, now=now)
    except ConsoleError as error:
        return _refused(request, context, form, error)
    message = gettext("Service account %(name)s created. Grant it a role, then create an API key for it.")
    return done(request, reverse("pages:users"), message % {"name": user.get_username()})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """A change of an account with the texts of its confirmation; ``%(name)s`` is the user."""

    title: str
    button: str
    question: str
    effect: str
    action: Callable[..., Any]
    done: str = ""  # message afterwards; "" if another page shows the result
    dangerous: bool = False


# By the verb of the URL.
_CHANGES: dict[str, _Change] = {
    "deactivate": _Change(
        title=gettext_noop("Deactivate"),
        button=gettext_noop("Deactivate %(name)s"),
        question=gettext_noop("Deactivate %(name)s?"),
        effect=gettext_noop(
            "The user's sessions end immediately, and API keys and tokens are rejected. Roles and API keys are kept."
        ),
        action=account_actions.deactivate_user,
        done=gettext_noop("%(name)s is deactivated."),
        dangerous=True,
    ),
    "activate": _Change(
        title=gettext_noop("Activate"),
        button=gettext_noop("Activate %(name)s"),
        question=gettext_noop("Activate %(name)s?"),
        effect=gettext_noop("The user can sign in again, with the roles and API keys of before."),
        action=account_actions.activate_user,
        done=gettext_noop("%(name)s is activated."),
    ),
    "cancel": _Change(
        title=gettext_noop("Cancel the invitation of"),
        button=gettext_noop("Cancel the invitation of %(name)s"),
        question=gettext_noop("Cancel the invitation of %(name)s?"),
        effect=gettext_noop("The invitation link stops working. A user who has never signed in is deleted with all roles."),
        action=account_actions.cancel_invitation,
        done=gettext_noop("%(name)s is no longer invited."),
        dangerous=True,
    ),
    "renew": _Change(
        title=gettext_noop("Create an invitation link for"),
        button=gettext_noop("Create an invitation link for %(name)s"),
        question=gettext_noop("Create an invitation link for %(name)s?"),
        effect=gettext_noop(
            "The link sets a new password, so its holder can sign in as this user. Links created before stop working."
        ),
        action=account_actions.renew_invitation,
    ),
}


@page("access")
@require_http_methods(["GET", "POST"])
def change_account(request: HttpRequest, user_id: int, verb: str) -> HttpResponse:
    """Show the confirmation; deactivate or activate a user, cancel or renew an invitation."""
    by, now = actor_of(request), timezone.now()
    if verb not in _CHANGES:
        raise Http404
    change = _CHANGES[verb]
    user = get_object_or_404(access_queries.list_accounts(by=by), pk=user_id)
    if request.method == "GET":
        context = access_context("users", last=gettext(change.title)) | {"row": account_row(user, now=now, manageable=True)}
        name = {"name": user.get_username()}
        values = {
            "button": gettext(change.button) % name,
            "question": gettext(change.question) % name,
            "effect": gettext(change.effect),
            "dangerous": change.dangerous,
        }
        return reply(request, "access/change_account.html", context | values)
    result = change.action(user=user, by=by, now=now)
    if verb == "renew":
        return _invitation_page(request, user, result)
    return done(request, reverse("pages:users"), gettext(change.done) % {"name": user.get_username()})


@page("access")
@require_GET
def groups(request: HttpRequest) -> HttpResponse:
    """List groups."""
    by = actor_of(request)
    listed = GROUPS.read(request)
    found = listed.select(access_queries.list_groups(by=by))
    if listed.format:
        return listed.csv("groups", found)
    context = {
        "list": listed,
        "groups": listed.page(found),
        "may_manage": bool(access_queries.managed_organizations(by=by)),
    }
    return reply(request, "access/groups.html", access_context("groups") | context)


@page("access")
@require_http_methods(["GET", "POST"])
def new_group(request: HttpRequest) -> HttpResponse:
    """Create a group."""
    by, now = actor_of(request), timezone.now()
    form = GroupForm(request.POST or None, organizations=_managed(by))
    title = gettext("Create group")
    context = access_context("groups", last=title) | {"form": form, "title": title, "kind": "group"}
    if request.method == "GET" or not form.is_valid():
        return reply(request, "access/new_account.html", context, status=200 if request.method == "GET" else 422)
    try:
        group = access_actions.create_group(**form.keywords(), by=by, now=now)
    except ConsoleError as error:
        return _refused(request, context, form, error)
    message = gettext("Group %(name)s created. Add members, and grant roles to it.") % {"name": group.name}
    return done(request, reverse("pages:group", args=(group.pk,)), message)


@page("access")
@require_http_methods(["GET", "POST"])
def group(request: HttpRequest, group_id: int) -> HttpResponse:
    """Show the members and roles of a group; add a member."""
    by = actor_of(request)
    found = get_object_or_404(access_queries.list_groups(by=by), pk=group_id)
    form = MemberForm(request.POST or None)
    if request.method == "GET":
        return _group_page(request, found, form)
    if not form.is_valid():
        return _group_page(request, found, form, status=422)
    user = form.cleaned_data["user"]
    access_actions.add_member(group=found, user=user, by=by, now=timezone.now())
    message = gettext("%(user)s is a member of %(group)s.") % {"user": user.get_username(), "group": found.name}
    return done(request, reverse("pages:group", args=(found.pk,)), message)


@page("access")
@require_POST
def remove_member(request: HttpRequest, group_id: int, user_id: int) -> HttpResponse:
    """Remove a member from a group."""
    by = actor_of(request)
    found = get_object_or_404(access_queries.list_groups(by=by), pk=group_id)
    user = get_object_or_404(User.objects.filter(memberships__group=found), pk=user_id)
    access_actions.remove_member(group=found, user=user, by=by, now=timezone.now())
    message = gettext("%(user)s is no longer a member of %(group)s.") % {"user": user.get_username(), "group": found.name}
    return done(request, reverse("pages:group", args=(found.pk,)), message)


@page("access")
@require_http_methods(["GET", "POST"])
def delete_group(request: HttpRequest, group_id: int) -> HttpResponse:
    """Show the confirmation; delete a group with its role bindings."""
    by = actor_of(request)
    found = get_object_or_404(access_queries.list_groups(by=by), pk=group_id)
    if request.method == "GET":
        context = access_context("groups", last=gettext("Delete group")) | {"group": found, "loss": _loss(found)}
        return reply(request, "access/delete_group.html", context)
    name = found.name
    access_actions.delete_group(group=found, by=by, now=timezone.now())
    message = gettext("Group %(name)s deleted with its role bindings.") % {"name": name}
    return done(request, reverse("pages:groups"), message)


def _loss(group: Any) -> str:
    """Return what the members of a group lose when it is deleted."""
    roles = ngettext("%(count)s role", "%(count)s roles", group.role_count) % {"count": group.role_count}
    text = ngettext(
        "Its %(count)s member loses the %(roles)s of the group.",
        "Its %(count)s members lose the %(roles)s of the group.",
        group.member_count,
    )
    return text % {"count": group.member_count, "roles": roles}


def _group_page(request: HttpRequest, group: UserGroup, form: MemberForm, *, status: int = 200) -> HttpResponse:
    by, now = actor_of(request), timezone.now()
    members = access_queries.members_of(group)
    bindings = group.role_bindings.select_related("group", "organization", "environment__organization")
    bindings = bindings.select_related("cluster__environment__organization")
    context = {
        "group": group,
        "form": form,
        "members": [{"user": member.user, "member": member, "added": moment(member.added_at, now=now)} for member in members],
        "rows": [binding_row(binding, now=now, removable=False) for binding in bindings],
        "headings": BINDINGS.columns,
        "may_manage": can(by, Permission.MANAGE_USERS, organization=group.organization),
        "names": access_queries.known_user_names(by=by),
    }
    return reply(request, "access/group.html", access_context("groups", last=group.name) | context, status=status)


def _invitation_page(request: HttpRequest, user: User, token: str) -> HttpResponse:
    link = request.build_absolute_uri(reverse("pages:invitation", args=(token,)))
    context = {"name": user.get_username(), "link": link, "days": account_actions.INVITATION_LIFETIME.days}
    return reply(request, "access/invited.html", access_context("users", last=gettext("Invitation link")) | context, status=201)


def _refused(request: HttpRequest, context: dict[str, Any], form: ConsoleForm, error: ConsoleError) -> HttpResponse:
    if error.kind == "denied" and error.field is None:
        raise error
    problem = {} if form.refuse(error) else problem_of(error)
    return reply(request, "access/new_account.html", context | {"problem": problem}, status=status_of(error))


def _managed(by: Actor) -> list[Organization]:
    return access_queries.managed_organizations(by=by)


def _manages(user: User, managed: list[Organization], *, by: Actor) -> bool:
    if by.may_do_all:
        return True
    account = getattr(user, "account", None)
    return account is not None and account.organization in managed and not (user.is_superuser or user.is_staff)
