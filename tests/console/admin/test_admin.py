"""Admin pages for superusers: every list opens, secrets are written but never shown, changes are checked and audited."""

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
from linkengine.domain.errors import ErrorCode, LinkEngineError
from tests.console.conftest import NOW, Engine, MakeActor

MODELS = ("organization", "environment", "cluster", "rolebinding", "apikey", "auditevent")


@pytest.fixture
def root(db: None, client: Client) -> Client:
    client.force_login(User.objects.create_superuser("root", password="x"))
    return client


@pytest.mark.parametrize("model", MODELS)
def test_every_list_and_form_opens(model: str, root: Client, link: ClusterLink) -> None:
    assert root.get(reverse(f"admin:console_{model}_changelist")).status_code == 200
    assert root.get(reverse(f"admin:console_{model}_add")).status_code == (403 if model == "auditevent" else 200)


@pytest.mark.parametrize(
    ("theme", "code"), [("dark", '= "dark"'), ("light", '= "light"'), ("x", "= matchMedia("), ("", "= matchMedia(")]
)
def test_pages_have_the_colours_and_the_theme_of_the_console(root: Client, theme: str, code: str) -> None:
    guest = Client()
    root.cookies["theme"] = guest.cookies["theme"] = theme

    for page in (root.get(reverse("admin:index")), guest.get(reverse("admin:login"))):
        text = page.content.decode()
        assert page.status_code == 200
        assert "css/theme" in text
        assert "css/admin" in text
        assert "Clusterlink administration" in text
        assert "admin/js/theme" not in text  # Django's own switch of the theme
        assert f"dataset.bsTheme {code}" in text


def test_the_own_password_is_changed_in_the_console(root: Client) -> None:
    """There it is throttled and recorded in the audit log."""
    assert root.get("/admin/password_change/")["Location"] == reverse("pages:password")
    assert "/admin/password_change/" not in root.get(reverse("admin:index")).content.decode()


def test_changes_of_users_are_audited(root: Client) -> None:
    password = {"usable_password": "true", "password1": "a long passphrase 1", "password2": "a long passphrase 1"}
    root.post(reverse("admin:auth_user_add"), {"username": "dorothy", **password})
    user = User.objects.get(username="dorothy")
    root.post(reverse("admin:auth_user_password_change", args=[user.pk]), password)
    root.post(reverse("admin:auth_user_delete", args=[user.pk]), {"post": "yes"})

    events = AuditEvent.objects.filter(resource="user/dorothy").order_by("pk")
    assert list(events.values_list("action", flat=True)) == ["CreateUser", "UpdateUser", "DeleteUser"]
    assert "passphrase" not in str(list(events.values_list("detail", flat=True)))


def test_credentials_of_a_cluster_are_not_shown(root: Client, source: Cluster) -> None:
    page = root.get(reverse("admin:console_cluster_change", args=[source.pk])).content.decode()

    assert "secret-of-the-link" not in page
    assert "source.test:9092" in page


def test_a_cluster_is_registered_after_it_was_probed(root: Client, link: ClusterLink, engine: Engine) -> None:
    engine.responses["probe_address"] = {**engine.responses["probe_address"], "cluster_id": "third-id"}
    form = {
        "environment": link.destination.environment_id,
        "name": "Third",
        "properties_text": "bootstrap.servers=third.test:9092",
    }

    root.post(reverse("admin:console_cluster_add"), form)

    assert Cluster.objects.get(name="Third").cluster_id == "third-id"
    assert AuditEvent.objects.get().action == "RegisterCluster"


def test_new_client_properties_are_stored_if_they_lead_to_the_same_cluster(
    root: Client, source: Cluster, engine: Engine
) -> None:
    form = {"environment": source.environment_id, "name": "Source", "properties_text": "bootstrap.servers=new.test:9092"}

    root.post(reverse("admin:console_cluster_change", args=[source.pk]), form)

    source.refresh_from_db()
    assert source.bootstrap_servers == "new.test:9092"


@pytest.fixture
def helper(make_actor: MakeActor, client: Client) -> Client:
    """A client signed in as staff with all of Django's permissions, who is not a superuser."""
    user = make_actor("helper").user
    assert user is not None
    user.is_staff = True
    user.set_password("right")
    user.save()
    user.user_permissions.set(Permission.objects.all())
    client.force_login(user)
    return client


