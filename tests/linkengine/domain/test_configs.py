import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkengine.domain.configs import (
    AFTER,
    ALWAYS_SYNCED,
    BEFORE,
    DEFAULT_SYNCED,
    DIFFERENCE,
    MIRROR_MAX_MESSAGE_BYTES,
    UNLIMITED,
    ConfigChange,
    LocalEdit,
    check_include,
    check_overrides,
    config_difference,
    configs_at_stop,
    follows_start,
    has_mirror_configs,
    lacking,
    local_edits,
    mirror_configs,
    released_names,
    source_values,
    still_due,
    synced_names,
)
from linkengine.domain.errors import ErrorCode, LinkEngineError

SOURCE = {
    "cleanup.policy": "delete",
    "compression.type": "lz4",
    "max.message.bytes": "2000000",
    "message.timestamp.type": "LogAppendTime",
    BEFORE: "86400000",
    AFTER: "3600000",
    "retention.ms": "600000",
    "retention.bytes": "1000000",
    "delete.retention.ms": "5000",
    "min.compaction.lag.ms": "10",
    "max.compaction.lag.ms": "20",
    "min.insync.replicas": "2",
    "segment.bytes": "77777777",
}


def test_the_lists_of_synced_configs_equal_the_documented_ones() -> None:
    assert set(ALWAYS_SYNCED) == {
        "max.message.bytes", "cleanup.policy", "message.timestamp.type", DIFFERENCE, BEFORE, AFTER,
    }  # fmt: skip
    assert set(DEFAULT_SYNCED) == {
        "retention.ms", "retention.bytes", "delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms",
    }  # fmt: skip


def test_configs_in_neither_list_are_not_synced() -> None:
    values = source_values(SOURCE)

    assert not {"compression.type", "min.insync.replicas", "segment.bytes"} & set(values)
    assert values["retention.ms"] == "600000"


def test_the_include_list_can_leave_out_retention_but_not_the_always_synced_configs() -> None:
    values = source_values(SOURCE, include=["max.message.bytes", "min.compaction.lag.ms"])

    assert set(values) == {*ALWAYS_SYNCED, "min.compaction.lag.ms"} - {DIFFERENCE}


def test_an_empty_include_list_syncs_only_the_always_synced_configs() -> None:
    assert synced_names([]) == set(ALWAYS_SYNCED)


def test_the_timestamp_limit_of_old_brokers_becomes_both_limits_of_kafka_4() -> None:
    old = source_values({DIFFERENCE: "1000"})
    both = source_values({DIFFERENCE: "1000", BEFORE: UNLIMITED, AFTER: "5"})
    unlimited = source_values({DIFFERENCE: UNLIMITED, BEFORE: "7", AFTER: UNLIMITED})

    assert old == {BEFORE: "1000", AFTER: "1000"}
    assert both == {BEFORE: "1000", AFTER: "5"}
    assert unlimited == {BEFORE: "7", AFTER: UNLIMITED}


def test_a_mirror_stores_producer_batches_unchanged_whatever_the_source_configs_are() -> None:
    configs = mirror_configs(SOURCE)

    assert configs["compression.type"] == "producer"
    assert configs["message.timestamp.type"] == "CreateTime"
    assert configs[BEFORE] == configs[AFTER] == UNLIMITED


def test_a_mirror_accepts_every_batch_that_its_source_accepted() -> None:
    huge = str(MIRROR_MAX_MESSAGE_BYTES * 2)

    assert mirror_configs(SOURCE)["max.message.bytes"] == str(MIRROR_MAX_MESSAGE_BYTES)
    assert mirror_configs({"max.message.bytes": huge})["max.message.bytes"] == huge


def test_a_mirror_has_unlimited_retention() -> None:
    configs = mirror_configs(SOURCE)

    assert (configs["retention.ms"], configs["retention.bytes"]) == ("-1", "-1")


