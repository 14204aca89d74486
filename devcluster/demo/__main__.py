"""`python -m devcluster.demo [--once] [--reload]`: link, mirror and verify real data, and print a report.

Stays up after the report until Ctrl-C; with --once it ends there. Exits with code 1 if a record differs or a step fails.
"""

import argparse
import contextlib
import fcntl
import os
import sys
import threading
from collections.abc import Iterator

from confluent_kafka import KafkaException

from devcluster.demo import report
from devcluster.demo.environment import USER, Demo
from devcluster.demo.linking import DemoFailedError, Linking
from devcluster.demo.progress import Progress
from devcluster.demo.rest import RestError
from devcluster.demo.services import CommandFailedError
from devcluster.parts import VAR, PartsMissingError
from devcluster.processes import ProcessFailedError
from devcluster.signals import interruptible

DIRECTORY = VAR / "demo"
HANDOVER = VAR / "demo.json"
ALIVE_S = 2.0  # interval of the check that the processes are running while the demo stays up
FAILURES = (CommandFailedError, DemoFailedError, KafkaException, PartsMissingError, ProcessFailedError, RestError, TimeoutError)


def main() -> int:
    """Run the demo; return the exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description="The whole product on this machine, on real data.")
    parser.add_argument("--once", action="store_true", help="end after the report")
    parser.add_argument("--reload", action="store_true", help="restart web and worker when their code changes")
    arguments = parser.parse_args()
    try:
        with interruptible(), only_one_demo():
            return run(once=arguments.once, reload=arguments.reload)
    except KeyboardInterrupt:
        return 1 if arguments.once else 0
    except FAILURES as error:
        sys.stderr.write(f"\nThe demo failed: {error}\nLogs are in {DIRECTORY}.\n")
        return 1


def run(*, once: bool, reload: bool) -> int:
    """Start everything, link, mirror and verify, print the report, and stay up unless `once`."""
    progress = Progress()
    with contextlib.ExitStack() as stack:
        demo = stack.enter_context(Demo(DIRECTORY, progress=progress, reload=reload))
        stack.callback(HANDOVER.unlink, missing_ok=True)
        linking = do_main_job(demo, progress=progress)
        report.write_handover(HANDOVER, console=demo.console, key=demo.key, source=demo.source, destination=demo.destination)
        progress.text(report.report(linking, elapsed_s=progress.elapsed_s))
        if once:
            return 0 if linking.equal() else 1
        progress.text(report.invitation(demo.console, linking, user=USER, password=demo.password, key=demo.key))
        progress.text("\nThe demo stays up. Ctrl-C stops it and all of its processes.")
        _stay(demo)
    return 0


def do_main_job(demo: Demo, *, progress: Progress) -> Linking:
    """Link, mirror, wait and verify through the REST API."""
    linking = Linking(demo.rest(), source=demo.source, destination=demo.destination)
    linking.create_link()
    linking.create_mirrors()
    progress.step("a link and three mirror topics are created through the REST API")
    linking.wait_mirrored(progress.tick)
    progress.step(f"all mirrors were ACTIVE with lag 0 after {linking.copy_seconds:.1f} s")
    linking.verify(progress.tick)
    progress.step("Spark has compared all records on both sides")
    return linking


@contextlib.contextmanager
def only_one_demo() -> Iterator[None]:
    """Refuse a second demo of this checkout: it would delete the first demo's directory."""
    VAR.mkdir(exist_ok=True)
    with (VAR / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoFailedError("A demo of this checkout is running already. End it with Ctrl-C first.") from None
        yield


def _stay(demo: Demo) -> None:
    while not threading.Event().wait(ALIVE_S):
        demo.check_alive()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # not sys.exit: after Ctrl-C a thread may still wait for a stopped broker; the watcher kills its processes
    os._exit(code)
