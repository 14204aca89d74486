"""The Django app of the project, and the configuration of Django's administration."""

from collections.abc import Sequence

from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections
from django.db.migrations.loader import MigrationLoader


class ConsoleConfig(AppConfig):
    """Named after its package; models, migrations and admin live below it."""

    name = "console"
    label = "console"
    verbose_name = "Clusterlink"

    def ready(self) -> None:
        """Connect the receiver that records browser sessions at sign-in; register the check that ``migrate`` runs first."""
        from console.web import request_handling  # noqa: PLC0415 - models are not loaded before

        request_handling.record_sign_ins()
        register(check_migrations, Tags.database)


class AdministrationConfig(AdminConfig):
    """Django's administration with the console's site."""

    default_site = "console.access.credentials.SuperuserSite"


def check_migrations(*, databases: Sequence[str] | None = None, **_options: object) -> list[CheckMessage]:
    """Return an error for each database with migrations of the console that this version does not have.

    Django ignores such migrations. It would regard ``0001_initial`` as applied in a database of an earlier state, whose first
    migration has the same name and creates other tables: ``migrate`` would succeed and change nothing.
    """
    return [_unknown_migrations_error(names) for alias in databases or () if (names := _unknown_migrations(alias))]


def _unknown_migrations(alias: str) -> list[str]:
    loader = MigrationLoader(connections[alias])
    return sorted(name for app, name in loader.applied_migrations.keys() - loader.disk_migrations.keys() if app == "console")


def _unknown_migrations_error(names: Sequence[str]) -> Error:
    return Error(
        f"The database has migrations that this version does not have: {', '.join(names)}.",
        hint="It belongs to a newer version, or to a state before the first release, which cannot be upgraded. Nothing was "
        "changed. Name a new database in CLUSTERLINK_DATABASE_URL, or return to the version that created this one.",
        id="console.E001",
    )
