"""Health is the headline of the pages: badge, reason and next step; the API state stands beside it."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.models import Cluster, ClusterLink, Environment, LinkTask, MirrorTopic, RoleBinding, StateTransitionError
from linkengine.domain.states import MirrorState
from tests.browser.page_data import EAST, WEST, PageData, make_user
from tests.console.pages.conftest import client_of, htmx


@pytest.fixture
def calm(page_data: PageData) -> PageData:
    """Return the page data with two mirrors that are copied, one link and reachable clusters."""
    MirrorTopic.objects.exclude(state=MirrorState.ACTIVE).delete()
    ClusterLink.objects.exclude(pk=page_data.link.pk).delete()
    StateTransitionError.objects.all().delete()
    page_data.link.tasks.all().delete()
    page_data.link.mirrors.update(error_code="", error_message="")
    report(page_data, error_code="", phase="COPYING")
    Cluster.objects.update(error_code="", error_message="", probed_at=timezone.now())
    return page_data


def report(page_data: PageData, *, seconds: float = 0, **fields: object) -> None:
    at = timezone.now() - timedelta(seconds=seconds)
    values = {"observed_at": at, "last_source_seen_at": at, "caught_up_at": at} | fields
    for mirror in page_data.link.mirrors.all():
        mirror.partitions.update(**values)


def text_of(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", response.content.decode())).split())


def pages(page_data: PageData) -> dict[str, str]:
    return {
        "links": "/links/",
        "link": page_data.link_url,
        "environments": "/environments/",
        "environment": f"/environments/{page_data.environment.slug}/",
        "cluster": f"/clusters/{EAST}/",
        "mirror": page_data.mirror_url("flights"),
    }


def badges(client: Client, url: str) -> list[str]:
    """Return the codes of the badges of a page, in order."""
    return re.findall(r'class="badge-state \w+" title="(\w+)"', client.get(url).content.decode())


def test_everything_healthy_is_shown_as_healthy(calm: PageData, admin: Client) -> None:
    for name in ("link", "mirror", "environments", "cluster"):
        report(calm)  # reports are fresh for 15 s only
        assert badges(admin, pages(calm)[name])[0] == "HEALTHY", name
    report(calm)
    body = admin.get(calm.link_url).content.decode()
    assert 'class="flow-mid ok"' in body
    assert "all healthy" in body


@pytest.mark.parametrize(("seconds", "code", "family"), [(20, "UNKNOWN", "warn"), (900, "NOT_COPYING", "bad")])
def test_stopped_engine_is_the_headline_of_every_page(
    calm: PageData, admin: Client, seconds: int, code: str, family: str
) -> None:
    report(calm, seconds=seconds)

    for name, url in pages(calm).items():
        assert code in badges(admin, url), name
        shown = text_of(admin, url)
        assert "No copy worker has reported" in shown, name
        assert "Check that the Celery worker" in shown or "another copy worker takes over" in shown, name
    body = admin.get(calm.link_url).content.decode()
    assert f'class="flow-mid {family}"' in body
    assert 'title="ACTIVE"' in body  # the API state stands beside the health
    assert re.search(r"Needs attention\s+2\s+of 2 mirror topics", text_of(admin, calm.link_url))
    assert "2 mirror topics need attention" in text_of(admin, "/environments/")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("topics/?q=flights", ["NOT_COPYING", "MIRRORED", "NOT_COPYING"]),
        ("topics/flights/", ["NOT_COPYING", "MIRRORED", "NOT_COPYING"]),
        ("mirrors/flights/promote/", ["NOT_COPYING"]),
        ("delete/", ["NOT_COPYING", "NOT_COPYING"]),
    ],
)
def test_health_stands_beside_every_mirror_that_is_named(calm: PageData, admin: Client, address: str, shown: list[str]) -> None:
    report(calm, seconds=900)

    response = admin.get(f"{calm.link_url}{address}")

    assert re.findall(r'class="badge-state \w+" title="(\w+)"', response.content.decode()) == shown
    assert "No copy worker has reported" in response.content.decode()
    assert 'class="tag api-state" title="ACTIVE"' in response.content.decode()


def test_mirror_page_does_not_explain_the_state_as_if_records_were_copied(calm: PageData, admin: Client) -> None:
    words = "New records of the source topic are copied continuously"
    report(calm)
    assert words in text_of(admin, calm.mirror_url("flights"))

    report(calm, seconds=900)
    assert words not in text_of(admin, calm.mirror_url("flights"))


@pytest.mark.parametrize(
    "address",
    ["/environments/", "/environments/?tab=links", "/environments/production/", f"/clusters/{EAST}/", "/links/", "/topics/"],
)
def test_open_page_shows_that_copying_stopped(calm: PageData, admin: Client, address: str) -> None:
    report(calm)
    begun = admin.get(address).content.decode()
    assert begun.count('<div id="live"') == 1
    assert 'title="HEALTHY"' in begun
    assert 'title="NOT_COPYING"' not in begun

    report(calm, seconds=900)
    with CaptureQueriesContext(connection) as queries:
        part = admin.get(address, **htmx("live")).content.decode()

    assert 'title="NOT_COPYING"' in part
    assert "No copy worker has reported" in part
    assert "<html" not in part
    assert len(queries) <= 10


@pytest.mark.parametrize("tab", ["history/", "topics/", "filters/", "configuration/", "stops/", "drills/"])
def test_open_tab_of_a_link_shows_in_its_heading_that_copying_stopped(calm: PageData, admin: Client, tab: str) -> None:
    report(calm, seconds=900)

    part = admin.get(f"{calm.link_url}{tab}", **htmx("head"))

    assert part.context["health"].badge.code == "NOT_COPYING"
    assert "2 of 2 mirror topics: No copy worker has reported" in part.content.decode()


def test_one_silent_partition_is_shown_on_its_mirror_and_link(calm: PageData, admin: Client) -> None:
    late = timezone.now() - timedelta(seconds=90)
    calm.mirrors["flights"].partitions.filter(partition=2).update(observed_at=late)

    assert badges(admin, calm.mirror_url("flights"))[0] == "NOT_COPYING"
    assert badges(admin, calm.mirror_url("planes"))[0] == "HEALTHY"
    assert "1 of 2 mirror topics: No copy worker has reported on 1 partition for 1 min" in text_of(admin, calm.link_url)


def test_lag_beyond_the_objective_degrades(calm: PageData, admin: Client) -> None:
    calm.link.configs.create(name="link.rpo.objective.ms", value="5000")
    late = timezone.now() - timedelta(seconds=50)
    calm.mirrors["planes"].partitions.filter(partition=0).update(caught_up_at=late, bytes_per_s=9.0)

    assert badges(admin, calm.mirror_url("planes"))[0] == "DEGRADED"
    assert "exceeds the link's RPO objective" in text_of(admin, calm.link_url)


def test_alarm_degrades_and_names_its_code(calm: PageData, admin: Client) -> None:
    now = timezone.now()
    calm.mirrors["flights"].transition_errors.create(code="RECORDS_LOST", message="x", since=now, last_seen_at=now)

    assert badges(admin, calm.mirror_url("flights"))[0] == "DEGRADED"
    assert "1 of 2 mirror topics: Alarm: RECORDS_LOST." in text_of(admin, "/links/")


def test_task_error_is_shown_on_the_mirror_that_it_names(calm: PageData, admin: Client) -> None:
    errors = [{"code": "AUTHORIZATION_ERROR", "message": "flights: The source refused DESCRIBE_CONFIGS."}]
    LinkTask.objects.create(link=calm.link, name="TopicConfigsSync", error_count=1, errors=errors)

    shown = text_of(admin, calm.mirror_url("flights"))
    assert badges(admin, calm.mirror_url("flights"))[0] == "DEGRADED"
    assert "A recurring task of the link fails for this topic: AUTHORIZATION_ERROR. flights: The source refused" in shown
    assert f"{calm.link_url}tasks/" in admin.get(calm.mirror_url("flights")).content.decode()
    assert badges(admin, calm.mirror_url("planes"))[0] == "HEALTHY"
    assert badges(admin, calm.link_url)[0] == "DEGRADED"


def test_paused_link_is_paused_and_needs_no_attention(calm: PageData, admin: Client) -> None:
    ClusterLink.objects.filter(pk=calm.link.pk).update(state="PAUSED")
    calm.link.mirrors.update(state=MirrorState.PAUSED)
    report(calm, seconds=900)

    assert badges(admin, calm.link_url)[0] == "PAUSED"
    assert badges(admin, calm.mirror_url("flights"))[0] == "PAUSED"
    assert re.search(r"Needs attention\s+0", text_of(admin, calm.link_url))
    assert 'class="flow-mid idle"' in admin.get(calm.link_url).content.decode()


def test_unavailable_source_is_not_copied_and_shows_the_cause(calm: PageData, admin: Client) -> None:
    message = "west:9092 refuses connections."
    ClusterLink.objects.filter(pk=calm.link.pk).update(state="UNAVAILABLE", error_code="TIMEOUT_ERROR", error_message=message)
    calm.link.mirrors.update(state=MirrorState.SOURCE_UNAVAILABLE)

    assert badges(admin, calm.link_url)[0] == badges(admin, calm.mirror_url("flights"))[0] == "NOT_COPYING"
    assert f"No broker of the source cluster responds. {message}" in text_of(admin, calm.mirror_url("flights"))


def test_engine_error_is_shown_with_its_cause(calm: PageData, admin: Client) -> None:
    ClusterLink.objects.filter(pk=calm.link.pk).update(engine_error="Copy engine unavailable: No Spark.")
    report(calm, seconds=6)

    for name in ("link", "links", "mirror", "environments"):
        assert "No copy worker can run. Copy engine unavailable: No Spark." in text_of(admin, pages(calm)[name]), name


def test_mirrors_are_sorted_worst_first(calm: PageData, admin: Client) -> None:
    calm.mirrors["planes"].partitions.update(observed_at=timezone.now() - timedelta(seconds=90))

    for sort, names in (("health", ["planes", "flights"]), ("-health", ["flights", "planes"])):
        body = admin.get(f"{calm.link_url}?sort={sort}").content.decode()
        assert re.findall(r'id="open-\d+"[^>]*>(\w+)<', body) == names


def test_unreachable_cluster_is_degraded(calm: PageData, admin: Client) -> None:
    Cluster.objects.filter(cluster_id=WEST).update(error_code="TIMEOUT_ERROR", error_message="It does not respond.")

    assert badges(admin, f"/clusters/{WEST}/")[0] == "DEGRADED"


def test_environment_has_the_health_of_its_worst_link_or_cluster_as_headline(calm: PageData, admin: Client) -> None:
    url = pages(calm)["environment"]
    report(calm)
    assert badges(admin, url)[0] == "HEALTHY"
    assert "Healthy. All partitions are copied." in text_of(admin, url)

    Cluster.objects.filter(cluster_id=WEST).update(error_code="TIMEOUT_ERROR", error_message="It does not respond.")
    report(calm)
    assert badges(admin, url)[0] == "DEGRADED"
    assert f"Degraded. Cluster {calm.west.name}: The last connection to the cluster failed." in text_of(admin, url)

    report(calm, seconds=900)
    assert badges(admin, url)[0] == "NOT_COPYING"
    shown = text_of(admin, url)
    assert "Not copying. Link west-to-east: 2 of 2 mirror topics: No copy worker has reported" in shown
    assert "Check that the Celery worker" in shown
    assert "Link west-to-east: 2 of 2 mirror topics" in text_of(admin, "/environments/")


def test_list_of_all_mirror_topics_shows_their_health(calm: PageData, admin: Client) -> None:
    report(calm)
    assert badges(admin, "/topics/") == ["HEALTHY", "HEALTHY"]

    calm.mirrors["planes"].partitions.update(observed_at=timezone.now() - timedelta(seconds=900))

    for sort in ("name", "lag"):
        assert badges(admin, f"/topics/?sort={sort}&q=p")[0] == "NOT_COPYING"
    assert "No copy worker has reported on" in text_of(admin, "/topics/")


def test_environment_without_clusters_has_no_headline(calm: PageData, admin: Client) -> None:
    empty = Environment.objects.create(organization=calm.organization, name="Empty", slug="empty", created_at=calm.now)

    assert admin.get(empty.get_absolute_url()).context["health"] is None
    assert badges(admin, empty.get_absolute_url()) == []


TABS = (
    "",
    "history/",
    "topics/",
    "filters/",
    "tasks/",
    "groups/",
    "acls/",
    "failover/",
    "stops/",
    "drills/",
    "readiness/",
    "configuration/",
    "activity/",
)


@pytest.mark.parametrize("tab", TABS)
def test_health_is_the_headline_of_every_tab_of_a_link(calm: PageData, admin: Client, tab: str) -> None:
    report(calm, seconds=900)

    assert badges(admin, f"{calm.link_url}{tab}")[0] == "NOT_COPYING"
    assert "2 of 2 mirror topics: No copy worker has reported" in text_of(admin, f"{calm.link_url}{tab}")


@pytest.mark.parametrize("tab", TABS)
def test_tabs_are_grouped_and_the_open_tab_is_marked(calm: PageData, admin: Client, tab: str) -> None:
    body = admin.get(f"{calm.link_url}{tab}").content.decode()
    nav = body[body.index('<nav aria-label="Link">') : body.index("</nav>", body.index('<nav aria-label="Link">'))]
    groups, _, tabs = nav.partition('<ul class="tabs sub">')

    assert re.findall(r">(\w+)</a>", groups) == ["Overview", "Topics", "Sync", "Failover", "Settings", "Activity"]
    assert nav.count('aria-current="page"') == 1
    assert f'href="{calm.link_url}{tab}" aria-current="page"' in nav
    assert bool(tabs) is (tab not in {"configuration/", "activity/"})


def test_health_of_a_tab_counts_only_visible_mirrors(calm: PageData, reader: Client) -> None:
    MirrorTopic.objects.filter(name="planes").update(state=MirrorState.FAILED)
    user = make_user("dora")
    about = {"role": RoleBinding.Role.DEVELOPER_READ, "granted_at": calm.now, "granted_by": "system"}
    RoleBinding.objects.create(user=user, cluster=calm.east, resource_type="Topic", resource_name="flights", **about)

    url = f"{calm.link_url}stops/"
    assert badges(client_of(user), url)[0] == "HEALTHY"
    assert badges(reader, url)[0] == "NOT_COPYING"
