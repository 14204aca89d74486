"""Every list: search, sort order, filters, pages, files and empty states. ``list_cases`` declares the lists.

The file of a list without filters is what the other selections are compared with: which rows match, and in which order, is
computed from its cells.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.http import StreamingHttpResponse
from django.test import Client
from time_machine import TimeMachineFixture

from console.models import AuditEvent, Cluster, ClusterLink, SourceTopic
from console.web.lists import PAGE_SIZE, csv_file
from linkengine.domain.states import MirrorState
from tests.browser.page_data import EAST, WEST, PageData, make_link, make_mirror
from tests.console.pages.list_cases import CASES, SKIPPED, Case
from tests.console.pages.list_pages import Row, Table, file_of, queries, read, walk, with_query
from tests.console.pages.list_rows import MANY, add_events, add_reports, add_transitions

FEW = PAGE_SIZE + 7  # two pages, where each selection is opened
every_list = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


@pytest.fixture
def page_data(page_data: PageData, time_machine: TimeMachineFixture) -> PageData:
    """The page data with a stopped clock: what a list shows and sorts by depends on ages, and a test reads it many times."""
    time_machine.move_to(page_data.now, tick=False)
    return page_data


def list_and_file(client: Client, case: Case, query: str) -> tuple[list[Table], list[Row]]:
    """Return the tables of all pages of a selection, and the rows of the file to which the first page links."""
    address = with_query(case.address, query)
    pages = walk(client, address)
    return [Table(page) for page in pages], file_of(client, address, pages[0])


def shown_in(case: Case, tables: Sequence[Table]) -> list[Any]:
    return [case.shown(cells) for table in tables for cells in table.rows]


def names(case: Case, rows: Sequence[Row]) -> list[Any]:
    """Return the rows of a file as the page lists them: several rows of a group are shown as one."""
    return (
        list(dict.fromkeys(case.named(row) for row in rows)) if case.plural == "groups" else [case.named(row) for row in rows]
    )


@every_list
def test_file_has_all_rows_in_the_order_of_the_pages(admin: Client, page_data: PageData, case: Case) -> None:
    expected = case.fill(page_data)

    tables, rows = list_and_file(admin, case, "")

    assert names(case, rows) == shown_in(case, tables)
    cells = [{key: str(value) for key, value in row.items()}.items() for row in expected]
    missing = [wanted for wanted in cells if not any(wanted <= row.items() for row in rows)]
    assert len(cells) >= MANY * 2 // 3
    assert missing == []


@every_list
def test_list_is_sorted_by_each_column_both_ways(admin: Client, page_data: PageData, case: Case) -> None:
    case.fill(page_data, FEW)
    page = read(admin, case.address)
    everything = sorted(map(repr, names(case, file_of(admin, case.address, page))))
    offered = set(re.findall(r'id="sort-\d+" href="[^"]*[?;]sort=-?([\w-]+)', page))
    assert offered == set(case.sorts)

    for key, value_of in case.sorts.items():
        for sort, direction in ((key, "ascending"), (f"-{key}", "descending")):
            tables, rows = list_and_file(admin, case, f"sort={sort}")
            assert tables[0].sorted == [direction]
            assert names(case, rows) == shown_in(case, tables), sort
            assert sorted(map(repr, names(case, rows))) == everything
            if value_of is not None:
                values = [value for value in map(value_of, rows) if value is not SKIPPED]
                assert values == sorted(values, reverse=direction == "descending"), sort
                assert values, sort


@every_list
def test_search_and_filters_select_the_matching_rows(admin: Client, page_data: PageData, case: Case) -> None:
    case.fill(page_data, FEW)
    everything = file_of(admin, case.address)

    for query, matches in {**{f"q={text}": found for text, found in case.search.items()}, **case.filters}.items():
        tables, rows = list_and_file(admin, case, query)
        assert names(case, rows) == names(case, [row for row in everything if matches(row)]), query
        assert names(case, rows) == shown_in(case, tables), query


@every_list
def test_pages_have_each_row_once_and_keep_the_selection(admin: Client, page_data: PageData, case: Case) -> None:
    case.fill(page_data)

    pages = walk(admin, case.address)
    total = len(names(case, file_of(admin, case.address, pages[0])))
    full, rest = divmod(total, PAGE_SIZE)
    assert [len(Table(page).rows) for page in pages] == [*[PAGE_SIZE] * full, rest]
    assert f"1 to {PAGE_SIZE} of {total}" in pages[0]
    assert f"{full * PAGE_SIZE + 1} to {total} of {total}" in pages[-1]
    key = list(case.sorts)[-1]  # not the default
    _, second = walk(admin, with_query(case.address, f"sort=-{key}"), most=2)
    assert Table(second).sorted == ["descending"]
    assert f'<input type="hidden" name="sort" value="-{key}">' in second


@every_list
def test_empty_list_says_what_to_do_and_an_unmatched_filter_how_to_clear_it(
    admin: Client, page_data: PageData, case: Case
) -> None:
    page = read(admin, with_query(case.address, case.unmatched))

    assert f"No matching {case.plural}" in page
    clear = re.search(r'id="clear-filter" href="([^"]+)">Clear filter<', page)
    assert clear is not None
    assert html.unescape(clear[1]).partition("?")[0] == case.address
    assert Table(read(admin, html.unescape(clear[1]))).rows
    assert file_of(admin, with_query(case.address, case.unmatched)) == []

    for model in case.models:
        model._default_manager.all().delete()
    page = read(admin, case.address)
    assert re.search(f"<h[12][^>]*>({case.nothing})</h[12]>", page) or not case.nothing
    assert "No matching" not in page
    assert "Clear filter" not in page


@every_list
def test_list_and_its_file_require_the_same_permission(page_data: PageData, stranger: Client, case: Case) -> None:
    case.fill(page_data, FEW)
    address = with_query(case.address, "format=csv")

    assert (stranger.get(case.address).status_code, stranger.get(address).status_code) == (case.denied, case.denied)
    if case.denied == 200:
        assert file_of(stranger, case.address) == []
        assert Table(read(stranger, case.address)).rows == []
    assert (Client().get(case.address).status_code, Client().get(address).status_code) == (302, 302)


@every_list
def test_more_rows_need_no_more_queries(admin: Client, page_data: PageData, case: Case) -> None:
    first, second = case.address, with_query(case.address, "format=csv")
    admin.get(first)
    few, few_of_file = queries(admin, first), queries(admin, second)
    case.fill(page_data, FEW)

    assert queries(admin, first) <= few + 1  # the number of rows, which a list with a single page shows
    assert queries(admin, second) == few_of_file


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_file_has_no_formulas(admin: Client, page_data: PageData, start: str) -> None:
    AuditEvent.objects.filter(actor="bessie").update(actor=f"{start}HYPERLINK(0)")

    (row,) = file_of(admin, "/audit/?result=DENIED")

    assert row["actor"] == f"'{start}HYPERLINK(0)"
    assert row["action"] == "OPERATE_MIRROR"


def test_cells_are_machine_readable(admin: Client, page_data: PageData) -> None:
    rows = {row["mirror_topic"]: row for row in file_of(admin, page_data.link_url)}

    assert len(rows) == len(page_data.mirrors)
    assert (rows["bookings"]["state"], rows["bookings"]["max_lag"]) == ("SOURCE_UNAVAILABLE", "99120")
    assert (rows["hubs"]["max_lag"], rows["hubs"]["bytes_per_s"], rows["hubs"]["partitions"]) == ("", "", "")
    since = page_data.mirrors["bookings"].state_since
    assert rows["bookings"]["state_since"] == since.isoformat(timespec="milliseconds")
    assert since.utcoffset() == timedelta(0)


def test_unknown_lag_of_a_link_is_empty_and_not_zero(admin: Client, page_data: PageData) -> None:
    make_mirror(
        make_link(page_data.west, page_data.east, "zzhalf", page_data.now), "a", MirrorState.ACTIVE, lag=0, now=page_data.now
    )
    make_mirror(ClusterLink.objects.get(name="zzhalf"), "b", MirrorState.PENDING_SETUP, lag=None, now=page_data.now)

    rows = {row["link"]: row for row in file_of(admin, "/links/")}

    assert (rows["zzhalf"]["max_lag"], rows["zzhalf"]["unknown_lags"]) == ("", "1")


def test_file_is_sent_in_parts() -> None:
    read_rows = []

    def rows() -> Any:
        for number in range(10_000):
            read_rows.append(number)
            yield (number,)

    response: Any = csv_file("numbers", ["number"], rows())
    first = next(iter(response))

    assert isinstance(response, StreamingHttpResponse)
    assert first.startswith(b"number\r\n0\r\n1\r\n")
    assert len(read_rows) < 1_000


def test_error_before_the_first_part_is_an_error_page() -> None:
    with pytest.raises(ZeroDivisionError):
        csv_file("numbers", ["number"], ((1 / 0,) for _ in range(3)))


def test_json_of_failover_reports_has_all_that_match(admin: Client, page_data: PageData) -> None:
    add_reports(page_data)

    whole = admin.get(f"{page_data.link_url}stops/?page=2&format=json").json()
    matching = admin.get(f"{page_data.link_url}stops/?format=json&operation=promote&sort=name").json()
    everywhere = admin.get("/failover-reports/?format=json").json()

    assert (whole["stops"], len(whole["data"])) == (MANY + 1, MANY + 1)
    assert whole["data"][0]["mirror_topic_name"] == "gates"
    assert matching["stops"] == len(range(0, MANY, 3))
    assert {row["reason"] for row in matching["data"]} == {"promote"}
    topics = [row["mirror_topic_name"] for row in matching["data"]]
    assert topics == sorted(topics)
    assert everywhere["stops"] == whole["stops"]


def test_file_of_a_cluster_with_many_topics_has_their_mirrors(
    admin: Client, page_data: PageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"/clusters/{WEST}/topics/"
    SourceTopic.objects.create(cluster=Cluster.objects.get(cluster_id=WEST), name="zzz", partitions=1, seen_at=page_data.now)
    few = file_of(admin, address)
    monkeypatch.setattr("console.clusters.queries.MOST_NAMES", 1)

    assert file_of(admin, address) == few
    assert {row["source_for"] for row in few if row["topic"] == "flights"} == {f"{EAST}/flights"}


# --- time range and options of the audit log --------------------------------------------------------------------------


TIMED = {  # list: column of its file with the time that a range selects
    "audit log": "at",
    "activity of a link": "at",
    "failover reports of a link": "writable_at",
    "failover reports": "writable_at",
    "operations": "requested_at",
    "history of a mirror topic": "at",
}


@pytest.mark.parametrize("name", TIMED)
def test_time_range_selects_the_rows_from_its_start_until_before_its_end(admin: Client, page_data: PageData, name: str) -> None:
    case, column = CASES[name], TIMED[name]
    case.fill(page_data)
    everything = file_of(admin, case.address)
    times = sorted(datetime.fromisoformat(row[column]) for row in everything)
    start, end = (times[len(times) * part // 4].replace(second=0, microsecond=0) for part in (1, 3))
    end = max(end, start + timedelta(minutes=1))
    within = [row for row in everything if start <= datetime.fromisoformat(row[column]) < end]
    assert 0 < len(within) < len(everything)

    query = f"from={start:%Y-%m-%dT%H:%M}&to={end:%Y-%m-%dT%H:%M}"
    tables, rows = list_and_file(admin, case, query)

    assert names(case, rows) == names(case, within) == shown_in(case, tables)
    assert f'name="from" value="{start:%Y-%m-%dT%H:%M}"' in tables[0].page
    assert f'name="to" value="{end:%Y-%m-%dT%H:%M}"' in tables[0].page


def test_all_lists_with_a_time_range_are_tested(admin: Client, page_data: PageData) -> None:
    with_range = {name for name, case in CASES.items() if 'type="datetime-local"' in read(admin, case.address)}

    assert with_range == {*TIMED, "samples of a link"}  # the range of the samples is that of the charts


def test_history_of_a_mirror_takes_a_time_range(admin: Client, page_data: PageData) -> None:
    """The changes are one minute apart; the range has the second and the third of the newest."""
    add_transitions(page_data)
    newest = list(page_data.mirrors["flights"].transitions.all()[:4])
    times = [step.at.replace(second=0, microsecond=0) for step in newest]
    address = f"{page_data.mirror_url('flights', 'history')}?from={times[2]:%Y-%m-%dT%H:%M}&to={times[0]:%Y-%m-%dT%H:%M}"

    assert [row["by"] for row in file_of(admin, address)] == [step.by for step in newest[1:3]]
    assert "2 state changes" in read(admin, address)


def test_action_filter_offers_actions_of_all_events(admin: Client, page_data: PageData) -> None:
    AuditEvent.objects.create(
        at=page_data.now - timedelta(days=400),
        actor="amelia",
        action="LongAgo",
        resource="organization/Skyways",
        result="SUCCESS",
    )

    assert '<option value="LongAgo">' in read(admin, "/audit/?action=PauseMirrorTopic")


@pytest.mark.parametrize("number", ["999", "0", "-1", "x", "9" * 5_000])
def test_invalid_page_number_shows_an_existing_page(admin: Client, page_data: PageData, number: str) -> None:
    add_events(page_data)

    assert "of 111</span>" in read(admin, f"/audit/?page={number}")


@pytest.mark.parametrize("query", ["sort=no-column", "sort=--at", "sort=", "result=NONE", "from=x", "format=pdf"])
def test_invalid_selection_is_ignored(admin: Client, page_data: PageData, query: str) -> None:
    chosen, usual = (Table(read(admin, address)).rows for address in (f"/audit/?{query}", "/audit/"))

    assert [cells[1:] for cells in chosen] == [cells[1:] for cells in usual]  # without relative times
