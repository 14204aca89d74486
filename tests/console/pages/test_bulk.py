"""Operations on several mirror topics: the selected ones, or all that match the filter."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone

from console.models import ClusterLink, GateRun, GroupOffset, LinkConfig, MirrorTopic, SourceTopic, SyncedGroup
from linkengine.domain.groups import GroupStatus
from linkengine.domain.states import MirrorState
from tests.browser.page_data import Scene, make_link, make_mirror
from tests.console.pages.test_mirror_changes import state_of

MANY = 60  # more than a page


@pytest.fixture
def big(scene: Scene) -> ClusterLink:
    link = make_link(scene.west, scene.east, "big", scene.now)
    for number in range(MANY):
        make_mirror(link, f"topic-{number:03d}", MirrorState.ACTIVE, lag=number, now=scene.now)
    return link


def address(scene: Scene) -> str:
    return scene.link_url.replace(scene.link.name, "big")


def hidden(text: str) -> dict[str, str]:
    """Return the hidden fields of the confirmation."""
    fields = dict(re.findall(r'<input type="hidden" name="([a-z]+)" value="([^"]*)">', text))
    fields.pop("csrfmiddlewaretoken", None)
    return fields


def test_failover_of_all_topics_includes_all_pages(scene: Scene, admin: Client, big: ClusterLink) -> None:
    page = admin.get(address(scene)).content.decode()
    asked = admin.get(f"{address(scene)}bulk/?operation=failover&all=1&q=&state=").content.decode()

    response = admin.post(f"{address(scene)}bulk/", hidden(asked) | {"confirm": "big"})

    assert f"Select all {MANY} topics on all pages" in page
    assert f"Fail over {MANY} mirror topics?" in asked
    assert response["Location"] == address(scene)
    assert set(big.mirrors.values_list("state", flat=True)) == {MirrorState.PENDING_STOPPED}


def test_all_means_all_topics_that_match_the_filter(scene: Scene, admin: Client, big: ClusterLink) -> None:
    asked = admin.get(f"{address(scene)}bulk/?operation=pause&all=1&q=topic-00&state=ACTIVE").content.decode()

    admin.post(f"{address(scene)}bulk/", hidden(asked))

    assert "Pause 10 mirror topics?" in asked
    paused = MirrorTopic.objects.filter(state=MirrorState.PAUSED, link=big)
    assert sorted(paused.values_list("name", flat=True)) == [f"topic-{number:03d}" for number in range(10)]


def test_topic_added_after_the_confirmation_is_not_failed_over(scene: Scene, admin: Client, big: ClusterLink) -> None:
    asked = admin.get(f"{address(scene)}bulk/?operation=failover&all=1&q=&state=").content.decode()
    make_mirror(big, "late", MirrorState.ACTIVE, now=scene.now)

    response = admin.post(f"{address(scene)}bulk/", hidden(asked) | {"confirm": "big"})
    again = admin.post(f"{address(scene)}bulk/", hidden(response.content.decode()) | {"confirm": "big"})

    assert response.status_code == 409
    assert "has changed since you opened this page. Nothing was changed." in response.content.decode()
    assert f"Fail over {MANY + 1} mirror topics?" in response.content.decode()
    assert again["Location"] == address(scene)


def test_select_all_is_omitted_if_the_list_has_one_page(scene: Scene, admin: Client) -> None:
    assert 'id="pick-all"' not in admin.get(scene.link_url).content.decode()


def test_bulk_failover_confirmation_shows_records_at_risk_and_groups(scene: Scene, admin: Client) -> None:
    LinkConfig.objects.update_or_create(link=scene.link, name="consumer.offset.sync.enable", defaults={"value": "true"})
    group = SyncedGroup.objects.create(
        link=scene.link, name="readers", destination_name="readers", status=GroupStatus.SYNCED, listed_at=scene.now
    )
    ahead = {"source_offset": 2_000_000, "target": 2_000_000, "outcome": "SYNCED"}
    GroupOffset.objects.create(group=group, mirror=scene.mirrors["planes"], partition=0, **ahead)

    text = admin.get(f"{scene.link_url}bulk/?operation=failover&mirror=planes&mirror=gates&mirror=hubs").content.decode()

    assert re.search(r"<dt>Records at risk</dt><dd><strong>at least 216; unknown for 1 topic<", text)
    assert re.search(r"<dt>Consumer groups to be clamped</dt><dd><strong>1<", text)
    rows = {row.split("<")[0]: row for row in text.split('<th scope="row" class="name wide-name">')[1:]}
    assert 'data-label="Not copied">216<' in rows["planes"]
    assert 'data-label="Groups to be clamped">1<' in rows["planes"]
    assert 'data-label="Not copied">unknown<' in rows["hubs"]


def test_bulk_result_lists_only_failed_topics(scene: Scene, admin: Client) -> None:
    values = {"operation": "pause", "mirror": ["flights", "gates"]}

    text = admin.post(f"{scene.link_url}bulk/", values).content.decode()

    assert "1 of 2 mirror topics failed." in text
    assert '<span class="mono">gates</span>' in text
    assert '<span class="mono">flights</span>' not in text
    assert state_of("flights") == "PAUSED"


def test_bulk_pause_pauses_all_selected_topics(scene: Scene, admin: Client) -> None:
    address = f"{scene.link_url}bulk/"

    asked = admin.get(f"{address}?operation=pause&mirror=flights&mirror=planes").content.decode()
    response = admin.post(address, {"operation": "pause", "mirror": ["flights", "planes"]})

    assert "Pause 2 mirror topics?" in asked
    assert response["Location"] == scene.link_url
    assert [state_of("flights"), state_of("planes")] == ["PAUSED", "PAUSED"]


def test_failure_of_a_topic_does_not_affect_the_others(scene: Scene, admin: Client) -> None:
    response = admin.post(f"{scene.link_url}bulk/", {"operation": "pause", "mirror": ["flights", "gates"]})

    assert response.status_code == 409
    assert "1 of 2 mirror topics failed." in response.content.decode()
    assert state_of("flights") == "PAUSED"


def test_bulk_promotion_lists_topics_with_a_closed_gate(scene: Scene, admin: Client) -> None:
    LinkConfig.objects.create(link=scene.link, name="migration.gate.enable", value="true")
    GateRun.objects.create(
        mirror=scene.mirrors["planes"],
        status=GateRun.Status.OVERRIDDEN,
        reason="Agreed upon.",
        requested_by="x",
        requested_at=timezone.now(),
        finished_at=timezone.now(),
    )
    chosen = "mirror=flights&mirror=planes"

    asked = admin.get(f"{scene.link_url}bulk/?operation=promote&{chosen}").content.decode()
    values = {"operation": "promote", "mirror": ["flights", "planes"], "confirm": scene.link.name}
    answer = admin.post(f"{scene.link_url}bulk/", values)

    assert "1 of them would be refused now." in asked
    assert "The migration gate of topic &#x27;flights&#x27; is closed" in asked
    assert answer.status_code == 409
    assert "The migration gate of topic &#x27;flights&#x27; is closed" in answer.content.decode()
    assert [state_of("flights"), state_of("planes")] == ["ACTIVE", "PENDING_STOPPED"]
    assert "would be refused" not in admin.get(f"{scene.link_url}bulk/?operation=failover&{chosen}").content.decode()


def test_bulk_failover_requires_the_link_name(scene: Scene, admin: Client) -> None:
    values = {"operation": "failover", "mirror": ["flights", "planes"]}

    assert admin.post(f"{scene.link_url}bulk/", values).status_code == 422
    admin.post(f"{scene.link_url}bulk/", values | {"confirm": scene.link.name})

    assert state_of("planes") == "PENDING_STOPPED"


def test_bulk_operation_without_selection_is_rejected(scene: Scene, admin: Client) -> None:
    response = admin.get(f"{scene.link_url}bulk/?operation=pause")

    assert response.status_code == 422
    assert "No mirror topics selected" in response.content.decode()


@pytest.mark.parametrize(
    ("address", "unknown"),
    [
        ("mirrors/planes/failover/", "<dt>Records at risk</dt><dd>unknown</dd>"),
        ("mirrors/planes/promote/", "<dt>Lag, all partitions</dt><dd>unknown</dd>"),
        ("bulk/?operation=failover&mirror=planes", "<dt>Records at risk</dt><dd><strong>unknown</strong></dd>"),
        ("delete/", "Records at risk: <strong>unknown</strong>"),
    ],
)
def test_loss_is_unknown_in_each_confirmation_if_only_the_source_has_a_partition(
    scene: Scene, admin: Client, address: str, unknown: str
) -> None:
    MirrorTopic.objects.filter(link=scene.link).exclude(name="planes").update(state=MirrorState.STOPPED)
    listed = SourceTopic.objects.create(link=scene.link, name="planes", partitions=3, seen_at=scene.now)
    assert unknown not in admin.get(f"{scene.link_url}{address}").content.decode()

    listed.partitions = 4
    listed.save()

    assert unknown in admin.get(f"{scene.link_url}{address}").content.decode()
