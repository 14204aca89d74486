"""What can go wrong, each with the exit code that scripts look at."""

from __future__ import annotations

from enum import IntEnum

from click import ClickException


class Exit(IntEnum):
    """Exit codes; 2 is click's own, for a command line that cannot be read."""

    DONE = 0
    REFUSED = 1  # the service refuses it, or one topic of several
    USAGE = 2
    NOT_FOUND = 3  # no such cluster, link, mirror or topic
    NOT_ALLOWED = 4  # wrong API key, or a role is missing
    UNAVAILABLE = 5  # nobody answers, something behind the service does not, or too many requests: try again


_BY_STATUS = {401: Exit.NOT_ALLOWED, 403: Exit.NOT_ALLOWED, 404: Exit.NOT_FOUND, 429: Exit.UNAVAILABLE}


class LinkctlError(ClickException):
    """A failure told in one sentence; ``exit_code`` is one of ``Exit``."""

    def __init__(self, message: str, *, code: Exit) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click reads the instance's, whatever its hints say


def exit_of(status: int) -> Exit:
    """Answer the exit code of an HTTP status that is no success."""
    return _BY_STATUS.get(status, Exit.UNAVAILABLE if status >= 500 else Exit.REFUSED)
