"""Batches that decompress to hundreds of megabytes are copied unchanged, and a task's memory stays small."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from linkengine.batches.view import iter_batches
from linkengine.domain.plans import CopyPlan
from tests.linkengine.batches.batchlog import Rec, dense
from tests.linkengine.copyjob.bombs import MEGABYTE, NOW, bomb, two_and_three
from tests.linkengine.copyjob.copying import Copier, Pair, create_pair, create_topic, ends_of, plan_of
from tests.linkengine.copyjob.rawwriter import read_batches_of, send_batches

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
MOST_MB = 256  # of a copy task, including everything that a Python worker has imported


def copy_measured(plan: CopyPlan, directory: Path, *, end: int) -> int:
    """Copy in a process of its own up to ``end``; return its peak memory in MB."""
    (directory / "plan").write_bytes(pickle.dumps([plan]))
    command = [sys.executable, "-m", "tests.linkengine.copyjob.measured_process", str(directory / "plan"), str(end)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    before, peak, rest = done.stdout.splitlines()[-1].split(" ", 2)
    print(f"{before} MB before, {peak} MB at the peak; {rest}")  # noqa: T201 - the documentation quotes this figure
    assert rest.startswith(f"[{end}]"), rest
    return int(peak)


def stored_batches(clusters: Pair, topic: str) -> list[list[tuple[int, bytes]]]:
    """Return (offset, stored records) of each batch, for both sides."""
    return [[(view.base_offset, bytes(batch[61:])) for view, batch in read_batches_of(cluster, topic)] for cluster in clusters]


def test_highly_compressed_batches_are_copied_unchanged_between_merged_small_batches(
    clusters: Pair, topic_name: str, tmp_path: Path
) -> None:
    create_pair(clusters, topic_name)
    small = [dense(0, [Rec(NOW)] * 3, codec=4).encode()] * 5
    bombs = two_and_three()
    assert all(len(batch) < 30_000 for batch in bombs)
    responses = send_batches(clusters[0], topic_name, [*small, *bombs, *small])
    assert {response.error for response in responses} == {0}
    end = ends_of(clusters[0], topic_name)[0]

    peak = copy_measured(plan_of(clusters, topic_name), tmp_path, end=end)

    assert peak < MOST_MB
    source_batches, mirror_batches = stored_batches(clusters, topic_name)
    assert [batch for batch in source_batches if batch[0] in (15, 16, 17)] == [
        batch for batch in mirror_batches if batch[0] in (15, 16, 17)
    ]
    assert len(mirror_batches) < len(source_batches)


def test_highly_compressed_batches_with_append_times_are_rewritten_in_little_memory(
    clusters: Pair, topic_name: str, tmp_path: Path
) -> None:
    create_topic(clusters[0], topic_name, message_timestamp_type="LogAppendTime")
    create_topic(clusters[1], topic_name)
    send_batches(clusters[0], topic_name, [*two_and_three(), dense(0, [Rec(NOW)] * 3).encode()])

    peak = copy_measured(plan_of(clusters, topic_name), tmp_path, end=8)

    assert peak < MOST_MB
    _, mirror_batches = stored_batches(clusters, topic_name)
    assert [offset for offset, _ in mirror_batches] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("stamped_by", ["CreateTime", "LogAppendTime"])
def test_tail_check_of_a_highly_compressed_batch_needs_little_memory(
    clusters: Pair, topic_name: str, stamped_by: str, tmp_path: Path
) -> None:
    create_topic(clusters[0], topic_name, message_timestamp_type=stamped_by)
    create_topic(clusters[1], topic_name)
    send_batches(clusters[0], topic_name, [bomb(*[100 * MEGABYTE] * 3)])
    plan = plan_of(clusters, topic_name)
    with Copier(plan) as copier:
        copier.wait_for_ends({0: 3})
    send_batches(clusters[0], topic_name, [dense(0, [Rec(NOW)]).encode()])

    # this owner's lease does not record where its predecessor left the mirror, so the tail is checked
    peak = copy_measured(plan, tmp_path, end=4)

    assert peak < MOST_MB


def test_batches_of_half_a_million_records_are_copied_and_checked_in_little_memory(
    clusters: Pair, topic_name: str, tmp_path: Path
) -> None:
    create_topic(clusters[0], topic_name, message_timestamp_type="LogAppendTime")
    create_topic(clusters[1], topic_name)
    batch = bomb(*[1] * 500_000)
    send_batches(clusters[0], topic_name, [batch])
    plan = plan_of(clusters, topic_name)
    first = copy_measured(plan, tmp_path, end=500_000)
    send_batches(clusters[0], topic_name, [dense(0, [Rec(NOW)]).encode()])

    second = copy_measured(plan, tmp_path, end=500_001)

    assert max(first, second) < MOST_MB
    assert sum(view.record_count for _, view in iter_batches(memoryview(batch))) == 500_000
