"""Operations on several mirror topics: the selected topics, or all that match the filter."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.mirrors import bulk_actions, operation_pages
from console.mirrors import bulk_pages as pages
from console.models import (
    BulkOperation,
    ClusterLink,
    GateRun,
    GroupOffset,
    LinkConfig,
    MirrorPartition,
    MirrorTopic,
    SourceTopic,
    SyncedGroup,
    VerifyRun,
)
from linkengine.domain.groups import GroupStatus
from linkengine.domain.states import MirrorState
from tests.browser.page_data import PageData, make_link, make_mirror
from tests.console.pages.conftest import Queue
from tests.console.pages.test_mirror_changes import state_of

MANY = 60  # more than a page


@pytest.fixture
def big(page_data: PageData) -> ClusterLink:
    link = make_link(page_data.west, page_data.east, "big", page_data.now)
    for number in range(MANY):
        make_mirror(link, f"topic-{number:03d}", MirrorState.ACTIVE, lag=number, now=page_data.now)
    return link


def address(page_data: PageData) -> str:
    return page_data.link_url.replace(page_data.link.name, "big")


def request(client: Client, url: str, **values: Any) -> Any:
    """Submit a selection; returns the confirmation."""
    return client.post(f"{url}bulk/", values)


def confirm(client: Client, url: str, requested: Any, **values: Any) -> Any:
    """Submit a confirmation with its hidden fields."""
    fields: dict[str, Any] = {}
    for name, value in re.findall(r'<input type="hidden" name="([a-z]+)" value="([^"]*)">', requested.content.decode()):
        fields.setdefault(name, []).append(html.unescape(value))
    return client.post(f"{url}bulk/", fields | values)


def carry_out(response: Any) -> BulkOperation:
    """Do what the worker does with the operation to whose page the response leads."""
    key = int(response["Location"].split("/")[2])
    more = True
    while more:
        operation = BulkOperation.objects.select_related("link__destination__environment", "user").get(pk=key)
        more = bulk_actions.carry_out(operation, check_clusters=lambda mirrors: [None] * len(mirrors), now=timezone.now())
    return BulkOperation.objects.get(pk=key)


def results(operation: BulkOperation) -> dict[str, str]:
    return dict(operation.topics.values_list("name", "status"))


def test_failover_of_all_topics_includes_all_pages(page_data: PageData, admin: Client, queue: Queue, big: ClusterLink) -> None:
    page = admin.get(address(page_data)).content.decode()
    requested = request(admin, address(page_data), operation="failover", all="1")

    response = confirm(admin, address(page_data), requested, confirm="big")
    queued = list(queue.sent)
    operation = carry_out(response)

    assert f"Select all {MANY}<" in page
    assert f"Fail over {MANY} mirror topics?" in requested.content.decode()
    assert queued == ["advance_bulk_operation"]
    assert set(big.mirrors.values_list("state", flat=True)) == {MirrorState.PENDING_STOPPED}
    assert set(results(operation).values()) == {"ACCEPTED"}
    assert operation.finished_at is not None


def test_all_means_all_topics_that_match_the_filter(page_data: PageData, admin: Client, big: ClusterLink) -> None:
    page = admin.get(f"{address(page_data)}?q=topic-0&state=ACTIVE").content.decode()
    requested = request(admin, address(page_data), operation="pause", all="1", q="topic-00", state="ACTIVE")

    carry_out(confirm(admin, address(page_data), requested))

    assert f"Select all {MANY} that match<" in page
    assert "Pause 10 mirror topics?" in requested.content.decode()
    paused = MirrorTopic.objects.filter(state=MirrorState.PAUSED, link=big)
    assert sorted(paused.values_list("name", flat=True)) == [f"topic-{number:03d}" for number in range(10)]


def test_selection_of_more_topics_than_an_operation_takes_is_refused(
    page_data: PageData, admin: Client, big: ClusterLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of them by name must not be taken silently."""
    monkeypatch.setattr(bulk_actions, "MOST", MANY - 1)

    confirmation = request(admin, address(page_data), operation="pause", all="1")
    confirmed = request(admin, address(page_data), operation="pause", all="1", confirmed="1", seen="x")
    fewer = request(admin, address(page_data), operation="pause", all="1", q="topic-00")

    for refused in (confirmation, confirmed):
        assert refused.status_code == 422
        assert f"{MANY} topics are selected, and an operation takes at most {MANY - 1}." in refused.content.decode()
        assert "Narrow the filter" in refused.content.decode()
    assert "Pause 10 mirror topics?" in fewer.content.decode()
    assert not big.bulk_operations.exists()


