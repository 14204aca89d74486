"""How the pool of copy workers stands, as the worker's last round has noted it."""

from __future__ import annotations

from console.models import CopyWorker


def lacking_workers() -> dict[int, str]:
    """Answer, by number, which copy workers do not run though they shall, and why. One query."""
    return dict(CopyWorker.objects.exclude(trouble="").values_list("number", "trouble"))
