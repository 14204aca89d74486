"""The Django app of the project."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """Named after its package; models, migrations and admin live below it."""

    name = "console"
    label = "console"
    verbose_name = "Clusterlink"
