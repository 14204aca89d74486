"""The Groups and ACLs tabs of a link: what is synced, what is not, and why."""

from __future__ import annotations

from collections.abc import Container

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from console.mirrors.rules import syncs_offsets
from console.pages.linkpages import link_context
from console.pages.lists import page_from
from console.pages.request_handling import actor_of, page, reply
from console.presenters.groups import ACL_LOOKS, GROUP_LOOKS, acl_row, group_row
from console.queries import acls as acl_queries
from console.queries import groups as group_queries
from console.queries import links as link_queries


@page("links")
@require_GET
def groups(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """List consumer groups, filtered by name and status."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    query, status = _filters(request, known=GROUP_LOOKS)
    found = link.groups.matching(status=status, search=query)
    shown, pager = page_from(request, found)
    offsets = group_queries.offsets_of(shown)
    counts = group_queries.count_groups(link=link)
    context = {
        "groups": [group_row(group, offsets.get(group.pk, []), now=now) for group in shown],
        "counts": [{"look": GROUP_LOOKS[key], "count": count} for key, count in counts.items()],
        "is_on": syncs_offsets(link),
        "pager": pager,
        "query": query,
        "status": status,
    }
    return reply(request, "links/groups.html", link_context(link, by=by, now=now, tab="groups") | context)


@page("links")
@require_GET
def acls(request: HttpRequest, cluster_id: str, link_name: str) -> HttpResponse:
    """List ACLs, filtered by name and status. ``?status=conflicts`` lists conflicting ACLs."""
    by, now = actor_of(request), timezone.now()
    link = link_queries.get_whole_link(cluster_id=cluster_id, name=link_name, by=by)
    query, status = _filters(request, known=[*ACL_LOOKS, "conflicts"])
    only_conflicts = status == "conflicts"
    found = link.acls.matching(status="" if only_conflicts else status, conflicts=only_conflicts, search=query)
    shown, pager = page_from(request, found)
    counts, conflicts = acl_queries.count_acls(link=link)
    context = {
        "acls": [acl_row(acl, now=now) for acl in shown],
        "counts": [{"look": ACL_LOOKS[key], "count": count} for key, count in counts.items()],
        "conflicts": conflicts,
        "is_on": link.config("acl.sync.enable") == "true",
        "pager": pager,
        "query": query,
        "status": status,
    }
    return reply(request, "links/acls.html", link_context(link, by=by, now=now, tab="acls") | context)


def _filters(request: HttpRequest, *, known: Container[str]) -> tuple[str, str]:
    query, status = (request.GET.get(name, "").strip() for name in ("q", "status"))
    return query, status if status in known else ""
