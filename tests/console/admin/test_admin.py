"""Admin pages for staff: every list opens, secrets are written but never shown, changes are checked and audited."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse

from console.access.credentials import hash_secret
from console.actors import Actor
from console.models import ApiKey, AuditEvent, Cluster, ClusterLink, Environment, Organization, RoleBinding
from tests.console.conftest import NOW, Engine, MakeActor

MODELS = ("organization", "environment", "cluster", "rolebinding", "apikey", "auditevent")


@pytest.fixture
def staff(db: None, client: Client) -> Client:
    client.force_login(User.objects.create_superuser("root", password="x"))
    return client


@pytest.mark.parametrize("model", MODELS)
def test_every_list_and_form_opens(model: str, staff: Client, link: ClusterLink) -> None:
    assert staff.get(reverse(f"admin:console_{model}_changelist")).status_code == 200
    assert staff.get(reverse(f"admin:console_{model}_add")).status_code == (403 if model == "auditevent" else 200)


@pytest.mark.parametrize(
    ("theme", "code"), [("dark", '= "dark"'), ("light", '= "light"'), ("x", "= matchMedia("), ("", "= matchMedia(")]
)
def test_pages_have_the_colours_and_the_theme_of_the_console(staff: Client, theme: str, code: str) -> None:
    guest = Client()
    staff.cookies["theme"] = guest.cookies["theme"] = theme

    for page in (staff.get(reverse("admin:index")), guest.get(reverse("admin:login"))):
        text = page.content.decode()
        assert page.status_code == 200
        assert "css/theme" in text
        assert "css/admin" in text
        assert "Clusterlink administration" in text
        assert "admin/js/theme" not in text  # Django's own switch of the theme
        assert f"dataset.bsTheme {code}" in text


def test_the_own_password_is_changed_in_the_console(staff: Client) -> None:
    """There it is throttled and recorded in the audit log."""
    assert staff.get("/admin/password_change/")["Location"] == reverse("pages:password")
    assert "/admin/password_change/" not in staff.get(reverse("admin:index")).content.decode()


def test_users_are_edited_by_superusers_only(helper: Client, make_actor: MakeActor) -> None:
    """Staff with Django's permission to change users could become superusers."""
    user = make_actor("helper").user
    assert user is not None
    for name, arguments in (("changelist", []), ("add", []), ("change", [user.pk]), ("delete", [user.pk])):
        assert helper.get(reverse(f"admin:auth_user_{name}", args=arguments)).status_code == 403

    helper.post(reverse("admin:auth_user_change", args=[user.pk]), {"username": "helper", "is_superuser": "on"})

    user.refresh_from_db()
    assert not user.is_superuser


def test_changes_of_users_are_audited(staff: Client) -> None:
    password = {"usable_password": "true", "password1": "a long passphrase 1", "password2": "a long passphrase 1"}
    staff.post(reverse("admin:auth_user_add"), {"username": "dorothy", **password})
    user = User.objects.get(username="dorothy")
    staff.post(reverse("admin:auth_user_password_change", args=[user.pk]), password)
    staff.post(reverse("admin:auth_user_delete", args=[user.pk]), {"post": "yes"})

    events = AuditEvent.objects.filter(resource="user/dorothy").order_by("pk")
    assert list(events.values_list("action", flat=True)) == ["CreateUser", "UpdateUser", "DeleteUser"]
    assert "passphrase" not in str(list(events.values_list("detail", flat=True)))


def test_credentials_of_a_cluster_are_not_shown(staff: Client, source: Cluster) -> None:
    page = staff.get(reverse("admin:console_cluster_change", args=[source.pk])).content.decode()

    assert "secret-of-the-link" not in page
    assert "source.test:9092" in page


def test_a_cluster_is_registered_after_it_was_probed(staff: Client, link: ClusterLink, engine: Engine) -> None:
    engine.responses["probe_address"] = {**engine.responses["probe_address"], "cluster_id": "third-id"}
    form = {
        "environment": link.destination.environment_id,
        "name": "Third",
        "properties_text": "bootstrap.servers=third.test:9092",
    }

    staff.post(reverse("admin:console_cluster_add"), form)

    assert Cluster.objects.get(name="Third").cluster_id == "third-id"
    assert AuditEvent.objects.get().action == "RegisterCluster"


