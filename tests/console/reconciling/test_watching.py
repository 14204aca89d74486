from __future__ import annotations

from datetime import timedelta

from console.models import ClusterLink, LinkConfig, MirrorTopic, VerifyWatch
from console.reconciling import coverage
from linkengine.domain.states import MirrorState
from tests.console.conftest import NOW, MakeMirror

MINUTE = timedelta(minutes=1)


def configure(link: ClusterLink, **configs: str) -> None:
    for name, value in configs.items():
        LinkConfig.objects.create(link=link, name=name.replace("_", "."), value=value)


def test_first_comparison_follows_after_one_interval(mirror: MirrorTopic) -> None:
    coverage.ensure_watches(now=NOW)
    coverage.ensure_watches(now=NOW + MINUTE)

    assert VerifyWatch.objects.get().next_at == NOW + MINUTE
    assert coverage.next_due_watch(now=NOW) is None
    due = coverage.next_due_watch(now=NOW + MINUTE)
    assert due is not None
    assert due.mirror == mirror


def test_mirror_that_has_waited_longest_is_next(make_mirror: MakeMirror) -> None:
    late, early = make_mirror("late"), make_mirror("early")
    VerifyWatch.objects.create(mirror=late, next_at=NOW)
    VerifyWatch.objects.create(mirror=early, next_at=NOW - MINUTE)

    due = coverage.next_due_watch(now=NOW)

    assert due is not None
    assert due.mirror == early


def test_next_comparison_is_due_after_an_interval(mirror: MirrorTopic) -> None:
    coverage.ensure_watches(now=NOW)
    coverage.note_attempt(mirror=mirror, started_at=NOW, now=NOW)

    assert coverage.next_due_watch(now=NOW) is None
    assert coverage.next_due_watch(now=NOW + coverage.watch_interval(mirror.link)) is not None


def test_stopped_mirrors_and_disabled_links_are_not_compared(
    link: ClusterLink, make_mirror: MakeMirror, mirror: MirrorTopic
) -> None:
    stopped = make_mirror("stopped", MirrorState.STOPPED)
    for watched in (mirror, stopped):
        VerifyWatch.objects.create(mirror=watched, next_at=NOW)
    configure(link, verify_continuous_enable="false")

    assert coverage.next_due_watch(now=NOW) is None


def test_links_without_continuous_verification_cost_no_rows(link: ClusterLink, mirror: MirrorTopic) -> None:
    configure(link, verify_continuous_enable="false")

    coverage.ensure_watches(now=NOW)
    assert not VerifyWatch.objects.exists()

    LinkConfig.objects.filter(link=link, name="verify.continuous.enable").update(value="true")
    coverage.ensure_watches(now=NOW)
    assert VerifyWatch.objects.get().mirror == mirror


def test_slow_comparison_is_followed_by_a_long_pause_and_an_error_is_stored(mirror: MirrorTopic) -> None:
    coverage.ensure_watches(now=NOW)

    coverage.note_attempt(mirror=mirror, started_at=NOW, now=NOW + MINUTE, error="No Spark.")

    watch = VerifyWatch.objects.get()
    assert (watch.next_at, watch.duration_ms, watch.error_message) == (NOW + 5 * MINUTE, 60_000, "No Spark.")
    coverage.note_attempt(mirror=mirror, started_at=NOW, now=NOW)
    watch.refresh_from_db()
    assert (watch.next_at, watch.error_message) == (NOW + MINUTE, "")
