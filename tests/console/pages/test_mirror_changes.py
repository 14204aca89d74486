from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone

from console.errors import UnavailableError
from console.links import topic_queries
from console.models import (
    ClusterLink,
    GroupOffset,
    LinkConfig,
    MirrorPartition,
    MirrorTopic,
    SourceTopic,
    SyncedGroup,
    VerifyRun,
)
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.groups import GroupStatus
from linkengine.domain.states import MirrorEvent, MirrorState
from tests.browser.page_data import EAST, PageData, make_mirror
from tests.console.pages.conftest import Queue, hidden_in, htmx


def state_of(name: str) -> str:
    return str(MirrorTopic.objects.get(name=name).state)


def test_added_mirror_redirects_to_its_page(page_data: PageData, admin: Client, queue: Queue) -> None:
    response = admin.post(f"{page_data.link_url}mirrors/new/", {"source_topic": "fares", "replication_factor": "3"})

    assert response["Location"] == page_data.mirror_url("fares")
    assert MirrorTopic.objects.get(name="fares").replication_factor == 3
    assert queue.sent == ["setup_mirror"]


def test_topic_list_shows_why_topics_cannot_be_mirrored(page_data: PageData, admin: Client) -> None:
    text = admin.get(f"{page_data.link_url}mirrors/new/").content.decode()

    assert '<option value="flights" disabled>flights (Already mirrored)</option>' in text
    assert '<option value="__state" disabled>' in text
    assert '<option value="fares">fares (6 partitions, 7 d retention)</option>' in text


def test_topic_is_entered_by_name_if_topics_cannot_be_listed(page_data: PageData, admin: Client) -> None:
    ClusterLink.objects.filter(name="south-archive").update(state="ACTIVE")
    address = f"/links/{EAST}/south-archive/mirrors/new/"

    assert '<textarea class="form-control mono" id="source_topic"' in admin.get(address).content.decode()
    response = admin.post(address, {"source_topic": "ledger"})

    assert response["Location"] == f"/links/{EAST}/south-archive/mirrors/south.ledger/"


def test_topic_is_entered_by_name_if_there_are_too_many(page_data: PageData, admin: Client) -> None:
    """Each source topic can be mirrored, and the page shows the total number of topics."""
    address = f"{page_data.link_url}mirrors/new/?topic=zebra"
    names = [
        f"topic-{number:03}" for number in range(topic_queries.LIMIT - SourceTopic.objects.filter(link=page_data.link).count())
    ]
    SourceTopic.objects.bulk_create(
        SourceTopic(link=page_data.link, name=name, partitions=1, seen_at=page_data.now) for name in names
    )
    assert '<select class="form-select" id="source_topic" name="source_topic" multiple' in admin.get(address).content.decode()
    SourceTopic.objects.create(link=page_data.link, name="zebra", partitions=1, seen_at=page_data.now)

    text = admin.get(address).content.decode()

    assert "<select" not in text
    assert re.search(r'<textarea [^>]*id="source_topic"[^>]*>zebra</textarea>', text)
    assert "has 501 topics: enter exact names" in text
    assert f'href="{page_data.link_url}topics/"' in text
    assert "the list for the reasons" not in text
    assert admin.post(address, {"source_topic": "zebra"})["Location"] == page_data.mirror_url("zebra")


@pytest.mark.parametrize(
    ("failure", "status", "words"),
    [
        (LinkEngineError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, "No topic fares."), 422, "Check the topic"),
        (LinkEngineError(ErrorCode.TOPIC_EXISTS_ERROR, "There is a fares."), 422, "Delete that topic"),
        (LinkEngineError(ErrorCode.AUTHORIZATION_ERROR, "READ denied."), 422, "Grant it READ"),
        (UnavailableError("No worker responds.", code="WORKER_UNAVAILABLE"), 422, "Start the worker"),
    ],
)
def test_error_keeps_the_form_and_shows_the_fix(
    page_data: PageData, admin: Client, queue: Queue, failure: Exception, status: int, words: str
) -> None:
    queue.response = failure

    response = admin.post(f"{page_data.link_url}mirrors/new/", {"source_topic": "fares"})

    assert response.status_code == status
    text = response.content.decode()
    assert words in text
    assert '<option value="fares" selected>' in text


