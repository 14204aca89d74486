"""The curl commands of the pages, sent to the REST API, give the same result as the forms beside them."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import transaction
from django.forms import model_to_dict
from django.test import Client

from console.actors import SYSTEM
from console.links import command_presenters
from console.links.actions import LinkConfigChange, alter_configs
from console.models import Cluster, ClusterLink, Drill, LinkConfig, MirrorTopic, RestoreRun, VerifyRun
from linkengine.domain.linkrules import AUTO_CREATE, AUTO_CREATE_FILTERS
from tests.browser.page_data import EAST, PageData, make_link
from tests.console.api.actors import Rest, make_key
from tests.console.links.test_command_presenters import VARIABLES, words_in
from tests.console.links.test_command_presenters import run as run_in_shell
from tests.console.pages import test_bulk, test_failover
from tests.console.pages.conftest import Queue, hidden_in
from tests.console.pages.test_create_link import OTHER, REGISTERED, begin, choose_clusters, configure, launch

# direction, the other cluster, the configuration
LINKS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "registered": ("receive", REGISTERED, {}),
    "options": ("receive", REGISTERED, {"auto_create": "on", "sync_offsets": "on", "add_prefix": "on", "prefix": "west."}),
    "source side": ("send", REGISTERED, {}),
    "paired": ("both", REGISTERED, {}),
    "other cluster": ("receive", OTHER, {}),
}


@pytest.fixture
def rest(page_data: PageData, settings: Any) -> Rest:
    """A client with an API key of the administrator."""
    settings.API_RATE_PER_S = settings.ATTEMPTS_AT_ONCE = 0
    key, secret = make_key(page_data.admin)
    return Rest(key.key, secret)


def run(rest: Rest, page: Any) -> Any:
    """Send the request of the curl command on a page."""
    return send(rest, command_on(page, "curl command"))


def send(rest: Rest, command: str) -> Any:
    """Send the request of a curl command; the shell's own rules take it apart."""
    words = shlex.split(command)
    assert words[:4] == ["curl", "-u", "$API_KEY:$API_SECRET", "-X"]
    method, url, *options = words[4:]
    values = dict(zip(options[::2], options[1::2], strict=True))
    assert values.get("-H") in (None, "Content-Type: application/json")
    more = {"data": values["-d"], "content_type": "application/json"} if "-d" in values else {}
    return getattr(rest.client, method.lower())(path_of(url), **more)


def command_on(page: Any, label: str) -> str:
    (command,) = re.findall(f'aria-label="{label}">(.*?)</pre>', page.content.decode(), re.DOTALL)
    return html.unescape(command)


def path_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def stored(link: ClusterLink) -> dict[str, Any]:
    """Return the values of a link, except its times, ids and creator, and its configs."""
    own = model_to_dict(link, exclude=["id", "state_since", "created_at", "created_by", "probed_at", "sequence"])
    configs = LinkConfig.objects.filter(link=link)
    return own | {"properties": dict(link.properties), "configs": dict(configs.values_list("name", "value"))}


@pytest.mark.parametrize("link", LINKS)
def test_command_of_a_new_link_creates_the_same_link(admin: Client, rest: Rest, tmp_path: Path, link: str) -> None:
    """A shell runs the command as printed; a stand-in for curl writes down what it would send."""
    direction, other, configuration = LINKS[link]
    draft = begin(admin, direction)
    choose_clusters(admin, draft, direction, other=other)
    if configuration:
        configure(admin, draft, configuration)
    launch(admin, draft, intent="commands")
    command = command_on(admin.get(f"{draft}review/"), "curl")
    launch(admin, draft)
    by_form = ClusterLink.objects.get(name="fresh")
    expected = stored(by_form)
    by_form.delete()

    done = run_in_shell(command, tmp_path, shell="sh", **VARIABLES | {"SASL_PASSWORD": OTHER["password"]})
    assert (done.returncode, done.stderr) == (0, "")
    words, document = words_in(tmp_path), (tmp_path / "input").read_text()
    response = rest.client.post(path_of(words[4]), data=document, content_type="application/json")

    assert response.status_code == 204, response.content
    assert stored(ClusterLink.objects.get(name="fresh", destination__cluster_id=EAST)) == expected