def test_topic_added_after_the_confirmation_is_not_failed_over(page_data: PageData, admin: Client, big: ClusterLink) -> None:
    requested = request(admin, address(page_data), operation="failover", all="1")
    make_mirror(big, "late", MirrorState.ACTIVE, now=page_data.now)

    response = confirm(admin, address(page_data), requested, confirm="big")
    again = confirm(admin, address(page_data), response, confirm="big")

    assert response.status_code == 409
    assert "has changed since you opened this page. Nothing was changed." in response.content.decode()
    assert f"Fail over {MANY + 1} mirror topics?" in response.content.decode()
    assert again["Location"].startswith("/operations/")


def test_mirror_that_was_added_anew_after_the_confirmation_is_not_failed_over(page_data: PageData, admin: Client) -> None:
    requested = request(admin, page_data.link_url, operation="failover", mirror=["flights", "planes"])
    MirrorTopic.objects.filter(link=page_data.link, name="flights").delete()
    make_mirror(page_data.link, "flights", MirrorState.ACTIVE, now=page_data.now)

    response = confirm(admin, page_data.link_url, requested, confirm=page_data.link.name)

    assert response.status_code == 409
    assert "has changed since you opened this page. Nothing was changed." in response.content.decode()
    assert [state_of("flights"), state_of("planes")] == ["ACTIVE", "ACTIVE"]


def test_selection_is_not_read_from_the_url(page_data: PageData, admin: Client) -> None:
    response = admin.get(f"{page_data.link_url}bulk/?operation=pause&mirror=flights")

    assert response.status_code == 422
    assert "No mirror topics selected" in response.content.decode()
    assert '<form method="post" action="/links/' in admin.get(page_data.link_url).content.decode()


def test_bar_offers_reversals_and_restores_only_on_bidirectional_links(page_data: PageData, admin: Client) -> None:
    one_way = admin.get(page_data.link_url).content.decode()
    ClusterLink.objects.filter(pk=page_data.link.pk).update(mode="BIDIRECTIONAL")
    both_ways = admin.get(page_data.link_url).content.decode()

    for verb in ("pause", "resume", "promote", "failover", "verify", "recover", "delete"):
        assert f'id="bulk-{verb}"' in one_way
    for verb in ("reverse-and-start", "reverse-and-pause", "truncate-and-restore"):
        assert f'id="bulk-{verb}"' not in one_way
        assert f'id="bulk-{verb}"' in both_ways


def test_bulk_deletion_is_not_done_if_a_topic_was_stopped_after_the_confirmation(page_data: PageData, admin: Client) -> None:
    """The stopped topic may be the only copy of records that applications write."""
    requested = request(admin, page_data.link_url, operation="delete", mirror=["flights", "planes"])
    MirrorTopic.objects.filter(pk=page_data.mirrors["planes"].pk).update(state=MirrorState.STOPPED)

    response = confirm(admin, page_data.link_url, requested, confirm=page_data.link.name)

    assert response.status_code == 409
    assert "1 of them is no longer mirrored." in response.content.decode()
    assert not MirrorTopic.objects.exclude(deletion_requested_at=None).filter(name__in=["flights", "planes"]).exists()


def test_worker_does_not_delete_a_topic_that_was_stopped_after_the_confirmation(page_data: PageData, admin: Client) -> None:
    requested = request(admin, page_data.link_url, operation="delete", mirror=["flights", "planes"])
    response = confirm(admin, page_data.link_url, requested, confirm=page_data.link.name)
    MirrorTopic.objects.filter(pk=page_data.mirrors["planes"].pk).update(state=MirrorState.STOPPED)

    operation = carry_out(response)

    assert results(operation) == {"flights": "ACCEPTED", "planes": "FAILED"}
    assert MirrorTopic.objects.get(name="flights").deletion_requested_at is not None
    assert MirrorTopic.objects.get(name="planes", link=page_data.link).deletion_requested_at is None


def test_verification_of_several_topics_queues_a_run_for_each(page_data: PageData, admin: Client) -> None:
    VerifyRun.objects.all().delete()
    requested = request(admin, page_data.link_url, operation="verify", mirror=["flights", "planes"])

    operation = carry_out(confirm(admin, page_data.link_url, requested))

    assert "Verify 2 mirror topics?" in requested.content.decode()
    assert results(operation) == {"flights": "ACCEPTED", "planes": "ACCEPTED"}
    assert sorted(VerifyRun.objects.values_list("mirror__name", flat=True)) == ["flights", "planes"]


