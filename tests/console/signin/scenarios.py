"""Runs sign-ins with an identity provider and with a second factor, and prints what happened as JSON.

Run as a program of its own: django-allauth has to be in INSTALLED_APPS when Django starts, and the other tests run without it.
"""

# ruff: noqa: PLC0415, PLR0915 - Django starts in ``set_up``, so models are imported afterwards; a scenario is a sequence
from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.console.signin.provider import CLIENT_ID, CLIENT_SECRET, Provider, running_provider

PASSWORD = "a long passphrase 4711"
facts: dict[str, Any] = {}


def set_up(provider: Provider, folder: str) -> None:
    """Start Django with both features and empty tables, without migrations, which take seconds."""
    os.environ.update(
        DJANGO_SETTINGS_MODULE="console.settings",
        CLUSTERLINK_DATABASE_URL=f"sqlite:///{folder}/tests.sqlite3",
        CLUSTERLINK_REDIS_URL="redis://127.0.0.1:1/0",
        CLUSTERLINK_SPARK_URL="sc://127.0.0.1:1/",
        CLUSTERLINK_SECRET_KEY=secrets.token_urlsafe(50),
        CLUSTERLINK_CREDENTIALS_KEY=base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        CLUSTERLINK_ALLOWED_HOSTS="testserver",
        CLUSTERLINK_LOG_LEVEL="ERROR",
        CLUSTERLINK_SECOND_FACTOR="true",
        CLUSTERLINK_OIDC_ISSUER=provider.address,
        CLUSTERLINK_OIDC_CLIENT_ID=CLIENT_ID,
        CLUSTERLINK_OIDC_CLIENT_SECRET=CLIENT_SECRET,
    )
    import django
    from django.conf import settings
    from django.core.management import call_command

    django.setup()
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

    class NoMigrations:
        def __contains__(self, _app: str) -> bool:
            return True

        def __getitem__(self, _app: str) -> None:
            return None

    settings.MIGRATION_MODULES = NoMigrations()
    call_command("migrate", run_syncdb=True, verbosity=0)
    call_command("check")


def sign_in(provider: Provider, claims: dict[str, Any], *, query: str = "", **more: Any) -> dict[str, Any]:
    """Sign in with the provider, and return what a browser would see then."""
    from django.test import Client

    client = Client()
    start = client.get(f"/sign-in/oidc/login/{query}")
    back = provider.authorize(start["Location"], claims, userinfo=more.pop("userinfo", None)) | more
    done = client.get(f"/sign-in/oidc/login/callback/?{urlencode(back)}")
    where = done.headers.get("Location", "")
    page = client.get(where).content.decode() if where == "/sign-in/" else ""
    message = re.search(r'class="note bad" role="status">.*?<div>(.*?)</div>', page, re.DOTALL)
    return {
        "status": done.status_code,
        "where": where,
        "user": client.session.get("_auth_user_id"),
        "message": message.group(1) if message else "",
        "session_rows": _session_rows(client),
    }


def start_sign_in() -> dict[str, Any]:
    """Begin a sign-in with a provider that is not available, and return what a browser would see then."""
    from django.test import Client

    client = Client()
    start = client.get("/sign-in/oidc/login/")
    page = client.get("/sign-in/").content.decode()
    return {
        "status": start.status_code,
        "where": start.headers.get("Location"),
        "user": None,
        "message": page if "not available" in page else "",
    }


def _session_rows(client: Any) -> int:
    from console.models import UserSession

    return UserSession.objects.filter(session_key=client.session.session_key).count()