def test_new_client_properties_are_stored_if_they_lead_to_the_same_cluster(
    staff: Client, source: Cluster, engine: Engine
) -> None:
    form = {"environment": source.environment_id, "name": "Source", "properties_text": "bootstrap.servers=new.test:9092"}

    staff.post(reverse("admin:console_cluster_change", args=[source.pk]), form)

    source.refresh_from_db()
    assert source.bootstrap_servers == "new.test:9092"


@pytest.fixture
def helper(make_actor: MakeActor, client: Client) -> Client:
    """A client signed in as staff with all of Django's permissions and without a role."""
    user = make_actor("helper").user
    assert user is not None
    user.is_staff = True
    user.save()
    user.user_permissions.set(Permission.objects.all())
    client.force_login(user)
    return client


@pytest.mark.parametrize(
    "change",
    [{"name": "Mine"}, {"properties_text": "bootstrap.servers=mine.test:9092"}, {}],
    ids=["name", "properties", "none"],
)
def test_staff_without_a_role_may_not_change_clusters(
    change: dict[str, str], helper: Client, source: Cluster, engine: Engine
) -> None:
    form = {"environment": source.environment_id, "name": "Source", "properties_text": "", **change}

    page = helper.post(reverse("admin:console_cluster_change", args=[source.pk]), form, follow=True).content.decode()

    assert "You do not have the permission to manage" in page
    assert "was changed successfully" not in page
    source.refresh_from_db()
    assert (source.name, source.bootstrap_servers) == ("Source", "source.test:9092")
    assert list(AuditEvent.objects.values_list("result", flat=True)) == ["DENIED"]
    assert not LogEntry.objects.exists()


def test_staff_without_a_role_may_not_register_clusters(helper: Client, environment: Environment, engine: Engine) -> None:
    form = {"environment": environment.pk, "name": "Third", "properties_text": "bootstrap.servers=third.test:9092"}

    page = helper.post(reverse("admin:console_cluster_add"), form, follow=True).content.decode()

    assert "You do not have the permission to manage" in page
    assert "was added successfully" not in page
    assert not Cluster.objects.exists()


def test_clusters_and_environments_cannot_be_moved(staff: Client, source: Cluster, organization: Organization) -> None:
    other = Organization.objects.create(name="Other", created_at=NOW)
    place = Environment.objects.create(organization=other, name="Theirs", slug="theirs", created_at=NOW)

    staff.post(reverse("admin:console_cluster_change", args=[source.pk]), {"environment": place.pk, "name": "Renamed"})
    form = {"organization": other.pk, "name": "Renamed", "slug": "production"}
    staff.post(reverse("admin:console_environment_change", args=[source.environment_id]), form)

    source.refresh_from_db()
    assert (source.name, source.environment.name) == ("Renamed", "Renamed")
    assert source.environment.organization == organization


def test_the_secret_of_an_api_key_is_shown_once_and_stored_in_no_cookie(staff: Client) -> None:
    form = {"user": "root", "description": "for terraform", "expires_at_0": "", "expires_at_1": ""}
    response = staff.post(reverse("admin:console_apikey_add"), form)

    shown = re.search(r'id="secret">([\w-]{40,})<', response.content.decode())
    assert shown
    assert ApiKey.objects.get().secret_hash == hash_secret(shown[1])
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    assert not list(get_messages(response.wsgi_request))
    cookies = [str(cookie) for cookie in staff.cookies.values()]
    kept = cookies + [str(session.get_decoded()) for session in Session.objects.all()]
    assert kept
    assert shown[1] not in "".join(kept)
    assert shown[1] not in staff.get(reverse("admin:console_apikey_changelist")).content.decode()


def test_creating_an_api_key_for_another_user_is_refused(helper: Client, owner: Actor) -> None:
    assert owner.user is not None
    form = {"user": owner.name, "description": "", "expires_at_0": "", "expires_at_1": ""}

    page = helper.post(reverse("admin:console_apikey_add"), form, follow=True).content.decode()

    assert "only your own API keys" in page
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize("model", ["rolebinding", "apikey"])
def test_the_forms_do_not_list_users(model: str, helper: Client, owner: Actor) -> None:
    address = reverse(f"admin:console_{model}_add")

    assert owner.name not in helper.get(address).content.decode()
    page = helper.post(address, {"user": owner.name[:-1], "role": "DeveloperRead"}).content.decode()
    assert "No active user has this name." in page


