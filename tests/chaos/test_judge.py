"""The judge finds violations, and nothing else."""

from dataclasses import replace

import pytest

from chaos import judge
from chaos.history import HEADER, Entry, Outcome
from chaos.reading import Record

TOPIC = "t"


def entry(number: int, *, key: str = "", deletes: bool = False, partition: int = 0) -> Entry:
    name = key or str(number)
    return Entry(writer="w", number=number, topic=TOPIC, partition=partition, key=name.encode(), deletes=deletes)


def at(offset: int, sent: Entry) -> Record:
    return Record(sent.partition, offset, sent.key, sent.value, (1, 1_000 + sent.number), ((HEADER, sent.name),))


def kinds(findings: object) -> list[str]:
    return [finding.kind for finding in findings]  # type: ignore[attr-defined]


def test_equal_sides_have_no_findings() -> None:
    side = [at(0, entry(1)), at(2, entry(2))]

    assert kinds(judge.compare(TOPIC, side, side)) == []


def test_lost_moved_doubled_and_changed_records_are_found() -> None:
    source = [at(0, entry(1)), at(1, entry(2))]

    assert kinds(judge.compare(TOPIC, source, source[:1])) == ["missing"]
    assert kinds(judge.compare(TOPIC, source, [source[0], at(2, entry(2))])) == ["missing", "extra"]
    assert kinds(judge.compare(TOPIC, source, [*source, at(2, entry(2))])) == ["extra"]
    assert kinds(judge.compare(TOPIC, source, [source[0], source[1]._replace(timestamp=(1, 0))])) == ["changed"]


def test_a_stopped_mirror_is_compared_up_to_its_end() -> None:
    source = [at(0, entry(1)), at(1, entry(2))]

    assert kinds(judge.compare(TOPIC, source, source[:1], ends={0: 1})) == []
    assert kinds(judge.compare(TOPIC, source, source, ends={0: 1})) == ["extra"]


def test_lost_doubled_aborted_and_reordered_records_are_found_by_the_history() -> None:
    first, second, third = entry(1), entry(2), entry(3)
    acked = dict.fromkeys((first, second), Outcome.ACKED)

    assert kinds(judge.check_history(TOPIC, [at(0, first), at(1, second)], acked)) == []
    assert kinds(judge.check_history(TOPIC, [at(0, first)], acked)) == ["lost"]
    assert kinds(judge.check_history(TOPIC, [at(0, first), at(1, second), at(2, second)], acked)) == ["doubled"]
    assert kinds(judge.check_history(TOPIC, [at(0, second), at(1, first)], acked)) == ["reordered"]
    assert kinds(judge.check_history(TOPIC, [at(0, third)], {third: Outcome.ABORTED})) == ["aborted"]
    assert kinds(judge.check_history(TOPIC, [at(0, third)], {})) == ["foreign"]


@pytest.mark.parametrize("times", [0, 1])
def test_a_record_with_unknown_outcome_may_exist_once_or_not_at_all(times: int) -> None:
    unknown = {entry(1): Outcome.UNKNOWN}

    assert kinds(judge.check_history(TOPIC, [at(0, entry(1))] * times, unknown)) == []
    assert kinds(judge.check_history(TOPIC, [at(0, entry(1)), at(1, entry(1))], unknown)) == ["doubled"]


def test_a_compacted_source_may_lack_superseded_records_and_its_mirror_none() -> None:
    old, new, other = entry(1, key="k"), entry(2, key="k"), entry(3, key="l")
    whole = [at(0, old), at(1, new), at(2, other)]

    assert kinds(judge.compare_compacted(TOPIC, whole[1:], whole)) == []
    assert kinds(judge.compare_compacted(TOPIC, whole, whole[1:])) == ["missing"]
    assert kinds(judge.compare_compacted(TOPIC, whole[:2], whole)) == ["extra"]
    assert kinds(judge.compare_compacted(TOPIC, whole[:2], [*whole[:2], at(2, entry(3, key="l", deletes=True))])) == ["extra"]
    assert kinds(judge.compare_compacted(TOPIC, whole, [whole[0], whole[2]])) == ["missing"]
    assert kinds(judge.compare_compacted(TOPIC, whole, whole[:2])) == ["missing"]


