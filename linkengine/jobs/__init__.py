"""The engine's public interface: plain functions over plans, called from the console's tasks and from scripts.

Each function is safe to run twice. Anticipated failures are raised as LinkEngineError; any other exception is a bug. The
functions use neither database, Celery nor pages, and callers need no other packages of the engine than this and
``linkengine.domain``.
"""

from linkengine.coordination.losses import forget_losses, read_losses
from linkengine.coordination.pool import end_workers, read_workers, write_assignments
from linkengine.coordination.progress import (
    forget_kept,
    has_kept,
    read_kept,
    read_news,
    read_progress,
    read_readings,
    read_renewal,
)
from linkengine.copyjob.spark_job import interrupt_worker, run_copy_worker, setup_worker
from linkengine.jobs.comparing_records import RecordSide, compare_record, read_canary, try_writing
from linkengine.jobs.connectiontests import check_connection, list_source
from linkengine.jobs.exporting import export_records, replay_records
from linkengine.jobs.mirror_topics import (
    check_mirror_topic,
    clear_link,
    clear_mirror,
    delete_diverged,
    delete_mirror_topic,
    deletes_topics,
    set_up_mirror_topic,
)
from linkengine.jobs.probes import (
    check_link,
    failed_tail_checks,
    find_gap_filler,
    find_mirror,
    find_topic,
    list_topics,
    lost_fences,
    probe_cluster,
    promotion_blockers,
    topic_ends,
    transactional_writers,
    unclean_elections,
)
from linkengine.jobs.reversing import (
    close_topic,
    kept_up_to,
    log_ranges,
    open_if_closed,
    open_topic,
    take_over_mirror,
    taken_over_before,
)
from linkengine.jobs.stopping import reopen_mirror, restore_source_configs, stop_mirrors
from linkengine.jobs.syncing import (
    change_acls,
    group_blockers,
    read_acls,
    read_acls_by_broker,
    sync_groups,
    sync_mirror,
    sync_mirrors,
)
from linkengine.jobs.verifying import verify, verify_next

__all__ = [
    "RecordSide",
    "change_acls",
    "check_connection",
    "check_link",
    "check_mirror_topic",
    "clear_link",
    "clear_mirror",
    "close_topic",
    "compare_record",
    "delete_diverged",
    "delete_mirror_topic",
    "deletes_topics",
    "end_workers",
    "export_records",
    "failed_tail_checks",
    "find_gap_filler",
    "find_mirror",
    "find_topic",
    "forget_kept",
    "forget_losses",
    "group_blockers",
    "has_kept",
    "interrupt_worker",
    "kept_up_to",
    "list_source",
    "list_topics",
    "log_ranges",
    "lost_fences",
    "open_if_closed",
    "open_topic",
    "probe_cluster",
    "promotion_blockers",
    "read_acls",
    "read_acls_by_broker",
    "read_canary",
    "read_kept",
    "read_losses",
    "read_news",
    "read_progress",
    "read_readings",
    "read_renewal",
    "read_workers",
    "reopen_mirror",
    "replay_records",
    "restore_source_configs",
    "run_copy_worker",
    "set_up_mirror_topic",
    "setup_worker",
    "stop_mirrors",
    "sync_groups",
    "sync_mirror",
    "sync_mirrors",
    "take_over_mirror",
    "taken_over_before",
    "topic_ends",
    "transactional_writers",
    "try_writing",
    "unclean_elections",
    "verify",
    "verify_next",
    "write_assignments",
]
