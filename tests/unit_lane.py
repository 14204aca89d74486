"""A pytest plugin for ``make test-fast``: selects the unit tests, and blocks sockets and processes while they run.

A unit test needs no program besides this process (no broker, Spark, Redis, PostgreSQL or browser) and no database, whose tests
take most of the time. No list of them exists. Each collected test gets the marker ``unit``, unless

* it has one of the markers in ``NOT_UNIT``, or requests a database, or
* its code, the code of a fixture that it requests, or the code of a test helper that these call names something from a module
  in ``OUTSIDE``, the modules that start programs and open sockets.

The second rule reads names and runs nothing, so it can miss a socket that the product opens. Therefore ``-m unit`` also adds an
audit hook (PEP 578). A test fails when it, or one of its threads, creates an IP socket, resolves a name or starts a process,
even if the code under test handles the error. Such a test needs stand-ins or the marker ``network``. The hook does not see
the sockets that librdkafka and gRPC create in C++; their tests need a cluster or a Spark server, and so a fixture.

One address is refused without a failure: that of the settings' Redis. Much of the console works during an outage of Redis, and
its tests run in one.
"""

from __future__ import annotations

import inspect
import os
import socket
import sys
import traceback
from collections.abc import Callable, Generator, Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any
from urllib.parse import urlsplit

import pytest

NOT_UNIT = ("browser", "django_db", "kafka", "network", "spark")
DATABASE = {"db", "transactional_db", "django_db_setup"}
OUTSIDE = (
    "chaos.environment",
    "chaos.proxy",
    "devcluster",
    "http.server",
    "multiprocessing",
    "playwright",
    "socket",
    "socketserver",
    "subprocess",
    "uvicorn",
)
LOOKUPS = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
PROCESSES = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"}
STACK_DEPTH = 12  # frames shown with an attempt: from the code under test down to the blocked call

Step = Generator[None, Any, Any]


class BlockedError(RuntimeError):
    """A unit test opened a socket, resolved a name or started a process."""


class _Guard:
    """State of the audit hook, which cannot be removed once it is installed."""

    active = False
    attempts: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """Install the audit hook where only unit tests run."""
    if config.option.markexpr == "unit":
        sys.addaudithook(_audit)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the unit tests, before pytest applies ``-m``."""
    for item in items:
        if isinstance(item, pytest.Function) and is_unit(item):
            item.add_marker(pytest.mark.unit)


def is_unit(item: pytest.Function) -> bool:
    """Return whether a test needs no other program, as far as markers and names show."""
    if any(item.get_closest_marker(name) for name in NOT_UNIT) or not DATABASE.isdisjoint(item.fixturenames):
        return False
    fixtures = [definitions[-1].func for definitions in item._fixtureinfo.name2fixturedefs.values()]
    test = getattr(item.obj, "__func__", item.obj)
    return not any(_reaches_outside(function) for function in (test, *fixtures))


@cache  # parametrized tests share their function, and most tests share fixtures
def _reaches_outside(start: Callable[..., Any]) -> bool:
    """Return whether a function, or test code that it uses, names something from a module in ``OUTSIDE``."""
    waiting: list[Any] = [start]
    seen: set[Any] = set()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        outside, test_code = _named_by(function)
        if outside:
            return True
        waiting += test_code
    return False


@cache
def _named_by(function: Any) -> tuple[bool, tuple[Any, ...]]:
    """Return whether a function names something from ``OUTSIDE``, and the test functions and classes that it names."""
    test_code: list[Any] = []
    for value in _named_values(function):
        module = value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", ""))
        if any(module == name or module.startswith(f"{name}.") for name in OUTSIDE):
            return True, ()
        if module.startswith("tests.") and isinstance(value, (FunctionType, type)):
            test_code.append(value)
    return False, tuple(test_code)


def _named_values(function: Any) -> Iterator[Any]:
    """Yield the values of the global names, and of their attributes where these are modules, that a function or class uses."""
    if isinstance(function, type):
        yield from function.__bases__
        for member in vars(function).values():
            yield from _named_values(getattr(member, "fget", None) or getattr(member, "__func__", member))
        return
    inner = inspect.unwrap(function) if callable(function) else function
    inner = getattr(getattr(inner, "hypothesis", None), "inner_test", inner)
    inner = getattr(inner, "__func__", inner)
    if not isinstance(inner, FunctionType):
        return
    names = set(_names(inner.__code__))
    for name in names & inner.__globals__.keys():
        value = inner.__globals__[name]
        yield value
        if isinstance(value, ModuleType) and value.__name__.startswith("tests."):
            yield from (vars(value)[attribute] for attribute in names & vars(value).keys())


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code uses, including those of the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise BlockedError for sockets and processes while a unit test runs, and note the attempt."""
    if not _Guard.active:
        return
    if event in PROCESSES:
        attempt = f"started a process ({event})"
    elif event in LOOKUPS:
        if arguments[:2] == _redis_address():
            raise ConnectionRefusedError("No Redis runs beside unit tests.")
        attempt = f"resolved a name ({arguments[0]!r})"
    elif event == "socket.__new__" and arguments[1] in {socket.AF_INET, socket.AF_INET6}:
        attempt = "opened a socket"
    else:
        return
    stack = "".join(traceback.format_stack(limit=STACK_DEPTH)[:-1])
    _Guard.attempts.append(f"A unit test {attempt}:\n{stack}")
    raise BlockedError(f"A unit test {attempt}. Use stand-ins, or mark the test with pytest.mark.network.")


def _redis_address() -> tuple[str | None, int | None]:
    """Return host and port of the settings' Redis."""
    url = urlsplit(os.environ.get("CLUSTERLINK_REDIS_URL", ""))
    return url.hostname, url.port


def _guarded(item: pytest.Item) -> Step:
    """Run a phase of a test with the guard active; fail it if there were attempts, also those whose error was handled."""
    _Guard.attempts.clear()
    _Guard.active = item.config.option.markexpr == "unit"
    try:
        return (yield)
    finally:
        _Guard.active = False
        if _Guard.attempts:
            pytest.fail(
                "\n".join(_Guard.attempts) + "\nUse stand-ins, or mark the test with pytest.mark.network.", pytrace=False
            )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Step:
    """Guard the fixtures."""
    return (yield from _guarded(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Step:
    """Guard the test."""
    return (yield from _guarded(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Step:
    """Guard the clean-up of fixtures."""
    return (yield from _guarded(item))