def test_staff_who_are_not_superusers_open_no_page_and_change_nothing(helper: Client, source: Cluster) -> None:
    """Staff with Django's permission to change users could become superusers."""
    user = User.objects.get(username="helper")
    models = [("auth", "user", user), ("console", "cluster", source), ("console", "environment", source.environment)]
    for app, model, row in models:
        for name, arguments in (("changelist", []), ("add", []), ("change", [row.pk]), ("delete", [row.pk])):
            address = reverse(f"admin:{app}_{model}_{name}", args=arguments)
            assert helper.get(address)["Location"] == f"/admin/login/?next={address}"

    helper.post(reverse("admin:auth_user_change", args=[user.pk]), {"username": "helper", "is_superuser": "on"})
    helper.post(reverse("admin:console_cluster_delete", args=[source.pk]), {"post": "yes"})

    user.refresh_from_db()
    assert not user.is_superuser
    assert Cluster.objects.filter(pk=source.pk).exists()
    assert helper.get("/admin/")["Location"] == "/admin/login/?next=/admin/"


def test_staff_who_are_not_superusers_cannot_sign_in_to_the_administration(helper: Client, redis_url: str) -> None:
    signed_in = Client().post("/admin/login/", {"username": "helper", "password": "right"})

    assert signed_in.status_code == 200
    assert "Please enter the correct username and password" in signed_in.content.decode()


@pytest.mark.parametrize("cluster_id", ["another-id", None], ids=["other cluster", "unreachable"])
def test_refused_change_of_a_cluster_is_not_reported_as_success(
    cluster_id: str | None, root: Client, source: Cluster, engine: Engine
) -> None:
    engine.responses["probe_address"] = engine.responses["probe_address"] | {"cluster_id": cluster_id}
    if cluster_id is None:
        engine.refuses("probe_address", LinkEngineError(ErrorCode.TIMEOUT_ERROR, "No broker responds."))
    form = {"environment": source.environment_id, "name": "Mine", "properties_text": "bootstrap.servers=mine.test:9092"}

    page = root.post(reverse("admin:console_cluster_change", args=[source.pk]), form, follow=True).content.decode()

    assert ("No broker responds." if cluster_id is None else "another-id") in page
    assert "was changed successfully" not in page
    source.refresh_from_db()
    assert (source.name, source.bootstrap_servers) == ("Source", "source.test:9092")
    assert not LogEntry.objects.exists()


def test_cluster_is_not_registered_twice(root: Client, source: Cluster, engine: Engine) -> None:
    engine.responses["probe_address"] = engine.responses["probe_address"] | {"cluster_id": source.cluster_id}
    form = {"environment": source.environment_id, "name": "Third", "properties_text": "bootstrap.servers=third.test:9092"}

    page = root.post(reverse("admin:console_cluster_add"), form, follow=True).content.decode()

    assert "already registered" in page
    assert "was added successfully" not in page
    assert not Cluster.objects.filter(name="Third").exists()


def test_clusters_and_environments_cannot_be_moved(root: Client, source: Cluster, organization: Organization) -> None:
    other = Organization.objects.create(name="Other", created_at=NOW)
    place = Environment.objects.create(organization=other, name="Theirs", slug="theirs", created_at=NOW)

    root.post(reverse("admin:console_cluster_change", args=[source.pk]), {"environment": place.pk, "name": "Renamed"})
    form = {"organization": other.pk, "name": "Renamed", "slug": "production"}
    root.post(reverse("admin:console_environment_change", args=[source.environment_id]), form)

    source.refresh_from_db()
    assert (source.name, source.environment.name) == ("Renamed", "Renamed")
    assert source.environment.organization == organization


def test_the_secret_of_an_api_key_is_shown_once_and_stored_in_no_cookie(root: Client) -> None:
    form = {"user": "root", "description": "for terraform", "expires_at_0": "", "expires_at_1": ""}
    response = root.post(reverse("admin:console_apikey_add"), form)

    shown = re.search(r'id="secret">([\w-]{40,})<', response.content.decode())
    assert shown
    assert ApiKey.objects.get().secret_hash == hash_secret(shown[1])
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    assert not list(get_messages(response.wsgi_request))
    cookies = [str(cookie) for cookie in root.cookies.values()]
    kept = cookies + [str(session.get_decoded()) for session in Session.objects.all()]
    assert kept
    assert shown[1] not in "".join(kept)
    assert shown[1] not in root.get(reverse("admin:console_apikey_changelist")).content.decode()


