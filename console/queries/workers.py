"""How the pool of copy workers stands, as the worker's last round has noted it: for /readyz and for Prometheus."""

from __future__ import annotations

from console.models import CopyWorker

Sample = tuple[dict[str, str], float]


def lacking_workers() -> dict[int, str]:
    """Answer, by number, which copy workers do not run though they shall, and why. One query."""
    return dict(CopyWorker.objects.exclude(trouble="").values_list("number", "trouble"))


def worker_samples() -> list[tuple[str, str, str, list[Sample]]]:
    """Answer (name, kind, text, samples). One query."""
    lacking = list(CopyWorker.objects.values_list("trouble", flat=True))
    samples: list[Sample] = [
        ({"running": "yes"}, float(lacking.count(""))),
        ({"running": "no"}, float(sum(bool(one) for one in lacking))),
    ]
    return [("clusterlink_copy_workers", "gauge", "Copy workers of the pool, by whether they run.", samples)]