@pytest.mark.parametrize("prefix", ["", "west."])
def test_command_of_the_mirror_form_adds_the_same_mirror_topic(
    page_data: PageData, admin: Client, rest: Rest, prefix: str
) -> None:
    ClusterLink.objects.filter(pk=page_data.link.pk).update(prefix=prefix)
    values = {"source_topic": "fares", "start": "latest", "replication_factor": "3"}
    page = admin.post(f"{page_data.link_url}mirrors/new/", values | {"intent": "curl"})
    admin.post(f"{page_data.link_url}mirrors/new/", values)
    fields = ("name", "source_topic", "start_spec", "replication_factor", "state", "config_overrides")
    (expected,) = MirrorTopic.objects.filter(source_topic="fares").values(*fields)
    MirrorTopic.objects.filter(source_topic="fares").delete()

    response = run(rest, page)

    assert response.status_code == 204, response.content
    assert list(MirrorTopic.objects.filter(source_topic="fares").values(*fields)) == [expected]


def test_command_of_the_mirror_form_names_each_chosen_topic(page_data: PageData, admin: Client) -> None:
    page = admin.post(f"{page_data.link_url}mirrors/new/", {"source_topic": ["fares", "fleet"], "intent": "curl"})

    text = html.unescape(page.content.decode())
    assert re.findall(r'"source_topic_name": "(.*?)"', text) == ["fares", "fleet"]
    assert not MirrorTopic.objects.filter(name__in=["fares", "fleet"]).exists()


def test_command_of_the_mirror_page_returns_what_the_page_shows(page_data: PageData, admin: Client, rest: Rest) -> None:
    page = admin.get(page_data.mirror_url("weather"))

    shown = run(rest, page).json()

    text = html.unescape(page.content.decode())
    assert (shown["mirror_topic_name"], shown["mirror_status"]) == ("weather", "PENDING_STOPPED")
    assert [lag["lag"] for lag in shown["mirror_lags"]] == [2_340, 1_170, 780]
    for lag in shown["mirror_lags"]:
        assert f"{lag['lag']:,}" in text
        assert f"{lag['last_source_fetch_offset']:,}" in text
    (error,) = shown["mirror_state_transition_errors"]
    assert error["error_code"] in text
    assert error["error_message"] in text


def take(*names: str) -> list[tuple[str, str, bool, int]]:
    """Return what an operation has done to mirror topics, and undo it."""
    found = MirrorTopic.objects.filter(name__in=names).order_by("name")
    done = [
        (row.state, row.stop_reason, row.deletion_requested_at is not None, row.verify_runs.filter(status="QUEUED").count())
        for row in found
    ]
    VerifyRun.objects.filter(mirror__in=found).delete()
    return done


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("pause", "flights"),
        ("resume", "airports"),
        ("promote", "flights"),
        ("failover", "bookings"),
        ("recover", "delays"),
        ("delete", "flights"),
    ],
)
def test_command_of_a_confirmation_does_the_same_as_the_form(
    page_data: PageData, admin: Client, rest: Rest, operation: str, name: str
) -> None:
    address = f"{page_data.mirror_url(name)}{operation}/"
    before = MirrorTopic.objects.filter(name=name).values().get()
    page = admin.get(address)
    assert admin.post(address, hidden_in(page) | {"confirm": name}).status_code == 302
    by_form = take(name)
    MirrorTopic.objects.filter(name=name).update(**before)

    response = run(rest, page)

    assert response.status_code in (200, 204), response.content
    assert take(name) == by_form
    assert (by_form[0][0], by_form[0][2]) != (before["state"], False)


