"""The Access section: role bindings, role descriptions, the user's own roles, API keys."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from console.access.grants import may_grant
from console.access.user_field import UserNameField
from console.actions import access as access_actions
from console.errors import ConsoleError, DeniedError
from console.models import ApiKey, RoleBinding
from console.pages.accessplaces import grantable, node_of
from console.pages.forms import ConsoleForm
from console.pages.request_handling import actor_of, done, page, problem_of, reply, status_of
from console.pages.shell import Crumb, Tab
from console.presenters.access import binding_row, key_row, role_cards
from console.queries import access as access_queries

_TABS = (
    ("bindings", "Role bindings", "pages:access"),
    ("roles", "Roles", "pages:roles"),
    ("me", "My roles", "pages:me"),
    ("keys", "API keys", "pages:api-keys"),
)


class GrantForm(ConsoleForm):
    """Principal, role and scope. A resource restricts a role on a cluster."""

    user = UserNameField(label="Principal", suggestions="user-names")
    role = forms.ChoiceField(label="Role", choices=[("", "Choose a role"), *RoleBinding.Role.choices])
    place = forms.ChoiceField(label="Scope")
    resource_type = forms.ChoiceField(
        label="Resource", required=False, choices=[("", "All resources in the scope"), *RoleBinding.ResourceType.choices]
    )
    resource_name = forms.CharField(label="Resource name", required=False, max_length=249, help_text="Only with a resource.")
    prefixed = forms.BooleanField(
        label="Use the name as a prefix",
        required=False,
        widget=forms.CheckboxInput(attrs={"class": "form-check-input"}),
    )

    def __init__(self, *args: Any, places: list[tuple[str, str]], **kwargs: Any) -> None:
        """Offer the scopes whose access the user manages."""
        super().__init__(*args, **kwargs)
        self.fields["place"].choices = [("", "Choose a scope"), *places]  # type: ignore[attr-defined]


@page("access")
@require_GET
def bindings(request: HttpRequest) -> HttpResponse:
    """List role bindings. They can be added and removed, not edited."""
    by, now = actor_of(request), timezone.now()
    places = grantable(by)
    bindings = access_queries.list_bindings(by=by)
    rows = [binding_row(binding, now=now, removable=may_grant(by, binding)) for binding in bindings]
    context = _context("bindings") | {"rows": rows, "may_grant": bool(places)}
    return reply(request, "access/bindings.html", context)


@page("access")
@require_http_methods(["GET", "POST"])
def grant(request: HttpRequest) -> HttpResponse:
    """Add a role binding."""
    by = actor_of(request)
    places = grantable(by)
    if not places:
        raise DeniedError("You may not grant roles. Ask for the role ResourceOwner, or a higher one.", code="NOT_AUTHORIZED")
    form = GrantForm(request.POST or None, places=[(place.key, place.label) for place in places])
    if request.method == "GET":
        return _grant_form(request, form)
    if form.is_valid():
        values = form.cleaned_data
        node = node_of(values.pop("place"), by=by)
        try:
            binding = access_actions.grant_role(**values, **node, by=by, now=timezone.now())
        except ConsoleError as error:
            if error.kind == "denied":
                raise
            problem = {} if form.refuse(error) else problem_of(error)
            return _grant_form(request, form, problem=problem, status=status_of(error))
        return done(request, reverse("pages:access"), f"Role {binding.role} granted to {binding.user.get_username()}.")
    return _grant_form(request, form, status=422)


def _grant_form(request: HttpRequest, form: GrantForm, *, status: int = 200, **more: object) -> HttpResponse:
    context = _context("bindings", last="Add role binding") | {"form": form}
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
        context = _context("bindings", last="Remove role binding") | {"row": binding_row(binding, now=now, removable=True)}
        return reply(request, "access/revoke.html", context)
    access_actions.revoke_role(binding=binding, by=by, now=now)
    return done(request, reverse("pages:access"), f"Role {binding.role} removed from {binding.user.get_username()}.")


@page("access")
@require_GET
def roles(request: HttpRequest) -> HttpResponse:
    """List the roles with their permissions."""
    return reply(request, "access/roles.html", _context("roles") | {"roles": role_cards()})


@page("access")
@require_GET
def me(request: HttpRequest) -> HttpResponse:
    """Show the roles of the user."""
    by, now = actor_of(request), timezone.now()
    rows = [binding_row(binding, now=now, removable=False) for binding in access_queries.my_bindings(by=by)]
    return reply(request, "access/me.html", _context("me") | {"rows": rows, "may_do_all": by.may_do_all})


@page("access")
@require_http_methods(["GET", "POST"])
def api_keys(request: HttpRequest) -> HttpResponse:
    """List API keys; create one and show its secret once."""
    by, now = actor_of(request), timezone.now()
    created, status = {}, 200
    if request.method == "POST":
        user, description = by.user, request.POST.get("description", "").strip()[:200]
        assert user is not None  # guaranteed by ``page``
        key, secret = access_actions.create_api_key(user=user, description=description, by=by, now=now)
        created, status = {"key": key.key, "secret": secret}, 201
    rows = [key_row(api_key, now=now) for api_key in access_queries.list_api_keys(by=by)]
    return reply(request, "access/api_keys.html", _context("keys") | {"rows": rows, "created_key": created}, status=status)


@page("access")
@require_http_methods(["GET", "POST"])
def delete_api_key(request: HttpRequest, key: str) -> HttpResponse:
    """Show the confirmation; delete an API key."""
    by, now = actor_of(request), timezone.now()
    found = next((api_key for api_key in access_queries.list_api_keys(by=by) if api_key.key == key), None)
    row = found or get_object_or_404(ApiKey.objects.none(), key=key)
    if request.method == "GET":
        context = _context("keys", last="Delete API key") | {"row": key_row(row, now=now)}
        return reply(request, "access/delete_key.html", context)
    access_actions.delete_api_key(api_key=row, by=by, now=now)
    return done(request, reverse("pages:api-keys"), f"API key {key} deleted. Requests with this key are rejected.")


def _context(tab: str, *, last: str = "") -> dict[str, Any]:
    title, url = next((label, reverse(name)) for key, label, name in _TABS if key == tab)
    crumbs = [Crumb(label="Access", url=reverse("pages:access")), Crumb(label=title, url=url if last else "")]
    return {
        "tabs": [Tab(label=label, url=reverse(name), current=key == tab) for key, label, name in _TABS],
        "crumbs": [*crumbs, Crumb(label=last)] if last else crumbs,
    }
