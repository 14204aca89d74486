"""Run a storm over the whole product, or with --engine over the copy loop alone; print a summary line.

The exit status is 0 if everything was judged and nothing was found, else 1.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from chaos.environment import TOPICS, ChaosEnvironment, spares
from chaos.loops import LoopEngine
from chaos.product import ProductUnderTest
from chaos.schedule import ENGINE_FAULTS, PRODUCT_FAULTS, Fault, schedule
from chaos.storm import Storm, Verdict
from devcluster.signals import INTERRUPTED, interruptible

SHOWN = 20


def main() -> int:
    """Parse the arguments, run the storm, print the result."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="duration of the faults")
    parser.add_argument("--seed", type=int, default=1, help="determines the faults and their times")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--engine", action="store_true", help="the copy loop alone, without Spark and console")
    kinds.add_argument("--standalone", action="store_true", help="the product on a Spark standalone cluster")
    parser.add_argument("--only", default="", help="only faults whose name contains one of these texts, for example KILL_,CUT_")
    parser.add_argument("--keep", action="store_true", help="keep the directory with all logs")
    arguments = parser.parse_args()
    faults = [fault for fault in faults_of(arguments) if any(part in fault.name for part in arguments.only.split(","))]
    if not faults:
        parser.error(f"argument --only: no fault of this storm has any of these texts in its name: {arguments.only}")
    directory = Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"chaos: logs in {directory}", flush=True)
    try:
        with interruptible():
            verdict = run(directory, arguments, faults)
    except KeyboardInterrupt:
        _remove(directory, keep=arguments.keep)
        return INTERRUPTED
    for finding in verdict.findings[:SHOWN]:
        print(f"finding: {finding}")
    print(f"faults without effect: {verdict.idle()}")
    print(verdict.line())
    status = verdict.status()
    _remove(directory, keep=arguments.keep or status != 0)
    return status


def _remove(directory: Path, *, keep: bool) -> None:
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)


def faults_of(arguments: argparse.Namespace) -> Collection[Fault]:
    """Return the faults of a storm of this kind."""
    if arguments.engine:
        return ENGINE_FAULTS
    return tuple(Fault) if arguments.standalone else PRODUCT_FAULTS


def engine_of(
    environment: ChaosEnvironment, topics: Mapping[str, int], arguments: argparse.Namespace
) -> LoopEngine | ProductUnderTest:
    """Return the system under test, which is not started yet."""
    return (
        LoopEngine(environment, topics)
        if arguments.engine
        else ProductUnderTest(environment, topics, standalone=arguments.standalone)
    )


def run(directory: Path, arguments: argparse.Namespace, faults: Collection[Fault]) -> Verdict:
    """Run a storm."""
    seed, seconds = arguments.seed, arguments.minutes * 60
    spare = spares(max(2, int(seconds // 30)))
    with ChaosEnvironment(directory) as environment:
        topics = {**TOPICS, **spare}
        with engine_of(environment, topics, arguments) as engine:
            scheduled = schedule(seed=seed, seconds=seconds, faults=faults)
            storm = Storm(environment, engine, seed=seed, spare=spare)
            try:
                verdict = storm.run(scheduled, seconds=seconds)
            except BaseException:
                print(engine.log_tails(), file=sys.stderr)
                raise
            if verdict.findings:
                print(engine.log_tails(), file=sys.stderr)
            return verdict


if __name__ == "__main__":
    raise SystemExit(main())
