"""Pages for users, groups, invitations, the profile, API keys and the explanation of access."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.access import account_actions
from console.access import actions as access_actions
from console.access.actions import grant_role
from console.access.queries import valid_key
from console.actors import SYSTEM
from console.models import Account, ApiKey, AuditEvent, RoleBinding, UserGroup, UserSession
from tests.browser.page_data import PASSWORD, PageData
from tests.console.pages.conftest import client_of

NEW = "a new passphrase 4711"


@pytest.fixture
def auditor(page_data: PageData) -> Client:
    """Charles, as an auditor of the organization."""
    facts = {"granted_at": page_data.now, "granted_by": "test"}
    RoleBinding.objects.create(user=page_data.stranger, role="Auditor", organization=page_data.organization, **facts)
    return client_of(page_data.stranger)


def snippets(response: Any) -> list[str]:
    """Return the texts of a page that are to be copied."""
    return re.findall(r"<pre[^>]*>([^<]*)</pre>", response.content.decode())


class TestExplain:
    """The page that shows who may do something, and why."""

    @staticmethod
    def request(client: Client, page_data: PageData, **values: str) -> str:
        query = {"permission": "OPERATE_MIRROR", "place": f"cluster:{page_data.east.pk}", **values}
        response = client.get("/access/explain/", query)
        assert response.status_code == 200, response.content.decode()
        return str(response.content.decode())

    def test_the_granting_bindings_are_shown(self, page_data: PageData, admin: Client) -> None:
        group = access_actions.create_group(name="on-call", organization=page_data.organization, by=SYSTEM, now=page_data.now)
        grant_role(group=group, role="Operator", cluster=page_data.east, by=SYSTEM, now=page_data.now)
        access_actions.add_member(group=group, user=page_data.stranger, by=SYSTEM, now=page_data.now)

        text = self.request(admin, page_data, user="charles")

        assert "<strong>Allowed.</strong>" in text
        assert "Operator on Skyways / Production / us-east" in text
        assert "as a member of group on-call" in text
        assert "<strong>Denied.</strong>" in self.request(admin, page_data, user="charles", permission="MANAGE_LINK")
        assert "<strong>Denied.</strong>" in self.request(
            admin, page_data, user="charles", place=f"cluster:{page_data.west.pk}"
        )

    def test_all_users_with_a_permission_are_listed(self, page_data: PageData, admin: Client) -> None:
        text = self.request(admin, page_data).split('id="answer"')[1]

        assert "amelia" in text
        assert "bessie" not in text
        assert "bessie" in self.request(admin, page_data, permission="VIEW").split('id="answer"')[1]

    def test_an_expired_binding_is_shown_as_the_reason(self, page_data: PageData, admin: Client) -> None:
        facts = {"granted_at": page_data.now, "granted_by": "test", "expires_at": timezone.now() - timedelta(hours=1)}
        RoleBinding.objects.create(user=page_data.stranger, role="Operator", cluster=page_data.east, **facts)

        text = self.request(admin, page_data, user="charles")

        assert "<strong>Denied.</strong>" in text
        assert "Operator on Skyways / Production / us-east (everything), expired" in text

    def test_a_role_on_a_topic_is_explained(self, page_data: PageData, admin: Client) -> None:
        topic: dict[str, Any] = {"resource_type": "Topic", "resource_name": "flights"}
        grant_role(
            user=page_data.stranger, role="DeveloperManage", cluster=page_data.east, **topic, by=SYSTEM, now=page_data.now
        )

        assert "<strong>Allowed.</strong>" in self.request(admin, page_data, user="charles", **topic)
        assert "<strong>Denied.</strong>" in self.request(admin, page_data, user="charles")

    def test_the_explanation_agrees_with_a_link_role(self, page_data: PageData, admin: Client) -> None:
        link: dict[str, Any] = {"resource_type": "ClusterLink", "resource_name": page_data.link.name}
        grant_role(user=page_data.stranger, role="ResourceOwner", cluster=page_data.east, **link, by=SYSTEM, now=page_data.now)

        mirror = {"resource_type": "Topic", "resource_name": "flights"}
        assert "<strong>Allowed.</strong>" in self.request(admin, page_data, user="charles", **mirror)

    def test_a_deactivated_user_is_denied(self, page_data: PageData, admin: Client) -> None:
        User.objects.filter(pk=page_data.reader.pk).update(is_active=False)

        response = admin.get(
            "/access/explain/", {"permission": "VIEW", "place": f"cluster:{page_data.east.pk}", "user": "bessie"}
        )

        assert response.status_code == 422  # the field names active users only
        assert "bessie" not in self.request(admin, page_data, permission="VIEW").split('id="answer"')[1]

    def test_a_reader_may_explain_own_permissions_only(self, page_data: PageData, reader: Client) -> None:
        place = f"cluster:{page_data.east.pk}"
        own = reader.get("/access/explain/", {"permission": "VIEW", "place": place, "user": "bessie"})
        others = reader.get("/access/explain/", {"permission": "VIEW", "place": place})
        other = reader.get("/access/explain/", {"permission": "VIEW", "place": place, "user": "amelia"})

        assert [response.status_code for response in (own, others, other)] == [200, 403, 403]
        assert "amelia" not in others.content.decode()

    @pytest.mark.parametrize("values", [{"place": "cluster:999"}, {"permission": "FLY"}, {"resource_type": "Topic"}])
    def test_a_malformed_question_shows_the_form_again(
        self, page_data: PageData, admin: Client, values: dict[str, str]
    ) -> None:
        query = {"permission": "VIEW", "place": f"cluster:{page_data.east.pk}"} | values

        assert admin.get("/access/explain/", query).status_code == 422

    def test_permissions_page_needs_few_queries(self, page_data: PageData, auditor: Client) -> None:
        with CaptureQueriesContext(connection) as queries:
            self.request(auditor, page_data, resource_type="Topic", resource_name="flights")

        assert len(queries) <= 10


class TestUsers:
    """Invitations and service accounts."""

    def test_a_user_is_invited_and_signs_in(self, page_data: PageData, admin: Client) -> None:
        response = admin.post("/access/users/invite/", {"name": "dorothy", "organization": str(page_data.organization.pk)})

        assert (response.status_code, response["Cache-Control"]) == (201, "no-store")
        (link,) = snippets(response)
        path = link.removeprefix("http://testserver")
        newcomer = Client()
        assert "Welcome, dorothy" in newcomer.get(path).content.decode()
        assert newcomer.post(path, {"new_password": NEW, "repeated": "other"}).status_code == 422
        assert newcomer.post(path, {"new_password": NEW, "repeated": NEW})["Location"] == "/sign-in/"
        assert newcomer.post("/sign-in/", {"username": "dorothy", "password": NEW}).status_code == 302
        assert newcomer.get(path).status_code == 404
        assert "dorothy" in admin.get("/access/users/").content.decode()

    def test_an_unknown_invitation_is_not_found(self, db: None) -> None:
        response = Client().get("/invitation/unknown/")

        assert response.status_code == 404
        assert "Ask for a new one" in response.content.decode()

    def test_a_taken_name_is_refused_at_the_field(self, page_data: PageData, admin: Client) -> None:
        response = admin.post("/access/users/invite/", {"name": "bessie", "organization": str(page_data.organization.pk)})

        assert response.status_code == 422
        assert "already exists" in response.content.decode().split('id="name_error"')[1]

    def test_a_service_account_gets_a_key_with_limits(self, page_data: PageData, admin: Client) -> None:
        organization = str(page_data.organization.pk)
        admin.post("/access/users/service/", {"name": "terraform", "organization": organization, "description": "CI"})
        account = Account.objects.get(user__username="terraform")
        assert account.kind == Account.Kind.SERVICE

        values = {
            "owner": str(account.user_id),
            "role": "Operator",
            "place": f"cluster:{page_data.east.pk}",
            "expires_at": "24",
        }
        response = admin.post("/access/api-keys/", values | {"description": "ci"})

        assert response.status_code == 201
        key, secret = snippets(response)
        row = ApiKey.objects.get(key=key)
        assert (row.user, row.role, row.cluster) == (account.user, "Operator", page_data.east)
        assert valid_key(key=key, secret=secret, now=timezone.now()) == row
        assert "Operator in Skyways / Production / us-east" in admin.get("/access/api-keys/").content.decode()

    def test_a_key_is_rotated_after_confirmation(self, admin: Client) -> None:
        address = "/access/api-keys/ABCDEFGHIJKLMNOP/rotate/"
        assert admin.get(address).status_code == 200

        response = admin.post(address, {"overlap": "24"})

        assert response.status_code == 201
        key, secret = snippets(response)
        assert valid_key(key=key, secret=secret, now=timezone.now()) is not None
        assert "It replaces ABCDEFGHIJKLMNOP." in response.content.decode()
        assert admin.post(address, {"overlap": "24"}).status_code == 409
        assert secret not in admin.get("/access/api-keys/").content.decode()

    def test_a_foreign_key_or_owner_is_refused(self, page_data: PageData, reader: Client) -> None:
        assert reader.post("/access/api-keys/ABCDEFGHIJKLMNOP/rotate/", {"overlap": "0"}).status_code == 404
        assert reader.post("/access/api-keys/", {"owner": str(page_data.admin.pk)}).status_code == 422
        assert not ApiKey.objects.filter(user=page_data.admin).exclude(key="ABCDEFGHIJKLMNOP").exists()

    def test_a_user_is_deactivated_after_confirmation(self, page_data: PageData, admin: Client) -> None:
        account = Account(
            user=page_data.reader, organization=page_data.organization, created_at=page_data.now, created_by="test"
        )
        account.save()
        address = f"/access/users/{page_data.reader.pk}/deactivate/"
        assert "bessie" in admin.get(address).content.decode()

        admin.post(address)

        assert not User.objects.get(pk=page_data.reader.pk).is_active
        assert AuditEvent.objects.filter(action="DeactivateUser", resource="organization/Skyways/user/bessie").exists()

    @pytest.mark.parametrize("path", ["invite/", "service/"])
    def test_users_who_may_not_invite_see_no_organization(self, page_data: PageData, reader: Client, path: str) -> None:
        response = reader.post(f"/access/users/{path}", {"name": "dorothy", "organization": str(page_data.organization.pk)})

        assert response.status_code == 422
        assert not User.objects.filter(username="dorothy").exists()

    def test_an_auditor_sees_users_and_changes_nothing(self, page_data: PageData, auditor: Client) -> None:
        Account.objects.create(
            user=page_data.reader, organization=page_data.organization, created_at=page_data.now, created_by="test"
        )

        text = auditor.get("/access/users/").content.decode()

        assert "bessie" in text
        assert "/deactivate/" not in text
        assert auditor.post(f"/access/users/{page_data.reader.pk}/deactivate/").status_code == 403
        assert User.objects.get(pk=page_data.reader.pk).is_active

    def test_readers_see_no_users(self, page_data: PageData, reader: Client) -> None:
        Account.objects.create(
            user=page_data.stranger, organization=page_data.organization, created_at=page_data.now, created_by="test"
        )

        assert "charles" not in reader.get("/access/users/").content.decode()
        assert reader.post(f"/access/users/{page_data.stranger.pk}/deactivate/").status_code == 404

    def test_an_unknown_verb_is_not_found(self, page_data: PageData, admin: Client) -> None:
        assert admin.get(f"/access/users/{page_data.reader.pk}/promote/").status_code == 404


class TestGroups:
    """Groups, their members and roles."""

    def test_a_group_is_created_filled_and_given_a_role(self, page_data: PageData, admin: Client) -> None:
        values = {"name": "on-call", "organization": str(page_data.organization.pk)}
        address = admin.post("/access/groups/new/", values)["Location"]
        group = UserGroup.objects.get(name="on-call")

        admin.post(address, {"user": "charles"})
        place = f"cluster:{page_data.east.pk}"
        response = admin.post("/access/new/", {"group": str(group.pk), "role": "Operator", "place": place, "expires_at": "8"})

        assert response["Location"] == "/access/"
        binding = RoleBinding.objects.get(group=group)
        assert binding.expires_at is not None
        assert timedelta(hours=7) < binding.expires_at - timezone.now() <= timedelta(hours=8)
        text = admin.get(address).content.decode()
        assert "charles" in text
        assert "Operator" in text
        assert client_of(page_data.stranger).get(page_data.link_url).status_code == 200

        admin.post(f"{address}members/{page_data.stranger.pk}/remove/")
        assert client_of(page_data.stranger).get(page_data.link_url).status_code == 404
        admin.post(f"{address}delete/")
        assert not UserGroup.objects.filter(name="on-call").exists()

    def test_a_user_and_a_group_together_are_refused(self, page_data: PageData, admin: Client) -> None:
        group = access_actions.create_group(name="on-call", organization=page_data.organization, by=SYSTEM, now=page_data.now)
        values = {"group": str(group.pk), "user": "charles", "role": "Operator", "place": f"cluster:{page_data.east.pk}"}

        assert admin.post("/access/new/", values).status_code == 422
        assert not RoleBinding.objects.filter(group=group).exists()

    def test_an_organization_admin_maps_no_group_of_the_provider(self, page_data: PageData, admin: Client) -> None:
        values = {"name": "mapped", "organization": str(page_data.organization.pk), "external_name": "kafka-admins"}

        response = admin.post("/access/groups/new/", values)

        assert response.status_code == 422
        assert "external_name_error" in response.content.decode()
        assert not UserGroup.objects.filter(name="mapped").exists()

    def test_readers_see_no_groups(self, page_data: PageData, reader: Client) -> None:
        group = access_actions.create_group(name="on-call", organization=page_data.organization, by=SYSTEM, now=page_data.now)

        assert "on-call" not in reader.get("/access/groups/").content.decode()
        assert reader.get(f"/access/groups/{group.pk}/").status_code == 404
        assert reader.post(f"/access/groups/{group.pk}/", {"user": "bessie"}).status_code == 404


class TestProfile:
    """Preferences and sessions."""

    def test_time_zone_and_density_apply_to_all_pages_and_sessions(self, page_data: PageData) -> None:
        client, other = client_of(page_data.admin), Client()
        client.post("/settings/profile/", {"time_zone": "Asia/Tokyo", "density": "compact"})
        other.post("/sign-in/", {"username": "amelia", "password": PASSWORD})

        for browser in (client, other):
            text = browser.get("/audit/").content.decode()
            assert 'data-density="compact"' in text
            assert " JST" in text
            assert re.search(r'data-drawn="\S+\+09:00" data-zone="Asia/Tokyo"', text)
            assert "UTC" not in text

    def test_the_default_is_utc(self, admin: Client) -> None:
        text = admin.get("/audit/").content.decode()

        assert 'data-zone="UTC"' in text
        assert re.search(r":\d\d UTC\b", text)
        assert "data-density" not in text

    @pytest.mark.parametrize("values", [{"time_zone": "Mars/Base"}, {"density": "huge"}])
    def test_unknown_values_are_refused(self, admin: Client, values: dict[str, str]) -> None:
        response = admin.post("/settings/profile/", {"time_zone": "", "density": "compact"} | values)

        assert response.status_code == 422
        assert not Account.objects.filter(density="compact").exists()

    def test_sessions_are_listed_and_ended(self, page_data: PageData) -> None:
        here, there = Client(), Client(REMOTE_ADDR="192.0.2.7", HTTP_USER_AGENT="Agent/1")
        for client in (here, there):
            client.post("/sign-in/", {"username": "amelia", "password": PASSWORD})
        text = here.get("/settings/profile/").content.decode()
        assert "192.0.2.7" in text
        assert "Agent/1" in text

        row = UserSession.objects.get(client_address="192.0.2.7")
        here.post(f"/settings/sessions/{row.pk}/end/")

        assert there.get("/links/").status_code == 302
        assert here.get("/links/").status_code == 200

    def test_all_other_sessions_are_ended(self, page_data: PageData) -> None:
        clients = [client_of(page_data.admin) for _ in range(3)]

        clients[0].post("/settings/sessions/end-others/")

        assert [client.get("/links/").status_code for client in clients] == [200, 302, 302]

    def test_a_password_change_removes_the_other_sessions(self, page_data: PageData) -> None:
        here, there = client_of(page_data.admin), client_of(page_data.admin)

        here.post("/access/password/", {"password": PASSWORD, "new_password": NEW, "repeated": NEW})

        assert UserSession.objects.filter(user=page_data.admin).count() == 1
        assert "this session" in here.get("/settings/profile/").content.decode()
        assert there.get("/links/").status_code == 302

    def test_a_session_of_another_user_is_not_ended(self, page_data: PageData, admin: Client, reader: Client) -> None:
        row = UserSession.objects.get(user=page_data.admin)

        assert reader.post(f"/settings/sessions/{row.pk}/end/").status_code == 404
        assert admin.get("/links/").status_code == 200


def test_a_service_account_has_no_session(page_data: PageData, admin: Client) -> None:
    account_actions.create_service_account(
        name="bot", description="", organization=page_data.organization, by=SYSTEM, now=page_data.now
    )

    assert Client().post("/sign-in/", {"username": "bot", "password": ""}).status_code == 422
    assert Client().post("/sign-in/", {"username": "bot", "password": "!"}).status_code == 422
