"""Whether a link auto-creates a mirror of a source topic, and why not. Pure functions.

The checks (``check_topic``) cover the conditions of Confluent's cluster linking documentation, and conditions of the
destination and of other links. Pages show them as the explanation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from linkengine.domain.errors import LinkEngineError
from linkengine.domain.linktasks import TaskError
from linkengine.domain.messages import gettext_lazy, join_messages
from linkengine.domain.names import FilterType, NameFilter, PatternType, contains, is_internal, mirror_name
from linkengine.domain.states import MirrorState

# --- rings ---------------------------------------------------------------------------------------------------------------
# A chain of links through which records would return to the cluster they come from. Each mirror has one source, so the graph is
# a forest of pointers. It may include mirrors of links that the caller must not see; therefore it is traversed node by node
# through a function.


class TopicOfCluster(NamedTuple):
    """A topic on a cluster."""

    cluster: str
    name: str


# returns the topic that a topic mirrors, None for an ordinary topic
SourceOf = Callable[[TopicOfCluster], TopicOfCluster | None]


def find_ring(source_of: SourceOf, *, source: TopicOfCluster, mirror: TopicOfCluster) -> tuple[TopicOfCluster, ...]:
    """Return the path of the records if ``mirror`` of ``source`` would feed its own cluster, in order of flow; () if not.

    The last topic is the new mirror; the first topic is on the same cluster. The search ends at a ring that exists already.
    """
    path, current, seen = [mirror, source], source, {source}
    while current.cluster != mirror.cluster:
        above = source_of(current)
        if above is None or above in seen:
            return ()
        path.append(above)
        seen.add(above)
        current = above
    return tuple(reversed(path))


def ring_words(ring: Sequence[TopicOfCluster], *, names: Mapping[str, str]) -> str:
    """Return a ring as text for a user; ``names`` are the names of the clusters that the user may see, by id.

    The last two topics, the source and the new mirror, are part of the user's own request and always named. Other topics on
    clusters that the user may not see appear without a name.
    """
    above, requested = ring[:-2], ring[-2:]
    words = [_words(topic, names) if topic.cluster in names else _HIDDEN for topic in above]
    return join_messages(" → ", [*words, *(_words(topic, names) for topic in requested)])


_HIDDEN = gettext_lazy("a topic that you may not see")


def _words(topic: TopicOfCluster, names: Mapping[str, str]) -> str:
    return f"{names.get(topic.cluster, topic.cluster)}:{topic.name}"


# --- values --------------------------------------------------------------------------------------------------------------
# A failed check that ``blocks`` prevents auto-creation. A failed check that is a ``problem`` is reported as an error of the
# auto-create task; the others are the result of settings.


class CheckCode(StrEnum):
    """The checks, in this order."""

    SOURCE_TOPIC = "SOURCE_TOPIC"
    INTERNAL_TOPIC = "INTERNAL_TOPIC"
    AUTO_CREATE = "AUTO_CREATE"
    INCLUDED = "INCLUDED"
    NOT_EXCLUDED = "NOT_EXCLUDED"
    MIRROR_NAME = "MIRROR_NAME"
    STOPPED_MIRROR = "STOPPED_MIRROR"
    RING = "RING"
    CHAIN = "CHAIN"
    NAMESPACE = "NAMESPACE"
    MIRRORED_ELSEWHERE = "MIRRORED_ELSEWHERE"
    NAME_FREE = "NAME_FREE"
    LINK_STATE = "LINK_STATE"
    LAST_TRY = "LAST_TRY"


_UNWANTED = frozenset(  # failed because of settings
    {
        CheckCode.INTERNAL_TOPIC,
        CheckCode.AUTO_CREATE,
        CheckCode.INCLUDED,
        CheckCode.NOT_EXCLUDED,
        CheckCode.RING,
        CheckCode.NAMESPACE,
    }
)


class MirrorabilityStatus(StrEnum):
    """Whether a link mirrors a source topic."""

    MIRRORED = "MIRRORED"
    WAITING = "WAITING"  # nothing blocks it; the next run creates the mirror
    NOT_MIRRORED = "NOT_MIRRORED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Result of a check; ``finding`` says what was found, ``next_step`` what to do if it failed."""

    code: CheckCode
    passed: bool
    finding: str
    next_step: str = ""
    blocks: bool = True
    problem: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTopic:
    """A source topic; ``is_mirror``: its configs are those of a mirror topic at the source."""

    name: str
    exists: bool = True
    internal: bool = False
    is_mirror: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMirror:
    """A mirror on the destination; ``link`` is its link as text for users; ``own``: it belongs to the link being checked."""

    link: str
    state: MirrorState
    own: bool
    stop_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFacts:
    """Facts about a link and both clusters. Topics of the destination are ``taken``; ``mirrors`` are or will be among them."""

    source: str  # cluster ids
    destination: str
    prefix: str = ""
    auto_create: bool = False
    filters: tuple[NameFilter, ...] = ()
    link_trouble: str = ""  # why the link currently creates nothing
    mirrors: Mapping[str, KnownMirror] = field(default_factory=dict)
    taken: Collection[str] = ()
    # prefixes reserved for others, with the text of the link that each follows, "" if it follows none
    reserved: Mapping[str, str] = field(default_factory=dict)
    # of all mirrors that are not stopped, on all links
    sources: Mapping[TopicOfCluster, TopicOfCluster] = field(default_factory=dict)
    cluster_names: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, TaskError] = field(default_factory=dict)  # of the last attempt, by source topic


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTopic:
    """A source topic with its status and all checks. ``checks`` is empty for a topic that is mirrored."""

    topic: str
    mirror: str  # the mirror's name, "" if it cannot have a mirror
    standing: MirrorabilityStatus
    mirror_state: MirrorState | None = None
    stop_reason: str = ""  # of the mirror
    checks: tuple[Check, ...] = ()

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)

    @property
    def problems(self) -> tuple[Check, ...]:
        """Failed checks that the task reports as errors; none for topics that settings leave out anyway."""
        if _UNWANTED & {check.code for check in self.failed}:
            return ()
        return tuple(check for check in self.failed if check.problem)


