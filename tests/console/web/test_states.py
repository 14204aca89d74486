from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from console.access.permissions import Permission, Role
from console.access.presenters import PERMISSION_WORDS, role_cards
from console.clusters.presenters import _NOT_ATTACHED
from console.mirrors.operation_presenters import VERBS, needs_typed_name, reversibility
from console.models import AuditEvent, VerifyRun
from console.web.badges import (
    AUDIT_BADGES,
    GAP_BADGES,
    LINK_BADGES,
    MIRROR_BADGES,
    PHASE_LABELS,
    VERIFY_BADGES,
    Badge,
    Family,
    mirror_badge,
)
from console.web.errors import ERROR_HELP
from linkengine.domain.errors import ErrorCode
from linkengine.domain.plans import PartitionPhase
from linkengine.domain.states import OPERATIONS, GapReason, LinkState, MirrorEvent, MirrorState

STATIC = Path(__file__).resolve().parents[3] / "static"
ROOT = STATIC.parent
Sign = tuple[str, str, Family]  # icon, label and colour


def tables_of_badges() -> dict[str, list[Any]]:
    """Return the rows of all tables of badges, or of signs, that modules of the console define, by ``module.name``."""
    found: dict[str, list[Any]] = {}
    for path in sorted((ROOT / "console").rglob("*.py")):
        if "Family" not in path.read_text():
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for attribute, value in vars(import_module(name)).items():
            rows = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, tuple) else ()
            if rows and all(
                isinstance(row, Badge) or (isinstance(row, tuple) and row and isinstance(row[-1], Family)) for row in rows
            ):
                found[f"{name}.{attribute}"] = list(rows)
    found["console.web.badges.MIRROR_BADGES"].append(mirror_badge("PENDING_STOPPED", "failover"))
    found["console.clusters.presenters.REPLICATION_BADGES"].append(_NOT_ATTACHED)
    return found


TABLES = tables_of_badges()
ALL_BADGES: list[Badge] = [badge for rows in TABLES.values() for badge in rows if isinstance(badge, Badge)]


def test_all_tables_of_badges_are_found() -> None:
    names = {name.rpartition(".")[2] for name in TABLES}
    of_mirrors = {"MIRROR_BADGES", "GAP_BADGES", "VERIFY_BADGES", "GATE_BADGES", "VERDICT_BADGES", "TOPIC_BADGES"}
    of_links = {"LINK_BADGES", "TASK_BADGES", "STANDING_BADGES", "DRILL_BADGES", "READY_BADGES", "GROUP_BADGES", "ACL_BADGES"}
    others = {"HEALTH_BADGES", "CLUSTER_BADGES", "REPLICATION_BADGES", "OPERATION_BADGES", "AUDIT_BADGES"}
    of_checks = {
        "links.form_presenters._BADGES",
        "verification.presenters._CHECK_BADGES",
        "links.task_presenters._CHECK_BADGES",
    }

    assert of_mirrors | of_links | others <= names
    assert {f"console.{name}" for name in of_checks} <= set(TABLES)


def sign_of(row: Badge | Sign) -> Sign:
    return (row.icon, row.label, row.family) if isinstance(row, Badge) else row


@pytest.mark.parametrize(
    ("table", "codes"),
    [
        (MIRROR_BADGES, MirrorState),
        (LINK_BADGES, LinkState),
        (GAP_BADGES, GapReason),
        (VERIFY_BADGES, VerifyRun.Status.values),
        (AUDIT_BADGES, AuditEvent.Result.values),
        (ERROR_HELP, ErrorCode),
        (VERBS, OPERATIONS),
        (PERMISSION_WORDS, Permission),
    ],
    ids=["mirrors", "links", "gaps", "verification", "audit", "errors", "verbs", "permissions"],
)
def test_table_has_a_row_for_every_code(table: dict[str, object], codes: object) -> None:
    assert set(codes) <= set(table)  # type: ignore[call-overload]


def test_every_partition_phase_has_a_label() -> None:
    assert set(PHASE_LABELS) == {"", *PartitionPhase}


def test_every_role_has_a_card() -> None:
    assert [card["name"] for card in role_cards()] == [role.value for role in Role]


@pytest.mark.parametrize("badge", ALL_BADGES, ids=lambda badge: badge.code)
def test_badge_has_label_meaning_icon_and_family(badge: Badge) -> None:
    assert badge.label
    assert badge.meaning.endswith(".")
    assert badge.icon in (STATIC / "icons.txt").read_text().split()
    assert badge.family in Family


@pytest.mark.parametrize("state", MirrorState)
def test_every_mirror_state_has_a_next_step(state: MirrorState) -> None:
    assert MIRROR_BADGES[state].next_step


def colours_of(theme: str) -> dict[str, tuple[int, int, int]]:
    """Return the colours of a theme by the names of their variables."""
    block = (STATIC / "css" / "theme.css").read_text().split(f'[data-bs-theme="{theme}"] {{')[1].split("}")[0]
    found = re.findall(r"--([a-z-]+): #([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2});", block)
    return {name: (int(red, 16), int(green, 16), int(blue, 16)) for name, red, green, blue in found}


def luminance(colour: tuple[int, int, int]) -> float:
    """Return the relative luminance as WCAG 2 defines it."""
    parts = [part / 255 for part in colour]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("family", Family)
def test_every_family_has_colours_with_enough_contrast_in_both_themes(family: Family, theme: str) -> None:
    colours = colours_of(theme)
    dark, light = sorted((luminance(colours[f"{family}-ink"]), luminance(colours[f"{family}-fill"])))

    assert (light + 0.05) / (dark + 0.05) >= 4.5


@pytest.mark.parametrize("table", TABLES)
def test_states_differ_in_more_than_colour(table: str) -> None:
    """Without colours, as in forced-colors mode, states of different families have different icons and labels."""
    for first, second in combinations(map(sign_of, TABLES[table]), 2):
        icon, label, family = first
        assert label != second[1]
        assert icon != second[0] or family == second[2]


def test_failover_and_promotion_have_different_labels() -> None:
    assert mirror_badge("PENDING_STOPPED", "promote").label == "Promoting"
    assert mirror_badge("PENDING_STOPPED", "failover").label == "Failing over"


@pytest.mark.parametrize(
    ("event", "bidirectional", "typed"),
    [
        (MirrorEvent.PAUSE, False, False),
        (MirrorEvent.RESUME, False, False),
        (MirrorEvent.PROMOTE, False, True),
        (MirrorEvent.PROMOTE, True, False),
        (MirrorEvent.FAILOVER, False, True),
        (MirrorEvent.FAILOVER, True, True),
        (MirrorEvent.DELETE, True, True),
    ],
)
def test_irreversible_operations_require_the_topic_name(event: MirrorEvent, *, bidirectional: bool, typed: bool) -> None:
    assert needs_typed_name(event, bidirectional=bidirectional) is typed


def test_promotion_is_irreversible_on_one_way_links_only() -> None:
    assert "cannot be undone" in reversibility(MirrorEvent.PROMOTE, bidirectional=False)
    assert "can become a mirror" in reversibility(MirrorEvent.PROMOTE, bidirectional=True)
    assert reversibility(MirrorEvent.PAUSE, bidirectional=False) == ""
