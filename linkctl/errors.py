"""Errors and the exit codes that scripts can check."""

from __future__ import annotations

from enum import IntEnum

from click import ClickException


class Exit(IntEnum):
    """Exit codes; 2 is also click's code for an invalid command line."""

    DONE = 0
    REFUSED = 1  # the service refused the request, or a topic of it
    USAGE = 2
    NOT_FOUND = 3  # no such cluster, link, mirror or topic
    NOT_ALLOWED = 4  # wrong API key, or a role is missing
    UNAVAILABLE = 5  # the service or a part of it does not respond, or there were too many requests: retry


_BY_STATUS = {401: Exit.NOT_ALLOWED, 403: Exit.NOT_ALLOWED, 404: Exit.NOT_FOUND, 429: Exit.UNAVAILABLE}


class LinkctlError(ClickException):
    """A failure with a message for the user; ``exit_code`` is one of ``Exit``."""

    def __init__(self, message: str, *, code: Exit) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click reads it from the instance, but annotates a class attribute


def exit_of(status: int) -> Exit:
    """Return the exit code for the HTTP status of a failed request."""
    return _BY_STATUS.get(status, Exit.UNAVAILABLE if status >= 500 else Exit.REFUSED)