def test_refused_api_key_is_not_created(root: Client) -> None:
    form = {"user": "root", "description": "", "expires_at_0": "2000-01-01", "expires_at_1": "00:00:00"}

    page = root.post(reverse("admin:console_apikey_add"), form, follow=True).content.decode()

    assert "The expiry time is in the past." in page
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize("model", ["rolebinding", "apikey"])
def test_the_forms_do_not_list_users(model: str, root: Client, owner: Actor) -> None:
    address = reverse(f"admin:console_{model}_add")

    assert owner.name not in root.get(address).content.decode()
    page = root.post(address, {"user": owner.name[:-1], "role": "DeveloperRead"}).content.decode()
    assert "No active user has this name." in page


def test_granting_and_revoking_roles_is_audited(root: Client, destination: Cluster) -> None:
    form = {"user": "root", "role": "DeveloperRead", "cluster": destination.pk, "resource_name": ""}
    root.post(reverse("admin:console_rolebinding_add"), form)
    binding = RoleBinding.objects.get()
    assert binding.granted_by == "root"

    root.post(reverse("admin:console_rolebinding_delete", args=[binding.pk]), {"post": "yes"})

    assert not RoleBinding.objects.exists()
    assert list(AuditEvent.objects.values_list("action", flat=True)) == ["RevokeRole", "GrantRole"]


def test_changes_of_environments_and_organizations_are_audited(root: Client, environment: Environment) -> None:
    form = {"organization": environment.organization_id, "name": "Renamed", "slug": "renamed"}
    root.post(reverse("admin:console_environment_change", args=[environment.pk]), form)
    root.post(reverse("admin:console_organization_add"), {"name": "Other"})
    other = Organization.objects.get(name="Other")
    chosen = {"action": "delete_selected", "_selected_action": [other.pk], "post": "yes"}
    root.post(reverse("admin:console_organization_changelist"), chosen)

    assert [(event.actor, event.action, event.resource) for event in AuditEvent.objects.order_by("pk")] == [
        ("root", "UpdateEnvironment", "environment/renamed"),
        ("root", "CreateOrganization", "organization/Other"),
        ("root", "DeleteOrganization", "organization/Other"),
    ]
    assert not Organization.objects.filter(pk=other.pk).exists()


@pytest.mark.parametrize("selected", [True, False], ids=["list", "page"])
def test_cluster_of_a_link_is_not_unregistered(selected: bool, root: Client, link: ClusterLink, source: Cluster) -> None:
    address = reverse("admin:console_cluster_changelist")
    form: dict[str, object] = {"action": "delete_selected", "_selected_action": [source.pk], "post": "yes"}
    if not selected:
        address, form = reverse("admin:console_cluster_delete", args=[source.pk]), {"post": "yes"}

    page = root.post(address, form, follow=True).content.decode()

    assert "successfully" not in page.lower()
    assert Cluster.objects.filter(pk=source.pk).exists()
    assert not LogEntry.objects.exists()


def test_unregistering_a_cluster_is_audited(root: Client, source: Cluster) -> None:
    page = root.post(reverse("admin:console_cluster_delete", args=[source.pk]), {"post": "yes"}, follow=True)

    assert "was deleted successfully" in page.content.decode()
    assert not Cluster.objects.filter(pk=source.pk).exists()
    assert AuditEvent.objects.get().action == "UnregisterCluster"


def test_failed_sign_ins_of_superusers_are_throttled(db: None, redis_url: str, settings: Any) -> None:
    settings.ATTEMPTS_AT_ONCE, settings.ATTEMPT_EVERY_S = 2, 1_000
    User.objects.create_superuser("root", password="right")
    stranger = Client(REMOTE_ADDR="192.0.2.11")

    passwords = ("guess", "guess", "right")
    pages = [stranger.post("/admin/login/", {"username": "root", "password": password}) for password in passwords]

    assert "Too many attempts" in pages[-1].content.decode()
    assert "Too many attempts" not in pages[-2].content.decode()
    assert AuditEvent.objects.get().action == "ThrottleSignIn"
    assert Client().post("/admin/login/", {"username": "root", "password": "right"}).status_code == 302


def test_the_audit_log_is_read_only(root: Client, link: ClusterLink) -> None:
    AuditEvent.objects.create(at=link.created_at, actor="a", action="b", resource="c", result="SUCCESS")
    change = reverse("admin:console_auditevent_change", args=[AuditEvent.objects.get().pk])

    assert root.get(change).status_code == 200
    assert root.post(change, {"actor": "x"}).status_code == 403