def provider_scenarios(provider: Provider) -> None:
    """Sign in with the provider in all ways that matter."""
    from allauth.socialaccount.models import SocialAccount, SocialApp
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client
    from django.utils import timezone

    from console.access.actions import create_group
    from console.actors import SYSTEM
    from console.models import AuditEvent, Organization, UserGroup

    now = timezone.now()
    organization = Organization.objects.create(name="Acme", created_at=now)
    for name in ("on-call", "admins"):
        create_group(name=name, organization=organization, external_name=f"idp-{name}", by=SYSTEM, now=now)
    User.objects.create_superuser("root", password=PASSWORD)

    def groups() -> list[str]:
        return sorted(UserGroup.objects.filter(memberships__user__username="erika").values_list("name", flat=True))

    facts["button"] = "/sign-in/oidc/login/?next=" in Client().get("/sign-in/").content.decode()
    erika = {"sub": "1", "preferred_username": "erika", "groups": ["idp-on-call", "other"], "is_superuser": True}
    facts["first"] = sign_in(provider, erika, query="?next=/links/")
    user = User.objects.get(username="erika")
    facts["first_user"] = [user.is_superuser, user.is_staff, user.has_usable_password(), user.role_bindings.count()]
    facts["first_groups"] = groups()
    facts["first_audit"] = list(AuditEvent.objects.filter(action="CreateUser").values_list("resource", flat=True))
    facts["again"] = sign_in(provider, {**erika, "preferred_username": "renamed", "groups": "idp-admins"})
    facts["again_groups"] = groups()
    facts["elsewhere"] = sign_in(provider, erika, query="?next=https://elsewhere.example/")
    facts["user_id"] = str(user.pk)
    identity = SocialAccount.objects.get(uid="1")
    here = identity.extra_data
    SocialAccount.objects.filter(pk=identity.pk).update(
        extra_data={**here, "id_token": {**here["id_token"], "iss": "https://former"}}
    )
    facts["other_issuer"] = sign_in(provider, erika)
    SocialAccount.objects.filter(pk=identity.pk).update(extra_data=here)
    facts["without_groups"] = sign_in(provider, {"sub": "1", "preferred_username": "erika"})["user"]
    facts["no_groups"] = groups()
    facts["taken"] = sign_in(provider, {"sub": "2", "preferred_username": "ROOT"})
    facts["reserved"] = sign_in(provider, {"sub": "3", "preferred_username": "engine"})
    facts["malformed"] = sign_in(provider, {"sub": "4", "preferred_username": "with space"})
    facts["other_subject"] = sign_in(provider, {"sub": "5", "preferred_username": "eve"}, userinfo={"sub": "1"})
    facts["wrong_state"] = sign_in(provider, erika, state="forged")
    facts["wrong_code"] = sign_in(provider, erika, code="forged")
    facts["connect"] = sign_in(provider, {"sub": "6", "preferred_username": "mallory"}, query="?process=connect")
    facts["token_requests_refused"] = len(provider.refused)
    other: dict[str, Any] = {"client_id": "other", "secret": "other", "settings": {"server_url": provider.address}}
    SocialApp.objects.create(provider="openid_connect", provider_id="other", name="Other", **other)
    facts["other_provider"] = Client().get("/sign-in/other/login/").status_code
    providers: Any = settings.SOCIALACCOUNT_PROVIDERS
    app = providers["openid_connect"]["APPS"][0]["settings"]
    app["server_url"] = "http://127.0.0.1:1"
    facts["unavailable"] = start_sign_in()
    app["server_url"] = provider.address
    settings.OIDC_ISSUER = "https://login.example.com"
    facts["plain_http"] = start_sign_in()
    settings.OIDC_ISSUER = provider.address
    settings.OIDC_REQUIRED_GROUP = "console-users"
    facts["not_in_group"] = sign_in(provider, erika)
    facts["in_group"] = sign_in(provider, {**erika, "groups": ["console-users"]})
    settings.OIDC_REQUIRED_GROUP = ""
    User.objects.filter(pk=user.pk).update(is_active=False)
    facts["deactivated"] = sign_in(provider, erika)
    facts["users"] = sorted(User.objects.values_list("username", flat=True))
    facts["sign_ins"] = list(AuditEvent.objects.filter(action="SignIn").order_by("pk").values_list("result", "actor")[:2])
    facts["refusals"] = sorted(AuditEvent.objects.filter(action="SignIn", result="DENIED").values_list("resource", flat=True))
    paths = ("login/", "signup/", "password/reset/", "2fa/", "social/signup/", "logout/")
    addresses = [f"/{prefix}{path}" for prefix in ("", "accounts/", "sign-in/") for path in paths]
    facts["other_urls"] = sorted({Client().get(address).status_code for address in addresses})


