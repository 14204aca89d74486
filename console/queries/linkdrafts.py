"""Drafts of cluster links: a user sees their own only, until they expire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from django.db.models import QuerySet

from console.actors import Actor
from console.errors import NotFoundError
from console.models import LinkDraft
from console.models.fields import readable
from linkengine.domain.connectionchecks import ConnectionCheck, checks_from_json
from linkengine.domain.sourcelistings import SourceListing, listing_from_json

KEEP_DRAFTS = timedelta(days=7)  # after the last change


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChecks:
    """The last connection test of a side."""

    checks: tuple[ConnectionCheck, ...]
    tested_at: datetime


def own_drafts(*, by: Actor, now: datetime) -> QuerySet[LinkDraft]:
    """Return the drafts of a user that have not expired, newest first."""
    return LinkDraft.objects.filter(user=by.user, updated_at__gte=now - KEEP_DRAFTS)


def get_draft(*, draft_id: int, by: Actor, now: datetime, with_listing: bool = False) -> LinkDraft:
    """Return a draft of the user; raise NotFoundError. The list of its source is long, and loaded on request only."""
    drafts = own_drafts(by=by, now=now) if with_listing else own_drafts(by=by, now=now).defer("listing")
    draft = drafts.filter(pk=draft_id).first() if by.user is not None else None
    if draft is None:
        message = (
            f"Draft {draft_id} does not exist. Its link may have been created, or it expired after {KEEP_DRAFTS.days} days."
        )
        raise NotFoundError(message, code="UNKNOWN_DRAFT")
    return draft


def checks_of(draft: LinkDraft) -> dict[str, StoredChecks]:
    """Return the last connection tests by side; a side that was not tested since its last change is left out."""
    stored = cast("Mapping[str, dict[str, object]]", readable(draft.checks))
    return {
        side: StoredChecks(
            checks=checks_from_json(cast("list[dict[str, str]]", test["checks"])),
            tested_at=datetime.fromisoformat(cast("str", test["tested_at"])),
        )
        for side, test in stored.items()
    }


def listing_of(draft: LinkDraft) -> SourceListing | None:
    """Return what the source had when it was listed, None if it was not. One query, unless the listing is loaded."""
    stored = readable(draft.listing)
    return listing_from_json(stored) if stored else None
