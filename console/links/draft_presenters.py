"""View models of a cluster link that is being created: purposes, steps, summary, configs, and what its filters match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from django.urls import reverse
from django.utils.translation import gettext, gettext_noop

from console.actors import Actor
from console.languages import translated
from console.links.drafts import KEEP_DRAFTS, OTHER_SIDE, OWN_SIDE, DraftValues, values_of
from console.links.form_presenters import DIRECTIONS, RECEIVE, Direction
from console.links.topic_queries import facts_of_new_link
from console.models import Cluster, LinkDraft
from console.web import numbers
from console.web.numbers import Moment, moment, readable_config
from linkengine.domain.acls import is_guard, parse_acl_filters
from linkengine.domain.clusterviews import ACLS, GROUPS, TOPICS, SourceListing
from linkengine.domain.errors import LinkEngineError
from linkengine.domain.linkconfigs import LINK_CONFIGS
from linkengine.domain.mirrorability import Check, CheckCode, CheckedTopic, MirrorabilityStatus, check_topics
from linkengine.domain.names import FilterType, NameFilter, chooses, known_filters

# --- purposes to choose from ------------------------------------------------------------------------------------------
#
# Each turns on what Confluent's console recommends for it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A purpose, and the switches that it turns on."""

    key: str
    title: str
    hint: str
    auto_create: bool = False
    add_prefix: bool = False
    sync_offsets: bool = False
    sync_acls: bool = False

    def switches(self) -> dict[str, bool]:
        """Return the fields of the draft that the preset sets."""
        return {
            "auto_create": self.auto_create,
            "add_prefix": self.add_prefix,
            "sync_offsets": self.sync_offsets,
            "sync_acls": self.sync_acls,
        }


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.key: preset
        for preset in (
            Preset(
                key="migrate",
                title=gettext_noop("Migrate"),
                hint=gettext_noop(
                    "Move topics and consumer groups to another cluster. Turns on auto-create and consumer offset sync."
                ),
                auto_create=True,
                sync_offsets=True,
            ),
            Preset(
                key="recovery",
                title=gettext_noop("Disaster recovery"),
                hint=gettext_noop("Keep a copy to fail over to. Turns on auto-create, consumer offset sync and ACL sync."),
                auto_create=True,
                sync_offsets=True,
                sync_acls=True,
            ),
            Preset(
                key="share",
                title=gettext_noop("Share data"),
                hint=gettext_noop("Make topics readable on another team's cluster. Turns on auto-create and a prefix."),
                auto_create=True,
                add_prefix=True,
            ),
            Preset(
                key="aggregate",
                title=gettext_noop("Aggregate"),
                hint=gettext_noop("Collect topics of several clusters on one. Turns on a prefix; add mirror topics by name."),
                add_prefix=True,
            ),
            Preset(
                key="custom",
                title=gettext_noop("Custom"),
                hint=gettext_noop("Turns nothing on. Choose everything in step 3."),
            ),
        )
    }
)


# --- steps and summary ------------------------------------------------------------------------------------------------