def email_scenarios(provider: Provider) -> None:
    """Sign in with e-mail addresses that the provider has verified, and with others."""
    from django.conf import settings
    from django.contrib.auth.models import User

    from console.models import UserGroup

    local = User.objects.create_user("local", email="local@example.com", password=PASSWORD)
    same = {"sub": "20", "preferred_username": "other", "email": "local@example.com", "email_verified": True}
    facts["same_email"] = sign_in(provider, same)["user"] not in (None, str(local.pk))
    UserGroup.objects.filter(name="admins").update(external_name="boss@example.com")
    settings.OIDC_USER_CLAIM = settings.OIDC_GROUPS_CLAIM = "email"
    boss = {"sub": "21", "email": "boss@example.com"}
    facts["unverified"] = [
        sign_in(provider, {**boss, **more}) for more in ({}, {"email_verified": False}, {"email_verified": "true"})
    ]
    facts["unverified_userinfo"] = sign_in(
        provider, {"sub": "21", "email_verified": True}, userinfo={**boss, "email_verified": False}
    )
    facts["unverified_users"] = User.objects.filter(username="boss@example.com").count()
    facts["verified"] = sign_in(provider, {**boss, "email_verified": True})["user"]
    facts["verified_groups"] = list(
        UserGroup.objects.filter(memberships__user=facts["verified"]).values_list("name", flat=True)
    )
    settings.OIDC_USER_CLAIM, settings.OIDC_GROUPS_CLAIM = "preferred_username", "groups"


def admin_scenarios() -> None:
    """Open the administration's pages of identities and second factors as staff and as a superuser."""
    from allauth.mfa.models import Authenticator
    from allauth.socialaccount.models import SocialAccount
    from django.contrib import admin
    from django.contrib.auth.models import Permission, User
    from django.test import Client
    from django.urls import reverse

    from console.models import AuditEvent

    helper = User.objects.create_user("helper", password=PASSWORD, is_staff=True)
    helper.user_permissions.set(Permission.objects.all())
    erika = SocialAccount.objects.get(uid="1")
    factor = Authenticator.objects.create(user=erika.user, type="totp", data={"secret": "sealed-secret"})
    staff, root = Client(), Client()
    staff.force_login(helper)
    root.force_login(User.objects.get(username="root"))

    def statuses(client: Client, model: str, pk: int) -> list[int]:
        pages = (("changelist", ()), ("add", ()), ("change", (pk,)), ("delete", (pk,)))
        return [client.get(reverse(f"admin:{model}_{page}", args=arguments)).status_code for page, arguments in pages]

    rows = {"socialaccount_socialaccount": erika.pk, "mfa_authenticator": factor.pk}
    facts["admin_staff"] = [statuses(staff, model, pk) for model, pk in rows.items()]
    facts["admin_root"] = [statuses(root, model, pk) for model, pk in rows.items()]
    listed = (root.get(reverse(f"admin:{model}_{page}", args=args)) for model, pk in rows.items()
              for page, args in (("changelist", ()), ("change", (pk,))))  # fmt: skip
    facts["admin_secret"] = any("sealed-secret" in response.content.decode() for response in listed)
    facts["admin_models"] = sorted(model.__name__ for model in admin.site._registry if "allauth" in model.__module__)
    root.post(reverse("admin:mfa_authenticator_delete", args=[factor.pk]), {"post": "yes"})
    facts["factor_left"] = Authenticator.objects.filter(pk=factor.pk).exists()
    facts["admin_audit"] = list(AuditEvent.objects.filter(action="DeleteAuthenticator").values_list("actor", "resource"))


