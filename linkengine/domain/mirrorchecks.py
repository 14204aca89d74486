"""Why a source topic is (not) mirrored by a link: the same checks decide auto-creation and explain it.

The conditions of cluster linking's documents, and what the destination and other links add to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from linkengine.domain.errors import LinkEngineError
from linkengine.domain.filters import FilterType, NameFilter, PatternType
from linkengine.domain.mirrorability import Check, CheckCode, Standing, Surroundings, Topic, Verdict
from linkengine.domain.namespaces import contains
from linkengine.domain.naming import is_internal, mirror_name
from linkengine.domain.rings import Place, find_ring, ring_words
from linkengine.domain.states import MirrorState


def judge(topic: Topic, around: Surroundings) -> Verdict:
    """Answer how a topic stands and why."""
    name = _mirror_name(topic, around)
    known = around.mirrors.get(name)
    if known is not None and known.own and known.state is not MirrorState.STOPPED:
        return Verdict(topic=topic.name, mirror=name, standing=Standing.MIRRORED, mirror_state=known.state)
    checks = tuple(rule(topic, around) for rule in _RULES)
    blocked = any(one.blocks and not one.passed for one in checks)
    standing = Standing.NOT_MIRRORED if blocked else Standing.WAITING
    return Verdict(topic=topic.name, mirror=name, standing=standing, checks=checks)


def judge_all(topics: Iterable[Topic], around: Surroundings) -> Iterator[Verdict]:
    """Judge many topics of one link."""
    return (judge(topic, around) for topic in topics)


def _mirror_name(topic: Topic, around: Surroundings) -> str:
    try:
        return mirror_name(topic.name, prefix=around.prefix)
    except LinkEngineError:
        return ""


def _source_topic(topic: Topic, _around: Surroundings) -> Check:
    code = CheckCode.SOURCE_TOPIC
    if topic.exists:
        return Check(code=code, passed=True, finding="The source has the topic, and the link's user may see it.")
    return Check(
        code=code,
        passed=False,
        finding="The source had no such topic when it was last listed, or the link's user may not DESCRIBE it.",
        next_step="Check the name, or grant the link's user DESCRIBE and READ on the topic.",
    )


def _internal(topic: Topic, _around: Surroundings) -> Check:
    code = CheckCode.INTERNAL_TOPIC
    if not (topic.internal or is_internal(topic.name)):
        return Check(code=code, passed=True, finding="It is not an internal topic.")
    return Check(
        code=code,
        passed=False,
        finding="It belongs to the source cluster's own machinery; such topics are never mirrored.",
        next_step="Nothing to do. Consumer offsets and ACLs are carried over by tasks of their own.",
    )


def _auto_create(_topic: Topic, around: Surroundings) -> Check:
    code = CheckCode.AUTO_CREATE
    if around.auto_create:
        return Check(code=code, passed=True, finding="The link creates mirror topics by itself.")
    return Check(
        code=code,
        passed=False,
        finding="The link does not create mirror topics by itself: auto.create.mirror.topics.enable is false.",
        next_step="Add the mirror topic by hand, or switch auto-create on with filters.",
    )


def _included(topic: Topic, around: Surroundings) -> Check:
    code = CheckCode.INCLUDED
    found = _matching(topic, around, FilterType.INCLUDE)
    if found:
        return Check(code=code, passed=True, finding=f"An INCLUDE filter matches: {filter_words(found)}.")
    return Check(
        code=code,
        passed=False,
        finding="No INCLUDE filter matches its name.",
        next_step="Add an INCLUDE filter for it, or add the mirror topic by hand.",
    )


def _not_excluded(topic: Topic, around: Surroundings) -> Check:
    code = CheckCode.NOT_EXCLUDED
    found = _matching(topic, around, FilterType.EXCLUDE)
    if found is None:
        return Check(code=code, passed=True, finding="No EXCLUDE filter matches.")
    return Check(
        code=code,
        passed=False,
        finding=f"An EXCLUDE filter matches: {filter_words(found)}. It wins over every INCLUDE.",
        next_step="Remove or narrow that filter, or add the mirror topic by hand.",
    )


def _name(topic: Topic, around: Surroundings) -> Check:
    code = CheckCode.MIRROR_NAME
    try:
        name = mirror_name(topic.name, prefix=around.prefix)
    except LinkEngineError as error:
        return Check(
            code=code,
            passed=False,
            finding=f"With the link's prefix {around.prefix!r} its name cannot be used: {error.message}",
            next_step="Mirror it over a link with a shorter prefix, or with none.",
            problem=True,
        )
    return Check(code=code, passed=True, finding=f"Its mirror is called {name}.")


def _stopped_mirror(topic: Topic, around: Surroundings) -> Check:
    code, known = CheckCode.STOPPED_MIRROR, around.mirrors.get(_mirror_name(topic, around))
    if known is None or not known.own:
        return Check(code=code, passed=True, finding="The link has no stopped mirror of it.")
    return Check(
        code=code,
        passed=False,
        finding="It was mirrored and then stopped; the topic on the destination is an ordinary one now.",
        next_step="A stopped mirror is never created again by itself. Delete the stopped mirror topic to begin anew.",
    )


def _ring(topic: Topic, around: Surroundings) -> Check:
    name = _mirror_name(topic, around) or topic.name
    source, mirror = Place(around.source, topic.name), Place(around.destination, name)
    ring = find_ring(around.sources.get, source=source, mirror=mirror)
    if not ring:
        return Check(code=CheckCode.RING, passed=True, finding="Its records do not come from the destination.")
    return Check(
        code=CheckCode.RING,
        passed=False,
        finding=f"Its records come from the destination: {ring_words(ring, names=around.cluster_names)}.",
        next_step="Nothing to do: the destination has the original.",
    )


def _chain(topic: Topic, around: Surroundings) -> Check:
    code, is_mirror = CheckCode.CHAIN, topic.is_mirror or Place(around.source, topic.name) in around.sources
    if not (around.prefix and is_mirror):
        return Check(code=code, passed=True, finding="It is no mirror topic itself, or the link has no prefix.")
    return Check(
        code=code,
        passed=False,
        finding="It is a mirror topic at the source, and a link with a prefix does not chain mirrors by itself.",
        next_step="Add the mirror topic by hand, or use a link without a prefix.",
    )


def _namespace(topic: Topic, around: Surroundings) -> Check:
    code, name = CheckCode.NAMESPACE, _mirror_name(topic, around)
    prefix = next((one for one in around.reserved if name and contains(one, name)), None)
    if prefix is None:
        return Check(code=code, passed=True, finding="No namespace of the destination keeps this link out.")
    follows = around.reserved[prefix]
    owner, step = (follows, "Nothing to do where that link mirrors it. Else let") if follows else ("nobody yet", "Let")
    return Check(
        code=code,
        passed=False,
        finding=f"Its name is in the reserved namespace {prefix}* of the destination, in which {owner} creates topics.",
        next_step=f"{step} the namespace follow this link, or use a link with another prefix.",
    )


def _mirrored_elsewhere(topic: Topic, around: Surroundings) -> Check:
    code, name = CheckCode.MIRRORED_ELSEWHERE, _mirror_name(topic, around)
    known = around.mirrors.get(name)
    if known is None or known.own:
        return Check(code=code, passed=True, finding="No other link has a mirror topic of its name.")
    return Check(
        code=code,
        passed=False,
        finding=f"The destination's topic {name} is a mirror topic of {known.link}; it is not touched.",
        next_step="Exclude this one from the filters where that is the copy you want; for another, use a link with a prefix.",
        problem=True,
    )


def _name_free(topic: Topic, around: Surroundings) -> Check:
    code, name = CheckCode.NAME_FREE, _mirror_name(topic, around)
    if around.mirrors.get(name) is not None or name not in around.taken:
        return Check(code=code, passed=True, finding="No ordinary topic of the destination has its name.")
    return Check(
        code=code,
        passed=False,
        finding=f"The destination already has an ordinary topic {name}; it is not touched.",
        next_step="Delete or rename that topic, exclude this one from the filters, or use a link with a prefix.",
        problem=True,
    )


def _link_state(_topic: Topic, around: Surroundings) -> Check:
    if not around.link_trouble:
        return Check(code=CheckCode.LINK_STATE, passed=True, finding="The link is active.")
    return Check(
        code=CheckCode.LINK_STATE,
        passed=False,
        finding=around.link_trouble,
        next_step="Mend or resume the link; its mirror topics are then created by themselves.",
    )


def _last_try(topic: Topic, around: Surroundings) -> Check:
    failure = around.failures.get(topic.name)
    if failure is None:
        return Check(code=CheckCode.LAST_TRY, passed=True, finding="No try to create its mirror has failed.", blocks=False)
    return Check(
        code=CheckCode.LAST_TRY,
        passed=False,
        finding=f"The last try failed with {failure.code}: {failure.message}",
        next_step="Mend the cause; the next run tries it again.",
        blocks=False,
    )


def filter_words(one: NameFilter) -> str:
    """Name a filter in a sentence."""
    return f"{one.name}*" if one.pattern_type is PatternType.PREFIXED else one.name


def _matching(topic: Topic, around: Surroundings, kind: FilterType) -> NameFilter | None:
    return next((one for one in around.filters if one.filter_type is kind and one.matches(topic.name)), None)


_RULES: tuple[Callable[[Topic, Surroundings], Check], ...] = (
    _source_topic,
    _internal,
    _auto_create,
    _included,
    _not_excluded,
    _name,
    _stopped_mirror,
    _ring,
    _chain,
    _namespace,
    _mirrored_elsewhere,
    _name_free,
    _link_state,
    _last_try,
)