@pytest.mark.parametrize("operation", ["pause", "resume", "promote", "failover", "recover", "delete", "verify"])
def test_command_of_a_bulk_confirmation_does_the_same_as_the_form(
    page_data: PageData, admin: Client, rest: Rest, operation: str
) -> None:
    names = ["flights", "planes"]
    VerifyRun.objects.all().delete()
    state = {"resume": "PAUSED", "recover": "FAILED"}.get(operation, "ACTIVE")
    MirrorTopic.objects.filter(name__in=names).update(state=state, holds_copy=True)
    before = list(MirrorTopic.objects.filter(name__in=names).values())
    page = test_bulk.request(admin, page_data.link_url, operation=operation, mirror=names)
    test_bulk.carry_out(test_bulk.confirm(admin, page_data.link_url, page, confirm=page_data.link.name))
    by_form = take(*names)
    for row in before:
        MirrorTopic.objects.filter(pk=row["id"]).update(**row)

    responses = run_each(rest, page)

    assert {response.status_code for response in responses} <= {200, 202, 204}
    assert len(responses) == (2 if operation in ("delete", "recover", "verify") else 1)
    assert take(*names) == by_form
    assert (state, "", False, 0) not in by_form


def run_each(rest: Rest, page: Any) -> list[Any]:
    """Send the requests of the curl commands on a page, one below the other."""
    lines = command_on(page, "curl command").split("\ncurl ")
    return [send(rest, line if line.startswith("curl ") else f"curl {line}") for line in lines]


@pytest.mark.parametrize("several", [False, True], ids=["one topic", "several topics"])
@pytest.mark.parametrize("operation", ["reverse-and-start", "reverse-and-pause", "truncate-and-restore"])
def test_command_of_an_operation_on_both_sides_does_the_same_as_the_form(
    page_data: PageData, admin: Client, rest: Rest, queue: Queue, operation: str, several: bool
) -> None:
    queue.response = {}  # neither risks nor diverged records
    names = ["airports", "planes"] if several else ["planes"]
    ClusterLink.objects.filter(pk=page_data.link.pk).update(mode="BIDIRECTIONAL")
    back = make_link(page_data.east, page_data.west, page_data.link.name, page_data.now, mode="BIDIRECTIONAL")
    Cluster.objects.update(has_authorizer=True)
    state = "STOPPED" if operation == "truncate-and-restore" else "ACTIVE"
    MirrorTopic.objects.filter(name__in=names).update(state=state, holds_copy=True, read_only=True)
    with transaction.atomic():
        if several:
            page = test_bulk.request(admin, page_data.link_url, operation=operation, mirror=names)
            test_bulk.carry_out(test_bulk.confirm(admin, page_data.link_url, page, confirm=page_data.link.name))
        else:
            address = f"{page_data.mirror_url(names[0])}{operation}/"
            page = admin.get(address)
            assert admin.post(address, hidden_in(page) | {"confirm": names[0]}).status_code == 302
        by_form = both_sides(page_data.link, back)
        transaction.set_rollback(True)

    (response,) = run_each(rest, page)

    assert [row["error_code"] for row in response.json()["data"]] == [None] * len(names)
    assert both_sides(page_data.link, back) == by_form
    mirrors, others, restores = by_form
    changed = {
        "reverse-and-start": ("PENDING_SYNCHRONIZE", "reverse-and-start"),
        "reverse-and-pause": ("PENDING_SYNCHRONIZE", "reverse-and-pause"),
        "truncate-and-restore": ("PENDING_SETUP_FOR_RESTORE", ""),
    }[operation]
    assert [mirrors[name] for name in names] == [changed] * len(names)
    assert others == ({} if state == "STOPPED" else dict.fromkeys(names, ("PENDING_MIRROR", operation)))
    assert restores == (names if state == "STOPPED" else [])


