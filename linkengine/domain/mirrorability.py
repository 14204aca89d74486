"""How a source topic stands with a link: the words, the facts that are looked at, the verdict.

``linkengine.domain.mirrorchecks`` judges. A check that ``blocks`` keeps auto-create away; a ``problem`` is an error of
the task, the others are as people wanted them.
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
    """What is looked at, in this order."""

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


_UNWANTED = frozenset(  # people said so
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
    """How a source topic stands with a link."""

    MIRRORED = "MIRRORED"
    WAITING = "WAITING"  # nothing is in the way; the next run creates the mirror
    NOT_MIRRORED = "NOT_MIRRORED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One look; ``finding`` says what is so, ``next_step`` what to do where it failed."""

    code: CheckCode
    passed: bool
    finding: str
    next_step: str = ""
    blocks: bool = True
    problem: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A source topic; ``is_mirror``: it carries the marks of a mirror topic at the source."""

    name: str
    exists: bool = True
    internal: bool = False
    is_mirror: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMirror:
    """A mirror on the destination; ``link`` as words for a person; ``own``: of the link that asks."""

    link: str
    state: MirrorState
    own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """All that is known around a link. Topics of the destination are ``taken``; ``mirrors`` are among them or will be."""

    source: str  # cluster ids
    destination: str
    prefix: str = ""
    auto_create: bool = False
    filters: tuple[NameFilter, ...] = ()
    link_trouble: str = ""  # why the link does nothing at present
    mirrors: Mapping[str, KnownMirror] = field(default_factory=dict)
    taken: Collection[str] = ()
    reserved: Mapping[str, str] = field(
        default_factory=dict
    )  # prefixes of others, with the link (in words) that each follows, "" for none
    sources: Mapping[Place, Place] = field(default_factory=dict)  # of all mirrors that are not stopped, on all links
    cluster_names: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, TaskError] = field(default_factory=dict)  # of the last try, by source topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer for one topic. ``checks`` is empty for a topic that is mirrored."""

    topic: str
    mirror: str  # its name, "" where it cannot have one
    standing: Standing
    mirror_state: MirrorState | None = None
    checks: tuple[Check, ...] = ()

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(one for one in self.checks if not one.passed)

    @property
    def problems(self) -> tuple[Check, ...]:
        """What the task reports; nothing for topics that the filters leave out anyway."""
        return () if _UNWANTED & {one.code for one in self.failed} else tuple(one for one in self.failed if one.problem)
