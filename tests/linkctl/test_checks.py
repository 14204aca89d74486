"""``linkctl mirror verify`` and ``linkctl mirror gate``: start, wait, list; the exit code is the result."""

from typing import Any

import pytest

from console.models import GateRun, VerifyRun
from tests.console.api.actors import NOW, Boundary
from tests.linkctl.conftest import Run, read_json, replace_sleep

ON = ("orders", "--link", "from-source")


@pytest.fixture
def finish(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets the result which a worker would store between two polls."""

    def set_result(**changes: Any) -> None:
        model = changes.pop("model")
        replace_sleep(monkeypatch, lambda _seconds: model.objects.update(**changes))

    return set_result


@pytest.mark.parametrize(("status", "code"), [("EQUAL", 0), ("DIFFERENT", 1), ("ERROR", 1)])
def test_the_result_of_a_verification_run_is_the_exit_code(
    run: Run, make_mirror: Any, boundary: Boundary, finish: Any, status: str, code: int
) -> None:
    make_mirror("orders")
    finish(model=VerifyRun, status=status, records_compared=12)

    result = run("mirror", "verify", "start", *ON, "--wait")

    assert (result.exit_code, status in result.stdout) == (code, True)


def test_waiting_for_a_verification_run_ends_after_the_timeout(run: Run, make_mirror: Any, boundary: Boundary) -> None:
    make_mirror("orders")

    result = run("mirror", "verify", "start", *ON, "--wait", "--timeout", "1")

    assert (result.exit_code, "The operation continues" in result.output) == (5, True)


def test_verification_runs_and_coverage_are_listed(run: Run, make_mirror: Any, boundary: Boundary) -> None:
    make_mirror("orders", lags=((10, 4),))
    assert run("mirror", "verify", "start", *ON).exit_code == 0

    assert run("mirror", "verify", "list", *ON).stdout.splitlines()[1].split()[1:4] == ["QUEUED", "unknown", "unknown"]
    assert len(read_json(run("mirror", "verify", "list", *ON, "--json"))["data"]) == 1
    assert run("mirror", "verify", "coverage", *ON).stdout.startswith("PARTITION")


@pytest.mark.parametrize(("status", "code"), [("GREEN", 0), ("RED", 1)])
def test_the_result_of_the_gate_is_the_exit_code(
    run: Run, make_mirror: Any, boundary: Boundary, finish: Any, status: str, code: int
) -> None:
    make_mirror("orders")
    checks = [{"name": "NO_LAG", "state": "FAILED", "detail": "4 records to go."}]
    finish(model=GateRun, status=status, checks=checks, finished_at=NOW)

    result = run("mirror", "gate", "run", *ON, "--wait")

    assert result.exit_code == code
    assert "NO_LAG  FAILED  4 records to go." in result.stdout


def test_a_gate_is_overridden_with_a_reason(run: Run, make_mirror: Any, boundary: Boundary) -> None:
    make_mirror("orders")

    assert run("mirror", "gate", "override", *ON, "--reason", "known and agreed").exit_code == 0

    assert "known and agreed" in run("mirror", "gate", "list", *ON).stdout
