"""Genuine Sentinels over a master and two replicas, of Redis and of rillet, and writers that rely on WAIT.

    sentinel, sentinel, sentinel ── watch ──► server 0 (Redis)   server 1 (rillet)   server 2 (rillet)
    writer (redis-py's Sentinel client)  ──► the master: INCR and WAIT 2 in one write, on one connection
    writer (a store, redis+sentinel://)  ──►

**Which writes must survive.** WAIT that replies 2 means that both replicas have the write, so that either may be
promoted. INCR and WAIT travel together: after a reconnect WAIT would be about another connection, and perhaps another
master. On a busy machine the sentinels may depose a master that lives. Its last writes get fewer than two
acknowledgements, and are lost, as Redis documents it.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redis
from redis.sentinel import Sentinel

import rillet
from tests.forked import Forked
from tests.judge import free_port, redis_binary
from tests.replication.nodes import until

SERVICE = "orders"
DOWN_AFTER_MS, FAILOVER_MS = 2000, 5000


def sentinel_command() -> list[str]:
    """Return the start of the command line of a Sentinel."""
    found = shutil.which("redis-sentinel")
    return [found] if found else [str(redis_binary())]


class Deployment:
    """Three servers and three sentinels; `kinds`: redis or rillet for each server. A context manager."""

    def __init__(self, folder: Path, kinds: tuple[str, ...] = ("redis", "rillet", "rillet")) -> None:
        self.folder, self.kinds = folder, kinds
        self.ports = [free_port() for _ in kinds]
        self.watchers = [free_port() for _ in range(3)]
        self.processes: dict[int, subprocess.Popen[Any]] = {}  # by port

    def __enter__(self) -> Deployment:
        try:
            for number in range(3):
                self.start(number, 0 if number else None)
            for port in self.watchers:
                folder = self.folder / f"sentinel-{port}"
                folder.mkdir(parents=True)
                (folder / "s.conf").write_text(
                    f"port {port}\nsentinel monitor {SERVICE} 127.0.0.1 {self.ports[0]} 2\n"
                    f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
                    f"sentinel failover-timeout {SERVICE} {FAILOVER_MS}\n"
                )
                self._run(port, folder, [*sentinel_command(), "s.conf", "--sentinel"])
            until(self._complete, "the sentinels find each other and the replicas")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()

    def _run(self, port: int, folder: Path, command: list[str]) -> None:
        with open(folder / "output", "ab") as output:
            process: subprocess.Popen[Any] = (
                Forked(command[1:], cwd=folder, stdout=output, stderr=output)
                if command[0] == "rillet" else subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
            )  # fmt: skip
            self.processes[port] = process

        def answers() -> bool:
            assert process.poll() is None, f"{command[0]} ended at its start: {(folder / 'output').read_text()}"
            with redis.Redis(port=port, socket_timeout=5) as client:
                return bool(client.ping())

        until(answers, f"{command[0]} at {port} starts")

    def _complete(self) -> bool:
        for port in self.watchers:
            with redis.Redis(port=port, socket_timeout=5) as client:
                facts = client.sentinel_master(SERVICE)
            if (facts["num-other-sentinels"], facts["num-slaves"], facts["flags"]) != (2, 2, "master"):
                return False
        return True

    # -- servers -----------------------------------------------------------------------------------------------

    def start(self, number: int, master: int | None = None) -> None:
        """Start a server, as a replica of another one or alone: the sentinels make it follow."""
        folder, port = self.folder / str(number), self.ports[number]
        folder.mkdir(parents=True, exist_ok=True)
        how = ["rillet", "serve", "--compat", "7.0"] if self.kinds[number] == "rillet" else [str(redis_binary())]
        more = [] if master is None else ["--replicaof", f"127.0.0.1 {self.ports[master]}"]
        self._run(port, folder, [*how, "--port", str(port), "--save", "", "--repl-diskless-sync-delay", "0",
                                 "--logfile", str(folder / "log"), *more])  # fmt: skip

    def kill(self, number: int) -> None:
        """Kill a server."""
        process = self.processes.pop(self.ports[number])
        process.kill()
        process.wait()

    def client(self, number: int) -> redis.Redis:
        """Return a client of one server."""
        return redis.Redis(port=self.ports[number], socket_timeout=10)

    def sentinel(self) -> Sentinel:
        """Return redis-py's client of the sentinels."""
        return Sentinel([("127.0.0.1", port) for port in self.watchers], socket_timeout=5)

    def url(self) -> str:
        """Return the url of the service for a store."""
        return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.watchers)}/{SERVICE}"

    def master(self) -> int:
        """Return the number of the server that most sentinels call the master and that is one, -1 if none."""
        found = []
        for port in self.watchers:
            with contextlib.suppress(redis.RedisError), redis.Redis(port=port, socket_timeout=5) as client:
                found.append(int(client.sentinel_get_master_addr_by_name(SERVICE)[1]))
        best = max(found, key=found.count, default=0)
        if found.count(best) < 2 or best not in self.processes:
            return -1
        with contextlib.suppress(redis.RedisError), redis.Redis(port=best, socket_timeout=5) as client:
            if client.info("replication")["role"] == "master":
                return self.ports.index(best)
        return -1

    def in_sync(self) -> bool:
        """Return whether all servers run, and two replicas have everything that the master has."""
        master = self.master()
        if master < 0 or any(port not in self.processes for port in self.ports):
            return False
        for number in range(3):
            with self.client(number) as client:
                facts = client.info("replication")
            if number == master:
                if facts["connected_slaves"] != 2:
                    return False
            elif facts.get("master_link_status") != "up" or facts["master_port"] != self.ports[master]:
                return False
        return True


