"""Copiers as processes that a test may kill: a parent that has imported everything forks one per line of its input.

Input: "<lease ttl in ms>"; output: the process id of the copier just started. The plan comes pickled in a file.
"""

import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path

from linkengine.coordination.lease import RedisLease
from linkengine.coordination.orders import RedisOrders
from linkengine.coordination.progress import RedisProgress
from linkengine.copyjob.loop import run_task
from linkengine.domain.plans import CopyPlan


def copy(plan: CopyPlan) -> None:
    run_task(
        plan,
        plan.assignments,
        lease=RedisLease(plan.redis_url, ttl_ms=plan.tuning.lease_ttl_ms),
        orders=RedisOrders(plan.redis_url, plan.link_id, plan.signer),
        progress=RedisProgress(plan.redis_url, plan.link_id, plan.signer),
    )


def main(plan_file: str) -> None:
    plan: CopyPlan = pickle.loads(Path(plan_file).read_bytes())
    for number, _ in enumerate(sys.stdin):
        child = os.fork()
        if child == 0:
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the parent's answers are read from there, logs are not
            copy(replace(plan, slice_id=f"{plan.slice_id}-{number}"))
            os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