def test_a_mirror_with_its_own_retention_keeps_it() -> None:
    configs = mirror_configs(SOURCE, include=[], overrides={"retention.ms": "1000"})

    assert configs["retention.ms"] == "1000"
    assert "retention.bytes" not in configs


@pytest.mark.parametrize("include", [[], ["retention.ms"], ["retention.bytes", "delete.retention.ms"]])
def test_a_mirror_with_its_own_log_start_keeps_the_sources_policy_and_synced_retention(include: list[str]) -> None:
    configs = mirror_configs({**SOURCE, "cleanup.policy": "compact"}, include=include)

    assert not follows_start(include)
    assert configs["cleanup.policy"] == "compact"  # with "delete", the mirror's own retention would delete records
    assert configs.get("retention.ms") == ("600000" if "retention.ms" in include else None)


def test_the_log_start_follows_the_source_if_both_retention_configs_are_synced() -> None:
    assert follows_start()
    assert follows_start(["retention.ms", "retention.bytes"])


def test_configs_removed_from_the_include_list_are_released() -> None:
    previous = source_values(SOURCE)

    released = released_names(previous, include=["delete.retention.ms"])
    change = config_difference(wanted={}, present={"retention.ms": "-1", "x": "y"}, released=released)

    assert released == {"retention.ms", "retention.bytes", "min.compaction.lag.ms", "max.compaction.lag.ms"} & set(previous)
    assert change == ConfigChange(deletions=("retention.ms",))
    assert released_names({}, include=[]) == frozenset()


def test_a_stop_also_resets_released_configs() -> None:
    change = configs_at_stop(SOURCE, include=[])

    assert {"retention.ms", "retention.bytes"} <= set(change.deletions)
    kept = configs_at_stop(SOURCE, include=[], overrides={"retention.ms": "5"})
    assert "retention.ms" not in {*kept.values, *kept.deletions}


def test_a_local_edit_is_a_config_that_was_set_by_the_sync_and_differs_now() -> None:
    change = ConfigChange(values={"retention.ms": "-1", "min.compaction.lag.ms": "7"})
    previous = {"retention.ms": "-1", "min.compaction.lag.ms": "0"}

    edits = local_edits(change, previous=previous, present={"retention.ms": "5", "min.compaction.lag.ms": "0"})

    assert edits == (LocalEdit(name="retention.ms", found="5", restored="-1"),)


@pytest.mark.parametrize(
    ("source", "mirror"),
    [("delete", "delete"), ("compact", "compact,delete"), ("compact,delete", "compact,delete"), ("", "delete")],
)
def test_a_compacted_source_has_a_compacted_mirror_whose_records_can_be_trimmed(source: str, mirror: str) -> None:
    assert mirror_configs({"cleanup.policy": source})["cleanup.policy"] == mirror


def test_a_stopped_mirror_has_the_sources_values() -> None:
    change = configs_at_stop(source_values({**SOURCE, "cleanup.policy": "compact"}))

    assert change.values["cleanup.policy"] == "compact"
    assert change.values["retention.ms"] == "600000"
    assert change.values["message.timestamp.type"] == "LogAppendTime"
    assert change.values["max.message.bytes"] == "2000000"
    assert change.deletions == ("compression.type",)


def test_a_stopped_mirror_gets_the_codec_of_its_overrides() -> None:
    change = configs_at_stop(source_values(SOURCE), overrides={"compression.type": "zstd"})

    assert change.values["compression.type"] == "zstd"
    assert change.deletions == ()


def test_a_stop_without_known_source_values_sets_nothing_that_could_delete_records() -> None:
    change = configs_at_stop({})

    assert change.values == {}
    assert not {"retention.ms", "retention.bytes", "cleanup.policy"} & set(change.deletions)
    assert "message.timestamp.type" in change.deletions


def test_a_config_difference_ignores_equal_values_and_the_order_of_policies() -> None:
    wanted = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}

    assert not config_difference(wanted=wanted, present={"cleanup.policy": "delete,compact", "retention.ms": "-1", "x": "y"})
    assert config_difference(wanted=wanted, present={"retention.ms": "5"}) == ConfigChange(values=wanted)