def code_at(secret: str, periods: int) -> str:
    """Return the code of the period that is ``periods`` away from the current period."""
    from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value

    return str(format_hotp_value(hotp_value(secret, int(time.time()) // 30 + periods)))


def rotate_key() -> list[str]:
    """Rotate the key of stored credentials; return what the command prints about second factors."""
    from django.conf import settings
    from django.core.management import CommandError, call_command

    newest = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    settings.CREDENTIALS_KEYS = [newest, *settings.CREDENTIALS_KEYS]
    lines = []
    for arguments in (["--check"], [], ["--check"]):
        output = io.StringIO()
        with contextlib.suppress(CommandError):
            call_command("reencrypt_credentials", *arguments, stdout=output)
        lines += [line for line in output.getvalue().splitlines() if line.startswith("Second")]
    settings.CREDENTIALS_KEYS = [newest]
    return lines


def second_factor_scenarios() -> None:
    """Turn the second factor on, sign in with it, and turn it off."""
    from allauth.mfa.models import Authenticator
    from django.contrib.auth.models import User
    from django.test import Client

    from console.models import AuditEvent

    address, page = "/sign-in/code/", "/settings/second-factor/"
    User.objects.create_superuser("amelia", password=PASSWORD)
    while time.time() % 30 > 20:  # all codes below are of the same period
        time.sleep(0.5)

    def with_password() -> Any:
        client = Client()
        response = client.post("/sign-in/", {"username": "amelia", "password": PASSWORD, "next": "/links/"})
        return client, response["Location"], "_auth_user_id" in client.session

    client, facts["where_without"], facts["signed_in_without"] = with_password()
    text = client.get(page).content.decode()
    (secret,) = re.findall(r'aria-label="secret">([A-Z2-7]+)<', text)
    facts["qr"] = "<svg" in text
    facts["secret_in_session"] = secret in str(dict(client.session.items()))
    facts["secret_kept"] = secret in client.get(page).content.decode()
    facts["wrong_password"] = client.post(page, {"password": "guess", "code": code_at(secret, 0)}).status_code
    facts["wrong_first_code"] = client.post(page, {"password": PASSWORD, "code": "abc"}).status_code
    facts["rows_before"] = Authenticator.objects.count()
    turned_on = client.post(page, {"password": PASSWORD, "code": code_at(secret, -1)})
    codes, *_ = re.findall(r"<pre[^>]*>(.*?)</pre>", turned_on.content.decode(), re.DOTALL)
    recovery = re.findall(r"^\d{8}$", codes, re.MULTILINE)
    facts["turned_on"], facts["recovery_codes"] = turned_on.status_code, len(recovery)
    facts["secret_in_clear"] = secret in str(list(Authenticator.objects.values_list("data", flat=True)))
    facts["secret_shown_again"] = secret in client.get(page).content.decode()

    client, facts["where"], facts["signed_in_by_password"] = with_password()
    facts["page_before_code"] = client.get("/links/").status_code
    facts["used_at_set_up"] = client.post(address, {"code": code_at(secret, -1)}).status_code
    facts["wrong_code_status"] = client.post(address, {"code": "000000"}).status_code
    response = client.post(address, {"code": code_at(secret, 0)})
    facts["after_code"] = [response.status_code, response.headers.get("Location"), "_auth_user_id" in client.session]

    other, _, _ = with_password()
    facts["replayed"] = other.post(address, {"code": code_at(secret, 0)}).status_code
    facts["recovered"] = other.post(address, {"code": recovery[0]}).status_code
    third, _, _ = with_password()
    facts["recovered_twice"] = third.post(address, {"code": recovery[0]}).status_code
    session = third.session
    session["second_factor"] = {**session["second_factor"], "until": time.time() - 1}
    session.save()
    facts["too_late"] = third.post(address, {"code": recovery[1]}).headers.get("Location")
    fourth, _, _ = with_password()
    user = User.objects.get(username="amelia")
    user.set_password("another passphrase 4712")
    user.save()
    facts["password_changed"] = fourth.post(address, {"code": recovery[1]}).headers.get("Location")
    user.set_password(PASSWORD)
    user.save()
    admin = Client()
    admin.post("/admin/login/", {"username": "amelia", "password": PASSWORD})
    facts["admin_form"] = "_auth_user_id" in admin.session
    facts["without_password"] = Client().get(address).headers.get("Location")

    facts["rotated"] = rotate_key()
    last, _, _ = with_password()
    last.post(address, {"code": recovery[2]})
    facts["off_without_code"] = last.post(page, {"password": PASSWORD, "code": "000000"}).status_code
    facts["off"] = last.post(page, {"password": PASSWORD, "code": code_at(secret, 1)}).status_code
    facts["rows_after"] = Authenticator.objects.count()
    facts["signed_in_after"] = with_password()[2]
    events = AuditEvent.objects.filter(actor="amelia").order_by("pk")
    facts["audit"] = list(events.exclude(action="SignIn").values_list("action", flat=True))
    facts["code_sign_ins"] = sorted({event.detail["path"] for event in events.filter(action="SignIn")})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home, running_provider() as running:
        set_up(running, home)
        provider_scenarios(running)
        email_scenarios(running)
        admin_scenarios()
        second_factor_scenarios()
    json.dump(facts, sys.stdout)