# --- checks --------------------------------------------------------------------------------------------------------------


# The checks that pass without a value in their finding: the same for all topics, of which a link can have many thousands.
_PASSED: Mapping[CheckCode, Check] = {
    code: Check(code=code, passed=True, finding=finding, blocks=code is not CheckCode.LAST_TRY)
    for code, finding in {
        CheckCode.SOURCE_TOPIC: gettext_lazy("The source has the topic, and the link's user may describe it."),
        CheckCode.INTERNAL_TOPIC: gettext_lazy("It is not an internal topic."),
        CheckCode.AUTO_CREATE: gettext_lazy("The link auto-creates mirror topics."),
        CheckCode.NOT_EXCLUDED: gettext_lazy("No EXCLUDE filter matches."),
        CheckCode.STOPPED_MIRROR: gettext_lazy("The link has no stopped mirror of it."),
        CheckCode.RING: gettext_lazy("Its records do not come from the destination."),
        CheckCode.CHAIN: gettext_lazy("It is not a mirror topic itself, or the link has no prefix."),
        CheckCode.NAMESPACE: gettext_lazy("No reserved namespace of the destination contains its name."),
        CheckCode.MIRRORED_ELSEWHERE: gettext_lazy("No other link has a mirror topic of this name."),
        CheckCode.NAME_FREE: gettext_lazy("No ordinary topic of the destination has this name."),
        CheckCode.LINK_STATE: gettext_lazy("The link is active."),
        CheckCode.LAST_TRY: gettext_lazy("No attempt to create its mirror has failed."),
    }.items()
}


def check_topic(topic: ListedTopic, facts: LinkFacts) -> CheckedTopic:
    """Return a topic with its status and all checks."""
    name = _mirror_name(topic, facts)
    known = facts.mirrors.get(name)
    if known is not None and known.own and known.state is not MirrorState.STOPPED:
        state, reason = known.state, known.stop_reason
        return CheckedTopic(
            topic=topic.name, mirror=name, standing=MirrorabilityStatus.MIRRORED, mirror_state=state, stop_reason=reason
        )
    checks = tuple([rule(topic, name, facts) for rule in _RULES])
    blocked = any(check.blocks and not check.passed for check in checks)
    standing = MirrorabilityStatus.NOT_MIRRORED if blocked else MirrorabilityStatus.WAITING
    return CheckedTopic(topic=topic.name, mirror=name, standing=standing, checks=checks)


def check_topics(topics: Iterable[ListedTopic], facts: LinkFacts) -> Iterator[CheckedTopic]:
    """Check many topics of a link."""
    return (check_topic(topic, facts) for topic in topics)


def _mirror_name(topic: ListedTopic, facts: LinkFacts) -> str:
    try:
        return mirror_name(topic.name, prefix=facts.prefix)
    except LinkEngineError:
        return ""


