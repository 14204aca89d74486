"""The restores of a topic, and the download of the diverged records that a restore exported."""

from __future__ import annotations

from typing import cast

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from console.access import Permission, check_permission
from console.mirrors import diverged_exports
from console.models import MirrorTopic
from console.pages.lists import page_from
from console.pages.request_handling import actor_of, page
from console.queries import mirrors

PER_PAGE = 10  # the file of each is checked on disk


def restores_of(request: HttpRequest, mirror: MirrorTopic) -> dict[str, object]:
    """Return a page of the restores of a topic, newest first, and those whose export file is missing."""
    shown, pager = page_from(request, mirror.restores.all(), size=PER_PAGE, name="restores")
    return {
        "restores": shown,
        "restores_pager": pager,
        "lost_files": [restore for restore in shown if diverged_exports.is_lost(restore)],
    }


@page("links")
@require_GET
def records(request: HttpRequest, cluster_id: str, link_name: str, mirror_name: str, *, restore_id: int) -> HttpResponse:
    """Send the file. It contains records of the topic, so it requires the permission to read records."""
    by = actor_of(request)
    mirror = mirrors.get_mirror(cluster_id=cluster_id, link_name=link_name, mirror_name=mirror_name, by=by)
    check_permission(by, Permission.READ_RECORDS, mirror=mirror)
    return cast("HttpResponse", diverged_exports.download_response(mirror.restores.filter(pk=restore_id).first(), restore_id))
