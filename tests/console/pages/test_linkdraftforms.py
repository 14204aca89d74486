"""The forms of the steps, without a database: which fields apply, what is stored, and what is never rendered."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from django.http import QueryDict

from console.errors import BadRequestError, InvalidInputError
from console.links.create_forms import ConfigurationForm, NameForm, OtherClusterForm, OwnClusterForm, StartForm, part_of
from console.links.draft_presenters import PRESETS
from console.links.drafts import DraftValues
from console.links.form_presenters import ACCEPT, BOTH, RECEIVE, SEND, Direction
from console.models import Cluster, Environment
from linkengine.domain.addresses import ClusterAddress
from linkengine.domain.client_properties import address_from_properties, properties_of
from linkengine.domain.linkrules import check_configs

PLACE = Environment(name="Production")
CLUSTERS = [Cluster(name=name, cluster_id=name, environment=PLACE) for name in ("west", "east")]
CERTIFICATE, KEY = "-----BEGIN CERTIFICATE-----", "-----BEGIN PRIVATE KEY-----"
STORED = ClusterAddress(
    bootstrap_servers="far.example:9093",
    security_protocol="SASL_SSL",
    sasl_mechanism="SCRAM-SHA-512",
    sasl_username="link",
    sasl_password="s3cret-word",
    ssl_certificate_pem=CERTIFICATE,
    ssl_key_pem=KEY,
    ssl_key_password="k3y-word",
)
FAR = DraftValues(other_kind="other", connection=properties_of(STORED), own="east", name="fresh")
TYPED = {
    "other_kind": "other",
    "bootstrap_servers": "far.example:9093",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "username": "link",
}


def posted(values: dict[str, Any]) -> QueryDict:
    data = QueryDict(mutable=True)
    for name, value in values.items():
        data.setlist(name, value if isinstance(value, list) else [value])
    return data


def other_form(values: dict[str, Any] | None, *, draft: DraftValues = FAR, direction: Direction = RECEIVE) -> OtherClusterForm:
    data = None if values is None else posted(values)
    return OtherClusterForm(data, draft=draft, direction=direction, clusters=CLUSTERS)


def address_in(form: OtherClusterForm) -> ClusterAddress:
    assert form.is_valid(), form.errors
    return address_from_properties(form.changes()["connection"])


THIRD = Cluster(name="north", cluster_id="north", environment=PLACE)
SELECTED = re.compile(r'<option value="([^"]*)" selected')


@pytest.mark.parametrize(
    ("draft", "clusters", "selected"),
    [
        (DraftValues(other="west"), CLUSTERS, ["east"]),
        (DraftValues(other="west"), [*CLUSTERS, THIRD], [""]),
        (DraftValues(other="west", own="north"), [*CLUSTERS, THIRD], ["north"]),
        (DraftValues(), CLUSTERS[:1], [""]),
        (replace(FAR, own=""), CLUSTERS[:1], ["west"]),
    ],
    ids=["one left", "two left", "chosen before", "other cluster not chosen", "other cluster not registered"],
)
def test_only_remaining_cluster_is_selected_as_own(draft: DraftValues, clusters: list[Cluster], selected: list[str]) -> None:
    form = OwnClusterForm(None, draft=draft, direction=RECEIVE, clusters=clusters)

    assert SELECTED.findall(str(form["own"])) == selected


@pytest.mark.parametrize(
    ("draft", "clusters", "selected"),
    [
        (DraftValues(own="east"), CLUSTERS, ["west"]),
        (DraftValues(own="east"), [*CLUSTERS, THIRD], [""]),
        (DraftValues(), CLUSTERS[:1], [""]),
    ],
    ids=["one left", "two left", "own cluster not chosen"],
)
def test_only_remaining_cluster_is_selected_as_other(draft: DraftValues, clusters: list[Cluster], selected: list[str]) -> None:
    form = OtherClusterForm(None, draft=draft, direction=SEND, clusters=clusters)

    assert SELECTED.findall(str(form["other"])) == selected


def test_form_of_a_draft_shows_no_secret() -> None:
    text = str(other_form(None))

    assert "far.example:9093" in text
    assert "Stored in the draft and not shown." in text
    for secret in ("s3cret-word", "k3y-word", KEY, CERTIFICATE):
        assert secret not in text


def test_entered_secrets_are_not_rendered_with_an_error() -> None:
    form = other_form(
        TYPED | {"bootstrap_servers": "", "password": "typed-word", "key_pem": KEY, "certificate_pem": CERTIFICATE}
    )

    assert not form.is_valid()
    text = str(form)
    for secret in ("typed-word", KEY, CERTIFICATE):
        assert secret not in text


def test_empty_secrets_keep_the_stored_ones() -> None:
    form = other_form(TYPED | {"username": "other"})

    assert address_in(form) == replace(STORED, sasl_username="other")
    assert form.entered() == []


def test_entered_secrets_replace_the_stored_ones() -> None:
    form = other_form(TYPED | {"password": "typed-word", "key_pem": "NEW KEY", "certificate_pem": "NEW CERTIFICATE"})

    address = address_in(form)
    assert (address.sasl_password, address.ssl_key_pem, address.ssl_certificate_pem) == (
        "typed-word",
        "NEW KEY",
        "NEW CERTIFICATE",
    )
    assert address.ssl_key_password == ""  # it was the password of the former key
    assert form.entered() == ["sasl.jaas.config", "ssl.keystore.key"]


@pytest.mark.parametrize(
    "change",
    [
        {"bootstrap_servers": "elsewhere.example:9093"},
        {"sasl_mechanism": "PLAIN"},
        {"ca_pem": "AUTHORITY"},
        {"bootstrap_servers": "elsewhere.example:9093", "username": "other"},
    ],
)
def test_secrets_must_be_entered_again_if_they_would_be_sent_elsewhere(change: dict[str, str]) -> None:
    form = other_form(TYPED | change)

    assert not form.is_valid()
    assert set(form.errors) == {"password", "key_pem"}
    assert "the stored one would be sent elsewhere" in str(form.errors["password"])
    assert other_form(TYPED | change | {"password": "again", "key_pem": KEY}).is_valid()


@pytest.mark.parametrize(
    ("protocol", "left_out"),
    [("PLAINTEXT", {"password", "certificate"}), ("SSL", {"password"}), ("SASL_PLAINTEXT", {"certificate"})],
)
def test_values_of_fields_that_do_not_apply_are_not_stored(protocol: str, left_out: set[str]) -> None:
    secrets = {"password": "typed-word", "certificate_pem": CERTIFICATE, "key_pem": KEY, "ca_pem": "AUTHORITY"}

    address = address_in(other_form(TYPED | secrets | {"security_protocol": protocol}, draft=DraftValues(own="east")))

    assert (address.sasl_password == "") == ("password" in left_out)
    assert (address.ssl_key_pem == "") == ("certificate" in left_out)
    assert (address.ssl_ca_pem == "") == ("certificate" in left_out)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"username": ""}, "username"),
        ({"password": ""}, "password"),
        ({"bootstrap_servers": ""}, "bootstrap_servers"),
        ({"bootstrap_servers": "no port"}, "bootstrap_servers"),
        ({"bootstrap_servers": "SASL_PLAINTEXT://far.example:1"}, "bootstrap_servers"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "token_url"),
        ({"certificate_pem": CERTIFICATE}, "key_pem"),
        ({"key_pem": KEY}, "certificate_pem"),
        ({"other_cluster_id": "east"}, "other_cluster_id"),
    ],
)
def test_invalid_connection_is_reported_at_the_field(values: dict[str, str], field: str) -> None:
    form = other_form(TYPED | {"password": "typed-word"} | values, draft=DraftValues(own="east"))

    assert not form.is_valid()
    assert set(form.errors) == {field}


def test_stored_certificate_can_be_removed() -> None:
    address = address_in(other_form(TYPED | {"forget_certificate": "on"}))

    assert (address.ssl_certificate_pem, address.ssl_key_pem, address.ssl_key_password) == ("", "", "")
    assert address.sasl_password == "s3cret-word"
    assert "forget_certificate" not in other_form(None, draft=DraftValues()).fields


def test_choice_of_a_registered_cluster_drops_the_entered_connection() -> None:
    form = other_form({"other_kind": "registered", "other": "west"})

    assert form.is_valid()
    assert form.changes() == {"other_kind": "registered", "other": "west", "other_cluster_id": "", "connection": {}}


@pytest.mark.parametrize(
    ("direction", "values", "words"),
    [
        (RECEIVE, {"other_kind": "registered", "other": ""}, "Choose the other cluster of the link, or select"),
        (ACCEPT, {"other_kind": "other", "other": ""}, "or register it first"),
        (RECEIVE, {"other_kind": "registered", "other": "east"}, "Source and destination are the same cluster"),
        (RECEIVE, {"other_kind": "registered", "other": "hidden"}, "Select a valid choice"),
    ],
)
def test_invalid_choice_of_a_cluster_is_reported(direction: Direction, values: dict[str, str], words: str) -> None:
    form = other_form(values, draft=DraftValues(own="east"), direction=direction)

    assert not form.is_valid()
    assert words in str(form.errors["other"])


def test_inbound_link_needs_a_registered_cluster() -> None:
    inbound = DraftValues(own="east", connection_mode="INBOUND")
    form = other_form(TYPED | {"password": "typed-word"}, draft=inbound, direction=BOTH)
    own = OwnClusterForm(posted({"own": "west", "connection_mode": "INBOUND"}), draft=FAR, direction=BOTH, clusters=CLUSTERS)

    assert not form.is_valid()
    assert "Inbound requires a registered cluster" in str(form.errors["other_kind"])
    assert not own.is_valid()
    assert "connection_mode" in own.errors


@pytest.mark.parametrize("direction", [RECEIVE, SEND, ACCEPT])
def test_connection_mode_is_a_choice_of_bidirectional_links_only(direction: Direction) -> None:
    assert "connection_mode" not in OwnClusterForm(None, draft=FAR, direction=direction, clusters=CLUSTERS).fields
    assert "connection_mode" in OwnClusterForm(None, draft=FAR, direction=BOTH, clusters=CLUSTERS).fields


def test_own_cluster_must_differ_from_the_other_cluster() -> None:
    form = OwnClusterForm(posted({"own": "west"}), draft=DraftValues(other="west"), direction=RECEIVE, clusters=CLUSTERS)

    assert not form.is_valid()
    assert "the same cluster" in str(form.errors["own"])


SWITCHES = ("auto_create", "add_prefix", "sync_offsets", "sync_acls")
# What Confluent's console recommends for each purpose.
RECOMMENDED = {
    "migrate": {"auto_create", "sync_offsets"},
    "recovery": {"auto_create", "sync_offsets", "sync_acls"},
    "share": {"auto_create", "add_prefix"},
    "aggregate": {"add_prefix"},
    "custom": set(),
}


@pytest.mark.parametrize("preset", PRESETS)
def test_purpose_turns_on_its_switches(preset: str) -> None:
    form = StartForm(posted({"preset": preset, "direction": "receive"}))

    assert form.is_valid()
    assert {name for name in SWITCHES if getattr(form.values(), name)} == RECOMMENDED[preset]


@pytest.mark.parametrize("direction", [RECEIVE, SEND, ACCEPT, BOTH])
def test_direction_sets_link_mode_and_connection_mode(direction: Direction) -> None:
    form = StartForm(
        posted({"preset": "recovery", "direction": direction.key, "own": "east", "other": "west", "name": "fresh"})
    )

    assert form.is_valid()
    values = form.values()
    assert (values.link_mode, values.connection_mode) == (direction.mode, direction.connection_mode)
    assert (values.own, values.other, values.name) == ("east", "west", "fresh")
    assert values.auto_create == direction.has_mirrors


def management(prefix: str, total: int, initial: int) -> dict[str, str]:
    return {f"{prefix}-TOTAL_FORMS": str(total), f"{prefix}-INITIAL_FORMS": str(initial)}


def rows(prefix: str, *filters: dict[str, str], initial: int = 1) -> dict[str, str]:
    values = management(prefix, len(filters), initial)
    for number, row in enumerate(filters):
        values |= {f"{prefix}-{number}-{name}": value for name, value in row.items()}
    return values


ALL = {"name": "*", "pattern": "LITERAL", "kind": "INCLUDE"}
NONE = {"name": "", "pattern": "LITERAL", "kind": "INCLUDE"}
ANY_ACL = dict.fromkeys(("resource_type", "pattern_type", "operation", "permission"), "ANY") | {"name": "", "principal": ""}
UNTOUCHED = rows("topics", ALL, NONE) | rows("groups", ALL, NONE) | rows("acls", ANY_ACL, ANY_ACL)


def configuration(**values: str) -> ConfigurationForm:
    return ConfigurationForm(posted(UNTOUCHED | values), draft=DraftValues())


def test_untouched_filters_include_everything_and_empty_rows_add_nothing() -> None:
    form = configuration(auto_create="on", sync_offsets="on", sync_acls="on")

    assert form.is_valid(), form.errors
    values = replace(DraftValues(), **form.changes())
    check_configs(values.configs())
    assert len(json.loads(values.topic_filters)["topicFilters"]) == 1
    assert len(json.loads(values.group_filters)["groupFilters"]) == 1
    assert json.loads(values.acl_filters)["aclFilters"] == [
        {
            "resourceFilter": {"resourceType": "any", "patternType": "any"},
            "accessFilter": {"operation": "any", "permissionType": "any"},
        }
    ]


def test_filters_are_stored_as_documents_that_the_form_shows_again() -> None:
    topics = rows("topics", ALL, {"name": "secret.", "pattern": "PREFIXED", "kind": "EXCLUDE"})
    acl = ANY_ACL | {"resource_type": "TOPIC", "pattern_type": "PREFIXED", "name": "Pay.", "principal": "User:App"}
    form = configuration(**topics, **rows("acls", ANY_ACL | {"DELETE": "on"}, acl), auto_create="on", sync_acls="on")

    assert form.is_valid(), form.errors
    values = replace(DraftValues(), **form.changes())
    check_configs(values.configs())
    assert [row["filterType"] for row in json.loads(values.topic_filters)["topicFilters"]] == ["INCLUDE", "EXCLUDE"]
    (stored,) = json.loads(values.acl_filters)["aclFilters"]
    assert stored["resourceFilter"] == {"resourceType": "topic", "patternType": "prefixed", "name": "Pay."}
    assert stored["accessFilter"]["principal"] == "User:App"
    shown = ConfigurationForm(None, draft=values)
    assert [form.initial.get("name") for form in shown.topics.forms][:2] == ["*", "secret."]
    assert shown.acls.forms[0].initial["name"] == "Pay."


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"auto_create": "on"} | rows("topics", NONE), "auto_create", "Add at least one filter"),
        ({"sync_offsets": "on"} | rows("groups", NONE), "sync_offsets", "Add at least one filter"),
        ({"sync_acls": "on"} | rows("acls", ANY_ACL | {"DELETE": "on"}), "sync_acls", "Add at least one filter"),
        ({"add_prefix": "on", "prefix": ""}, "prefix", "Enter a prefix"),
        ({"add_prefix": "on", "prefix": "§§"}, "prefix", "may have letters"),
        ({"add_prefix": "on", "prefix": "w.", "sync_acls": "on"}, "sync_acls", "not available with a prefix"),
    ],
)
def test_invalid_configuration_is_reported_at_the_field(values: dict[str, str], field: str, words: str) -> None:
    form = configuration(**values)

    assert not form.is_valid()
    assert words in str(form.errors[field])


def test_wildcard_with_prefixed_is_reported_at_its_row() -> None:
    form = configuration(**rows("topics", ALL | {"pattern": "PREFIXED"}))

    assert not form.is_valid()
    assert "only with LITERAL" in str(form.topics.errors)


def test_filters_of_a_switch_that_is_off_may_be_empty() -> None:
    assert configuration(**rows("topics", NONE)).is_valid()


@pytest.mark.parametrize("name", ["", "no spaces allowed", "..", "-"])
def test_invalid_link_name_is_reported(name: str) -> None:
    form = NameForm(posted({"name": name}), draft=FAR, direction=RECEIVE)

    assert not form.is_valid()
    assert "name" in form.errors


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (InvalidInputError("x", field="own"), "own"),
        (InvalidInputError("x", field="connection.mode"), "own"),
        (InvalidInputError("x", field="bootstrap.servers"), "other"),
        (InvalidInputError("x", field="ssl.keystore.key"), "other"),
        (InvalidInputError("x", field="source_cluster_id"), "other"),
        (BadRequestError("x", code="AUTHENTICATION_ERROR"), "other"),
        (BadRequestError("x", code="CLUSTER_ID_MISMATCH"), "other"),
        (InvalidInputError("x", field="cluster.link.prefix"), "configuration"),
        (InvalidInputError("x", field="acl.filters"), "configuration"),
        (InvalidInputError("x", field="link_name"), ""),
        (BadRequestError("x"), ""),
    ],
)
def test_error_of_the_creation_belongs_to_the_step_that_corrects_it(error: Any, part: str) -> None:
    assert part_of(error) == part