SOURCE, DESTINATION, CONFIGURATION, REVIEW = "source", "destination", "configuration", "review"
STEPS = (SOURCE, DESTINATION, CONFIGURATION, REVIEW)
HIDDEN = gettext_noop("hidden")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step with its address."""

    key: str
    number: int
    label: str
    url: str
    current: bool
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRow:
    """A draft to continue."""

    title: str
    detail: str
    url: str
    discard_url: str
    changed: Moment | None
    expires: str


def direction_of(values: DraftValues) -> Direction:
    """Return the direction of a draft, with its texts in the active language."""
    return DIRECTIONS.get(values.direction, RECEIVE).translated()


def side_of(step: str, direction: Direction) -> str:
    """Return the side, own or other, that a step sets. The step "source" comes first."""
    return OWN_SIDE if (step == SOURCE) == direction.own_first else OTHER_SIDE


def step_of(part: str, direction: Direction) -> str:
    """Return the step that sets a part of the draft: "own", "other" or "configuration"."""
    if part in (OWN_SIDE, OTHER_SIDE):
        return SOURCE if side_of(SOURCE, direction) == part else DESTINATION
    return part or REVIEW


def steps_of(values: DraftValues) -> tuple[str, ...]:
    """Return the steps of a draft. The source side of a link has no configuration."""
    return STEPS if values.has_mirrors else (SOURCE, DESTINATION, REVIEW)


def step_views(draft_id: int, values: DraftValues, *, current: str) -> list[StepView]:
    """Return the steps for the page."""
    direction = direction_of(values)
    labels = {CONFIGURATION: gettext("Configuration"), REVIEW: gettext("Review and create")}
    done = {OWN_SIDE: bool(values.own), OTHER_SIDE: values.has_other}
    views = []
    for number, key in enumerate(steps_of(values), start=1):
        side = side_of(key, direction) if key in (SOURCE, DESTINATION) else ""
        views.append(
            StepView(
                key=key,
                number=number,
                label=labels.get(key) or (direction.own if side == OWN_SIDE else direction.other),
                url=step_url(draft_id, key),
                current=key == current,
                done=done.get(side, False) or (key == CONFIGURATION and values.configured),
            )
        )
    return views


def step_url(draft_id: int, step: str) -> str:
    """Return the URL of a step."""
    return reverse("pages:new-link-step", args=(draft_id, step))


def neighbour(values: DraftValues, step: str, *, back: bool = False) -> str:
    """Return the next or the previous step; the step itself at the end."""
    steps = steps_of(values)
    place = steps.index(step) + (-1 if back else 1)
    return steps[min(max(place, 0), len(steps) - 1)]


def draft_row(draft: LinkDraft, names: Mapping[str, str], *, now: datetime) -> DraftRow:
    """Return the row of a draft. ``names`` are those of the clusters that the user may see, by id."""
    values = values_of(draft)
    direction = direction_of(values).title
    clusters = places_of(values, names) if values.own or values.has_other else ""
    return DraftRow(
        title=values.name or clusters or gettext("Unnamed link"),
        detail=f"{direction}, {clusters}" if values.name and clusters else direction,
        url=draft.get_absolute_url(),
        discard_url=reverse("pages:new-link-discard", args=(draft.pk,)),
        changed=moment(draft.updated_at, now=now),
        expires=numbers.ago(draft.updated_at + KEEP_DRAFTS, now=now),
    )


def places_of(values: DraftValues, names: Mapping[str, str]) -> str:
    """Return the two clusters in the direction of the records."""
    own, other = names.get(values.own, values.own) or gettext("not chosen"), other_name(values, names)
    source, destination = (own, other) if values.link_mode == "SOURCE" else (other, own)
    return gettext("%(source)s to %(destination)s") % {"source": source, "destination": destination}


def other_name(values: DraftValues, names: Mapping[str, str]) -> str:
    """Return the name of the other cluster: its registered name, its servers, or its id."""
    if values.has_own_connection:
        return values.connection.get("bootstrap.servers", "") or gettext("not chosen")
    return names.get(values.other, values.other) or gettext("not chosen")


def summary_rows(values: DraftValues, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what is created, as pairs of label and value."""
    direction = direction_of(values)
    own = (direction.own, names.get(values.own, values.own) or gettext("not chosen"))
    other = (direction.other, other_name(values, names))
    clusters = [own, other] if direction.own_first else [other, own]
    rows = [(gettext("Direction"), direction.title), *clusters, (gettext("Connection"), _connection_words(values))]
    if not values.has_mirrors:
        return rows
    return [
        *rows,
        (gettext("Purpose"), gettext(PRESETS[values.preset].title if values.preset in PRESETS else "Custom")),
        (gettext("Auto-create mirror topics"), _on(values.auto_create)),
        (gettext("Prefix"), values.prefix if values.add_prefix else gettext("none")),
        (gettext("Sync consumer offsets"), _on(values.sync_offsets)),
        (gettext("Sync ACLs"), _on(values.sync_acls)),
    ]


def config_rows(values: DraftValues) -> list[tuple[str, str]]:
    """Return the configs that differ from their defaults, sensitive values hidden."""
    return [
        (name, gettext(HIDDEN) if LINK_CONFIGS[name].sensitive and value else readable_config(name, value or ""))
        for name, value in sorted(values.configs().items())
    ]


