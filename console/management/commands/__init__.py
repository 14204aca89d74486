"""Commands of ``manage.py``, for administrators of an installation."""
