"""The Django app of the project."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """Named after its package; models, migrations and admin live below it."""

    name = "console"
    label = "console"
    verbose_name = "Clusterlink"

    def ready(self) -> None:
        """Connect the receiver that records browser sessions at sign-in."""
        from console.pages import preferences  # noqa: PLC0415 - models are not loaded before

        preferences.connect()