@pytest.mark.parametrize("factor", ["0", "-1", "many"])
def test_invalid_replication_factor_is_rejected(page_data: PageData, admin: Client, factor: str) -> None:
    response = admin.post(f"{page_data.link_url}mirrors/new/", {"source_topic": "fares", "replication_factor": factor})

    assert response.status_code == 422
    assert not MirrorTopic.objects.filter(name="fares").exists()


def test_topic_named_new_has_a_page(page_data: PageData, admin: Client) -> None:
    make_mirror(page_data.link, "new", MirrorState.ACTIVE, now=page_data.now)

    response = admin.get(f"{page_data.link_url}mirrors/new/-/")

    assert "<h1>new</h1>" in response.content.decode()
    assert f"{page_data.link_url}mirrors/new/-/" in admin.get(page_data.link_url).content.decode()
    assert admin.get(f"{page_data.link_url}mirrors/new/-/pause/").status_code == 200


@pytest.mark.parametrize(
    ("name", "operation", "typed", "after"),
    [
        ("flights", "pause", "", "PAUSED"),
        ("airports", "resume", "", "ACTIVE"),
        ("flights", "promote", "flights", "PENDING_STOPPED"),
        ("bookings", "failover", "bookings", "PENDING_STOPPED"),
        ("delays", "failover", "delays", "PENDING_STOPPED"),
    ],
)
def test_confirmed_operation_is_performed(
    page_data: PageData, admin: Client, name: str, operation: str, typed: str, after: str
) -> None:
    address = f"{page_data.mirror_url(name)}{operation}/"
    assert admin.get(address).status_code == 200

    response = admin.post(address, {"confirm": typed})

    assert response["Location"] == page_data.mirror_url(name)
    assert state_of(name) == after


RISKS = {
    MirrorEvent.PROMOTE: "Lag, all partitions",
    MirrorEvent.FAILOVER: "Records at risk",
    MirrorEvent.DELETE: "Records to be deleted",
}


@pytest.mark.parametrize(
    ("operation", "possible"), [(MirrorEvent.PROMOTE, 3), (MirrorEvent.FAILOVER, 12), (MirrorEvent.DELETE, 10)]
)
def test_irreversible_operation_requires_the_topic_name_in_each_state(
    page_data: PageData, admin: Client, operation: MirrorEvent, possible: int
) -> None:
    requested = []
    for name, mirror in page_data.mirrors.items():
        address = f"{page_data.mirror_url(name)}{operation}/"
        shown = admin.get(address)
        if shown.status_code == 409:  # not possible in this state: the page has the reason instead of a button
            continue
        requested.append(name)
        assert "This cannot be undone" in shown.content.decode()
        assert f"<dt>{RISKS[operation]}</dt>" in shown.content.decode()
        for typed in ("", name.title(), page_data.link.name):
            response = admin.post(address, hidden_in(shown) | {"confirm": typed})
            assert response.status_code == 422
            assert "The name does not match" in response.content.decode()
        assert (state_of(name), MirrorTopic.objects.get(name=name).deletion_requested_at) == (mirror.state, None)

    assert len(requested) == possible


def test_failover_confirmation_names_the_groups_to_be_clamped(page_data: PageData, admin: Client) -> None:
    LinkConfig.objects.update_or_create(link=page_data.link, name="consumer.offset.sync.enable", defaults={"value": "true"})
    group = SyncedGroup.objects.create(
        link=page_data.link, name="readers", destination_name="readers", status=GroupStatus.SYNCED, listed_at=page_data.now
    )
    ahead = {"source_offset": 2_000_000, "target": 2_000_000, "outcome": "SYNCED"}
    GroupOffset.objects.create(group=group, mirror=page_data.mirrors["planes"], partition=0, **ahead)

    text = admin.get(f"{page_data.mirror_url('planes')}failover/").content.decode()

    assert "Consumer groups with clamped offsets: 1" in text
    assert "readers, partition 0: 2000000" in text


