import pytest

from linkengine.domain.configs import ConfigChange, with_compaction_in_time

COMPACTED = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
OPEN = {"cleanup.policy": "delete", "retention.ms": "-1"}
OTHER = {"delete.retention.ms": "5"}


def changed(
    change: dict[str, str],
    *,
    wanted: dict[str, str],
    present: dict[str, str],
    keyless: bool = False,
    copied: bool | None = None,
) -> dict[str, str]:
    def read() -> bool:
        assert copied is not None, "called without need"
        return copied

    result = with_compaction_in_time(
        ConfigChange(values=change, deletions=("x",)), wanted=wanted, present=present, keyless=keyless, copied=read
    )
    assert result.deletions == ("x",)
    return result.values


def test_a_mirror_becomes_compacted_once_it_has_all_records_its_source_had_then() -> None:
    change = {"cleanup.policy": "compact,delete", **OTHER}

    assert changed(change, wanted=COMPACTED, present=OPEN, copied=True) == change
    assert changed(change, wanted=COMPACTED, present=OPEN, copied=False) == OTHER
    assert changed(change, wanted=COMPACTED, present=OPEN, keyless=True, copied=False) == OTHER


def test_a_compacted_mirror_that_refused_a_keyless_record_gets_the_policy_delete() -> None:
    assert changed(OTHER, wanted=COMPACTED, present=COMPACTED, keyless=True) == OTHER | {"cleanup.policy": "delete"}
    assert changed(OTHER, wanted=COMPACTED, present=COMPACTED) == OTHER


@pytest.mark.parametrize(
    ("wanted", "present"),
    [
        (OPEN, COMPACTED),
        ({"cleanup.policy": "compact", "retention.ms": "9"}, OPEN),
        ({"cleanup.policy": "compact"}, {"cleanup.policy": "compact"}),
    ],
    ids=["not compacted at the source", "own retention", "retention not synced"],
)
def test_other_policy_changes_stay_unchanged(wanted: dict[str, str], present: dict[str, str]) -> None:
    change = {"cleanup.policy": wanted["cleanup.policy"]}

    assert changed(change, wanted=wanted, present=present, keyless=True) == change
