"""Documented alerts can fire: /metrics exposes every metric, label and value in their expressions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from django.test import Client

from console.models import LinkTask, MirrorTopic
from linkengine.domain.linktasks import TaskName
from tests.console.conftest import NOW

DOCS = Path(__file__).parents[3] / "docs"
WORDS = re.compile("absent|increase|rate|sum|max|min|time|by|on|and|or|unless|without|ignoring")  # keywords of PromQL
TOKEN = re.compile(r'(?P<text>"[^"]*")|(?P<name>[a-zA-Z_:]\w*)|(?P<span>\[\w+\])|(?P<number>\d[\d.e]*)|(?P<sign>=~|!~|!=|\S)')
Exposed = Mapping[str, Mapping[str, set[str]]]  # metric -> label -> values


def documented() -> list[str]:
    text = "".join(path.read_text() for path in sorted((DOCS / "operations").rglob("*.md")))
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    rules = [rule for block in blocks for group in (yaml.safe_load(block) or {}).get("groups", []) for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    return [rule["expr"] for rule in rules]


def mistakes(expression: str, exposed: Exposed) -> list[str]:
    """Return the names in the expression that are not exposed."""
    found, metric, within = [], "", ""
    tokens = [(match.lastgroup, match[0]) for match in TOKEN.finditer(expression)]
    for place, (kind, word) in enumerate(tokens):
        if word in "{}":
            within = metric if word == "{" else ""
        elif kind == "name" and within:
            value = tokens[place + 2][1].strip('"')
            values = exposed.get(within, {}).get(word, set())
            found += [f"{within}{{{word}={part}}}" for part in value.split("|") if part not in values]
        elif kind == "name" and not WORDS.fullmatch(word):
            metric = word
            found += [word] if word not in exposed else []
    return found


@pytest.fixture
def exposed(client: Client, mirror: MirrorTopic) -> Exposed:
    """All metrics when rows of every kind exist."""
    link = mirror.link
    mirror.partitions.update(last_source_seen_at=NOW, caught_up_at=NOW, observed_at=NOW, bytes_per_s=1)
    LinkTask.objects.create(link=link, name=TaskName.TOPIC_CONFIGS, succeeded_at=NOW)
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for line in client.get("/metrics").content.decode().splitlines():
        if line.startswith("# TYPE"):
            found[line.split()[2]]
        elif not line.startswith("#"):
            name, labels, _ = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
            for label, value in re.findall(r'(\w+)="([^"]*)"', labels or ""):
                found[name][label].add(value)
    return found


def test_every_documented_alert_names_what_is_exposed(exposed: Exposed) -> None:
    expressions = documented()

    assert len(expressions) >= 10
    assert {expression: found for expression in expressions if (found := mistakes(expression, exposed))} == {}


def test_every_metric_named_in_the_documents_is_exposed(exposed: Exposed) -> None:
    named = {name for page in DOCS.rglob("*.md") for name in re.findall(r"`(clusterlink_\w+)", page.read_text())}
    named = {re.sub("_(bucket|count|sum)$", "", name) for name in named}  # of a histogram

    assert len(named) >= 8
    assert named - exposed.keys() == set()


@pytest.mark.parametrize(
    ("expression", "mistake"),
    [
        ("clusterlink_sample_age_seconds > 30", ["clusterlink_sample_age_seconds"]),
        ('clusterlink_links{status="FAILED"} > 0', ["clusterlink_links{status=FAILED}"]),
        ('sum by (link) (clusterlink_links{state=~"FAILED|BROKEN"})', ["link", "clusterlink_links{state=BROKEN}"]),
        ("increase(clusterlink_lost_records[5m]) > 0", ["clusterlink_lost_records"]),
        ("increase(clusterlink_lost_records_total[5m]) > 0", []),
    ],
)
def test_names_that_are_not_exposed_are_found(expression: str, mistake: list[str], exposed: Exposed) -> None:
    assert mistakes(expression, exposed) == mistake


def test_alerts_fire_for_a_mirror_without_any_report(client: Client, mirror: MirrorTopic) -> None:
    """Unknown must not look healthy."""
    mirror.partitions.update(last_high_watermark=None)
    values: dict[str, float] = {}
    for line in client.get("/metrics").content.decode().splitlines():
        if line.startswith("clusterlink_") and "{" in line:
            values[line.split("{")[0]] = float(line.rsplit(" ", 1)[1])

    assert values["clusterlink_unknown_age_partitions"] > 0
    assert values["clusterlink_copy_silence_seconds"] > 30
