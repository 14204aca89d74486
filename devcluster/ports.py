"""Free TCP ports on 127.0.0.1 that stay free while a program restarts.

Ports that the kernel assigns (bind to port 0) are in the range that it also uses for outgoing connections, so such a port can
be taken while a killed broker is down. Ports below that range cannot.
"""

import secrets
import socket

LOOPBACK = "127.0.0.1"
FIRST_PORT = 12_000
END_PORT = 32_000  # Linux assigns ports from 32,768 upwards
ATTEMPTS = 200

_given: set[int] = set()


def free_port() -> int:
    """Return a port that is not in use and that this process has not returned before."""
    for _ in range(ATTEMPTS):
        # Not `random`: test runs with the same seed would all try the same ports.
        port = FIRST_PORT + secrets.randbelow(END_PORT - FIRST_PORT)
        if port not in _given and _can_bind(port):
            _given.add(port)
            return port
    raise RuntimeError(f"No free port between {FIRST_PORT} and {END_PORT} after {ATTEMPTS} attempts; stop some programs.")


def preferred_port(port: int) -> int:
    """Return this port if it is free, else another free port."""
    return port if _can_bind(port) else free_port()


def accepts(port: int, *, timeout_s: float = 0.5) -> bool:
    """Return whether connections to this port are accepted."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=timeout_s):
            return True
    except OSError:
        return False


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