def test_records_at_risk_are_the_sum_of_all_partitions(page_data: PageData, admin: Client) -> None:
    text = admin.get(f"{page_data.mirror_url('bookings')}failover/").content.decode()

    assert "Records at risk" in text
    assert f"{99_120 + 49_560 + 33_040:,}" in text


def test_deletion_shows_the_records_to_be_deleted(page_data: PageData, admin: Client) -> None:
    partitions = MirrorPartition.objects.filter(mirror=page_data.mirrors["flights"])
    partitions.update(mirror_start=100, mirror_end=1_100)
    known = admin.get(f"{page_data.mirror_url('flights')}delete/").content.decode()
    partitions.filter(partition=1).update(mirror_end=None)

    unknown = admin.get(f"{page_data.mirror_url('flights')}delete/").content.decode()
    stopped = admin.get(f"{page_data.mirror_url('gates')}delete/").content.decode()

    assert "<dt>Records to be deleted</dt><dd>3,000</dd>" in known
    assert "<dt>Records to be deleted</dt><dd>unknown</dd>" in unknown
    assert "<dt>Records to be deleted</dt><dd>unknown</dd>" in stopped


def test_records_at_risk_are_unknown_if_a_partition_is_unknown(page_data: PageData, admin: Client) -> None:
    MirrorPartition.objects.filter(mirror=page_data.mirrors["bookings"], partition=1).update(source_end=None)

    text = admin.get(f"{page_data.mirror_url('bookings')}failover/").content.decode()

    assert "<dd>unknown</dd>" in text
    assert "The number of missing records is unknown" in text


def test_promotion_with_a_closed_gate_is_a_conflict(page_data: PageData, admin: Client) -> None:
    LinkConfig.objects.create(link=page_data.link, name="migration.gate.enable", value="true")

    response = admin.get(f"{page_data.mirror_url('flights')}promote/")

    assert response.status_code == 409
    assert "GATE_CLOSED" in response.content.decode()
    assert admin.get(f"{page_data.mirror_url('flights')}failover/").status_code == 200


@pytest.mark.parametrize(("name", "operation"), [("gates", "pause"), ("flights", "resume"), ("delays", "promote")])
def test_operation_in_a_wrong_state_is_a_conflict(page_data: PageData, admin: Client, name: str, operation: str) -> None:
    before = state_of(name)

    response = admin.post(f"{page_data.mirror_url(name)}{operation}/", {"confirm": name})

    assert response.status_code == 409
    assert 'role="alert"' in response.content.decode()
    assert state_of(name) == before


def test_operation_in_a_dialog_redirects_the_browser(page_data: PageData, admin: Client) -> None:
    address = f"{page_data.mirror_url('flights')}pause/"

    opened = admin.get(address, **htmx("dialog"))
    response = admin.post(address, **htmx("dialog"))

    assert b"<html" not in opened.content
    assert b'hx-post="' in opened.content
    assert response.status_code == 204
    assert response["HX-Redirect"] == page_data.mirror_url("flights")


@pytest.mark.parametrize("operation", ["pause", "failover", "delete"])
def test_reader_may_not_operate(page_data: PageData, reader: Client, operation: str) -> None:
    response = reader.post(f"{page_data.mirror_url('flights')}{operation}/", {"confirm": "flights"})

    assert response.status_code == 403
    assert "Ask an administrator for the role" in response.content.decode()
    assert state_of("flights") == "ACTIVE"


def test_unknown_operation_is_not_found(page_data: PageData, admin: Client) -> None:
    assert admin.get(f"{page_data.mirror_url('flights')}explode/").status_code == 404


def test_unavailable_actions_show_the_reason(page_data: PageData, admin: Client) -> None:
    text = admin.get(page_data.mirror_url("gates")).content.decode()

    assert 'id="do-pause"' not in text
    assert "has already stopped its mirror" in text


