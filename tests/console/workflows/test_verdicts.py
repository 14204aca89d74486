"""Permanent verdicts of tasks do not follow from the metadata of a single broker; without database and clusters."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from console.reconciling import groups, plans
from console.workflows import divergence, mirrors, syncs
from linkengine import jobs
from linkengine.domain.acls import Acl, AclFacts, AclPlan, AclStatus, parse_acl_filters
from linkengine.domain.errors import ErrorCode, LinkEngineError
from linkengine.domain.linktasks import TaskError
from linkengine.domain.plans import LogRange

HELD = (LogRange(partition=0, start=0, end=9, stable_end=9),)


@pytest.mark.parametrize(
    ("code", "retries", "ends"),
    [
        (ErrorCode.SOURCE_TOPIC_ID_CHANGED, 0, False),
        (ErrorCode.SOURCE_TOPIC_ID_CHANGED, 4, True),
        (ErrorCode.SOURCE_PARTITIONS_DECREASED, 0, True),  # counted at every broker
        (ErrorCode.POLICY_VIOLATION_ERROR, 0, True),
        (ErrorCode.TIMEOUT_ERROR, 4, False),
    ],
)
def test_setup_fails_permanently_only_after_several_attempts(code: ErrorCode, retries: int, *, ends: bool) -> None:
    """An old leader, or a damaged response, makes a seeded partition look longer than its source's start."""
    mirror: Any = SimpleNamespace(retry_count=retries)

    assert mirrors._is_fatal(mirror, LinkEngineError(code, "")) is ends


def held(*, decided: bool) -> tuple[LogRange, ...]:
    mirror: Any = SimpleNamespace(name="t", link=SimpleNamespace(destination=SimpleNamespace(address=None)))
    run: Any = SimpleNamespace(diverged_topic_id="id", deletion_decided_at=1 if decided else None)
    return divergence._held(mirror, run)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Simulate a cluster; the element is what its brokers return: a topic, None, or an error because they disagree."""
    responses: list[object] = []

    def find_mirror(*_: object, topic_id: str) -> object:
        assert topic_id == "id"
        if isinstance(responses[0], LinkEngineError):
            raise responses[0]
        return responses[0]

    monkeypatch.setattr(jobs, "find_mirror", find_mirror)
    monkeypatch.setattr(jobs, "find_topic", lambda *_: None)  # of a broker that does not know the topic
    monkeypatch.setattr(jobs, "log_ranges", lambda *_: HELD)
    return responses


def test_topic_to_be_deleted_counts_as_deleted_if_no_broker_has_it(known: list[object]) -> None:
    known.append(None)

    assert held(decided=True) == ()
    with pytest.raises(LinkEngineError) as raised:
        held(decided=False)
    assert raised.value.code == ErrorCode.SIDES_DIVERGED


def test_topic_to_be_deleted_still_exists_while_brokers_disagree(known: list[object]) -> None:
    """Otherwise its export would end unfinished, and the request for its deletion would still be sent."""
    known.append(LinkEngineError(ErrorCode.TIMEOUT_ERROR, "The brokers do not agree."))

    with pytest.raises(LinkEngineError) as raised:
        held(decided=True)
    assert raised.value.code == ErrorCode.TIMEOUT_ERROR


@pytest.mark.parametrize("decided", [False, True])
def test_topic_that_a_broker_has_is_held(known: list[object], *, decided: bool) -> None:
    known.append(SimpleNamespace(topic_id="id"))

    assert held(decided=decided) == HELD


READ = Acl(
    resource_type="TOPIC",
    resource_name="orders",
    pattern_type="LITERAL",
    principal="User:app",
    host="*",
    operation="READ",
    permission="ALLOW",
)
WRITE = replace(READ, operation="WRITE")
EVERYTHING = parse_acl_filters('{"aclFilters": [{"resourceFilter": {"resourceType": "any"}, "accessFilter": {}}]}')


class Clusters:
    """The ACLs of a source and a destination; ``source`` and ``destination`` are what each reading returns, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source: list[set[Acl]] = []
        self.destination: list[set[Acl]] = []
        self.everywhere: set[Acl] | LinkEngineError = set()
        self.link: Any = SimpleNamespace(destination=SimpleNamespace(address="destination"))
        monkeypatch.setattr(plans, "source_address", lambda _: "source")
        monkeypatch.setattr(jobs, "read_acls", lambda address: getattr(self, address).pop(0))
        monkeypatch.setattr(jobs, "read_acls_by_broker", self._read_everywhere)
        monkeypatch.setattr(syncs, "CONFIRM_AFTER_S", 0.0)

    def plan(self, *, ledger: dict[Acl, AclStatus]) -> tuple[AclPlan, tuple[TaskError, ...]]:
        facts = AclFacts(source=self.source.pop(0), destination=self.destination.pop(0), filters=EVERYTHING, ledger=ledger)
        return syncs._plan(self.link, facts)

    def _read_everywhere(self, _: object) -> list[set[Acl]]:
        if isinstance(self.everywhere, LinkEngineError):
            raise self.everywhere
        return [set(), self.everywhere]


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Clusters:
    return Clusters(monkeypatch)