def _source_topic(topic: ListedTopic, _name: str, _facts: LinkFacts) -> Check:
    if topic.exists:
        return _PASSED[CheckCode.SOURCE_TOPIC]
    return Check(
        code=CheckCode.SOURCE_TOPIC,
        passed=False,
        finding=gettext_lazy(
            "The source had no such topic when it was last listed, or the link's user has no DESCRIBE permission."
        ),
        next_step=gettext_lazy("Check the name, or grant the link's user DESCRIBE and READ on the topic."),
    )


def _internal(topic: ListedTopic, _name: str, _facts: LinkFacts) -> Check:
    if not (topic.internal or is_internal(topic.name)):
        return _PASSED[CheckCode.INTERNAL_TOPIC]
    return Check(
        code=CheckCode.INTERNAL_TOPIC,
        passed=False,
        finding=gettext_lazy("Internal Kafka topic. Internal topics are not mirrored."),
        next_step=gettext_lazy("Nothing to do. Consumer offset sync and ACL sync copy consumer offsets and ACLs."),
    )


def _auto_create(_topic: ListedTopic, _name: str, facts: LinkFacts) -> Check:
    if facts.auto_create:
        return _PASSED[CheckCode.AUTO_CREATE]
    return Check(
        code=CheckCode.AUTO_CREATE,
        passed=False,
        finding=gettext_lazy("The link does not auto-create mirror topics: auto.create.mirror.topics.enable is false."),
        next_step=gettext_lazy("Create the mirror topic manually, or enable auto-create with filters."),
    )


def _included(topic: ListedTopic, _name: str, facts: LinkFacts) -> Check:
    code = CheckCode.INCLUDED
    found = _matching(topic, facts, FilterType.INCLUDE)
    if found:
        return Check(
            code=code, passed=True, finding=gettext_lazy("An INCLUDE filter matches: %(filter)s.", filter=filter_words(found))
        )
    return Check(
        code=code,
        passed=False,
        finding=gettext_lazy("No INCLUDE filter matches its name."),
        next_step=gettext_lazy("Add an INCLUDE filter for it, or create the mirror topic manually."),
    )


def _not_excluded(topic: ListedTopic, _name: str, facts: LinkFacts) -> Check:
    found = _matching(topic, facts, FilterType.EXCLUDE)
    if found is None:
        return _PASSED[CheckCode.NOT_EXCLUDED]
    return Check(
        code=CheckCode.NOT_EXCLUDED,
        passed=False,
        finding=gettext_lazy(
            "An EXCLUDE filter matches: %(filter)s. It takes precedence over every INCLUDE filter.", filter=filter_words(found)
        ),
        next_step=gettext_lazy("Remove or narrow that filter, or create the mirror topic manually."),
    )


def _valid_name(topic: ListedTopic, name: str, facts: LinkFacts) -> Check:
    if name:
        return Check(code=CheckCode.MIRROR_NAME, passed=True, finding=gettext_lazy("Its mirror is named %(name)s.", name=name))
    return Check(
        code=CheckCode.MIRROR_NAME,
        passed=False,
        finding=gettext_lazy(
            "With the link's prefix %(prefix)s its name is not valid: %(problem)s",
            prefix=repr(facts.prefix),
            problem=_name_problem(topic, facts),
        ),
        next_step=gettext_lazy("Mirror it over a link with a shorter prefix, or without a prefix."),
        problem=True,
    )


def _name_problem(topic: ListedTopic, facts: LinkFacts) -> str:
    try:
        mirror_name(topic.name, prefix=facts.prefix)
    except LinkEngineError as error:
        return error.message
    return ""


def _stopped_mirror(_topic: ListedTopic, name: str, facts: LinkFacts) -> Check:
    known = facts.mirrors.get(name)
    if known is None or not known.own:
        return _PASSED[CheckCode.STOPPED_MIRROR]
    return Check(
        code=CheckCode.STOPPED_MIRROR,
        passed=False,
        finding=gettext_lazy("It was mirrored and then stopped. The topic on the destination is an ordinary topic now."),
        next_step=gettext_lazy(
            "A stopped mirror is not created again automatically. Delete the stopped mirror topic to start again."
        ),
    )


def _ring(topic: ListedTopic, name: str, facts: LinkFacts) -> Check:
    source, mirror = TopicOfCluster(facts.source, topic.name), TopicOfCluster(facts.destination, name or topic.name)
    ring = find_ring(facts.sources.get, source=source, mirror=mirror)
    if not ring:
        return _PASSED[CheckCode.RING]
    return Check(
        code=CheckCode.RING,
        passed=False,
        finding=gettext_lazy(
            "Its records come from the destination: %(path)s.", path=ring_words(ring, names=facts.cluster_names)
        ),
        next_step=gettext_lazy("Nothing to do. The destination has the original."),
    )


