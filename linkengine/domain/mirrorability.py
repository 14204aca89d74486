"""Values of the mirrorability checks: whether a link mirrors a source topic, and why not.

``linkengine.domain.mirrorchecks`` makes the checks. A failed check that ``blocks`` prevents auto-creation. A failed check that
is a ``problem`` is reported as an error of the auto-create task; the others are the result of settings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from linkengine.domain.filters import NameFilter
from linkengine.domain.linktasks import TaskError
from linkengine.domain.rings import Place
from linkengine.domain.states import MirrorState


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


class Standing(StrEnum):
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
class Topic:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
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
    sources: Mapping[Place, Place] = field(default_factory=dict)  # of all mirrors that are not stopped, on all links
    cluster_names: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, TaskError] = field(default_factory=dict)  # of the last attempt, by source topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result for a topic. ``checks`` is empty for a topic that is mirrored."""

    topic: str
    mirror: str  # the mirror's name, "" if it cannot have a mirror
    standing: Standing
    mirror_state: MirrorState | None = None
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