def both_sides(link: ClusterLink, back: ClusterLink) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return state and reversal of the topics of both sides, and the topics whose restore was requested."""
    sides = [{row.name: (row.state, row.reversal) for row in side.mirrors.all()} for side in (link, back)]
    restores = RestoreRun.objects.filter(mirror__link=link).order_by("mirror__name")
    return sides[0], sides[1], list(restores.values_list("mirror__name", flat=True))


@pytest.mark.parametrize("state", ["ACTIVE", "PAUSED"])
def test_command_of_the_pause_of_a_link_does_the_same_as_the_form(
    page_data: PageData, admin: Client, rest: Rest, state: str
) -> None:
    link, address = page_data.link, f"{page_data.link_url}pause/"
    if state == "PAUSED":
        admin.post(address, hidden_in(admin.get(address)))
    page = admin.get(address)
    with transaction.atomic():
        assert admin.post(address, hidden_in(page)).status_code == 302
        by_form = stored(ClusterLink.objects.get(pk=link.pk))
        transaction.set_rollback(True)

    assert run(rest, page).status_code == 204

    assert stored(ClusterLink.objects.get(pk=link.pk)) == by_form
    assert by_form["state"] == ("PAUSED" if state == "ACTIVE" else "ACTIVE")


@pytest.mark.parametrize("stopped", [False, True])
def test_command_of_the_deletion_of_a_link_does_the_same_as_the_form(
    page_data: PageData, admin: Client, rest: Rest, stopped: bool
) -> None:
    """Without the option, neither deletes a link with topics that are mirrored; the page says how the request selects it."""
    link, address = page_data.link, f"{page_data.link_url}delete/"
    Drill.objects.all().delete()
    if stopped:
        MirrorTopic.objects.filter(link=link).update(state="STOPPED")
    page = admin.get(address)
    with transaction.atomic():
        assert admin.post(address, hidden_in(page) | {"confirm": link.name}).status_code == (302 if stopped else 409)
        by_form = left_of(link)
        transaction.set_rollback(True)

    response = run(rest, page)

    assert response.status_code == (200 if stopped else 400)
    assert left_of(link) == by_form
    assert ("add ?force=true to its URL" in page.content.decode()) is not stopped
    if not stopped:
        assert send(rest, command_on(page, "curl command") + "?force=true").status_code == 200
        assert left_of(link) != by_form


def left_of(link: ClusterLink) -> list[tuple[bool, int]]:
    """Return whether the link is being deleted and how many of its mirrors are not stopped; [] after it was deleted."""
    found = ClusterLink.objects.filter(pk=link.pk)
    return [(row.deletion_requested_at is not None, row.mirrors.exclude(state="STOPPED").count()) for row in found]


@pytest.mark.parametrize("enabled", ["true", ""])
def test_command_of_the_filters_does_the_same_as_the_form(page_data: PageData, admin: Client, rest: Rest, enabled: str) -> None:
    link, address = page_data.link, f"{page_data.link_url}filters/"
    former = '{"topicFilters": [{"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}]}'
    changes = [LinkConfigChange(name=AUTO_CREATE, value="true"), LinkConfigChange(name=AUTO_CREATE_FILTERS, value=former)]
    alter_configs(link=link, changes=changes, by=SYSTEM, now=page_data.now)
    values = {"name": ["fl", "it's-flat"], "pattern": ["PREFIXED", "LITERAL"], "kind": ["INCLUDE", "EXCLUDE"]}
    form = hidden_in(admin.get(address)) | values | ({"enabled": enabled} if enabled else {})
    page = admin.post(address, form | {"intent": "preview"})
    with transaction.atomic():
        assert admin.post(address, form | {"intent": "save"}).status_code == 302
        by_form = stored(ClusterLink.objects.get(pk=link.pk))
        transaction.set_rollback(True)

    assert run(rest, page).status_code == 204

    assert stored(ClusterLink.objects.get(pk=link.pk)) == by_form
    assert ("it's-flat" in by_form["configs"].get(AUTO_CREATE_FILTERS, "")) is bool(enabled)
    assert "curl -u" not in admin.get(address).content.decode()  # nothing to change


def test_command_of_the_failover_review_does_the_same_as_the_form(page_data: PageData, admin: Client, rest: Rest) -> None:
    page = test_failover.review(admin, page_data, mirror=["flights", "planes"])

    response = run(rest, page)

    assert [row["error_code"] for row in response.json()["data"]] == [None, None]
    assert take("flights", "planes") == [("PENDING_STOPPED", "failover", False, 0)] * 2


def test_confirmation_of_very_many_topics_has_no_command(
    page_data: PageData, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_presenters, "MOST_IN_COMMAND", 1)

    page = test_bulk.request(admin, page_data.link_url, operation="pause", mirror=["flights", "planes"]).content.decode()

    assert "No command is shown for more than 400 topics." in page
    assert "curl -u" not in page
