"""``verify_mirror <cluster id> <link> <topic>``: start a verification run, wait for its result and print it as JSON."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from console.actors import SYSTEM
from console.errors import ConsoleError
from console.mirrors.queries import get_mirror
from console.models import VerifyRun
from console.verification.actions import UNFINISHED, start_verify

POLL_S = 0.5


class Command(BaseCommand):
    help = "Compare a mirror topic with its source; exits with 1 if they differ. Needs a running worker and Spark."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("cluster_id")
        parser.add_argument("link")
        parser.add_argument("topic")
        parser.add_argument("--timeout", type=float, default=600.0, help="seconds to wait for the result")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            mirror = get_mirror(
                cluster_id=options["cluster_id"], link_name=options["link"], mirror_name=options["topic"], by=SYSTEM
            )
            run = start_verify(mirror=mirror, by=SYSTEM, now=timezone.now())
        except ConsoleError as error:
            raise CommandError(error.message) from error
        run = _wait(run, timeout_s=options["timeout"])
        self.stdout.write(json.dumps(_facts(run), indent=2))
        if run.status != VerifyRun.Status.EQUAL:
            raise CommandError(run.error_message or f"The mirror differs from its source: {run.differences} differences.")


def _wait(run: VerifyRun, *, timeout_s: float) -> VerifyRun:
    deadline = time.monotonic() + timeout_s
    while run.status in UNFINISHED:
        if time.monotonic() > deadline:
            raise CommandError(
                f"Verification run {run.pk} is still {run.status} after {timeout_s:.0f} s. Check that a worker is running; the "
                "result will be stored."
            )
        time.sleep(POLL_S)
        run.refresh_from_db()
    return run


def _facts(run: VerifyRun) -> dict[str, Any]:
    counts = ("records_compared", "differences", "not_copied", "bytes_compared", "duration_ms")
    return {name: getattr(run, name) for name in ("status", *counts, "first_differences", "error_message")}
