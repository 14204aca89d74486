"""Steps, summary, previews and checklists of a link that is being created, without a database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from console.links import draft_presenters as drafts
from console.links.draft_presenters import FilterCounts, count_acls, count_groups
from console.links.drafts import OTHER_SIDE, OWN_SIDE, DraftValues
from console.links.form_presenters import ACCEPT, BOTH, ENGINE_TEXTS, RECEIVE, SEND, Direction, checklist
from console.web.badges import Family
from linkengine.domain.acls import Acl, topic_guard
from linkengine.domain.clusterviews import SourceListing
from linkengine.domain.connectionchecks import (
    CheckStatus,
    ClusterFacts,
    ConnectionAttempt,
    ConnectionCheck,
    ConnectionCheckCode,
    ConnectionRole,
    ConnectStep,
    cluster_checks,
    connection_checks,
    rights_checks,
)
from linkengine.domain.errors import ErrorCode
from linkengine.domain.groups import Group
from linkengine.domain.names import FilterType, NameFilter, filters_to_json

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
ACL = Acl(
    resource_type="TOPIC",
    resource_name="orders",
    pattern_type="LITERAL",
    principal="User:app",
    host="*",
    operation="READ",
    permission="ALLOW",
)
LISTING = SourceListing(
    groups=tuple(Group(name=name, kind=kind) for name, kind in (("a", "classic"), ("b", "consumer"), ("s", "share"))),
    acls=(ACL, replace(ACL, operation="UNKNOWN"), topic_guard("mirrored")),
)


def test_configs_of_the_review_have_peoples_units_and_hide_secrets() -> None:
    connection = {"request.timeout.ms": "30000", "bootstrap.servers": "far.example:9092", "ssl.key.password": "s3cret"}

    rows = drafts.config_rows(DraftValues(connection=connection, other_kind="other"))

    assert dict(rows) == {
        "request.timeout.ms": "30 seconds (30000)",
        "bootstrap.servers": "far.example:9092",
        "ssl.key.password": drafts.HIDDEN,
    }


@pytest.mark.parametrize(
    ("direction", "first", "second"),
    [
        (RECEIVE, OTHER_SIDE, OWN_SIDE),
        (ACCEPT, OTHER_SIDE, OWN_SIDE),
        (SEND, OWN_SIDE, OTHER_SIDE),
        (BOTH, OWN_SIDE, OTHER_SIDE),
    ],
)
def test_direction_decides_which_side_is_first(direction: Direction, first: str, second: str) -> None:
    assert [drafts.side_of(step, direction) for step in ("source", "destination")] == [first, second]
    assert drafts.step_of(first, direction) == "source"
    assert drafts.step_of(second, direction) == "destination"
    assert (drafts.step_of("configuration", direction), drafts.step_of("", direction)) == ("configuration", "review")


def test_steps_show_what_is_current_and_what_is_chosen() -> None:
    values = DraftValues(direction="receive", own="east")

    views = drafts.step_views(7, values, current="source")

    assert [(view.label, view.current, view.done) for view in views] == [
        ("Source cluster", True, False),
        ("Destination cluster", False, True),
        ("Configuration", False, False),
        ("Review and create", False, False),
    ]
    assert views[1].url == "/links/new/7/destination/"


def test_configuration_is_done_once_it_was_stored() -> None:
    before, after = (drafts.step_views(7, DraftValues(configured=stored), current="review") for stored in (False, True))

    assert [view.done for view in before] == [False, False, False, False]
    assert [view.done for view in after] == [False, False, True, False]


def test_neighbours_end_at_the_first_and_the_last_step() -> None:
    source_side = DraftValues(link_mode="SOURCE")

    assert drafts.neighbour(DraftValues(), "destination") == "configuration"
    assert drafts.neighbour(source_side, "destination") == "review"
    assert drafts.neighbour(source_side, "review") == "review"
    assert drafts.neighbour(source_side, "source", back=True) == "source"


def test_sensitive_values_are_hidden_in_the_configs() -> None:
    connection = {"bootstrap.servers": "far.example:1", "sasl.jaas.config": "password", "ssl.keystore.certificate.chain": "PEM"}

    rows = dict(drafts.config_rows(DraftValues(other_kind="other", connection=connection)))

    assert rows == {
        "bootstrap.servers": "far.example:1",
        "sasl.jaas.config": "hidden",
        "ssl.keystore.certificate.chain": "hidden",
    }


def test_summary_names_the_clusters_in_the_order_of_the_steps() -> None:
    names = {"east": "us-east", "west": "us-west"}
    receive = DraftValues(direction="receive", own="east", other="west", add_prefix=True, prefix="w.")
    send = DraftValues(direction="send", link_mode="SOURCE", own="west", other="east")

    assert drafts.summary_rows(receive, names)[1:3] == [("Source cluster", "us-west"), ("Destination cluster", "us-east")]
    assert ("Prefix", "w.") in drafts.summary_rows(receive, names)
    assert drafts.summary_rows(send, names)[1:3] == [("Source cluster", "us-west"), ("Destination cluster", "us-east")]
    assert drafts.places_of(receive, names) == drafts.places_of(send, names) == "us-west to us-east"


def test_groups_are_counted_by_reason() -> None:
    filters = (NameFilter(name="*"), NameFilter(name="b", filter_type=FilterType.EXCLUDE))
    values = DraftValues(group_filters=filters_to_json(filters, key="groupFilters"))

    counts = count_groups(listing=LISTING, values=values)

    assert (counts.total, counts.matched, counts.names) == (3, 1, ["a"])
    assert dict(counts.left_out) == {"excluded": 1, "of a type that is not synced (share, streams)": 1}


def test_acls_that_cannot_be_synced_are_counted_apart() -> None:
    counts = count_acls(listing=LISTING, values=DraftValues())

    assert (counts.total, counts.matched) == (3, 1)
    assert dict(counts.left_out) == {"that protect mirror topics": 1, "of an unsupported type": 1}


def test_unknown_list_has_no_counts() -> None:
    counts = count_groups(listing=SourceListing(errors={"groups": "Broker 1 is silent."}), values=DraftValues())

    assert counts.total is None
    assert (
        drafts.preview_row("Groups", "Synced: %(matched)s of %(total)s groups.", counts).sentence
        == "Unknown. Broker 1 is silent."
    )


def test_incomplete_list_is_counted_as_at_least() -> None:
    incomplete = replace(LISTING, errors={"groups": "Broker 2 is silent."})

    counts = count_groups(listing=incomplete, values=DraftValues())
    row = drafts.preview_row("Groups", "Synced: %(matched)s of %(total)s groups.", counts)

    assert row.sentence.startswith("Synced: at least 2 of 3 groups.")
    assert row.sentence.endswith("The list is incomplete: Broker 2 is silent.")


def test_preview_shows_the_first_names_and_how_many_follow() -> None:
    counts = FilterCounts(total=1_500, matched=1_204, names=["a", "b"])

    row = drafts.preview_row("Topics", "Mirror topics are created for %(matched)s of %(total)s topics.", counts)

    assert row.sentence == "Mirror topics are created for 1,204 of 1,500 topics."
    assert row.more == "and 1,202 more"


@pytest.mark.parametrize(
    ("statuses", "title", "family"),
    [
        (["PASSED", "NOT_TESTED"], "Connection successful", Family.OK),
        (["PASSED", "WARNING"], "Connection works, with warnings", Family.WARN),
        (["WARNING", "FAILED"], "Connection test failed", Family.BAD),
    ],
)
def test_checklist_is_named_after_its_worst_check(statuses: list[str], title: str, family: Family) -> None:
    checks = [
        ConnectionCheck(code=code, status=CheckStatus(status), finding="Found.")
        for code, status in zip(ConnectionCheckCode, statuses, strict=False)
    ]

    view = checklist(checks, now=NOW)

    assert (view.title, view.family, len(view.rows)) == (title, family, 2)
    assert view.at is None


def test_texts_of_the_engine_without_values_are_marked_for_translation() -> None:
    steps = tuple(ConnectStep)
    failures = [
        ConnectionAttempt(server="a:1", passed=steps[:passed], error_code=code, message="Refused.")
        for passed, code in [(0, ErrorCode.UNRESOLVABLE_BOOTSTRAP_ERROR), *((n, ErrorCode.TIMEOUT_ERROR) for n in range(4))]
    ]
    checks = [
        check
        for attempts in ([ConnectionAttempt(server="a:1", passed=steps)], *([failure] for failure in failures))
        for check in connection_checks(attempts, uses_tls=True, uses_sasl=True, security_protocol="SASL_SSL")
    ]
    for protocol in ("PLAINTEXT", "SASL_PLAINTEXT", "SSL"):
        tls, sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
        passed = [ConnectionAttempt(server="a:1", passed=steps)]
        checks += connection_checks(passed, uses_tls=tls, uses_sasl=sasl, security_protocol=protocol)
    facts = ClusterFacts(cluster_id="east", release="", is_supported=True, authorizer=True, groups=0)
    every = frozenset({"DESCRIBE", "CREATE", "ALTER", "READ", "DESCRIBE_CONFIGS"})
    checks += [check for check in cluster_checks(facts, None) if check.code is not ConnectionCheckCode.CLUSTER_ID]
    checks += cluster_checks(replace(facts, is_supported=False), None)[1:2]
    for changed in (
        facts,
        replace(facts, rights=frozenset()),
        replace(facts, rights=every),
        replace(facts, authorizer=False),
    ):
        checks += rights_checks(changed, role=ConnectionRole.ANY, principal="link")
    readable = replace(facts, topics={"orders": every})
    checks += [
        check
        for check in rights_checks(readable, role=ConnectionRole.SOURCE, principal="link")
        if check.code in (ConnectionCheckCode.READ_TOPICS, ConnectionCheckCode.DESCRIBE_CONFIGS)
    ]

    texts = {text for check in checks for text in (check.finding, check.fix)}
    assert {text for text in texts if not text.startswith("Run kafka-acls.sh")} - {"", "Refused."} <= set(ENGINE_TEXTS)
