"""Charts of a link (its History tab) and of a mirror, their data, the table of samples, and the page of a minute.

A view of a link and of a mirror is the same function: the URL of a mirror has ``mirror_name``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop
from django.views.decorators.http import require_GET

from console.access.audit_pages import EVENTS, event_rows
from console.history import incidents
from console.history.incidents import MINUTE
from console.history.presenters import MARKER_LABELS, charts_of, events_data, minute_address, range_words, series_data
from console.history.queries import (
    KEEP_SUMMARIES,
    SPANS,
    Row,
    link_history,
    link_rows,
    mirror_rows,
    on_grid,
    stored_rows,
    top_mirrors,
    window,
)
from console.links import queries as link_queries
from console.links.pages import HEAD, crumbs, head_poll, link_context, polled
from console.mirrors import queries as mirror_queries
from console.mirrors.presenters import steps
from console.models import ClusterLink, EndedError, MirrorTopic, StateTransitionError
from console.web import numbers
from console.web.badges import mirror_badge
from console.web.errors import transition_notes
from console.web.lists import Column, Filter, Listing, range_fields, time_of
from console.web.request_handling import Tab, actor_of, page, reply

LINK_SPAN, MIRROR_SPAN = "1h", "2h"  # without a choice
SHORTEST = timedelta(minutes=10)  # that can be zoomed to
LONGEST = max(KEEP_SUMMARIES.values())
NAMES_LISTED = 200
EVENTS_SHOWN = 200
Subject = ClusterLink | MirrorTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The time range of the charts: the last hour or more, or the range between ``from`` and ``to`` of the query string."""

    start: datetime
    end: datetime
    name: str  # key of SPANS, "" between two times

    @property
    def span(self) -> timedelta:
        """Return the length of the range."""
        return self.end - self.start

    @property
    def query(self) -> str:
        """Return the range as a query string."""
        if self.name:
            return urlencode({"span": self.name})
        return urlencode({"from": int(self.start.timestamp()), "to": int(self.end.timestamp())})


def range_of(request: HttpRequest, *, now: datetime, default: str = LINK_SPAN) -> Range:
    """Return the requested range, within the retention of the samples."""
    start, end = time_of(request, "from"), time_of(request, "to")
    name = request.GET.get("span", default)
    name = name if name in SPANS else default
    if start is not None or end is not None:  # without an end: until now; without a start: the usual length
        end = now if end is None else min(now, max(end, now - LONGEST + SHORTEST))
        start = end - SPANS[name] if start is None else start
        return Range(start=max(now - LONGEST, min(start, end - SHORTEST)), end=end, name="")
    return Range(start=now - SPANS[name], end=now, name=name)


def segments(url: str, chosen: Range) -> list[Tab]:
    """Return the links to the ranges."""
    return [Tab(label=name, url=f"{url}?span={name}", current=name == chosen.name) for name in SPANS]


def graph_context(subject: Subject, chosen: Range, *, topic: str = "") -> dict[str, object]:
    """Return the template context of the interactive charts: the URLs of their data."""
    query = chosen.query + (f"&{urlencode({'topic': topic})}" if topic else "")
    return {
        "graph_series": f"{data_url(subject, 'series')}?{query}",
        "graph_events": f"{data_url(subject, 'events')}?{query}",
        "graph_csv": f"{data_url(subject, 'samples')}?{chosen.query}&format=csv",
        "graph_table": f"{data_url(subject, 'samples')}?{chosen.query}",
        "graph_minute": data_url(subject, "minute"),
        "graph_signs": [(sign, gettext(label)) for sign, label in MARKER_LABELS.values()],
        "range": chosen,
        **range_fields(chosen.start, chosen.end),
        "range_words": range_words(chosen.start, chosen.end),
    }


def data_url(subject: Subject, data: str) -> str:
    """Return the URL of data of the charts of a link or mirror: series, events, samples or a minute."""
    return reverse(f"pages:{'mirror' if isinstance(subject, MirrorTopic) else 'link'}-{data}", args=subject.url_args)


def charts_url(subject: Subject) -> str:
    """Return the URL of the page with the charts of a link or mirror."""
    return reverse("pages:mirror" if isinstance(subject, MirrorTopic) else "pages:link-history", args=subject.url_args)