def _chain(topic: ListedTopic, _name: str, facts: LinkFacts) -> Check:
    is_mirror = topic.is_mirror or TopicOfCluster(facts.source, topic.name) in facts.sources
    if not (facts.prefix and is_mirror):
        return _PASSED[CheckCode.CHAIN]
    return Check(
        code=CheckCode.CHAIN,
        passed=False,
        finding=gettext_lazy(
            "It is a mirror topic at the source, and a link with a prefix does not auto-create mirrors of mirrors."
        ),
        next_step=gettext_lazy("Create the mirror topic manually, or use a link without a prefix."),
    )


def _namespace(_topic: ListedTopic, name: str, facts: LinkFacts) -> Check:
    prefix = next((reserved for reserved in facts.reserved if name and contains(reserved, name)), None)
    if prefix is None:
        return _PASSED[CheckCode.NAMESPACE]
    follows = facts.reserved[prefix]
    if follows:
        finding = gettext_lazy(
            "Its name is in the reserved namespace %(prefix)s* of the destination, in which %(link)s may create topics.",
            prefix=prefix,
            link=follows,
        )
        step = gettext_lazy(
            "Nothing to do if that link mirrors it. Otherwise let the namespace follow this link, or use a link with another "
            "prefix."
        )
    else:
        finding = gettext_lazy(
            "Its name is in the reserved namespace %(prefix)s* of the destination, in which no link may create topics.",
            prefix=prefix,
        )
        step = gettext_lazy("Let the namespace follow this link, or use a link with another prefix.")
    return Check(code=CheckCode.NAMESPACE, passed=False, finding=finding, next_step=step)


def _mirrored_elsewhere(_topic: ListedTopic, name: str, facts: LinkFacts) -> Check:
    known = facts.mirrors.get(name)
    if known is None or known.own:
        return _PASSED[CheckCode.MIRRORED_ELSEWHERE]
    return Check(
        code=CheckCode.MIRRORED_ELSEWHERE,
        passed=False,
        finding=gettext_lazy(
            "The destination's topic %(name)s is a mirror topic of %(link)s. It is not changed.", name=name, link=known.link
        ),
        next_step=gettext_lazy(
            "Exclude this topic from the filters if that is the copy you want. Otherwise use a link with a prefix."
        ),
        problem=True,
    )


def _name_free(_topic: ListedTopic, name: str, facts: LinkFacts) -> Check:
    if facts.mirrors.get(name) is not None or name not in facts.taken:
        return _PASSED[CheckCode.NAME_FREE]
    return Check(
        code=CheckCode.NAME_FREE,
        passed=False,
        finding=gettext_lazy("The destination already has an ordinary topic %(name)s. It is not changed.", name=name),
        next_step=gettext_lazy("Delete or rename that topic, exclude this one from the filters, or use a link with a prefix."),
        problem=True,
    )


def _link_state(_topic: ListedTopic, _name: str, facts: LinkFacts) -> Check:
    if not facts.link_trouble:
        return _PASSED[CheckCode.LINK_STATE]
    return Check(
        code=CheckCode.LINK_STATE,
        passed=False,
        finding=facts.link_trouble,
        next_step=gettext_lazy("Repair or resume the link. Its mirror topics are then created automatically."),
    )


def _last_try(topic: ListedTopic, _name: str, facts: LinkFacts) -> Check:
    failure = facts.failures.get(topic.name)
    if failure is None:
        return _PASSED[CheckCode.LAST_TRY]
    return Check(
        code=CheckCode.LAST_TRY,
        passed=False,
        finding=gettext_lazy("The last attempt failed with %(code)s: %(problem)s", code=failure.code, problem=failure.message),
        next_step=gettext_lazy("Fix the cause. The next run tries again."),
        blocks=False,
    )


def filter_words(name_filter: NameFilter) -> str:
    """Return a filter as a word for a sentence."""
    return f"{name_filter.name}*" if name_filter.pattern_type is PatternType.PREFIXED else name_filter.name


def _matching(topic: ListedTopic, facts: LinkFacts, kind: FilterType) -> NameFilter | None:
    matching = (rule for rule in facts.filters if rule.filter_type is kind and rule.matches(topic.name))
    return next(matching, None)


# arguments: the topic, the name of its mirror ("" if it cannot have a mirror), and the link
_RULES: tuple[Callable[[ListedTopic, str, LinkFacts], Check], ...] = (
    _source_topic,
    _internal,
    _auto_create,
    _included,
    _not_excluded,
    _valid_name,
    _stopped_mirror,
    _ring,
    _chain,
    _namespace,
    _mirrored_elsewhere,
    _name_free,
    _link_state,
    _last_try,
)