def test_reader_cannot_start_a_bulk_operation(page_data: PageData, reader: Client) -> None:
    requested = request(reader, page_data.link_url, operation="pause", mirror=["flights", "planes"])

    response = confirm(reader, page_data.link_url, requested)

    assert response.status_code == 403
    assert BulkOperation.objects.filter(requested_by=page_data.reader.username).count() == 0


def test_select_all_is_omitted_if_the_list_has_one_page(page_data: PageData, admin: Client) -> None:
    assert 'id="pick-all"' not in admin.get(page_data.link_url).content.decode()


def test_bulk_failover_confirmation_shows_records_at_risk_and_groups(page_data: PageData, admin: Client) -> None:
    LinkConfig.objects.update_or_create(link=page_data.link, name="consumer.offset.sync.enable", defaults={"value": "true"})
    group = SyncedGroup.objects.create(
        link=page_data.link, name="readers", destination_name="readers", status=GroupStatus.SYNCED, listed_at=page_data.now
    )
    ahead = {"source_offset": 2_000_000, "target": 2_000_000, "outcome": "SYNCED"}
    GroupOffset.objects.create(group=group, mirror=page_data.mirrors["planes"], partition=0, **ahead)

    text = request(admin, page_data.link_url, operation="failover", mirror=["planes", "gates", "hubs"]).content.decode()

    assert re.search(r"<dt>Records at risk</dt><dd><strong>at least 216; unknown for 1 topic<", text)
    assert re.search(r"<dt>Consumer groups to be clamped</dt><dd><strong>1<", text)
    rows = {row.split("<")[0]: row for row in text.split('<th scope="row" class="name wide-name">')[1:]}
    assert 'data-label="Not copied">216<' in rows["planes"]
    assert 'data-label="Groups to be clamped">1<' in rows["planes"]
    assert 'data-label="Not copied">unknown<' in rows["hubs"]


def test_bulk_deletion_confirmation_shows_the_records_to_be_deleted(page_data: PageData, admin: Client) -> None:
    for name, start in (("flights", 0), ("planes", 100)):
        MirrorPartition.objects.filter(mirror=page_data.mirrors[name]).update(mirror_start=start, mirror_end=1_100)

    known = request(admin, page_data.link_url, operation="delete", mirror=["flights", "planes"]).content.decode()
    stopped = request(admin, page_data.link_url, operation="delete", mirror=["flights", "gates"]).content.decode()
    unknown = request(admin, page_data.link_url, operation="delete", mirror=["gates"]).content.decode()

    assert "<dt>Records to be deleted</dt><dd><strong>6,300</strong>" in known
    assert 'data-label="Records to be deleted">3,000<' in known
    assert "<dt>Records to be deleted</dt><dd><strong>at least 3,300; unknown for 1 topic</strong>" in stopped
    assert "<dt>Records to be deleted</dt><dd><strong>unknown</strong>" in unknown


def test_bulk_pause_pauses_all_selected_topics(page_data: PageData, admin: Client) -> None:
    requested = request(admin, page_data.link_url, operation="pause", mirror=["flights", "planes"])

    carry_out(confirm(admin, page_data.link_url, requested))

    assert "Pause 2 mirror topics?" in requested.content.decode()
    assert [state_of("flights"), state_of("planes")] == ["PAUSED", "PAUSED"]


def test_failure_of_a_topic_does_not_affect_the_others(page_data: PageData, admin: Client) -> None:
    requested = request(admin, page_data.link_url, operation="pause", mirror=["flights", "gates"])

    operation = carry_out(confirm(admin, page_data.link_url, requested))

    assert results(operation) == {"flights": "ACCEPTED", "gates": "FAILED"}
    assert state_of("flights") == "PAUSED"


def test_bulk_promotion_lists_topics_with_a_closed_gate(page_data: PageData, admin: Client) -> None:
    LinkConfig.objects.create(link=page_data.link, name="migration.gate.enable", value="true")
    GateRun.objects.create(
        mirror=page_data.mirrors["planes"],
        status=GateRun.Status.OVERRIDDEN,
        reason="Agreed upon.",
        requested_by="x",
        requested_at=timezone.now(),
        finished_at=timezone.now(),
    )
    requested = request(admin, page_data.link_url, operation="promote", mirror=["flights", "planes"])
    operation = carry_out(confirm(admin, page_data.link_url, requested, confirm=page_data.link.name))
    failover = request(admin, page_data.link_url, operation="failover", mirror=["flights", "planes"]).content.decode()

    assert "1 of them would be refused now." in requested.content.decode()
    assert "The migration gate of topic &#x27;flights&#x27; is closed" in requested.content.decode()
    assert "The migration gate of topic 'flights' is closed" in operation.topics.get(status="FAILED").message
    assert [state_of("flights"), state_of("planes")] == ["ACTIVE", "PENDING_STOPPED"]
    assert "The migration gate" not in failover


