"""The engine: everything that decides, copies, verifies and synchronises, without Django and without Celery."""
