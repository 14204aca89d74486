"""Drafts of links: values and configs, visibility, connection tests and lists, and the link that a draft becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import connection

from console.actors import Actor
from console.errors import BadRequestError, ConflictError, DeniedError, InvalidInputError, NotFoundError, UnavailableError
from console.links import checks as link_checks
from console.links import drafts
from console.links.drafts import (
    ACL_FILTERS,
    GROUP_FILTERS,
    KEEP_DRAFTS,
    OTHER_SIDE,
    OWN_SIDE,
    DraftValues,
    checks_of,
    get_draft,
    kept_secrets,
    listing_of,
    own_drafts,
    values_of,
)
from console.models import AuditEvent, Cluster, ClusterLink, Environment, LinkDraft, RoleBinding
from console.models.fields import seal, unseal
from console.redis import rate_limit
from linkengine.domain.clusterviews import SourceListing
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linkrules import AUTO_CREATE_FILTERS, check_configs
from linkengine.domain.mirrorability import ListedTopic
from tests.console.conftest import NOW, SOURCE_PROPERTIES, Engine, MakeActor

CONNECTION = {
    "bootstrap.servers": "far.example:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": 'org.apache.kafka.ScramLoginModule required username="link" password="s3cret-word";',
    "ssl.keystore.certificate.chain": "CERTIFICATE",
    "ssl.keystore.key": "KEY",
}
FAR = DraftValues(other_kind="other", connection=CONNECTION, own="east", name="fresh")


def test_values_are_restored_from_json_and_unknown_fields_are_ignored() -> None:
    draft = LinkDraft(values={**FAR.to_json(), "field_of_a_later_version": 1})

    assert values_of(draft) == FAR


def test_values_do_not_show_secrets_in_their_repr() -> None:
    assert "s3cret-word" not in repr(FAR)


def test_registered_cluster_needs_no_connection_configs() -> None:
    values = DraftValues(other="west", own="east", connection=CONNECTION)

    assert values.configs() == {}
    assert values.remote_id == "west"


def test_switches_set_their_configs_and_their_filters() -> None:
    values = replace(FAR, auto_create=True, sync_offsets=True, sync_acls=True)

    configs = values.configs()

    check_configs(configs)
    assert configs["auto.create.mirror.topics.enable"] == "true"
    assert '"name": "*"' in str(configs[AUTO_CREATE_FILTERS])
    assert '"name": "*"' in str(configs[GROUP_FILTERS])
    assert '"resourceType": "any"' in str(configs[ACL_FILTERS])


def test_filters_of_a_switch_that_is_off_are_no_configs() -> None:
    assert replace(FAR, topic_filters='{"topicFilters": []}').configs() == CONNECTION


def test_prefix_is_a_config_only_while_its_switch_is_on() -> None:
    assert replace(FAR, add_prefix=True, prefix="w.").configs()["cluster.link.prefix"] == "w."
    assert "cluster.link.prefix" not in replace(FAR, prefix="w.").configs()


def test_source_side_of_a_link_has_no_switches() -> None:
    values = DraftValues(link_mode="SOURCE", own="west", other="east", auto_create=True, add_prefix=True, prefix="w.")

    assert values.configs() == {"link.mode": "SOURCE"}


JAAS, KEY = "sasl.jaas.config", "ssl.keystore.key"


@pytest.mark.parametrize(
    "change",
    [
        {"bootstrap.servers": "elsewhere.example:9093"},
        {"security.protocol": "SASL_PLAINTEXT"},
        {"sasl.mechanism": "PLAIN"},
        {"ssl.truststore.certificates": "AUTHORITY"},
        {"ssl.endpoint.identification.algorithm": ""},
    ],
)
def test_both_secrets_must_be_entered_again_if_they_would_be_sent_elsewhere(change: dict[str, str]) -> None:
    after = {**CONNECTION, **change}

    assert {secret for secret, _ in kept_secrets(CONNECTION, after, entered=())} == {JAAS, KEY}
    assert {secret for secret, _ in kept_secrets(CONNECTION, after, entered=[JAAS])} == {KEY}
    assert kept_secrets(CONNECTION, after, entered=[JAAS, KEY]) == ()


def test_another_user_name_does_not_count_as_an_entered_password() -> None:
    """The user name is a part of sasl.jaas.config; the password in it is still the stored password."""
    after = {**CONNECTION, "bootstrap.servers": "elsewhere.example:1", JAAS: CONNECTION[JAAS].replace("link", "other")}

    assert [secret for secret, _ in kept_secrets(CONNECTION, after, entered=[KEY])] == [JAAS]


def test_removed_secret_is_sent_to_no_cluster() -> None:
    after = {"bootstrap.servers": "elsewhere.example:1", "security.protocol": "PLAINTEXT"}

    assert kept_secrets(CONNECTION, after, entered=()) == ()


def test_unchanged_recipient_needs_no_secret() -> None:
    after = {**CONNECTION, "ssl.keystore.certificate.chain": "ANOTHER"}

    assert kept_secrets(CONNECTION, after, entered=()) == ()


# --- stored drafts ----------------------------------------------------------------------------------------------------


Sent = list[tuple[str, dict[str, Any]]]
SECRET = "secret-of-the-link"
CHECKS = [{"code": "DNS", "status": "PASSED", "finding": "The names resolve.", "fix": "", "error_code": ""}]
LISTING = SourceListing(topics=(ListedTopic(name="orders"),), groups=(), acls=None, errors={"acls": "No right."})
OTHER = {"other_kind": "other", "connection": SOURCE_PROPERTIES, "own": "destination-id", "name": "new"}
REGISTERED = {"other": "source-id", "own": "destination-id", "name": "new"}
Start = Callable[..., LinkDraft]


@pytest.fixture
def start(destination: Cluster, owner: Actor, engine: Engine, sent: Sent) -> Start:
    """Return a function that creates a draft of the owner with these values."""
    engine.responses |= {"check_connection": CHECKS, "list_source": seal(LISTING.to_json())}

    def make(by: Actor = owner, **values: Any) -> LinkDraft:
        return drafts.start(values=replace(DraftValues(), **values), by=by, now=NOW)

    return make


def test_draft_is_stored_encrypted_with_its_secrets(start: Start) -> None:
    draft = start(**OTHER)

    with connection.cursor() as cursor:
        cursor.execute('SELECT "values" FROM console_linkdraft')
        stored = str(cursor.fetchone()[0])
    assert SECRET not in stored
    assert "source.test" not in stored
    assert values_of(LinkDraft.objects.get(pk=draft.pk)).connection == SOURCE_PROPERTIES


def test_user_who_may_manage_links_nowhere_cannot_start_a_draft(start: Start, stranger: Actor) -> None:
    with pytest.raises(DeniedError, match="on any cluster"):
        start(by=stranger)

    assert not LinkDraft.objects.exists()
    assert AuditEvent.objects.get().result == "DENIED"


@pytest.mark.parametrize(("kind", "allowed"), [("ClusterLink", True), ("Topic", False)])
def test_role_on_links_permits_a_draft_and_a_role_on_topics_does_not(
    start: Start, destination: Cluster, stranger: Actor, kind: str, allowed: bool
) -> None:
    place = {"cluster": destination, "resource_type": kind, "resource_name": "new"}
    RoleBinding.objects.create(user=stranger.user, role="ResourceOwner", granted_at=NOW, granted_by="test", **place)

    if allowed:
        assert start(by=stranger).user == stranger.user
    else:
        with pytest.raises(DeniedError):
            start(by=stranger)


def test_draft_is_visible_to_its_user_only_until_it_expires(
    start: Start, owner: Actor, make_actor: MakeActor, environment: Environment
) -> None:
    draft = start(**OTHER)

    assert get_draft(draft_id=draft.pk, by=owner, now=NOW + KEEP_DRAFTS) == draft
    with pytest.raises(NotFoundError):
        get_draft(draft_id=draft.pk, by=owner, now=NOW + KEEP_DRAFTS + timedelta(seconds=1))
    colleague = make_actor("colleague", RoleBinding.Role.ENVIRONMENT_ADMIN, environment=environment)
    with pytest.raises(NotFoundError):
        get_draft(draft_id=draft.pk, by=colleague, now=NOW)
    with pytest.raises(NotFoundError):
        drafts.save(draft=draft, changes={"name": "stolen"}, by=colleague, now=NOW)
    drafts.discard(draft=draft, by=colleague)
    assert list(own_drafts(by=owner, now=NOW)) == [draft]


def test_number_of_drafts_is_limited(start: Start) -> None:
    for _ in range(drafts.MOST_DRAFTS):
        start()

    with pytest.raises(ConflictError, match="Continue or discard"):
        start()


def test_step_changes_only_its_own_fields(start: Start, owner: Actor) -> None:
    draft = start(**OTHER)

    drafts.save(draft=draft, changes={"name": "first"}, by=owner, now=NOW)
    drafts.save(draft=draft, changes={"prefix": "w."}, by=owner, now=NOW + timedelta(hours=1))

    stored = LinkDraft.objects.get(pk=draft.pk)
    values = values_of(stored)
    assert (values.name, values.prefix, values.connection) == ("first", "w.", SOURCE_PROPERTIES)
    assert stored.updated_at == NOW + timedelta(hours=1)


def test_stored_secret_is_not_sent_to_another_address(start: Start, owner: Actor) -> None:
    draft = start(**OTHER)
    moved = {**SOURCE_PROPERTIES, "bootstrap.servers": "elsewhere.test:9092"}

    with pytest.raises(InvalidInputError) as refused:
        drafts.save(draft=draft, changes={"connection": moved}, by=owner, now=NOW)
    assert (refused.value.code, refused.value.field) == ("SECRET_NEEDED", "sasl.jaas.config")
    assert values_of(LinkDraft.objects.get(pk=draft.pk)).connection == SOURCE_PROPERTIES

    drafts.save(draft=draft, changes={"connection": moved}, entered=["sasl.jaas.config"], by=owner, now=NOW)
    assert values_of(LinkDraft.objects.get(pk=draft.pk)).connection == moved


def test_connection_test_of_an_unregistered_cluster_sends_its_secrets_encrypted(
    start: Start, owner: Actor, engine: Engine
) -> None:
    draft = start(**OTHER)

    checks = drafts.check_side(draft=draft, side=OTHER_SIDE, by=owner, now=NOW)

    ((task, sent),) = engine.calls
    assert (task, sent["role"], sent["other_cluster_id"]) == ("check_connection", "SOURCE", "destination-id")
    assert SECRET not in str(sent)
    assert unseal(sent["sealed"]) == SOURCE_PROPERTIES
    stored = checks_of(LinkDraft.objects.get(pk=draft.pk))
    assert (stored[OTHER_SIDE].checks, stored[OTHER_SIDE].tested_at) == (checks, NOW)


@pytest.mark.parametrize(
    ("mode", "own", "other"),
    [("DESTINATION", "DESTINATION", "SOURCE"), ("SOURCE", "SOURCE", "DESTINATION"), ("BIDIRECTIONAL", "ANY", "ANY")],
)
def test_rights_are_tested_for_the_role_of_each_cluster(
    start: Start, source: Cluster, owner: Actor, engine: Engine, mode: str, own: str, other: str
) -> None:
    draft = start(**REGISTERED, link_mode=mode)

    for side in (OWN_SIDE, OTHER_SIDE):
        drafts.check_side(draft=draft, side=side, by=owner, now=NOW)

    assert [sent["role"] for _, sent in engine.calls] == [own, other]
    assert [sent["expected_cluster_id"] for _, sent in engine.calls] == ["destination-id", "source-id"]


def test_connection_test_uses_stored_credentials_only_with_permission(
    start: Start, source: Cluster, destination: Cluster, stranger: Actor, engine: Engine
) -> None:
    """A ResourceOwner may manage links, but not use the stored credentials of clusters."""
    for cluster in (source, destination):
        RoleBinding.objects.create(user=stranger.user, role="ResourceOwner", cluster=cluster, granted_at=NOW, granted_by="test")
    draft = start(by=stranger, **REGISTERED)

    with pytest.raises(DeniedError, match="use the stored credentials"):
        drafts.check_side(draft=draft, side=OTHER_SIDE, by=stranger, now=NOW)
    with pytest.raises(DeniedError, match="use the stored credentials"):
        drafts.list_source(draft=draft, by=stranger, now=NOW)
    assert engine.calls == []

    drafts.check_side(draft=draft, side=OWN_SIDE, by=stranger, now=NOW)
    assert len(engine.calls) == 1


def test_source_is_listed_only_for_users_who_may_create_the_link(
    start: Start, source: Cluster, destination: Cluster, stranger: Actor, engine: Engine
) -> None:
    """Stored credentials of a paired link would be used for an inbound link, which needs no permission to use them."""
    binding = {"user": stranger.user, "granted_at": NOW, "granted_by": "test"}
    RoleBinding.objects.create(role="ResourceOwner", cluster=source, **binding)
    RoleBinding.objects.create(role="DeveloperRead", cluster=destination, **binding)
    draft = start(by=stranger, **REGISTERED, connection_mode="INBOUND")

    with pytest.raises(DeniedError, match="manage links"):
        drafts.list_source(draft=draft, by=stranger, now=NOW)

    assert engine.calls == []


def test_number_of_tests_in_a_row_is_limited(
    start: Start, owner: Actor, engine: Engine, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_checks, "TESTS_AT_ONCE", 2)
    monkeypatch.setattr(link_checks, "TESTS_PER_S", 0.01)
    rate_limit.reset(f"connection-test:{owner.name}")
    draft = start(**OTHER)
    drafts.check_side(draft=draft, side=OTHER_SIDE, by=owner, now=NOW)
    drafts.list_source(draft=draft, by=owner, now=NOW)

    with pytest.raises(UnavailableError, match="Try again in") as refused:
        drafts.check_side(draft=draft, side=OTHER_SIDE, by=owner, now=NOW)
    with pytest.raises(UnavailableError):
        drafts.list_source(draft=draft, by=owner, now=NOW)
    rate_limit.reset(f"connection-test:{owner.name}")

    assert refused.value.code == "TOO_MANY_TESTS"
    assert [task for task, _ in engine.calls] == ["check_connection", "list_source"]


def test_source_is_listed_with_the_credentials_of_the_link(start: Start, owner: Actor, engine: Engine) -> None:
    draft = start(**OTHER)

    drafts.list_source(draft=draft, by=owner, now=NOW)

    ((task, sent),) = engine.calls
    assert (task, unseal(sent["sealed"])) == ("list_source", SOURCE_PROPERTIES)
    stored = LinkDraft.objects.get(pk=draft.pk)
    assert (listing_of(stored), stored.listed_at) == (LISTING, NOW)


def test_tests_and_lists_are_dropped_when_the_connection_changes(start: Start, owner: Actor) -> None:
    draft = start(**OTHER)
    drafts.check_side(draft=draft, side=OTHER_SIDE, by=owner, now=NOW)
    drafts.list_source(draft=draft, by=owner, now=NOW)

    drafts.save(draft=draft, changes={"name": "renamed", "auto_create": True}, by=owner, now=NOW)
    kept = LinkDraft.objects.get(pk=draft.pk)
    drafts.save(draft=draft, changes={"other_cluster_id": "far"}, by=owner, now=NOW)
    dropped = LinkDraft.objects.get(pk=draft.pk)

    assert OTHER_SIDE in checks_of(kept)
    assert listing_of(kept) == LISTING
    assert (checks_of(dropped), listing_of(dropped), dropped.listed_at) == ({}, None, None)


def test_connection_test_of_values_that_have_changed_since_is_not_stored(
    start: Start, owner: Actor, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = start(**OTHER)

    def change_and_return(*_names: Any, **_words: Any) -> Any:
        drafts.save(draft=draft, changes={"other_cluster_id": "far"}, by=owner, now=NOW)
        return CHECKS

    monkeypatch.setattr("console.links.drafts.dispatch.call", change_and_return)
    drafts.check_side(draft=draft, side=OTHER_SIDE, by=owner, now=NOW)

    assert checks_of(LinkDraft.objects.get(pk=draft.pk)) == {}


def test_failed_call_to_the_worker_is_an_error_and_stores_nothing(start: Start, owner: Actor, engine: Engine) -> None:
    draft = start(**OTHER)
    engine.refuses("list_source", LinkEngineError(ErrorCode.AUTHENTICATION_ERROR, "Wrong password."))

    with pytest.raises(BadRequestError, match="Wrong password"):
        drafts.list_source(draft=draft, by=owner, now=NOW)

    assert listing_of(LinkDraft.objects.get(pk=draft.pk)) is None


def test_launch_creates_the_link_and_deletes_the_draft(start: Start, owner: Actor, source: Cluster) -> None:
    draft = start(**OTHER, other_cluster_id="source-id", sync_offsets=True, add_prefix=True, prefix="w.")

    link = drafts.launch(draft=draft, by=owner, now=NOW)

    assert isinstance(link, ClusterLink)
    assert (link.name, link.prefix, link.source) == ("new", "w.", source)
    assert link.properties == SOURCE_PROPERTIES
    assert link.config("consumer.offset.sync.enable") == "true"
    assert not LinkDraft.objects.exists()
    assert SECRET not in str(AuditEvent.objects.get().detail)


def test_validation_keeps_the_draft_and_stores_no_link(start: Start, owner: Actor) -> None:
    draft = start(**OTHER)

    drafts.launch(draft=draft, validate_only=True, by=owner, now=NOW)

    assert LinkDraft.objects.filter(pk=draft.pk).exists()
    assert not ClusterLink.objects.exists()


def test_refused_link_keeps_the_draft_with_its_secrets(start: Start, owner: Actor, engine: Engine) -> None:
    draft = start(**OTHER)
    engine.refuses("check_link", LinkEngineError(ErrorCode.AUTHENTICATION_ERROR, "Wrong password."))

    with pytest.raises(BadRequestError):
        drafts.launch(draft=draft, by=owner, now=NOW)

    assert values_of(LinkDraft.objects.get(pk=draft.pk)).connection == SOURCE_PROPERTIES


def test_missing_cluster_is_reported_at_its_field(start: Start, owner: Actor) -> None:
    with pytest.raises(InvalidInputError) as own:
        drafts.launch(draft=start(name="new"), by=owner, now=NOW)
    with pytest.raises(InvalidInputError) as other:
        drafts.check_side(draft=start(own="destination-id"), side=OTHER_SIDE, by=owner, now=NOW)

    assert (own.value.field, other.value.field) == ("own", "other")


def test_draft_that_no_key_decrypts_can_be_filled_in_again(start: Start, owner: Actor) -> None:

    draft = start(**OTHER)
    lost = Fernet(Fernet.generate_key()).encrypt(b"{}").decode()
    with connection.cursor() as cursor:
        cursor.execute('UPDATE console_linkdraft SET "values" = %s, checks = %s, listing = %s', [lost] * 3)

    found = LinkDraft.objects.get(pk=draft.pk)
    assert (values_of(found), checks_of(found), listing_of(found)) == (DraftValues(), {}, None)
    drafts.save(draft=draft, changes=dict(REGISTERED), by=owner, now=NOW)
    assert values_of(LinkDraft.objects.get(pk=draft.pk)).other == "source-id"
