"""A gRPC interceptor that sets a deadline for every call to a Spark Connect server; ``sparkclient`` sets the times.

A module of its own because importing gRPC takes as long as importing PySpark, and not every process needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import grpc


class _Details(NamedTuple):
    """The fields that gRPC requires of call details, in the order of its documentation."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class Deadlines(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]  # gRPC has no hints
    """Sets deadlines, so that calls that take longer fail."""

    def __init__(self, *, call_s: float, stream_s: Callable[[], float | None]) -> None:
        """``call_s`` is for short calls, ``stream_s`` returns the seconds left for a job, None without a limit."""
        self._call_s, self._stream_s = call_s, stream_s

    def intercept_unary_unary(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        """Set the deadline of a unary call."""
        return continuation(_within(client_call_details, self._call_s), request)

    def intercept_unary_stream(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        """Set the deadline of a call that starts a job or attaches to a running job."""
        return continuation(_within(client_call_details, self._stream_s()), request)


def _within(call: Any, timeout_s: float | None) -> _Details:
    return _Details(
        method=call.method,
        timeout=timeout_s if call.timeout is None else call.timeout,
        metadata=call.metadata,
        credentials=call.credentials,
        wait_for_ready=getattr(call, "wait_for_ready", None),
        compression=getattr(call, "compression", None),
    )