def test_granting_and_revoking_roles_is_audited(staff: Client, destination: Cluster) -> None:
    form = {"user": "root", "role": "DeveloperRead", "cluster": destination.pk, "resource_name": ""}
    staff.post(reverse("admin:console_rolebinding_add"), form)
    binding = RoleBinding.objects.get()
    assert binding.granted_by == "root"

    staff.post(reverse("admin:console_rolebinding_delete", args=[binding.pk]), {"post": "yes"})

    assert not RoleBinding.objects.exists()
    assert list(AuditEvent.objects.values_list("action", flat=True)) == ["RevokeRole", "GrantRole"]


def test_changes_of_environments_and_organizations_are_audited(staff: Client, environment: Environment) -> None:
    form = {"organization": environment.organization_id, "name": "Renamed", "slug": "renamed"}
    staff.post(reverse("admin:console_environment_change", args=[environment.pk]), form)
    staff.post(reverse("admin:console_organization_add"), {"name": "Other"})
    other = Organization.objects.get(name="Other")
    chosen = {"action": "delete_selected", "_selected_action": [other.pk], "post": "yes"}
    staff.post(reverse("admin:console_organization_changelist"), chosen)

    assert [(event.actor, event.action, event.resource) for event in AuditEvent.objects.order_by("pk")] == [
        ("root", "UpdateEnvironment", "environment/renamed"),
        ("root", "CreateOrganization", "organization/Other"),
        ("root", "DeleteOrganization", "organization/Other"),
    ]
    assert not Organization.objects.filter(pk=other.pk).exists()


@pytest.mark.parametrize("selected", [True, False], ids=["list", "page"])
def test_staff_without_a_role_may_not_unregister_clusters(selected: bool, helper: Client, source: Cluster) -> None:
    address = reverse("admin:console_cluster_changelist")
    form: dict[str, object] = {"action": "delete_selected", "_selected_action": [source.pk], "post": "yes"}
    if not selected:
        address, form = reverse("admin:console_cluster_delete", args=[source.pk]), {"post": "yes"}

    page = helper.post(address, form, follow=True).content.decode()

    assert "You do not have the permission to manage" in page
    assert "successfully" not in page.lower()
    assert Cluster.objects.filter(pk=source.pk).exists()
    assert not LogEntry.objects.exists()


def test_unregistering_a_cluster_is_audited(staff: Client, source: Cluster) -> None:
    page = staff.post(reverse("admin:console_cluster_delete", args=[source.pk]), {"post": "yes"}, follow=True)

    assert "was deleted successfully" in page.content.decode()
    assert not Cluster.objects.filter(pk=source.pk).exists()
    assert AuditEvent.objects.get().action == "UnregisterCluster"


def test_failed_sign_ins_of_staff_are_throttled(db: None, redis_url: str, settings: Any) -> None:
    settings.ATTEMPTS_AT_ONCE, settings.ATTEMPT_EVERY_S = 2, 1_000
    User.objects.create_superuser("root", password="right")
    stranger = Client(REMOTE_ADDR="192.0.2.11")

    passwords = ("guess", "guess", "right")
    pages = [stranger.post("/admin/login/", {"username": "root", "password": password}) for password in passwords]

    assert "Too many attempts" in pages[-1].content.decode()
    assert "Too many attempts" not in pages[-2].content.decode()
    assert AuditEvent.objects.get().action == "ThrottleSignIn"
    assert Client().post("/admin/login/", {"username": "root", "password": "right"}).status_code == 302


def test_the_audit_log_is_read_only(staff: Client, link: ClusterLink) -> None:
    AuditEvent.objects.create(at=link.created_at, actor="a", action="b", resource="c", result="SUCCESS")
    change = reverse("admin:console_auditevent_change", args=[AuditEvent.objects.get().pk])

    assert staff.get(change).status_code == 200
    assert staff.post(change, {"actor": "x"}).status_code == 403
