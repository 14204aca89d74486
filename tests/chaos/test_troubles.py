"""Exceptions that no fault explains are findings."""

from pathlib import Path

from chaos.troubles import crashes

REDIS_AWAY = """12:00 [error] Task reconcile raised unexpected: network:ConnectionError
Traceback (most recent call last):
  File "connection.py", line 1, in connect
    raise err
ConnectionRefusedError: [Errno 111] Connection refused

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "trace.py", line 2, in trace_task
    run()
redis.exceptions.ConnectionError: Error 111 connecting to 127.0.0.1:1.
"""
BUG = """12:01 [error] Task reconcile raised unexpected: KeyError
Traceback (most recent call last):
  File "tasks.py", line 3, in reconcile
    return rows[key]
           ~~~~^^^^^
KeyError: 3
12:02 [info] continues
"""
IN_SPARK = """26/11/25 ERROR Executor: Exception in task 0.0
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "loop.py", line 4, in run
    assert seen
AssertionError

\tat org.apache.spark.api.python.BasePythonRunner
"""
AFTER_REDIS = REDIS_AWAY.replace("redis.exceptions.ConnectionError: Error 111", "ValueError: 7")


def found(directory: Path, text: str) -> list[str]:
    log = directory / "worker.log"
    log.write_text(text)
    return [str(finding) for finding in crashes(log)]


def test_exceptions_of_an_unavailable_redis_are_expected(tmp_path: Path) -> None:
    assert found(tmp_path, REDIS_AWAY) == []


def test_an_unexpected_exception_is_a_finding_with_the_end_of_its_traceback(tmp_path: Path) -> None:
    [bug] = found(tmp_path, REDIS_AWAY + BUG)
    assert bug.startswith("crash: worker.log: ")
    assert bug.endswith("KeyError: 3")
    assert "rows[key]" in bug

    [in_spark] = found(tmp_path, IN_SPARK)
    assert in_spark.endswith("AssertionError")


def test_the_last_exception_of_a_chain_counts_even_at_the_end_of_the_log(tmp_path: Path) -> None:
    [after] = found(tmp_path, AFTER_REDIS)
    assert "ValueError: 7" in after
    assert len(found(tmp_path, BUG.partition("KeyError: 3")[0])) == 1