def test_mirror_page_shows_previous_state_and_failed_attempts(page_data: PageData, admin: Client) -> None:
    mirror = MirrorTopic.objects.get(name="bookings")
    MirrorTopic.objects.filter(pk=mirror.pk).update(state=MirrorState.SOURCE_UNAVAILABLE, prior_state=MirrorState.LINK_FAILED)
    MirrorTopic.objects.filter(pk=mirror.pk).update(retry_count=4)
    dated = {"since": timezone.now(), "last_seen_at": timezone.now()}
    mirror.transition_errors.update_or_create(code="TIMEOUT_ERROR", defaults={"message": "Away.", "count": 7, **dated})

    text = admin.get(page_data.mirror_url("bookings")).content.decode()

    assert "previously: Link failed" in text
    assert "seen 7 times" in text
    assert "4 in a row" in text


def test_run_verification_starts_a_run(page_data: PageData, admin: Client, queue: Queue) -> None:
    response = admin.post(f"{page_data.mirror_url('weather')}verify/")

    tab = page_data.mirror_url("weather", "verification")
    assert response["Location"] == f"{tab}#verify"
    assert queue.sent == ["verify_mirror"]
    assert "Queued" in admin.get(tab).content.decode()


def test_first_differences_are_shown(page_data: PageData, admin: Client) -> None:
    text = admin.get(page_data.mirror_url("planes", "verification")).content.decode()

    assert "N14228,1999" in text
    assert "N14228,1998" in text


def test_failed_verification_is_not_shown_as_a_difference(page_data: PageData, admin: Client) -> None:
    VerifyRun.objects.create(
        mirror=page_data.mirrors["gates"],
        status="ERROR",
        requested_by="x",
        requested_at=timezone.now(),
        error_message="no Spark",
    )

    text = admin.get(page_data.mirror_url("gates", "verification")).content.decode()

    assert "This does not mean that records differ" in text
    assert "no Spark" in text


def test_reader_may_not_verify(page_data: PageData, reader: Client) -> None:
    assert reader.post(f"{page_data.mirror_url('flights')}verify/").status_code == 403
    assert VerifyRun.objects.filter(mirror=page_data.mirrors["flights"]).count() == 1


def test_lost_records_are_shown_as_a_warning(page_data: PageData, admin: Client) -> None:
    dated = {"since": page_data.now, "last_seen_at": page_data.now}
    page_data.mirrors["flights"].transition_errors.create(code="RECORDS_LOST", message="17 offsets were lost.", **dated)
    tab = page_data.mirror_url("flights", "filled-offsets")
    text = admin.get(tab).content.decode()

    assert f'href="{tab}">View the lost offsets<' in admin.get(page_data.mirror_url("flights")).content.decode()
    assert "17 offsets lost." in text
    assert "partition 2: 300 to 316" in text


@pytest.mark.parametrize(("name", "compared"), [("planes", True), ("airports", True), ("bookings", False), ("gates", False)])
def test_continuous_verification_is_shown_only_in_states_that_have_it(
    page_data: PageData, admin: Client, name: str, compared: bool
) -> None:
    LinkConfig.objects.create(link=page_data.link, name="verify.continuous.enable", value="true")

    text = admin.get(page_data.mirror_url(name, "verification")).content.decode()

    assert ("New records are verified continuously" in text, "In this state new records are not verified" in text) == (
        compared,
        not compared,
    )
    assert "All offsets that source and mirror have in common are verified" not in text


def test_confirmation_of_an_impossible_operation_has_no_button(page_data: PageData, admin: Client) -> None:
    refused = admin.get(f"{page_data.mirror_url('gates')}pause/")
    requested = admin.get(f"{page_data.mirror_url('flights')}pause/")

    assert (refused.status_code, requested.status_code) == (409, 200)
    assert 'id="confirm-button"' not in refused.content.decode()
    assert "Back to mirror topic" in refused.content.decode()
    assert 'id="confirm-button"' in requested.content.decode()


def test_one_way_link_does_not_mention_reversal(page_data: PageData, admin: Client) -> None:
    text = admin.get(page_data.mirror_url("flights")).content.decode()

    assert "Cannot resume a mirror topic in state ACTIVE." in text
    assert "reverse-and-start" not in text
