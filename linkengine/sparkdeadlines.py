"""A deadline for every call to a Spark Connect server, as a gRPC interceptor; ``sparkclient`` says how long each may take.

Apart from it because importing gRPC is as heavy as importing PySpark, and not every process needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import grpc


class _Details(NamedTuple):
    """What gRPC wants to know of a call; field by field as its documentation lists them."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class Deadlines(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]  # gRPC has no hints
    """Ends calls that take longer than they may."""

    def __init__(self, *, call_s: float, stream_s: Callable[[], float | None]) -> None:
        """``call_s`` is for what is asked and answered at once, ``stream_s`` for a job: seconds left, None without an end."""
        self._call_s, self._stream_s = call_s, stream_s

    def intercept_unary_unary(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        """Ask once, answer once."""
        return continuation(_within(client_call_details, self._call_s), request)

    def intercept_unary_stream(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        """Begin a job, or come back to one that runs."""
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
