"""Rows of former versions survive their migration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from tests.console.conftest import NOW

BEFORE, AFTER = [("console", "0024_topics_without_cleanup_policy")], [("console", "0025_one_binding_each")]


def migrate(to: list[tuple[str, str]]) -> None:
    MigrationExecutor(connection).migrate(to)


@pytest.fixture
def before(transactional_db: None) -> Iterator[None]:
    """Tables as they were; afterwards those of now, whatever happened."""
    migrate(BEFORE)
    yield
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())


@pytest.mark.usefixtures("before")
def test_of_doubled_role_bindings_the_oldest_stays() -> None:
    apps = MigrationExecutor(connection).loader.project_state(BEFORE).apps
    binding = apps.get_model("console", "RoleBinding")
    user = apps.get_model("auth", "User").objects.create(username="somebody")
    place = apps.get_model("console", "Organization").objects.create(name="Acme", created_at=NOW)
    for who, role in (("first", "DeveloperRead"), ("second", "DeveloperRead"), ("third", "DeveloperManage")):
        binding.objects.create(user=user, role=role, organization=place, granted_at=NOW, granted_by=who)

    migrate(AFTER)

    assert sorted(binding.objects.values_list("granted_by", flat=True)) == ["first", "third"]
