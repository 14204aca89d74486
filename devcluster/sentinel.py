"""A Redis primary with a replica and three sentinels on free ports of this machine, for failover tests.

The sentinels have a password of their own. Nothing is persisted.
"""

import shutil
import tempfile
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from devcluster import parts
from devcluster.ports import LOOPBACK, free_port
from devcluster.processes import Process

SERVICE = "clusterlink"
PASSWORD, SENTINEL_PASSWORD = "servers-p@ss", "sentinels-p@ss"
START_TIMEOUT_S = 60.0
DOWN_AFTER_MS = 1_000


class SentinelRedis:
    """A Sentinel service; also a context manager that starts and stops all of its processes."""

    def __init__(self) -> None:
        """Plan the processes in a temporary folder."""
        self.directory = Path(tempfile.mkdtemp(prefix="sentinel-"))
        self.server_ports = [free_port(), free_port()]
        self.sentinel_ports = [free_port() for _ in range(3)]
        self._processes: dict[int, Process] = {}

    @property
    def url(self) -> str:
        """The address for ``CLUSTERLINK_REDIS_URL``."""
        hosts = ",".join(f"{LOOPBACK}:{port}" for port in self.sentinel_ports)
        passwords = [word.replace("@", "%40") for word in (PASSWORD, SENTINEL_PASSWORD)]
        return f"redis+sentinel://:{passwords[0]}@{hosts}/{SERVICE}/0?sentinel_password={passwords[1]}"

    def start(self) -> Self:
        """Start everything and wait until each sentinel has discovered the replica and the other sentinels.

        A sentinel queries a primary when it starts, and then every ten seconds: the replica is connected before.
        """
        primary, replica = self.server_ports
        shared = f'bind {LOOPBACK}\nrequirepass {PASSWORD}\nmasterauth {PASSWORD}\nsave ""\ndir {self.directory}\n'
        shared += "repl-diskless-sync-delay 0\n"  # by default a primary waits 5 s for further replicas
        self._start(primary, f"{shared}port {primary}\n")
        self._start(replica, f"{shared}port {replica}\nreplicaof {LOOPBACK} {primary}\n")
        self._processes[replica].wait_until(partial(self._is_connected, replica), timeout_s=START_TIMEOUT_S)
        for port in self.sentinel_ports:
            self._start(port, self._sentinel_config(port, primary), "--sentinel")
        for port in self.sentinel_ports:
            self._processes[port].wait_until(partial(self._is_complete, port), timeout_s=START_TIMEOUT_S)
        return self

    def primary(self) -> int:
        """Return the port of the primary, from the first sentinel that responds."""
        for port in self.sentinel_ports:
            with self._sentinel(port) as client:
                return int(client.sentinel_get_master_addr_by_name(SERVICE)[1])
        raise RuntimeError("there are no sentinels")

    def kill(self, port: int) -> None:
        """Kill a server or a sentinel with SIGKILL."""
        self._processes[port].kill()

    def pause(self, port: int) -> None:
        """Freeze a server or a sentinel."""
        self._processes[port].pause()

    def resume(self, port: int) -> None:
        """Continue a frozen server or sentinel."""
        self._processes[port].resume()

    def stop(self) -> None:
        """Stop everything. Safe to repeat."""
        for process in reversed(self._processes.values()):
            process.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        """Start everything."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop everything."""
        self.stop()

    def _start(self, port: int, config: str, *arguments: str) -> None:
        file = self.directory / f"{port}.conf"
        file.write_text(config)
        command = [parts.program("redis-server", package="redis-server"), str(file), *arguments]
        self._processes[port] = Process(command, name=f"redis-{port}", log=self.directory / f"{port}.log")

    def _sentinel_config(self, port: int, primary: int) -> str:
        return (
            f"bind {LOOPBACK}\nport {port}\ndir {self.directory}\nrequirepass {SENTINEL_PASSWORD}\n"
            f"sentinel monitor {SERVICE} {LOOPBACK} {primary} 2\nsentinel auth-pass {SERVICE} {PASSWORD}\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\nsentinel failover-timeout {SERVICE} 5000\n"
        )

    @staticmethod
    def _is_connected(replica: int) -> bool:
        try:
            with redis.Redis(host=LOOPBACK, port=replica, password=PASSWORD, socket_timeout=1.0) as client:
                return bool(client.info("replication")["master_link_status"] == "up")
        except redis.RedisError:
            return False

    def _is_complete(self, port: int) -> bool:
        try:
            with self._sentinel(port) as client:
                state = client.sentinel_master(SERVICE)
        except redis.RedisError:
            return False
        return bool(state["num-slaves"] >= 1 and state["num-other-sentinels"] >= len(self.sentinel_ports) - 1)

    @staticmethod
    def _sentinel(port: int) -> redis.Redis:
        return redis.Redis(host=LOOPBACK, port=port, password=SENTINEL_PASSWORD, socket_timeout=1.0, decode_responses=True)