@page("links")
@require_GET
@polled(fragments=HEAD)
def history(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """Show the charts of a link. They are polled at the sampling interval, the heading as on tabs with a form."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    if polled := head_poll(request, link, by=by, now=now, tab="history"):
        return polled
    chosen, topic = range_of(request, now=now), request.GET.get("topic", "").strip()
    points = link_history(link=link, span=chosen.span, now=now, end=chosen.end)
    mirrors = incidents.mirrors_of(link)
    names = list(mirrors.order_by("name").values_list("name", flat=True)[:NAMES_LISTED])
    known = not topic or topic in names or mirrors.filter(name=topic).exists()
    context = {
        "charts": charts_of(points, span=chosen.span, now=chosen.end, past=not chosen.name) if points or names else [],
        "spans": segments(charts_url(link), chosen),
        "topic": topic,
        "topic_unknown": not known,
        "names": names,
        **graph_context(link, chosen, topic=topic if known else ""),
    }
    return reply(request, "links/history.html", link_context(link, by=by, now=now, tab="history") | context)


@page("links")
@require_GET
def series(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str = "") -> HttpResponse:
    """Return the charts of lag, time lag and throughput as JSON; those of a link with its most lagging mirrors."""
    now = timezone.now()
    subject = subject_of(request, cluster_id, link_name, mirror_name)
    chosen = range_of(request, now=now, default=MIRROR_SPAN if mirror_name else LINK_SPAN)
    where = window(start=chosen.start, end=chosen.end)
    reading: dict[str, Any] = {"start": where.read_from, "end": where.end, "step_s": where.step_s, "now": now}
    if isinstance(subject, MirrorTopic):
        rows = mirror_rows(Q(mirror=subject), **reading)[subject.pk]
        data = series_data(
            where=where,
            name=subject.name,
            whole=on_grid(rows, where, now=now),
            objective_ms=link_queries.rpo_objective_ms(subject.link),
        )
        return JsonResponse(data)
    whole = on_grid(link_rows(subject, **reading), where, now=now)
    lines = _topics(
        subject, topic=request.GET.get("topic", "").strip(), top=top_mirrors(subject, where=where, now=now), **reading
    )
    data = series_data(
        where=where,
        name=gettext("Link (largest partition)"),
        rate_name=gettext("Link (all mirror topics)"),
        whole=whole,
        topics=[(name, on_grid(rows, where, now=now)) for name, rows in lines],
        objective_ms=link_queries.rpo_objective_ms(subject),
    )
    return JsonResponse(data)


def _topics(link: ClusterLink, *, topic: str, top: dict[int, str], **reading: Any) -> list[tuple[str, list[Row]]]:
    """Return the rows of the most lagging mirrors and of the mirror ``topic``, with their names."""
    wanted = Q(mirror__in=list(top))
    if topic:
        wanted |= Q(mirror__link=link, mirror__drill=None, mirror__name=topic)
    if not top and not topic:
        return []
    found = mirror_rows(wanted, **reading)
    lines = [(name, found[pk]) for pk, name in top.items()]
    if topic and topic not in top.values():
        lines.append((topic, next((rows for pk, rows in found.items() if pk not in top), [])))
    return lines


@page("links")
@require_GET
def events(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str = "") -> HttpResponse:
    """Return the number of mirrors by state, and the markers, as JSON."""
    by, now = actor_of(request), timezone.now()
    subject = subject_of(request, cluster_id, link_name, mirror_name)
    chosen = range_of(request, now=now, default=MIRROR_SPAN if mirror_name else LINK_SPAN)
    where = window(start=chosen.start, end=chosen.end)
    past = incidents.read_past(subject, start=where.start)
    data = events_data(
        where=where,
        states=incidents.states_over_time(past, where),
        markers=incidents.markers(subject, past=past, start=where.start, end=where.end, by=by),
        minute_url=data_url(subject, "minute"),
    )
    return JsonResponse(data)


def _known(name: str, unknown: str) -> Callable[[Row], int | None]:
    """Return the value of a lag: the largest known one; None if it is unknown, and for 0 if a part is unknown."""
    return lambda row: None if getattr(row, unknown) and not getattr(row, name) else getattr(row, name)


_LAG, _LAG_MS = _known("lag", "unknown"), _known("lag_ms", "unknown_ms")
SAMPLES = Listing(
    noun=gettext_noop("sample"),
    plural=gettext_noop("samples"),
    columns=(
        Column(title=gettext_lazy("Time"), key="at", by=lambda row: row.at, descends=True),
        Column(title=gettext_lazy("Interval"), key="interval", by=lambda row: row.seconds, css="number", descends=True),
        Column(title=gettext_lazy("Lag (messages)"), key="lag", by=_LAG, css="number", descends=True),
        Column(title=gettext_lazy("Time lag (RPO)"), key="age", by=_LAG_MS, css="number", descends=True),
        Column(title=gettext_lazy("Throughput"), key="rate", by=lambda row: row.bytes_per_s, css="number", descends=True),
    ),
    default="-at",
    filters=(
        Filter(
            name="known",
            label=gettext_lazy("Lag"),
            every=gettext_lazy("Known and unknown"),
            options=[("yes", gettext_lazy("Known")), ("no", gettext_lazy("Unknown"))],
            by=lambda row: "no" if row.unknown or row.unknown_ms else "yes",
        ),
    ),
    time="at",
    kept=("span",),
    export={
        "at": "at",
        "seconds": "seconds",
        "samples": "samples",
        "lag": _LAG,
        "lag_ms": _LAG_MS,
        "bytes_per_s": "bytes_per_s",
        "records_per_s": "records_per_s",
        "unknown": "unknown",
        "unknown_ms": "unknown_ms",
    },
)


@page("links")
@require_GET
def samples(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str = "") -> HttpResponse:
    """List all stored samples of a range. Summaries replace samples that are deleted.

    A row with ``seconds`` greater than 0 is a summary of that time: lags are the largest known values, ``unknown`` and
    ``unknown_ms`` are 0 only if all values are known.
    """
    now = timezone.now()
    subject = subject_of(request, cluster_id, link_name, mirror_name)
    chosen = range_of(request, now=now, default=MIRROR_SPAN if mirror_name else LINK_SPAN)
    listed = SAMPLES.read(request)
    found = listed.select(stored_rows(subject, start=chosen.start, end=chosen.end, now=now))
    if listed.format:
        return listed.csv(f"samples-{subject.name}", found)
    context = {
        "list": listed,
        "rows": [_sample_row(row) for row in listed.page(found)],
        **graph_context(subject, chosen),
        **_place(subject, last=gettext("Samples")),
    }
    context["charts_url"] = f"{context['charts_url']}?{chosen.query}"
    return reply(request, "links/samples.html", context)


@page("links")
@require_GET
def minute(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str = "") -> HttpResponse:
    """Show states, operations, errors, verification runs and audit events of a minute; a fragment for htmx."""
    by, now = actor_of(request), timezone.now()
    subject = subject_of(request, cluster_id, link_name, mirror_name)
    at = min(now, max(time_of(request, "at") or now, now - LONGEST))
    at = datetime.fromtimestamp(at.timestamp() // 60 * 60, tz=UTC)
    past = incidents.read_past(subject, start=at)
    url = data_url(subject, "minute")
    span: dict[str, Any] = {"start": at, "end": at + MINUTE}
    readable = incidents.may_view_audit(subject, by=by)
    found = list(incidents.audit_events(subject, **span, by=by)[: EVENTS_SHOWN + 1])
    errors = incidents.errors(subject, **span, most=EVENTS_SHOWN + 1)
    context = {
        "minute_at": numbers.exact(at),
        "minute_url": minute_address(url, at),
        "minute_before": minute_address(url, at - MINUTE),
        "minute_after": minute_address(url, at + MINUTE) if at + MINUTE <= now else "",
        "states": [
            {"badge": mirror_badge(state, ""), "count": count, "names": names[:5], "more": max(0, count - 5)}
            for state, count, names in incidents.states_of_minute(past, at)
        ],
        "steps": _steps(past, at, now=now),
        "notes": _notes(errors[-EVENTS_SHOWN:], now=now),
        "more_errors": len(errors) > EVENTS_SHOWN,
        "runs": [
            {"name": run.mirror.name, "status": run.status, "at": numbers.exact(run.finished_at)}
            for run in incidents.verify_runs(subject, **span)
            if run.finished_at is not None
        ],
        "events": event_rows(found[:EVENTS_SHOWN], by=by, now=now),
        "headings": EVENTS.columns,
        "more_events": len(found) > EVENTS_SHOWN,
        "audit_hidden": not readable,
        **_place(subject, last=numbers.exact(at)),
    }
    return reply(request, "links/minute.html", context)


def _steps(past: incidents.Past, at: datetime, *, now: datetime) -> list[dict[str, object]]:
    found = past.within(at, at + MINUTE)
    return [
        {"name": past.names[step.mirror_id], "step": shown} for step, shown in zip(found, steps(found, now=now), strict=True)
    ]


def _notes(found: Sequence[StateTransitionError | EndedError], *, now: datetime) -> list[dict[str, object]]:
    return [
        {"name": error.mirror.name, "note": note} for error, note in zip(found, transition_notes(found, now=now), strict=True)
    ]


def subject_of(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str) -> Subject:
    """Return the mirror, or the link if the actor may see all of it."""
    by = actor_of(request)
    if not mirror_name:
        return link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    return mirror_queries.get_mirror_only(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)


def _place(subject: Subject, *, last: str) -> dict[str, object]:
    link = subject.link if isinstance(subject, MirrorTopic) else subject
    return {
        "crumbs": crumbs(link, last=last),
        "environment_name": link.destination.environment.name,
        "subject_name": subject.name,
        "charts_url": charts_url(subject),
    }


def _sample_row(row: Row) -> dict[str, object]:
    return {
        "at": numbers.exact(row.at),
        "interval": numbers.duration(row.seconds * 1000) if row.seconds else "",
        "lag": _value(numbers.count(row.lag), row.lag, unknown=row.unknown),
        "lag_time": _value(numbers.lag_time(row.lag_ms), row.lag_ms, unknown=row.unknown_ms),
        "rate": numbers.byte_rate(row.bytes_per_s),
    }


def _value(text: str, value: int | None, *, unknown: int) -> str:
    """Return the text of a value. If a sample of it is unknown, it is a lower bound, and 0 is none."""
    if not unknown:
        return text
    return f"≥ {text}" if value else numbers.UNKNOWN