@pytest.mark.parametrize(("everywhere", "deleted"), [(set(), (READ,)), ({READ}, ())])
def test_acl_is_deleted_only_if_no_broker_of_the_source_has_it(
    clusters: Clusters, everywhere: set[Acl], deleted: tuple[Acl, ...]
) -> None:
    clusters.source, clusters.destination, clusters.everywhere = [set()], [{READ}], everywhere

    plan, errors = clusters.plan(ledger={READ: AclStatus.CREATED})

    assert (plan.delete, plan.forget, errors) == (deleted, (), ())


def test_acls_are_created_but_not_deleted_while_a_broker_of_the_source_is_silent(clusters: Clusters) -> None:
    clusters.source, clusters.destination = [{WRITE}, {WRITE}], [{READ}, {READ}]
    clusters.everywhere = LinkEngineError(ErrorCode.TIMEOUT_ERROR, "A broker is silent.")

    plan, errors = clusters.plan(ledger={READ: AclStatus.CREATED})

    assert (plan.create, plan.delete) == ((WRITE,), ())
    assert [error.code for error in errors] == [ErrorCode.TIMEOUT_ERROR]


@pytest.mark.parametrize(
    ("source", "destination", "found"),
    [
        ([{READ}, {READ}], [{READ}, {READ}], []),
        ([set(), {READ}], [set(), set()], ["are missing on the destination"]),
        ([{READ}, {READ}], [{READ}, set()], ["are missing on the destination"]),
        ([set(), set()], [{READ}, set()], ["have been removed at the source"]),
        ([{READ}, set()], [{READ}, {READ}], ["have been removed at the source"]),
    ],
    ids=["equal", "new at the source", "new at the destination", "deleted at both", "deleted at the source"],
)
def test_gate_takes_acls_as_equal_only_if_every_broker_shows_them(
    monkeypatch: pytest.MonkeyPatch, source: list[set[Acl]], destination: list[set[Acl]], found: list[str]
) -> None:
    by_cluster = {"source": source, "destination": destination}
    link: Any = SimpleNamespace(destination=SimpleNamespace(address="destination"))
    monkeypatch.setattr(plans, "source_address", lambda _: "source")
    monkeypatch.setattr(jobs, "read_acls_by_broker", by_cluster.get)
    monkeypatch.setattr(groups, "own_rules", lambda _: None)
    monkeypatch.setattr(
        groups,
        "facts_of",
        lambda _, *, source, destination, before: AclFacts(
            source=source, destination=destination, filters=EVERYTHING, ledger={READ: AclStatus.CREATED}
        ),
    )

    sentences = syncs.acl_inequalities(link)

    assert len(sentences) == len(found)
    assert all(words in sentence for words, sentence in zip(found, sentences, strict=True))


@pytest.mark.parametrize("shown", [0, 1])
def test_acl_that_a_single_response_shows_is_not_created(clusters: Clusters, shown: int) -> None:
    """A flipped bit in a principal would give another principal access."""
    damaged = replace(READ, principal="User:apq")
    clusters.source = [{damaged} if reading == shown else {READ} for reading in range(2)]
    clusters.destination = [set(), set()]

    plan, _ = clusters.plan(ledger={})

    assert (plan.create, plan.delete) == ((), ())
    assert all(row.acl != damaged for row in plan.rows)


@pytest.mark.parametrize("shown", [0, 1])
def test_acl_that_either_reading_of_the_destination_shows_is_not_the_links_own(clusters: Clusters, shown: int) -> None:
    """It would be deleted when the source deletes its own."""
    clusters.source = [{READ, WRITE}, {READ, WRITE}]
    clusters.destination = [{READ} if reading == shown else set() for reading in range(2)]

    plan, _ = clusters.plan(ledger={})

    assert plan.create == (WRITE,)
    assert {row.acl: row.status for row in plan.rows}[READ] is AclStatus.ALREADY_THERE
