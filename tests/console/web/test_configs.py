"""Config values in people's units."""

from __future__ import annotations

import pytest

from console.mirrors.queries import FollowedConfig
from console.web.numbers import config_words, readable_config, synced_config_rows


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention.ms", "604800000", "7 days"),
        ("retention.ms", "-1", "unlimited"),
        ("retention.bytes", "-1", "unlimited"),
        ("retention.ms", "90061001", "1 day 1 hour 1 minute 1 second 1 ms"),
        ("topic.config.sync.ms", "5000", "5 seconds"),
        ("retention.ms", "0", "0 ms"),
        ("max.compaction.lag.ms", "9223372036854775807", "unlimited"),
        ("flush.messages", "9223372036854775807", "unlimited"),
        ("local.retention.ms", "-2", ""),  # the value of retention.ms
        ("local.retention.ms", "-1", ""),
        ("segment.bytes", "1073741824", "1 GiB"),
        ("segment.bytes", "1000000", "about 977 KiB"),
        ("segment.bytes", "1023", ""),
        ("max.message.bytes", "1048588", "about 1.00 MiB"),
        ("link.throughput.limit.bytes.per.second", "1048576", "1 MiB/s"),
        ("link.throughput.limit.bytes.per.second", "100", "100 B/s"),
        ("link.throughput.limit.bytes.per.second", "-1", "no limit"),
        ("link.rpo.objective.ms", "-1", "no objective"),
        ("verify.max.records.per.run", "500000", "500,000"),
        ("min.insync.replicas", "2", ""),
        ("cleanup.policy", "delete", ""),
        ("acl.sync.enable", "true", ""),
        ("cluster.link.prefix", "", ""),
    ],
)
def test_value_is_shown_in_peoples_units(name: str, value: str, words: str) -> None:
    assert config_words(name, value) == words
    assert readable_config(name, value) == (f"{words} ({value})" if words else value)


def test_synced_configs_say_which_differ_on_the_mirror() -> None:
    rows = synced_config_rows(
        [
            FollowedConfig(name="retention.ms", source_value="604800000", mirror_value="-1", always=False),
            FollowedConfig(name="cleanup.policy", source_value="delete", mirror_value="delete", always=True),
        ]
    )

    assert [(row.name, row.source, row.mirror, row.differs) for row in rows] == [
        ("retention.ms", "7 days (604800000)", "unlimited (-1)", True),
        ("cleanup.policy", "delete", "delete", False),
    ]
