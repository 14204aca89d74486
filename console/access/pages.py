"""The Access section: role bindings, explanations of access, role descriptions, the user's own roles, API keys."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop
from django.views.decorators.http import require_GET, require_http_methods

from console.access import Permission, visible_links, visible_mirrors
from console.access import actions as access_actions
from console.access import queries as access_queries
from console.access.credentials import UserNameField
from console.access.permissions import may_grant
from console.access.presenters import PERMISSION_WORDS, binding_row, key_row, path_of, role_cards, scope_of
from console.actors import Actor
from console.errors import ConsoleError, DeniedError
from console.models import ApiKey, RoleBinding
from console.web.forms import ConsoleForm
from console.web.lists import Column, Filter, Listing
from console.web.request_handling import Crumb, Tab, actor_of, done, page, problem_of, reply, status_of

_TABS = (
    ("bindings", gettext_noop("Role bindings"), "pages:access"),
    ("explain", gettext_noop("Explain access"), "pages:explain-access"),
    ("users", gettext_noop("Users"), "pages:users"),
    ("groups", gettext_noop("Groups"), "pages:groups"),
    ("approvals", gettext_noop("Approvals"), "pages:approvals"),
    ("roles", gettext_noop("Roles"), "pages:roles"),
    ("me", gettext_noop("My roles"), "pages:me"),
    ("keys", gettext_noop("API keys"), "pages:api-keys"),
)
# Hours that a role or an API key can last, as the forms offer them.
_HOURS = (
    ("", gettext_lazy("Does not expire")),
    ("1", gettext_lazy("In 1 hour")),
    ("8", gettext_lazy("In 8 hours")),
    ("24", gettext_lazy("In 1 day")),
    ("168", gettext_lazy("In 7 days")),
    ("720", gettext_lazy("In 30 days")),
    ("2160", gettext_lazy("In 90 days")),
    ("8760", gettext_lazy("In 1 year")),
)
_OVERLAPS = (
    ("0", gettext_lazy("Immediately")),
    ("1", gettext_lazy("In 1 hour")),
    ("24", gettext_lazy("In 1 day")),
    ("168", gettext_lazy("In 7 days")),
)


# Types of resources, as the forms offer them.
_RESOURCES = (
    (RoleBinding.ResourceType.CLUSTER.value, gettext_lazy("Cluster")),
    (RoleBinding.ResourceType.TOPIC.value, gettext_lazy("Topic")),
    (RoleBinding.ResourceType.GROUP.value, gettext_lazy("Group")),
    (RoleBinding.ResourceType.CLUSTER_LINK.value, gettext_lazy("Cluster Link")),
)


class GrantForm(ConsoleForm):
    """Principal, role and scope. A resource restricts a role on a cluster."""

    conditional = frozenset({"user", "group"})

    user = UserNameField(suggestions="user-names", required=False)
    group = forms.ChoiceField(label=gettext_lazy("Or group"), required=False)
    role = forms.ChoiceField(
        label=gettext_lazy("Role"), choices=[("", gettext_lazy("Choose a role")), *RoleBinding.Role.choices]
    )
    place = forms.ChoiceField(label=gettext_lazy("Scope"))
    resource_type = forms.ChoiceField(
        label=gettext_lazy("Resource"), required=False, choices=[("", gettext_lazy("All resources in the scope")), *_RESOURCES]
    )
    resource_name = forms.CharField(
        label=gettext_lazy("Resource name"), required=False, max_length=249, help_text=gettext_lazy("Only with a resource.")
    )
    prefixed = forms.BooleanField(
        label=gettext_lazy("Use the name as a prefix"),
        required=False,
        widget=forms.CheckboxInput(attrs={"class": "form-check-input"}),
    )

    expires_at = forms.ChoiceField(label=gettext_lazy("Expires"), required=False, choices=_HOURS)

    def __init__(self, *args: Any, places: list[tuple[str, str]], by: Actor, **kwargs: Any) -> None:
        """Offer the scopes whose access the user manages, and the groups that the user may name."""
        super().__init__(*args, **kwargs)
        self._groups = {str(group.pk): group for group in access_queries.grantable_groups(by=by)}
        self.fields["place"].choices = [("", gettext("Choose a scope")), *places]  # type: ignore[attr-defined]
        groups = [(key, f"{group.organization.name} / {group.name}") for key, group in self._groups.items()]
        self.fields["group"].choices = [("", gettext("No group")), *groups]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any] | None:
        """Require either a user or a group."""
        values = super().clean() or {}
        if "user" in values and "group" in values:
            if bool(values["user"]) == bool(values["group"]):
                message = gettext("Enter a user name, or choose a group. A role binding has exactly one of them.")
                self.add_error("user", message)
            values["group"] = self._groups.get(values["group"])
        return values


class ExplainForm(ConsoleForm):
    """A permission, a place, and a user; without a user all users are listed."""

    user = UserNameField(suggestions="user-names", required=False)
    permission = forms.ChoiceField(
        label=gettext_lazy("Action"),
        choices=[(permission.name, gettext_lazy(words)) for permission, words in PERMISSION_WORDS.items()],
    )
    place = forms.ChoiceField(label=gettext_lazy("Scope"))
    resource_type = forms.ChoiceField(
        label=gettext_lazy("Resource"),
        required=False,
        choices=[("", gettext_lazy("All resources in the scope")), *_RESOURCES[1:]],
    )
    resource_name = forms.CharField(
        label=gettext_lazy("Resource name"), required=False, max_length=249, help_text=gettext_lazy("Only with a resource.")
    )

    def __init__(self, *args: Any, places: list[access_queries.GrantPlace], **kwargs: Any) -> None:
        """Offer the scopes that the user may query."""
        super().__init__(*args, **kwargs)
        self._places = {place.key: place for place in places}
        self.fields["place"].choices = [(place.key, place.label) for place in places]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any] | None:
        """Require type and name of a resource together, on a cluster."""
        values = super().clean() or {}
        kind, name = values.get("resource_type", ""), values.get("resource_name", "")
        if bool(kind) != bool(name):
            message = gettext("A resource needs both a type and a name. Give both, or neither.")
            self.add_error("resource_name", message)
        elif kind and not str(values.get("place", "")).startswith("cluster:"):
            self.add_error("resource_name", gettext("Resources belong to clusters. Choose a cluster as the scope."))
        return values

    def place_keywords(self, by: Actor) -> dict[str, Any]:
        """Return the place as keywords of ``can``. A mirror topic is also reached by roles on its link."""
        values = self.cleaned_data
        keywords: dict[str, Any] = dict(self._places[values["place"]].keyword)
        kind, name = values["resource_type"], values["resource_name"]
        if not kind:
            return keywords
        if kind == RoleBinding.ResourceType.TOPIC:
            mirrors = visible_mirrors(by).select_related("link__destination__environment__organization")
            mirror = mirrors.filter(link__destination=keywords["cluster"], name=name).first()
            if mirror is not None:
                return {"mirror": mirror}
        if kind == RoleBinding.ResourceType.CLUSTER_LINK:
            links = visible_links(by).select_related("destination__environment__organization")
            link = links.filter(destination=keywords["cluster"], name=name).first()
            if link is not None:
                return {"link": link}
        return {**keywords, "resource_type": kind, "resource_name": name}


class KeyForm(ConsoleForm):
    """A new API key: owner, description, limits and expiry."""

    description = forms.CharField(
        label=gettext_lazy("Description"),
        required=False,
        max_length=200,
        help_text=gettext_lazy("The program that uses the key, for example terraform."),
    )
    owner = forms.ChoiceField(label=gettext_lazy("Owner"), required=False)
    role = forms.ChoiceField(
        label=gettext_lazy("Limit to the permissions of"),
        required=False,
        choices=[("", gettext_lazy("No limit: everything that the owner may do")), *RoleBinding.Role.choices],
    )
    place = forms.ChoiceField(label=gettext_lazy("Limit to"), required=False)
    expires_at = forms.ChoiceField(label=gettext_lazy("Expires"), required=False, choices=_HOURS, initial="2160")

    def __init__(self, *args: Any, by: Actor, **kwargs: Any) -> None:
        """Offer the owners for whom the user may create keys, and the scopes that the user may see."""
        super().__init__(*args, **kwargs)
        self._by = by
        self._owners = {str(user.pk): user for user in access_queries.key_owners(by=by)}
        self._places = {place.key: place for place in access_queries.viewable_places(by)}
        self.fields["owner"].choices = [(key, user.get_username()) for key, user in self._owners.items()]  # type: ignore[attr-defined]
        places = [(key, place.label) for key, place in self._places.items()]
        self.fields["place"].choices = [("", gettext("No limit: every scope of the owner")), *places]  # type: ignore[attr-defined]

    def keywords(self, now: datetime) -> dict[str, Any]:
        """Return the values as keywords of ``create_api_key``."""
        values = self.cleaned_data
        place = self._places.get(values["place"])
        scope: dict[str, Any] = dict(place.keyword) if place else {}
        limit = access_actions.KeyLimit(role=values["role"], **scope)
        return {
            "user": self._owners.get(values["owner"], self._by.user),
            "description": values["description"].strip(),
            "limit": limit,
            "expires_at": _after(values["expires_at"], now),
        }


class RotateForm(ConsoleForm):
    """When the previous secret stops being accepted."""

    overlap = forms.ChoiceField(
        label=gettext_lazy("The old secret stops working"),
        choices=_OVERLAPS,
        initial="24",
        help_text=gettext_lazy("Replace the secret in all programs that use the key within this time."),
    )


_NEVER = datetime.max.replace(tzinfo=UTC)  # later than each expiry


def _in_force(row: RoleBinding | ApiKey) -> str:
    return "no" if row.expires_at is not None and row.expires_at <= timezone.now() else "yes"


_EXPIRY = Filter(
    name="in-force",
    label=gettext_lazy("Expiry"),
    every=gettext_lazy("In force or expired"),
    options=[("yes", gettext_lazy("In force")), ("no", gettext_lazy("Expired"))],
    by=_in_force,
)
BINDINGS = Listing(
    noun=gettext_noop("role binding"),
    plural=gettext_noop("role bindings"),
    columns=(
        Column(title=gettext_lazy("Principal"), key="principal", by=lambda row: row.principal),
        Column(title=gettext_lazy("Role"), key="role", by=lambda row: row.role),
        Column(title=gettext_lazy("Scope"), key="scope", by=scope_of, css="only-wide"),
        Column(
            title=gettext_lazy("Resource"),
            key="resource",
            by=lambda row: (row.resource_type, row.resource_name),
            css="only-wide",
        ),
        Column(title=gettext_lazy("Granted"), key="granted", by=lambda row: row.granted_at, css="only-wide", descends=True),
        Column(title=gettext_lazy("Expires"), key="expires", by=lambda row: row.expires_at or _NEVER, css="only-wide"),
    ),
    default="principal",
    search=lambda row: (row.principal, row.role, scope_of(row), row.resource_name),
    search_label=gettext_lazy("Principal, role, scope or resource"),
    filters=(
        Filter(
            name="role",
            label=gettext_lazy("Role"),
            every=gettext_lazy("All roles"),
            options=[(value, str(label)) for value, label in RoleBinding.Role.choices],
            by=lambda row: row.role,
        ),
        Filter(
            name="kind",
            label=gettext_lazy("Kind of principal"),
            every=gettext_lazy("Users and groups"),
            options=[("user", gettext_lazy("Users")), ("group", gettext_lazy("Groups"))],
            by=lambda row: "group" if row.group_id else "user",
        ),
        _EXPIRY,
    ),
    export={
        "principal": "principal",
        "kind": lambda row: "group" if row.group_id else "user",
        "role": "role",
        "scope": scope_of,
        "resource_type": "resource_type",
        "resource_name": "resource_name",
        "prefixed": "prefixed",
        "granted_at": "granted_at",
        "granted_by": "granted_by",
        "expires_at": "expires_at",
    },
)
KEYS = Listing(
    noun=gettext_noop("API key"),
    plural=gettext_noop("API keys"),
    columns=(
        Column(title=gettext_lazy("Key"), key="key", by=lambda row: row.key),
        Column(title=gettext_lazy("Description"), key="description", by=lambda row: row.description),
        Column(title=gettext_lazy("Owner"), key="owner", by=lambda row: row.user.get_username()),
        Column(title=gettext_lazy("Limited to")),
        Column(title=gettext_lazy("Created"), key="created", by=lambda row: row.created_at, descends=True),
        Column(title=gettext_lazy("Last used"), key="used", by=lambda row: row.last_used_at, descends=True),
        Column(title=gettext_lazy("Expires"), key="expires", by=lambda row: row.expires_at or _NEVER),
    ),
    default="-created",
    search=lambda row: (row.key, row.description, row.user.get_username()),
    search_label=gettext_lazy("Key, description or owner"),
    filters=(
        _EXPIRY,
        Filter(
            name="used",
            label=gettext_lazy("Use"),
            every=gettext_lazy("Used or not"),
            options=[("yes", gettext_lazy("Used")), ("no", gettext_lazy("Never used"))],
            by=lambda row: "yes" if row.last_used_at else "no",
        ),
    ),
    export={
        "key": "key",
        "description": "description",
        "owner": lambda row: row.user.get_username(),
        "limited_to_role": "role",
        "limited_to_scope": lambda row: path_of(row.node),
        "created_at": "created_at",
        "created_by": "created_by",
        "last_used_at": "last_used_at",
        "expires_at": "expires_at",
        "replaced_by": lambda row: row.rotated_to and row.rotated_to.key,
    },
)


@page("access")
@require_GET
def bindings(request: HttpRequest) -> HttpResponse:
    """List role bindings. They can be added and removed, not edited."""
    by, now = actor_of(request), timezone.now()
    listed = BINDINGS.read(request)
    found = listed.select(access_queries.list_bindings(by=by))
    if listed.format:
        return listed.csv("role-bindings", found)
    rows = [binding_row(binding, now=now, removable=may_grant(by, binding)) for binding in listed.page(found)]
    context = access_context("bindings") | {
        "list": listed,
        "rows": rows,
        "may_grant": bool(access_queries.grantable_places(by)),
    }
    return reply(request, "access/bindings.html", context)


@page("access")
@require_http_methods(["GET", "POST"])
def grant(request: HttpRequest) -> HttpResponse:
    """Add a role binding."""
    by = actor_of(request)
    places = {place.key: place for place in access_queries.grantable_places(by)}
    if not places:
        message = gettext("You may not grant roles. Ask for the role ResourceOwner, or a higher one.")
        raise DeniedError(message, code="NOT_AUTHORIZED")
    form = GrantForm(request.POST or None, places=[(key, place.label) for key, place in places.items()], by=by)
    if request.method == "GET":
        return _grant_form(request, form)
    if form.is_valid():
        values = form.cleaned_data
        scope, now = places[values.pop("place")].keyword, timezone.now()
        values["expires_at"] = _after(values["expires_at"], now)
        try:
            binding = access_actions.grant_role(**values, **scope, by=by, now=now)
        except ConsoleError as error:
            if error.kind == "denied" and error.field is None:
                raise
            problem = {} if form.refuse(error) else problem_of(error)
            return _grant_form(request, form, problem=problem, status=status_of(error))
        message = gettext("Role %(role)s granted to %(principal)s.") % {"role": binding.role, "principal": binding.principal}
        return done(request, reverse("pages:access"), message)
    return _grant_form(request, form, status=422)


def _grant_form(request: HttpRequest, form: GrantForm, *, status: int = 200, **more: object) -> HttpResponse:
    context = access_context("bindings", last=gettext("Add role binding")) | {"form": form}
    context["names"] = access_queries.known_user_names(by=actor_of(request))  # suggestions; other names can be entered
    return reply(request, "access/grant.html", context | more, status=status)


@page("access")
@require_http_methods(["GET", "POST"])
def revoke(request: HttpRequest, binding_id: int) -> HttpResponse:
    """Show the confirmation; remove a role binding."""
    by, now = actor_of(request), timezone.now()
    binding = next((binding for binding in access_queries.list_bindings(by=by) if binding.pk == binding_id), None)
    binding = binding or get_object_or_404(RoleBinding.objects.none(), pk=binding_id)
    if request.method == "GET":
        row = binding_row(binding, now=now, removable=True)
        context = access_context("bindings", last=gettext("Remove role binding")) | {"row": row}
        return reply(request, "access/revoke.html", context)
    access_actions.revoke_role(binding=binding, by=by, now=now)
    message = gettext("Role %(role)s removed from %(principal)s.") % {"role": binding.role, "principal": binding.principal}
    return done(request, reverse("pages:access"), message)


@page("access")
@require_GET
def explain(request: HttpRequest) -> HttpResponse:
    """Show who may do something at a place, and by which role binding."""
    by, now = actor_of(request), timezone.now()
    places = access_queries.viewable_places(by)
    form = ExplainForm(request.GET if "permission" in request.GET else None, places=places)
    context = access_context("explain") | {"form": form, "places": places, "names": access_queries.known_user_names(by=by)}
    if not form.is_bound:
        return reply(request, "access/explain.html", context)
    if not form.is_valid():
        return reply(request, "access/explain.html", context, status=422)
    values = form.cleaned_data
    found = access_queries.explain(
        permission=Permission[values["permission"]], place=form.place_keywords(by), user=values["user"], by=by, now=now
    )
    context["subject"] = values["user"]
    context["action"] = gettext(PERMISSION_WORDS[Permission[values["permission"]]])
    context["inactive"] = found.inactive
    context["holders"] = [
        {"name": holder.user.get_username(), "rows": [binding_row(row, now=now, removable=False) for row in holder.bindings]}
        for holder in found.holders
    ]
    context["expired"] = [binding_row(row, now=now, removable=False) for row in found.expired]
    return reply(request, "access/explain.html", context | {"explained": True})


@page("access")
@require_GET
def roles(request: HttpRequest) -> HttpResponse:
    """List the roles with their permissions."""
    return reply(request, "access/roles.html", access_context("roles") | {"roles": role_cards()})


@page("access")
@require_GET
def me(request: HttpRequest) -> HttpResponse:
    """Show the roles of the user."""
    by, now = actor_of(request), timezone.now()
    rows = [binding_row(binding, now=now, removable=False) for binding in access_queries.my_bindings(by=by)]
    return reply(
        request,
        "access/me.html",
        access_context("me") | {"rows": rows, "headings": BINDINGS.columns, "may_do_all": by.may_do_all},
    )


@page("access")
@require_http_methods(["GET", "POST"])
def api_keys(request: HttpRequest) -> HttpResponse:
    """List API keys; create one and show its secret once."""
    by, now = actor_of(request), timezone.now()
    if request.method == "GET":
        listed = KEYS.read(request)
        if listed.format:
            return listed.csv("api-keys", listed.select(access_queries.list_api_keys(by=by)))
        return _keys_page(request, KeyForm(by=by))
    form = KeyForm(request.POST, by=by)
    if not form.is_valid():
        return _keys_page(request, form, status=422)
    try:
        key, secret = access_actions.create_api_key(**form.keywords(now), by=by, now=now)
    except ConsoleError as error:
        if not form.refuse(error):
            raise
        return _keys_page(request, form, status=status_of(error))
    return _keys_page(request, KeyForm(by=by), created_key={"key": key.key, "secret": secret}, status=201)


@page("access")
@require_http_methods(["GET", "POST"])
def rotate_api_key(request: HttpRequest, key: str) -> HttpResponse:
    """Show the confirmation; replace an API key and show the new secret once."""
    by, now = actor_of(request), timezone.now()
    row = _listed_key(key, by=by)
    form = RotateForm(request.POST or None)
    context = access_context("keys", last=gettext("Rotate API key")) | {"row": key_row(row, now=now), "form": form}
    if request.method == "GET" or not form.is_valid():
        return reply(request, "access/rotate_key.html", context, status=200 if request.method == "GET" else 422)
    overlap = timedelta(hours=int(form.cleaned_data["overlap"]))
    created, secret = access_actions.rotate_api_key(api_key=row, overlap=overlap, by=by, now=now)
    return _keys_page(request, KeyForm(by=by), created_key={"key": created.key, "secret": secret, "replaces": key}, status=201)


@page("access")
@require_http_methods(["GET", "POST"])
def delete_api_key(request: HttpRequest, key: str) -> HttpResponse:
    """Show the confirmation; delete an API key."""
    by, now = actor_of(request), timezone.now()
    row = _listed_key(key, by=by)
    if request.method == "GET":
        context = access_context("keys", last=gettext("Delete API key")) | {"row": key_row(row, now=now)}
        return reply(request, "access/delete_key.html", context)
    access_actions.delete_api_key(api_key=row, by=by, now=now)
    message = gettext("API key %(key)s deleted. Requests with this key are rejected.") % {"key": key}
    return done(request, reverse("pages:api-keys"), message)


def _listed_key(key: str, *, by: Actor) -> ApiKey:
    found = next((api_key for api_key in access_queries.list_api_keys(by=by) if api_key.key == key), None)
    return found or get_object_or_404(ApiKey.objects.none(), key=key)


def _keys_page(
    request: HttpRequest, form: KeyForm, *, created_key: Mapping[str, str] | None = None, status: int = 200
) -> HttpResponse:
    now, listed = timezone.now(), KEYS.read(request)
    shown = listed.page(listed.select(access_queries.list_api_keys(by=actor_of(request))))
    rows = [key_row(api_key, now=now) for api_key in shown]
    context = access_context("keys") | {"list": listed, "rows": rows, "form": form, "created_key": created_key or {}}
    return reply(request, "access/api_keys.html", context, status=status)


def _after(hours: str, now: datetime) -> datetime | None:
    return now + timedelta(hours=int(hours)) if hours else None


def access_context(tab: str, *, last: str = "") -> dict[str, Any]:
    title, url = next((gettext(label), reverse(name)) for key, label, name in _TABS if key == tab)
    crumbs = [Crumb(label=gettext("Access"), url=reverse("pages:access")), Crumb(label=title, url=url if last else "")]
    return {
        "tabs": [Tab(label=gettext(label), url=reverse(name), current=key == tab) for key, label, name in _TABS],
        "crumbs": [*crumbs, Crumb(label=last)] if last else crumbs,
    }
