"""Migrations: what each of them must meet, and databases that this version cannot migrate."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from console.apps import check_migrations


def test_migrations_form_one_line() -> None:
    """Two branches may each add a migration; the second to be merged has to follow the first."""
    loader = MigrationLoader(None)

    assert len(loader.graph.leaf_nodes("console")) == 1


def test_every_operation_of_a_migration_can_be_reversed() -> None:
    migrations = [migration for (app, _), migration in MigrationLoader(None).disk_migrations.items() if app == "console"]

    assert migrations
    assert [str(step) for migration in migrations for step in migration.operations if not step.reversible] == []


@pytest.mark.django_db
def test_migrate_refuses_a_database_with_unknown_migrations() -> None:
    """The first migration of an earlier state had the name of today's and created other tables."""
    MigrationRecorder(connection).record_applied("console", "0002_start_spec")

    with pytest.raises(SystemCheckError, match="this version does not have: 0002_start_spec"):
        call_command("migrate", skip_checks=False, verbosity=0)


@pytest.mark.django_db
def test_database_of_this_version_passes_the_check() -> None:
    assert check_migrations(databases=["default"]) == []