class Writer:
    """A thread that writes with WAIT; `acknowledged`: the last number that both replicas have.

    write() sends INCR and WAIT in one write, and returns both replies.
    """

    def __init__(self, name: str, write: Callable[[], tuple[int, int]]) -> None:
        self.name = name
        self.acknowledged = 0
        self.errors: dict[str, int] = {}
        self.problem: BaseException | None = None
        self._write = write
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                try:
                    number, count = self._write()
                    assert number > self.acknowledged, f"{self.name}: {number} after {self.acknowledged}"
                    if count >= 2:
                        self.acknowledged = number
                except (redis.RedisError, rillet.StoreError, rillet.CommandError) as error:
                    kind = type(error).__name__
                    self.errors[kind] = self.errors.get(kind, 0) + 1
                    self._over.wait(0.05)
        except BaseException as error:
            self.problem = error

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def check(self) -> None:
        """Raise the assertion that failed in the thread."""
        if self.problem is not None:
            raise self.problem

    def progresses(self) -> None:
        """Wait until ten more writes are acknowledged."""
        wanted = self.acknowledged + 10

        def written() -> bool:
            self.check()
            return self.acknowledged >= wanted

        until(written, f"{self.name} writes ({self.errors})")


@contextlib.contextmanager
def writers(deployment: Deployment) -> Iterator[list[Writer]]:
    """Write with redis-py's client and with a store, at the same time."""
    client: Any = deployment.sentinel().master_for(SERVICE, socket_timeout=15)

    def by_client() -> tuple[int, int]:
        with client.pipeline(transaction=False) as pipeline:
            number, count = pipeline.incr("by-client").execute_command("WAIT", 2, 3000).execute()
        return int(number), int(count)

    with rillet.connect(deployment.url(), timeout=15) as store:

        def by_store() -> tuple[int, int]:
            number, count = store.execute_many([["INCR", "by-store"], ["WAIT", 2, 3000]])
            for reply in (number, count):
                if isinstance(reply, Exception):
                    raise reply
            return int(number), int(count)

        with Writer("by-client", by_client) as first, Writer("by-store", by_store) as second:
            yield [first, second]
    client.close()


__all__ = ["SERVICE", "Deployment", "Writer", "writers"]
