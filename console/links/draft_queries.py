"""Drafts of cluster links, which only their users see until they expire, and what the filters of a draft match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from django.db.models import QuerySet
from django.utils.translation import gettext_noop

from console.actors import Actor
from console.errors import NotFoundError
from console.languages import translated
from console.links.drafts import DraftValues
from console.links.queries import surroundings_of_new
from console.models import Cluster, LinkDraft
from console.models.fields import readable
from linkengine.domain.acls import is_guard, parse_acl_filters
from linkengine.domain.connectionchecks import ConnectionCheck, checks_from_json
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.messages import gettext_lazy
from linkengine.domain.mirrorability import Check, CheckCode, JudgedTopic, Standing, judge_all
from linkengine.domain.names import FilterType, NameFilter, chooses, known_filters
from linkengine.domain.sourcelistings import ACLS, GROUPS, TOPICS, SourceListing, listing_from_json

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
        message = gettext_lazy(
            "Draft %(draft_id)s does not exist. Its link may have been created, or it expired after %(days)s days.",
            draft_id=draft_id,
            days=KEEP_DRAFTS.days,
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


# --- matches of the filters -------------------------------------------------------------------------------------------
#
# Topics are judged by the same checks as those of a stored link (``linkengine.domain.mirrorability``), so a topic counts only
# if its mirror would be created. An unknown list has no counts.


NAMES_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterCounts:
    """The result for one kind. ``total`` is None if the list is unknown, and ``reason`` says why, or why it is incomplete."""

    total: int | None
    matched: int = 0
    left_out: Sequence[tuple[str, int]] = ()  # why, and how many
    names: Sequence[str] = ()  # of the first that match
    problems: Sequence[str] = ()  # sentences about what the filters include and the link cannot do
    reason: str = ""
    at_least: bool = False  # the list was incomplete or cut off

    @property
    def more_names(self) -> int:
        return self.matched - len(self.names)


def count_topics(
    *, listing: SourceListing, values: DraftValues, destination: Cluster, cluster_names: Mapping[str, str], by: Actor
) -> FilterCounts:
    """Return which mirror topics would be created. Five queries. ``cluster_names``: of those that the user may see wholly."""
    if listing.topics is None:
        return _unknown(listing, TOPICS)
    around = surroundings_of_new(
        destination=destination,
        source_cluster_id=values.remote_id,
        prefix=values.prefix if values.add_prefix else "",
        filters=known_filters(values.topic_filters),
        cluster_names=cluster_names,
        by=by,
    )
    judged_topics = list(judge_all(listing.topics, around))
    created = [judged.mirror for judged in judged_topics if judged.standing is not Standing.NOT_MIRRORED]
    failed = [_first_block(judged) for judged in judged_topics if judged.standing is Standing.NOT_MIRRORED]
    counted = Counter(_REASONS.get(check.code, _OTHER_REASON) for check in failed)
    return FilterCounts(
        total=len(judged_topics),
        matched=len(created),
        left_out=[(reason, counted[reason]) for reason in (*_REASONS.values(), _OTHER_REASON) if counted[reason]],
        names=created[:NAMES_SHOWN],
        problems=[_problem(judged) for judged in judged_topics if judged.problems][:NAMES_SHOWN],
        reason=listing.errors.get(TOPICS, ""),
        at_least=_is_incomplete(listing, TOPICS),
    )


def count_groups(*, listing: SourceListing, values: DraftValues) -> FilterCounts:
    """Return which consumer groups would be synced."""
    groups = listing.synced_groups
    if groups is None or listing.groups is None:
        return _unknown(listing, GROUPS)
    filters = known_filters(values.group_filters, key="groupFilters")
    matched = [group.name for group in groups if chooses(filters, group.name)]
    excluded = sum(_is_excluded(filters, group.name) for group in groups)
    other_types = len(listing.groups) - len(groups)
    left_out = (
        (gettext_noop("excluded"), excluded),
        (gettext_noop("not matched"), len(groups) - len(matched) - excluded),
        (gettext_noop("of a type that is not synced (share, streams)"), other_types),
    )
    return FilterCounts(
        total=len(listing.groups),
        matched=len(matched),
        left_out=[(reason, number) for reason, number in left_out if number],
        names=matched[:NAMES_SHOWN],
        reason=listing.errors.get(GROUPS, ""),
        at_least=_is_incomplete(listing, GROUPS),
    )


def count_acls(*, listing: SourceListing, values: DraftValues) -> FilterCounts:
    """Return which ACLs would be synced."""
    if listing.acls is None:
        return _unknown(listing, ACLS)
    try:
        filters = parse_acl_filters(values.acl_filters)
    except LinkEngineError:
        filters = ()
    chosen = [acl for acl in listing.acls if any(acl_filter.matches(acl) for acl_filter in filters)]
    synced = [acl for acl in chosen if acl.is_known and not is_guard(acl)]
    left_out = (
        (gettext_noop("not matched"), len(listing.acls) - len(chosen)),
        (gettext_noop("that protect mirror topics"), sum(is_guard(acl) for acl in chosen)),
        (gettext_noop("of an unsupported type"), sum(not acl.is_known for acl in chosen)),
    )
    return FilterCounts(
        total=len(listing.acls),
        matched=len(synced),
        left_out=[(reason, number) for reason, number in left_out if number],
        names=[str(acl) for acl in synced[:NAMES_SHOWN]],
        reason=listing.errors.get(ACLS, ""),
        at_least=_is_incomplete(listing, ACLS),
    )


_OTHER_REASON = gettext_noop("not possible")
_REASONS = {
    CheckCode.INTERNAL_TOPIC: gettext_noop("internal"),
    CheckCode.NOT_EXCLUDED: gettext_noop("excluded"),
    CheckCode.INCLUDED: gettext_noop("not matched"),
    CheckCode.NAME_FREE: gettext_noop("already on the destination"),
    CheckCode.MIRRORED_ELSEWHERE: gettext_noop("mirrored by another link"),
    CheckCode.RING: gettext_noop("from the destination itself"),
    CheckCode.NAMESPACE: gettext_noop("in a reserved namespace"),
}


def _unknown(listing: SourceListing, kind: str) -> FilterCounts:
    return FilterCounts(total=None, reason=listing.errors.get(kind, gettext_noop("It was not listed.")))


def _is_incomplete(listing: SourceListing, kind: str) -> bool:
    return kind in listing.cut or kind in listing.errors


def _first_block(judged: JudgedTopic) -> Check:
    return next(check for check in judged.failed if check.blocks)


def _problem(judged: JudgedTopic) -> str:
    return f"{judged.topic}: {translated(judged.problems[0].finding)}"


def _is_excluded(filters: Sequence[NameFilter], name: str) -> bool:
    return any(each.filter_type is FilterType.EXCLUDE and each.matches(name) for each in filters)
