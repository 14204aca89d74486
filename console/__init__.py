"""The Django project and its single app: models, actions of users, REST, pages, and the Celery tasks that call the engine."""

from console.celery import app as celery_app

__all__ = ["celery_app"]
