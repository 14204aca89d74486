"""Why a source topic is mirrored or not: each check alone, and the result of all."""

from __future__ import annotations

import re
from typing import Any

import pytest

from linkengine.domain.linktasks import TaskError
from linkengine.domain.mirrorability import (
    CheckCode,
    CheckedTopic,
    KnownMirror,
    LinkFacts,
    ListedTopic,
    MirrorabilityStatus,
    TopicOfCluster,
    check_topic,
)
from linkengine.domain.names import FilterType, NameFilter, PatternType
from linkengine.domain.states import MirrorState

ALL = NameFilter(name="*")
NO_SECRETS = NameFilter(name="secret", pattern_type=PatternType.PREFIXED, filter_type=FilterType.EXCLUDE)
CHAINED = {TopicOfCluster("source", "orders"): TopicOfCluster("origin", "orders")}
LOOPED = {TopicOfCluster("source", "orders"): TopicOfCluster("destination", "orders")}


def checked(name: str = "orders", *, topic: dict[str, Any] | None = None, **around: Any) -> CheckedTopic:
    facts = {"auto_create": True, "filters": (ALL, NO_SECRETS), **around}
    return check_topic(ListedTopic(name=name, **(topic or {})), LinkFacts(source="source", destination="destination", **facts))


def test_a_topic_that_passes_all_checks_waits_for_the_next_run() -> None:
    found = checked(prefix="w.")

    assert (found.standing, found.mirror, found.failed) == (MirrorabilityStatus.WAITING, "w.orders", ())
    assert [check.code for check in found.checks] == list(CheckCode)


@pytest.mark.parametrize("state", [state for state in MirrorState if state is not MirrorState.STOPPED])
def test_a_topic_with_a_mirror_of_the_link_is_mirrored_whatever_the_filters(state: MirrorState) -> None:
    mirrors = {"orders": KnownMirror(link="own", state=state, own=True)}

    found = checked(mirrors=mirrors, filters=(), auto_create=False)

    assert (found.standing, found.mirror_state, found.checks) == (MirrorabilityStatus.MIRRORED, state, ())


@pytest.mark.parametrize(
    ("name", "facts", "code", "words", "problem"),
    [
        ("orders", {"topic": {"exists": False}}, CheckCode.SOURCE_TOPIC, "no such topic", False),
        ("__consumer_offsets", {}, CheckCode.INTERNAL_TOPIC, "Internal Kafka topic", False),
        ("orders", {"topic": {"internal": True}}, CheckCode.INTERNAL_TOPIC, "Internal Kafka topic", False),
        ("orders", {"auto_create": False}, CheckCode.AUTO_CREATE, "enable is false", False),
        ("orders", {"filters": (NO_SECRETS,)}, CheckCode.INCLUDED, "No INCLUDE filter", False),
        ("secret.a", {}, CheckCode.NOT_EXCLUDED, r"EXCLUDE filter matches: secret\*", False),
        ("x" * 245, {"prefix": "prefix."}, CheckCode.MIRROR_NAME, "252 characters", True),
        (
            "orders",
            {"mirrors": {"orders": KnownMirror(link="own", state=MirrorState.STOPPED, own=True)}, "taken": {"orders"}},
            CheckCode.STOPPED_MIRROR,
            "then stopped",
            False,
        ),
        (
            "orders",
            {"sources": LOOPED, "cluster_names": {"destination": "East"}},
            CheckCode.RING,
            "East:orders → source:orders → East:orders",
            False,
        ),
        ("orders", {"sources": LOOPED}, CheckCode.RING, "a topic that you may not see → source:orders → destination:", False),
        ("orders", {"sources": CHAINED, "prefix": "w."}, CheckCode.CHAIN, "mirror topic at the source", False),
        ("orders", {"topic": {"is_mirror": True}, "prefix": "w."}, CheckCode.CHAIN, "mirror topic at the source", False),
        ("orders", {"reserved": {"ord": "link north"}}, CheckCode.NAMESPACE, r"in which link north may create", False),
        ("orders", {"reserved": {"": ""}}, CheckCode.NAMESPACE, r"namespace \* .* no link may create", False),
        ("orders", {"taken": {"orders"}}, CheckCode.NAME_FREE, r"ordinary topic orders\. It is not changed", True),
        (
            "orders",
            {"mirrors": {"orders": KnownMirror(link="link other", state=MirrorState.ACTIVE, own=False)}},
            CheckCode.MIRRORED_ELSEWHERE,
            "mirror topic of link other",
            True,
        ),
        ("orders", {"link_trouble": "The link is paused."}, CheckCode.LINK_STATE, "paused", False),
    ],
)
def test_a_failed_check_has_a_finding_and_a_next_step(
    name: str, facts: dict[str, Any], code: CheckCode, words: str, problem: bool
) -> None:
    found = checked(name, **facts)

    assert found.standing is MirrorabilityStatus.NOT_MIRRORED
    (failed,) = found.failed
    assert failed.code is code
    assert re.search(words, failed.finding)
    assert failed.next_step
    assert bool(found.problems) is problem


def test_a_link_without_a_prefix_auto_creates_mirrors_of_mirrors() -> None:
    assert checked(sources=CHAINED).standing is MirrorabilityStatus.WAITING


def test_a_failed_attempt_is_reported_and_does_not_block_the_next_run() -> None:
    found = checked(failures={"orders": TaskError(code="AUTHORIZATION_ERROR", message="Grant READ.")})

    assert found.standing is MirrorabilityStatus.WAITING
    assert [check.code for check in found.failed] == [CheckCode.LAST_TRY]
    assert "Grant READ." in found.failed[0].finding


def test_reserved_namespaces_are_checked_against_the_mirrors_name() -> None:
    assert checked(prefix="w.", reserved={"orders": "north", "": "north"}).failed[0].code is CheckCode.NAMESPACE
    assert checked(prefix="w.", reserved={"orders": "north"}).standing is MirrorabilityStatus.WAITING
    assert checked("x" * 245, prefix="prefix.", reserved={"": ""}).failed[0].code is CheckCode.MIRROR_NAME


def test_a_mirror_of_the_link_that_a_namespace_follows_is_not_a_problem_of_other_links() -> None:
    mirrors = {"orders": KnownMirror(link="north", state=MirrorState.ACTIVE, own=False)}

    found = checked(mirrors=mirrors, reserved={"ord": "north"})

    assert [check.code for check in found.failed] == [CheckCode.NAMESPACE, CheckCode.MIRRORED_ELSEWHERE]
    assert found.problems == ()


def test_a_taken_name_is_not_a_problem_without_auto_create() -> None:
    assert checked(taken={"orders"}, auto_create=False).problems == ()
