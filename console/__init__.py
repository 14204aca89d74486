"""The Django project and its one app: rows, decisions of people, REST, pages and the tasks that call the engine."""

from console.celery import app as celery_app

__all__ = ["celery_app"]
