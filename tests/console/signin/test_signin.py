"""Sign-in with an identity provider that the test starts, and with a second factor; both by django-allauth.

All scenarios run once, in a process of their own (``scenarios.py``); each test reads its part of what happened there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from console.config.env import https_or_loopback

Facts = dict[str, Any]


@pytest.fixture(scope="module")
def facts() -> Facts:
    """The findings of the scenarios."""
    pytest.importorskip("allauth")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CLUSTERLINK_")}
    program = Path(__file__).with_name("scenarios.py")
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found: Facts = json.loads(done.stdout.splitlines()[-1])
    return found


def refused(outcome: Facts) -> str:
    """Return the message of a refused sign-in."""
    assert (outcome["status"], outcome["where"], outcome["user"]) == (302, "/sign-in/", None)
    return str(outcome["message"])


class TestProvider:
    """Users of an identity provider."""

    def test_a_first_sign_in_creates_a_user_without_rights(self, facts: Facts) -> None:
        assert facts["button"]
        assert facts["first"]["where"] == "/links/"
        assert facts["first"]["user"] == facts["user_id"]
        assert facts["first_user"] == [False, False, False, 0]  # superuser, staff, password, own roles
        assert facts["first_audit"] == ["user/erika"]
        assert facts["first"]["session_rows"] == 1

    def test_groups_of_the_provider_are_followed_at_each_sign_in(self, facts: Facts) -> None:
        assert facts["first_groups"] == ["on-call"]
        assert facts["again_groups"] == ["admins"]
        assert facts["no_groups"] == []

    def test_a_user_is_identified_by_subject_not_by_name(self, facts: Facts) -> None:
        assert facts["again"]["user"] == facts["without_groups"] == facts["user_id"]
        assert facts["users"] == ["erika", "root"]

    def test_sign_ins_and_refusals_are_audited(self, facts: Facts) -> None:
        assert facts["sign_ins"] == [["SUCCESS", "erika"], ["SUCCESS", "erika"]]
        assert {"provider-subject/2", "provider-subject/3", "provider-subject/6"} <= set(facts["refusals"])

    def test_an_account_is_not_found_by_its_email_address(self, facts: Facts) -> None:
        assert facts["same_email"]

    def test_an_unverified_email_address_is_neither_a_name_nor_a_group(self, facts: Facts) -> None:
        for outcome in (*facts["unverified"], facts["unverified_userinfo"]):
            assert "not verified" in refused(outcome)
        assert facts["unverified_users"] == 0
        assert facts["verified"]
        assert facts["verified_groups"] == ["admins"]

    def test_a_name_of_a_local_user_is_refused(self, facts: Facts) -> None:
        assert "exists already" in refused(facts["taken"])

    @pytest.mark.parametrize("outcome", ["reserved", "malformed"])
    def test_reserved_and_malformed_names_are_refused(self, facts: Facts, outcome: str) -> None:
        assert "not a valid user name" in refused(facts[outcome])

    def test_userinfo_of_another_subject_is_refused(self, facts: Facts) -> None:
        assert "different users" in refused(facts["other_subject"])

    def test_a_subject_of_another_issuer_is_refused(self, facts: Facts) -> None:
        assert "configured before" in refused(facts["other_issuer"])

    @pytest.mark.parametrize("outcome", ["wrong_state", "wrong_code"])
    def test_a_forged_state_or_code_is_refused(self, facts: Facts, outcome: str) -> None:
        assert "failed or was canceled" in refused(facts[outcome])
        assert facts["token_requests_refused"] == 1  # the provider never saw the code of the forged state

    @pytest.mark.parametrize("outcome", ["unavailable", "plain_http"])
    def test_a_provider_that_is_not_available_leads_back_to_the_sign_in_page(self, facts: Facts, outcome: str) -> None:
        """Also one whose configuration names an address without TLS."""
        assert "not available" in refused(facts[outcome])

    def test_a_sign_in_is_not_connected_to_a_local_user(self, facts: Facts) -> None:
        assert "cannot be connected" in refused(facts["connect"])

    def test_a_required_group_is_checked_at_each_sign_in(self, facts: Facts) -> None:
        assert "not in the group" in refused(facts["not_in_group"])
        assert facts["in_group"]["user"] == facts["user_id"]

    def test_a_deactivated_user_is_refused(self, facts: Facts) -> None:
        assert "is deactivated" in refused(facts["deactivated"])

    def test_a_sign_in_does_not_redirect_to_other_hosts(self, facts: Facts) -> None:
        assert facts["elsewhere"]["where"] == "/"

    def test_a_provider_in_the_database_is_not_used(self, facts: Facts) -> None:
        assert facts["other_provider"] == 404

    def test_no_other_page_of_the_library_is_served(self, facts: Facts) -> None:
        assert facts["other_urls"] == [404]


class TestAdministration:
    """Pages of the library's models in the Django administration."""

    def test_staff_neither_see_nor_edit_identities(self, facts: Facts) -> None:
        """Staff with all of Django's permissions; an edited identity would let its holder sign in as any user."""
        assert facts["admin_staff"] == [[302] * 4, [302] * 4]

    def test_superusers_delete_them_only(self, facts: Facts) -> None:
        assert facts["admin_root"] == [[200, 403, 200, 200], [200, 403, 200, 200]]
        assert facts["admin_models"] == ["Authenticator", "SocialAccount"]
        assert not facts["factor_left"]
        assert facts["admin_audit"] == [["root", "user/erika"]]

    def test_stored_secrets_are_not_shown(self, facts: Facts) -> None:
        assert not facts["admin_secret"]


