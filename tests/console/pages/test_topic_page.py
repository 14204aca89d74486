"""The page of a topic of a cluster: stored rows when it is opened, configs and consumer groups when they are loaded."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.clusters import presenters
from console.errors import UnavailableError
from console.models import MirrorTopic, RoleBinding, SourceTopic
from console.queue import dispatch
from console.web.numbers import UNKNOWN
from linkengine.domain.clusterviews import ConfigView, TopicGroup, TopicGroups
from linkengine.domain.errors import ErrorCode, LinkEngineError
from tests.browser.page_data import EAST, WEST, PageData, make_user
from tests.console.pages.conftest import Queue, client_of, htmx

URL = f"/clusters/{WEST}/topics/flights/"
LOAD = f"{URL}?load=1"
TOPIC = {"resource_type": "Topic", "resource_name": "flights"}


def text_of(response: Any) -> str:
    """Return the visible text of a page."""
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split()))


def rows_of(response: Any, section: str) -> list[list[str]]:
    """Return the cells of the table rows in a section of the page."""
    part = re.search(rf'<section class="panel" id="{section}".*?</section>', response.content.decode(), re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", part.group() if part else "", re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows if "<td" in row]
    return [[unescape(" ".join(re.sub(r"<[^>]+>", " ", cell).split())) for cell in row] for row in cells]


def config(name: str, value: str | None, source: str = "DEFAULT_CONFIG", *, hidden: bool = False) -> ConfigView:
    is_default = source == "DEFAULT_CONFIG"
    return ConfigView(name=name, value=value, is_default=is_default, is_read_only=False, is_sensitive=hidden, source=source)


def group(name: str, *, lag: int | None, known: int = 3, state: str = "STABLE", **more: Any) -> TopicGroup:
    largest = {"max_lag": lag} | more
    return TopicGroup(group_id=name, state=state, type="CLASSIC", members=2, lag=lag, known=known, **largest)


def groups(*found: TopicGroup, **more: Any) -> TopicGroups:
    return TopicGroups(groups=found, **{"partitions": 3, "examined": len(found), "listed": len(found)} | more)


class Worker:
    """A fake worker: ``responses`` has the result of each query, or the error that it raises."""

    def __init__(self) -> None:
        self.queries: list[tuple[str, dict[str, Any]]] = []
        self.responses: dict[str, Any] = {
            "topic_configs": [config("retention.ms", "604800000", "DYNAMIC_TOPIC_CONFIG")],
            "topic_groups": groups(group("readers", lag=4)),
        }

    def call(self, task_name: str, *, query: str, arguments: dict[str, Any], **_: Any) -> Any:
        assert task_name == "query_cluster"
        self.queries.append((query, arguments))
        response = self.responses[query]
        if isinstance(response, Exception):
            raise response
        values = [asdict(view) for view in response] if isinstance(response, list) else asdict(response)
        return json.loads(json.dumps(values))


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, queue: Queue) -> Worker:
    fake = Worker()
    monkeypatch.setattr(dispatch, "call", fake.call)
    return fake


def person(page_data: PageData, *where: dict[str, Any]) -> Client:
    """Return a client for a user with the role DeveloperRead on resources of us-west."""
    user = make_user("dora")
    about = {"role": RoleBinding.Role.DEVELOPER_READ, "granted_at": page_data.now, "granted_by": "system"}
    for resource in where:
        RoleBinding.objects.create(user=user, cluster=page_data.west, **about, **resource)
    return client_of(user)


# --- stored rows ------------------------------------------------------------------------------------------------------


def test_page_opens_from_stored_rows(page_data: PageData, admin: Client, worker: Worker) -> None:
    response = admin.get(URL)

    text, page = text_of(response), response.content.decode()
    assert worker.queries == []
    assert "Partitions 3" in text
    assert "Source for flights on us-east" in text
    assert rows_of(response, "mirrors") == [["flights", "us-east", "west-to-east", "State Active"]]
    assert f'<a href="{page_data.mirror_url("flights")}">flights</a>' in page
    assert 'id="configs"' not in page
    assert 'id="groups"' not in page
    assert re.search(rf'<form[^>]* method="get" action="{URL}">\s*<input type="hidden" name="load" value="1">', page)


def test_poll_shows_a_change_of_a_mirror_and_reads_nothing_from_the_cluster(
    page_data: PageData, admin: Client, worker: Worker
) -> None:
    (region,) = re.findall(r'<div id="live" [^>]*>', admin.get(LOAD).content.decode())
    assert f'hx-get="{URL}"' in region
    worker.queries.clear()
    MirrorTopic.objects.update(state="FAILED")

    part = admin.get(URL, **htmx("live")).content.decode()

    assert 'title="FAILED"' in part
    assert "<h1" not in part
    assert worker.queries == []


def test_mirror_topic_names_its_source(page_data: PageData, admin: Client) -> None:
    SourceTopic.objects.create(cluster=page_data.east, name="flights", partitions=3, is_mirror=True, seen_at=page_data.now)
    SourceTopic.objects.create(cluster=page_data.east, name="unknown", partitions=1, is_mirror=True, seen_at=page_data.now)
    SourceTopic.objects.create(cluster=page_data.east, name="plain", partitions=1, seen_at=page_data.now)

    mirror, unknown, plain = (admin.get(f"/clusters/{EAST}/topics/{name}/") for name in ("flights", "unknown", "plain"))

    tag = f'<span class="tag">Mirror</span> of <a href="{page_data.mirror_url("flights")}">flights on us-west</a>'
    assert tag in mirror.content.decode()
    assert '<span class="tag">Mirror topic</span>' in unknown.content.decode()
    assert "Neither a mirror topic nor the source of a mirror topic" in text_of(plain)


def test_topic_is_linked_from_the_list_the_search_and_its_mirror(page_data: PageData, admin: Client) -> None:
    configs, here = page_data.mirror_url("flights", "configs"), f"/clusters/{EAST}/topics/flights/"
    assert f'href="{URL}"' in admin.get(f"/clusters/{WEST}/topics/").content.decode()
    assert f'href="{URL}"' in admin.get("/search/?q=flights").content.decode()
    assert f'href="{here}"' not in admin.get(configs).content.decode()  # not listed yet

    SourceTopic.objects.create(cluster=page_data.east, name="flights", partitions=3, is_mirror=True, seen_at=page_data.now)

    assert f'href="{here}"' in admin.get(configs).content.decode()
    assert admin.get(here).status_code == 200


# --- configs and groups -----------------------------------------------------------------------------------------------


def test_configs_that_differ_come_first_and_the_others_are_folded(admin: Client, worker: Worker) -> None:
    worker.responses["topic_configs"] = [
        config("cleanup.policy", "delete"),
        config("follower.replication.throttled.replicas", ""),
        config("min.insync.replicas", "2", "STATIC_BROKER_CONFIG"),
        config("retention.ms", "604800000", "DYNAMIC_TOPIC_CONFIG"),
        config("secret.of.topic", None, "DYNAMIC_TOPIC_CONFIG", hidden=True),
    ]

    response = admin.get(LOAD)

    assert response.status_code == 200
    assert worker.queries == [("topic_configs", {"topic": "flights"}), ("topic_groups", {"topic": "flights"})]
    assert rows_of(response, "configs") == [
        ["retention.ms", "7 days (604800000)", "set on the topic"],
        ["secret.of.topic", "hidden", "set on the topic"],
        ["min.insync.replicas", "2", "configuration file of the broker"],
        ["cleanup.policy", "delete", "default of Kafka"],
        ["follower.replication.throttled.replicas", "empty", "default of Kafka"],
    ]
    folded = response.content.decode().partition('<details class="fold panel-body" id="default-configs">')[2]
    assert "min.insync.replicas" not in folded
    assert "cleanup.policy" in folded
    assert "2 configs with Kafka's defaults" in text_of(response)


def test_groups_have_their_lag_and_an_unknown_lag_is_never_0(admin: Client, worker: Worker) -> None:
    lost = TopicGroup(group_id="lost", state="UNKNOWN", type="CLASSIC", error="Broker two:9092 did not respond in time.")
    worker.responses["topic_groups"] = groups(
        group("idle", lag=0, state="EMPTY"),
        lost,
        group("new", lag=None, known=0),
        group("partly", lag=1204, max_lag=1200, known=2),
        group("partly-read", lag=0, known=1),
        group("slow", lag=9000, max_lag=8000),
    )

    response = admin.get(LOAD)

    assert rows_of(response, "groups") == [
        ["slow classic", "STABLE", "2", "9,000", "8,000"],
        ["partly classic", "STABLE", "2", "≥ 1,204 unknown in 1 of 3 partitions", "≥ 1,200"],
        ["idle classic", "EMPTY", "2", "0", "0"],
        ["partly-read classic", "STABLE", "2", f"{UNKNOWN} unknown in 2 of 3 partitions", UNKNOWN],
        ["lost classic", "unknown Broker two:9092 did not respond in time.", UNKNOWN, UNKNOWN, UNKNOWN],
        ["new classic", "STABLE", "2", f"{UNKNOWN} unknown in 3 of 3 partitions", UNKNOWN],
    ]
    assert "if the group has committed no offset there" in text_of(response)
    assert 'id="missing-groups"' not in response.content.decode()


def test_groups_that_are_not_shown_are_counted(admin: Client, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presenters, "GROUPS_SHOWN", 1)
    found = groups(group("a", lag=1), group("b", lag=2), examined=2000, listed=5001, incomplete="Broker 2 did not respond.")
    worker.responses["topic_groups"] = found

    response = admin.get(LOAD)

    text = text_of(response)
    assert [row[0] for row in rows_of(response, "groups")] == ["b classic"]
    assert "1 more groups, with a smaller or unknown lag, are not shown." in text
    assert "Of 5,001 consumer groups of the cluster, only the first 2,000 by name were examined." in text
    assert "Groups or lags are missing: Broker 2 did not respond." in text


def test_topic_without_groups(admin: Client, worker: Worker) -> None:
    worker.responses["topic_groups"] = groups()

    text = text_of(admin.get(LOAD))

    assert "None of the consumer groups that could be examined has a member or a committed offset in this topic." in text


def test_names_of_groups_are_escaped(admin: Client, worker: Worker) -> None:
    worker.responses["topic_groups"] = groups(group("<b>\0</b>", lag=1), group("", lag=0))

    response = admin.get(LOAD)

    assert [row[0] for row in rows_of(response, "groups")] == ["<b>\\x00</b> classic", "(empty name) classic"]


# --- permissions ------------------------------------------------------------------------------------------------------


def test_reader_of_a_topic_sees_it_and_why_no_groups_are_shown(page_data: PageData, worker: Worker) -> None:
    client = person(page_data, TOPIC)

    response = client.get(LOAD)

    text = text_of(response)
    assert response.status_code == 200
    assert "retention.ms" in text
    assert "readers" not in text
    assert "Only the consumer groups that your roles cover are shown." in text
    assert "None of the consumer groups that your roles cover has a member" in text
    assert "the role DeveloperRead on the cluster us-west" in text
    assert client.get(URL.replace("flights", "fares")).status_code == 404


def test_reader_of_a_group_sees_that_group(page_data: PageData, worker: Worker) -> None:
    client = person(page_data, TOPIC, {"resource_type": "Group", "resource_name": "team-", "prefixed": True})
    worker.responses["topic_groups"] = groups(group("team-a", lag=1), group("others", lag=2))

    response = client.get(LOAD)

    assert [row[0] for row in rows_of(response, "groups")] == ["team-a classic"]
    assert "others" not in text_of(response)
    assert 'id="hidden-groups"' in response.content.decode()


def test_reader_of_the_cluster_sees_all_groups(page_data: PageData, reader: Client, worker: Worker) -> None:
    response = reader.get(LOAD)

    assert [row[0] for row in rows_of(response, "groups")] == ["readers classic"]
    assert 'id="hidden-groups"' not in response.content.decode()


@pytest.mark.parametrize("address", [URL, LOAD])
def test_user_without_a_role_gets_not_found(stranger: Client, worker: Worker, address: str) -> None:
    assert stranger.get(address).status_code == 404
    assert worker.queries == []


@pytest.mark.parametrize("name", ["__state", "no-such-topic"])
def test_internal_and_unlisted_topics_are_not_found(admin: Client, worker: Worker, name: str) -> None:
    response = admin.get(f"/clusters/{WEST}/topics/{name}/?load=1")

    assert response.status_code == 404
    assert worker.queries == []


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("No worker responds. Start the Celery worker.", code="WORKER_UNAVAILABLE"),
        LinkEngineError(ErrorCode.BOOTSTRAP_TCP_CONNECTION_FAILED_ERROR, "No worker responds to the cluster."),
    ],
)
def test_without_a_worker_or_cluster_the_stored_rows_stay(admin: Client, worker: Worker, error: Exception) -> None:
    worker.responses["topic_configs"] = error

    response = admin.get(LOAD)

    assert response.status_code == 503
    assert [query for query, _ in worker.queries] == ["topic_configs"]  # the second would have to wait as long
    assert text_of(response).count("No worker responds") == 1
    assert "Partitions 3" in text_of(response)


@pytest.mark.parametrize(
    "error",
    [
        LinkEngineError(ErrorCode.AUTHORIZATION_ERROR, "The principal may not do that."),
        LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The principal waited too long."),
    ],
)
def test_part_that_cannot_be_read_has_the_reason_and_the_other_is_shown(
    admin: Client, worker: Worker, error: LinkEngineError
) -> None:
    worker.responses["topic_configs"] = error
    configs_refused = admin.get(LOAD)
    worker.responses = Worker().responses | {"topic_groups": error}
    groups_refused = admin.get(LOAD)

    assert (configs_refused.status_code, groups_refused.status_code) == (422, 422)
    assert (rows_of(configs_refused, "configs"), len(rows_of(configs_refused, "groups"))) == ([], 1)
    assert (len(rows_of(groups_refused, "configs")), rows_of(groups_refused, "groups")) == (1, [])
    for response in (configs_refused, groups_refused):
        assert text_of(response).count(error.message) == 1


def test_topic_that_was_deleted_since_the_last_check_is_explained(admin: Client, worker: Worker) -> None:
    gone = LinkEngineError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION_ERROR, "This server does not host this topic-partition.")
    worker.responses = dict.fromkeys(worker.responses, gone)

    response = admin.get(LOAD)

    assert response.status_code == 422
    assert "Topic 'flights' cannot be found on this cluster." in text_of(response)


def test_loaded_page_needs_few_queries(page_data: PageData, worker: Worker) -> None:
    client = person(page_data, TOPIC, {"resource_type": "Group", "resource_name": "*"})
    with CaptureQueriesContext(connection) as queries:
        client.get(LOAD)

    assert len(queries) <= 10
