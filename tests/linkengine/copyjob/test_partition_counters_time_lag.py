"""Measuring up to which time a mirror has everything its source had."""

from linkengine.copyjob.partition_counters import MOST_SAMPLES, CatchUp


def test_time_is_unknown_before_the_first_sample_of_the_source() -> None:
    catch_up = CatchUp()
    catch_up.mirror_at(5)
    assert catch_up.at_ms is None


def test_time_is_that_of_the_sample_not_of_the_copy() -> None:
    catch_up = CatchUp()
    catch_up.source_seen(10, at_ms=1_000)
    catch_up.mirror_at(9)
    assert catch_up.at_ms is None
    catch_up.mirror_at(10)
    assert catch_up.at_ms == 1_000


def test_time_stands_still_while_the_source_is_not_read() -> None:
    catch_up = CatchUp()
    catch_up.source_seen(10, at_ms=1_000)
    catch_up.mirror_at(10)
    catch_up.mirror_at(10)  # the mirror was read again, the source was not
    assert catch_up.at_ms == 1_000


def test_time_advances_while_the_source_is_idle() -> None:
    catch_up = CatchUp()
    for at_ms in (1_000, 2_000):
        catch_up.source_seen(10, at_ms=at_ms)
        catch_up.mirror_at(10)
    assert catch_up.at_ms == 2_000


def test_time_follows_under_load_although_the_source_is_always_ahead() -> None:
    catch_up = CatchUp()
    for step in range(1, 50):
        catch_up.source_seen(step * 10, at_ms=step * 100)
        catch_up.mirror_at(step * 10 - 15)  # two samples behind
        assert catch_up.at_ms is None or catch_up.at_ms == (step - 2) * 100
    assert catch_up.at_ms == 4_700


def test_samples_beyond_the_end_of_a_truncated_source_are_dropped() -> None:
    catch_up = CatchUp()
    catch_up.source_seen(100, at_ms=1_000)
    catch_up.source_seen(50, at_ms=2_000)
    catch_up.mirror_at(50)
    assert catch_up.at_ms == 2_000


def test_too_many_samples_make_the_time_older_and_never_newer() -> None:
    catch_up = CatchUp()
    for step in range(2 * MOST_SAMPLES):
        catch_up.source_seen(step + 1, at_ms=step)
    catch_up.mirror_at(MOST_SAMPLES)
    assert catch_up.at_ms == MOST_SAMPLES - 2
    catch_up.mirror_at(2 * MOST_SAMPLES)
    assert catch_up.at_ms == 2 * MOST_SAMPLES - 1