def test_the_newest_record_of_a_key_is_the_last_acknowledged_or_an_unknown_after_it() -> None:
    first, second, third = entry(1, key="k"), entry(2, key="k"), entry(3, key="k", deletes=True)
    acked = {first: Outcome.ACKED, second: Outcome.ACKED}

    assert kinds(judge.check_newest(TOPIC, [at(0, first), at(1, second)], acked)) == []
    assert kinds(judge.check_newest(TOPIC, [at(0, first)], acked)) == ["stale"]
    assert kinds(judge.check_newest(TOPIC, [], acked)) == ["lost"]
    assert kinds(judge.check_newest(TOPIC, [], {**acked, third: Outcome.UNKNOWN})) == ["lost"]
    assert kinds(judge.check_newest(TOPIC, [], {third: Outcome.ACKED})) == ["lost"]
    assert kinds(judge.check_newest(TOPIC, [at(1, second)], {**acked, third: Outcome.ACKED})) == ["stale"]
    assert kinds(judge.check_newest(TOPIC, [at(5, third)], {**acked, third: Outcome.UNKNOWN})) == []


def test_a_record_must_be_unchanged_and_at_its_acknowledged_offset() -> None:
    first, second = entry(1, key="k"), entry(2, key="k", deletes=True)
    acked, offsets = dict.fromkeys((first, second), Outcome.ACKED), {first: 0, second: 1}

    assert kinds(judge.check_places(TOPIC, [at(0, first), at(1, second)], acked, offsets)) == []
    assert kinds(judge.check_places(TOPIC, [at(7, first)], acked, {})) == []  # the source did not return its offset
    assert kinds(judge.check_places(TOPIC, [at(2, second)], acked, offsets)) == ["moved"]
    assert kinds(judge.check_places(TOPIC, [at(0, first)._replace(value=b"other")], acked, offsets)) == ["foreign"]
    assert kinds(judge.check_places(TOPIC, [at(1, second)._replace(key=b"l")], acked, offsets)) == ["foreign"]
    assert kinds(judge.check_places(TOPIC, [at(0, entry(3))], acked, offsets)) == ["foreign"]


def test_records_that_a_mirror_passed_before_compaction_must_exist() -> None:
    old, deletion, late = entry(1, key="k"), entry(2, key="k", deletes=True), entry(3, key="k")
    offsets, sent_s = {old: 0, deletion: 1, late: 2}, {old: 100.0, deletion: 100.5, late: 101.0}
    passed = {(TOPIC, 0): [(1, 101.0), (2, 105.0), (3, 112.0)]}

    kept = judge.copied_in_time(offsets, sent_s, passed, 10.0)

    assert kept == {old, deletion}  # the mirror passed the third record when it was eleven seconds old
    assert kinds(judge.check_kept(TOPIC, [at(0, old), at(1, deletion)], kept)) == []
    assert kinds(judge.check_kept(TOPIC, [at(0, old), at(2, late)], kept)) == ["lost"]
    assert judge.copied_in_time(offsets, sent_s, {}, 10.0) == set()


def test_a_promoted_mirror_has_what_was_acknowledged_before_the_promotion() -> None:
    first, second, other = entry(1), entry(2), replace(entry(3), topic="other")

    assert kinds(judge.check_promoted(TOPIC, [at(0, first), at(1, second)], {first, second, other})) == []
    assert kinds(judge.check_promoted(TOPIC, [at(0, first)], {first, second})) == ["lost"]
    assert kinds(judge.check_promoted(TOPIC, [at(0, first)], {first})) == []  # the second was acknowledged later


def test_records_visible_to_some_readers_only_and_wrong_ends_are_found() -> None:
    record = at(0, entry(1))

    assert kinds(judge.check_unchanged([], [record], topic=TOPIC)) == ["aborted"]
    assert kinds(judge.check_ends({(TOPIC, 0): 5}, {(TOPIC, 0): 6})) == ["end"]
    assert kinds(judge.check_ends({(TOPIC, 0): 5}, {(TOPIC, 0): 5})) == []


def test_a_finding_is_written_in_one_line() -> None:
    finding = judge.Finding(kind="lost", topic=TOPIC, partition=1, offset=7, detail="gone")

    assert str(finding) == "lost: t-1 at offset 7: gone"
    assert str(replace(finding, offset=8)) != str(finding)
    assert str(judge.Finding(kind="crash", detail="worker.log: KeyError")) == "crash: worker.log: KeyError"
