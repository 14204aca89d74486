"""The status of the copy workers as of the last reconcile pass, for /readyz and Prometheus."""

from __future__ import annotations

from console.models import CopyWorker

Sample = tuple[dict[str, str], float]


def lacking_workers() -> dict[int, str]:
    """Return the reasons, by number, of the copy workers that should run but do not. One query."""
    return dict(CopyWorker.objects.exclude(trouble="").values_list("number", "trouble"))


def worker_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Return (name, type, help, samples) of each metric. One query."""
    troubles = list(CopyWorker.objects.values_list("trouble", flat=True))
    samples: list[Sample] = [
        ({"running": "yes"}, float(troubles.count(""))),
        ({"running": "no"}, float(sum(bool(trouble) for trouble in troubles))),
    ]
    return [("clusterlink_copy_workers", "gauge", "Copy workers of the pool, by whether they run.", samples)]