def _on(value: bool) -> str:  # noqa: FBT001 - the value itself
    return gettext("on") if value else gettext("off")


def _connection_words(values: DraftValues) -> str:
    if not values.has_own_connection:
        return gettext("registered address and credentials")
    mechanism = values.connection.get("sasl.mechanism", "")
    protocol = " ".join(filter(None, (values.connection.get("security.protocol", ""), mechanism)))
    if not protocol:
        return gettext("with its own credentials")
    return gettext("%(protocol)s with its own credentials") % {"protocol": protocol}


# --- matches of the filters -------------------------------------------------------------------------------------------
#
# Topics are checked by the same checks as those of a stored link (``linkengine.domain.mirrorability``), so a topic counts only
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRow:
    """The matches of the filters of a kind."""

    title: str
    sentence: str
    names: Sequence[str]
    more: str
    problems: Sequence[str]


def count_topics(
    *, listing: SourceListing, values: DraftValues, destination: Cluster, cluster_names: Mapping[str, str], by: Actor
) -> FilterCounts:
    """Return which mirror topics would be created. Five queries. ``cluster_names``: of those that the user may see wholly."""
    if listing.topics is None:
        return _unknown(listing, TOPICS)
    link_facts = facts_of_new_link(
        destination=destination,
        source_cluster_id=values.remote_id,
        prefix=values.prefix if values.add_prefix else "",
        filters=known_filters(values.topic_filters),
        cluster_names=cluster_names,
        by=by,
    )
    checked_topics = list(check_topics(listing.topics, link_facts))
    created = [checked.mirror for checked in checked_topics if checked.standing is not MirrorabilityStatus.NOT_MIRRORED]
    failed = [_first_block(checked) for checked in checked_topics if checked.standing is MirrorabilityStatus.NOT_MIRRORED]
    counted = Counter(_REASONS.get(check.code, _OTHER_REASON) for check in failed)
    return FilterCounts(
        total=len(checked_topics),
        matched=len(created),
        left_out=[(reason, counted[reason]) for reason in (*_REASONS.values(), _OTHER_REASON) if counted[reason]],
        names=created[:NAMES_SHOWN],
        problems=[_problem(checked) for checked in checked_topics if checked.problems][:NAMES_SHOWN],
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


def preview_row(title: str, sentence: str, counts: FilterCounts) -> PreviewRow:
    """Return a preview, for example "Synced: 12 of 14 consumer groups. Not included: 2 excluded.".

    ``sentence`` is for a known list, with the placeholders ``matched`` and ``total``.
    """
    if counts.total is None:
        unknown = gettext("Unknown. %(reason)s") % {"reason": gettext(counts.reason)}
        return PreviewRow(title=title, sentence=unknown, names=(), more="", problems=())
    matched = numbers.count(counts.matched)
    if counts.at_least:
        matched = gettext("at least %(count)s") % {"count": matched}
    sentences = [sentence % {"matched": matched, "total": numbers.count(counts.total)}]
    if counts.left_out:
        left_out = ", ".join(
            gettext("%(count)s %(reason)s") % {"count": numbers.count(number), "reason": gettext(reason)}
            for reason, number in counts.left_out
        )
        sentences.append(gettext("Not included: %(reasons)s.") % {"reasons": left_out})
    if counts.reason:
        sentences.append(gettext("The list is incomplete: %(reason)s") % {"reason": counts.reason})
    more = gettext("and %(count)s more") % {"count": numbers.count(counts.more_names)} if counts.more_names else ""
    return PreviewRow(title=title, sentence=" ".join(sentences), names=counts.names, more=more, problems=counts.problems)


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


def _first_block(checked: CheckedTopic) -> Check:
    return next(check for check in checked.failed if check.blocks)


def _problem(checked: CheckedTopic) -> str:
    return f"{checked.topic}: {translated(checked.problems[0].finding)}"


def _is_excluded(filters: Sequence[NameFilter], name: str) -> bool:
    return any(each.filter_type is FilterType.EXCLUDE and each.matches(name) for each in filters)