@given(st.dictionaries(st.sampled_from([*SOURCE, DIFFERENCE]), st.integers(0, 2**40).map(str)))
def test_a_mirror_with_its_configs_has_no_difference_and_is_recognized_as_a_mirror(source: dict[str, str]) -> None:
    configs = mirror_configs(source)

    assert not config_difference(wanted=mirror_configs(source), present=configs)
    assert has_mirror_configs(configs)


@given(st.dictionaries(st.sampled_from(list(SOURCE)), st.integers(0, 2**40).map(str)))
def test_an_ordinary_topic_is_not_recognized_as_a_mirror(configs: dict[str, str]) -> None:
    assert not has_mirror_configs(configs)


def test_a_topic_is_not_recognized_as_a_mirror_after_a_stop() -> None:
    mirror, change = mirror_configs(SOURCE), configs_at_stop(SOURCE)

    after = {**{name: value for name, value in mirror.items() if name not in change.deletions}, **change.values}

    assert not has_mirror_configs(after)
    assert source_values(after) == source_values(SOURCE)


def test_an_override_of_a_synced_config_is_refused_by_name() -> None:
    with pytest.raises(LinkEngineError, match=r"retention\.ms") as refused:
        check_overrides({"retention.ms": "5", "min.insync.replicas": "1"})

    assert refused.value.code is ErrorCode.MISCONFIGURATION_ERROR
    assert "min.insync.replicas" not in refused.value.message
    check_overrides({"retention.ms": "5"}, include=[])


def test_an_include_list_with_a_config_that_cannot_be_synced_is_refused_by_name() -> None:
    check_include([*ALWAYS_SYNCED, *DEFAULT_SYNCED, "min.insync.replicas", "segment.bytes", "unclean.leader.election.enable"])

    with pytest.raises(LinkEngineError, match=r"no\.such\.config"):
        check_include(["retention.ms", "no.such.config"])
    with pytest.raises(LinkEngineError, match=r"throttled\.replicas: the value names brokers"):
        check_include(["retention.ms", "leader.replication.throttled.replicas"])


def test_a_config_is_synced_while_the_include_list_contains_it() -> None:
    source = {**SOURCE, "min.insync.replicas": "2", "segment.bytes": "1048576", "compression.type": "zstd"}
    include = ["retention.ms", "retention.bytes", "min.insync.replicas", "segment.bytes", "compression.type"]

    values = source_values(source, include=include)
    mirror, change = mirror_configs(source, include=include), configs_at_stop(values, include=include)

    assert {name: values[name] for name in include[2:]} == {name: source[name] for name in include[2:]}
    assert (mirror["min.insync.replicas"], mirror["compression.type"]) == ("2", "producer")
    assert int(mirror["segment.bytes"]) == MIRROR_MAX_MESSAGE_BYTES  # a batch of the source must fit
    assert {name: change.values[name] for name in include[2:]} == {name: source[name] for name in include[2:]}
    assert "min.insync.replicas" not in source_values(source)
    assert {"min.insync.replicas", "segment.bytes"} <= released_names(values, include=None)


def test_a_repeated_stop_changes_only_configs_that_still_have_the_mirrors_value() -> None:
    mirror, change = mirror_configs(SOURCE), configs_at_stop(SOURCE)
    given_back = {**mirror, "retention.ms": SOURCE["retention.ms"]}
    by_a_person = {**mirror, "retention.ms": "5", "compression.type": "lz4"}

    assert still_due(change, mirror=mirror, present=mirror) == lacking(change, present=mirror)
    assert "retention.ms" not in still_due(change, mirror=mirror, present=given_back).names
    assert not {"retention.ms", "compression.type"} & set(still_due(change, mirror=mirror, present=by_a_person).names)
    assert not still_due(change, mirror=mirror, present={})
    assert lacking(change, present={}) == change  # configs that may not be read are unknown, not absent