def test_bulk_failover_requires_the_link_name(page_data: PageData, admin: Client) -> None:
    requested = request(admin, page_data.link_url, operation="failover", mirror=["flights", "planes"])

    assert confirm(admin, page_data.link_url, requested, confirm="planes").status_code == 422
    carry_out(confirm(admin, page_data.link_url, requested, confirm=page_data.link.name))

    assert state_of("planes") == "PENDING_STOPPED"


def test_bulk_operation_without_selection_is_rejected(page_data: PageData, admin: Client) -> None:
    response = request(admin, page_data.link_url, operation="pause")

    assert response.status_code == 422
    assert "No mirror topics selected" in response.content.decode()


@pytest.mark.parametrize(
    ("address", "unknown"),
    [
        ("mirrors/planes/failover/", "<dt>Records at risk</dt><dd>unknown</dd>"),
        ("mirrors/planes/promote/", "<dt>Lag, all partitions</dt><dd>unknown</dd>"),
        ("bulk/", "<dt>Records at risk</dt><dd><strong>unknown</strong></dd>"),
        ("delete/", "Records at risk: <strong>unknown</strong>"),
    ],
)
def test_loss_is_unknown_in_each_confirmation_if_only_the_source_has_a_partition(
    page_data: PageData, admin: Client, address: str, unknown: str
) -> None:
    MirrorTopic.objects.filter(link=page_data.link).exclude(name="planes").update(state=MirrorState.STOPPED)
    listed = SourceTopic.objects.create(link=page_data.link, name="planes", partitions=3, seen_at=page_data.now)
    assert unknown not in shown(page_data, admin, address)

    listed.partitions = 4
    listed.save()

    assert unknown in shown(page_data, admin, address)


def shown(page_data: PageData, client: Client, address: str) -> str:
    if address == "bulk/":
        return str(request(client, page_data.link_url, operation="failover", mirror=["planes"]).content.decode())
    return client.get(f"{page_data.link_url}{address}").content.decode()


@pytest.mark.parametrize(("operation", "names", "heading", "button"), [
    ("pause", ["flights", "gates"], "Pause 1 of 2 mirror topics?", "Pause 1 topic<"),
    ("failover", ["flights", "planes", "gates"], "Fail over 2 of 3 mirror topics?", "Fail over 2 topics<"),
    ("pause", ["gates"], "Pause 0 of 1 mirror topic?", None),
])  # fmt: skip
def test_confirmation_counts_the_topics_that_would_change(
    page_data: PageData, admin: Client, operation: str, names: list[str], heading: str, button: str | None
) -> None:
    text = request(admin, page_data.link_url, operation=operation, mirror=names).content.decode()

    assert heading in text
    assert (button in text) if button else 'type="submit" class="btn btn-' not in text.split('class="panel-foot"')[1]


def test_confirmation_of_more_topics_than_are_listed_counts_all_that_would_change(
    page_data: PageData, admin: Client, big: ClusterLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (pages, operation_pages):
        monkeypatch.setattr(module, "NAMES_SHOWN", 10)
    big.mirrors.filter(name__gte="topic-030").update(state=MirrorState.STOPPED)

    paused = request(admin, address(page_data), operation="pause", all="1").content.decode()
    promoted = request(admin, address(page_data), operation="promote", all="1").content.decode()
    big.mirrors.filter(name="topic-000").update(state=MirrorState.STOPPED)
    fewer = request(admin, address(page_data), operation="promote", all="1").content.decode()

    assert "Pause 30 of 60 mirror topics?" in paused
    assert "<strong>30 of them would be refused now." in paused
    assert "Promote at most 60 of 60 mirror topics?" in promoted  # only the listed topics are checked
    assert "Promote up to 60 topics<" in promoted
    assert "Promote at most 59 of 60 mirror topics?" in fewer
    assert "Promote up to 59 topics<" in fewer
    assert "At least 1 of them would be refused now." in fewer
