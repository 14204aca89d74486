"""The restores of a topic on its page, and the file of records that one of them set aside, for a browser."""

from __future__ import annotations

from typing import cast

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from console import exports
from console.access import Permission, check_permission
from console.models import MirrorTopic
from console.pages.doors import actor_of, page
from console.pages.lists import page_from
from console.queries import mirrors

A_PAGE = 10  # each is looked for on disk


def restores_of(request: HttpRequest, mirror: MirrorTopic) -> dict[str, object]:
    """Answer one page of the topic's restores, the newest first, and which of them have lost their file."""
    shown, pager = page_from(request, mirror.restores.all(), size=A_PAGE, name="restores")
    return {"restores": shown, "restores_pager": pager, "lost_files": [one for one in shown if exports.is_lost(one)]}


@page("links")
@require_GET
def records(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str, *, restore_id: int) -> HttpResponse:
    """Send the file; it is the topic's data, so it takes the right to operate on the topic."""
    by = actor_of(request)
    mirror = mirrors.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    check_permission(by, Permission.OPERATE_MIRROR, mirror=mirror)
    return cast("HttpResponse", exports.answer(mirror.restores.filter(pk=restore_id).first(), restore_id))