class TestSecondFactor:
    """Time-based codes and recovery codes."""

    def test_second_factor_is_turned_on_with_password_and_code(self, facts: Facts) -> None:
        assert (facts["wrong_password"], facts["wrong_first_code"], facts["rows_before"]) == (422, 422, 0)
        assert (facts["turned_on"], facts["recovery_codes"], facts["qr"]) == (201, 10, True)

    def test_the_secret_is_encrypted_and_not_shown_again(self, facts: Facts) -> None:
        assert not facts["secret_in_clear"]
        assert not facts["secret_in_session"]
        assert facts["secret_kept"]  # until it is confirmed
        assert not facts["secret_shown_again"]

    def test_the_password_alone_does_not_sign_in(self, facts: Facts) -> None:
        assert (facts["where_without"], facts["signed_in_without"]) == ("/links/", True)
        assert (facts["where"], facts["signed_in_by_password"], facts["page_before_code"]) == ("/sign-in/code/", False, 302)
        assert facts["wrong_code_status"] == 422
        assert facts["after_code"] == [302, "/links/", True]

    def test_a_code_is_accepted_once(self, facts: Facts) -> None:
        assert facts["used_at_set_up"] == 422
        assert facts["replayed"] == 422

    def test_a_recovery_code_is_accepted_once(self, facts: Facts) -> None:
        assert (facts["recovered"], facts["recovered_twice"]) == (302, 422)

    def test_a_code_needs_a_recent_password(self, facts: Facts) -> None:
        assert facts["too_late"] == facts["password_changed"] == facts["without_password"] == "/sign-in/"

    def test_the_administration_does_not_bypass_it(self, facts: Facts) -> None:
        assert not facts["admin_form"]

    def test_a_rotation_of_the_key_keeps_it(self, facts: Facts) -> None:
        assert facts["rotated"] == [
            "Second factors: 2 rewritten",
            "Second factors: 2 rewritten",
            "Second factors: 2 had the newest key",
        ]

    def test_second_factor_is_turned_off_with_a_code(self, facts: Facts) -> None:
        assert (facts["off_without_code"], facts["off"], facts["rows_after"]) == (422, 302, 0)
        assert facts["signed_in_after"]

    def test_changes_are_audited(self, facts: Facts) -> None:
        assert facts["code_sign_ins"] == ["/sign-in/", "/sign-in/code/"]
        assert facts["audit"] == ["TurnOnSecondFactor", "UseRecoveryCode", "UseRecoveryCode", "TurnOffSecondFactor"]


@pytest.mark.parametrize("url", ["", "https://login.example.com/realms/main", "http://127.0.0.1:8080", "http://localhost"])
def test_a_provider_with_tls_or_on_this_machine_is_accepted(url: str) -> None:
    assert https_or_loopback("X", url) == url


@pytest.mark.parametrize("url", ["http://login.example.com", "login.example.com", "ftp://127.0.0.1", "https://"])
def test_a_provider_without_tls_is_refused(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="X has to be an https address"):
        https_or_loopback("X", url)
