"""The kinds of stores that the model tests. A World is a store of a kind, with the processes that it needs.

    memory     rillet.open()
    owner      rillet.open(directory), and an attached process
    attached   rillet.open(directory) that another process owns, and a third process; the owner may be killed
    process    rillet.open(directory, owner="process"), here and in two processes; the owner process may be killed
    redis      rillet.connect to a redis-server, and another process that is connected to it
    serve      rillet.connect to `rillet serve`, and another process
    restart    the same; the server may be killed, and starts again on its port after a pause

A new kind is a subclass of World in KINDS.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import rillet
from rillet import Store
from tests.judge import redis_binary, running_redis
from tests.model.actors import LIMIT, Plan
from tests.model.operations import GROUP, Keys
from tests.server.harness import running
from tests.server.restarted import RestartedServer
from tests.store.owner_processes import announced_pid, await_end, end, owner_processes

ROOT = Path(__file__).resolve().parents[2]


class Worker:
    """Another process with a store, which runs plans: `python -m tests.model.worker OPENING`."""

    def __init__(self, *opening: Any) -> None:
        folder = str(Path(rillet.__file__).parent.parent)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((folder, str(ROOT)))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.model.worker", repr(opening)], env=environment, cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._expect(b"open\n")

    def _expect(self, line: bytes) -> None:
        assert self.process.stdout is not None
        found = self.process.stdout.readline()
        assert found == line, f"a process of the model ended: {found!r}"

    def begin(self, plan: Plan, journal: Path) -> None:
        """Let the process run a plan."""
        assert self.process.stdin is not None
        pickle.dump((plan, journal), self.process.stdin)
        self.process.stdin.flush()

    def wait(self) -> None:
        """Wait until the plan has run. The process has a watchdog of its own."""
        self._expect(b"done\n")

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()

    def close(self) -> None:
        """End the process, and its store with it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=2 * LIMIT)
        self.process.stdout.close()


class World:
    """A store of a kind for many rounds."""

    kind = ""
    separate_after_fork = False
    kills = 0  # the most kills of the owner in a round

    def __init__(self, folder: Path, source: random.Random) -> None:
        self.folder = folder
        self.stack = ExitStack()
        self.workers: list[Worker] = []
        self.ended = False  # the owner was killed: the next round needs a new world
        with self.stack:
            self.store = self.open(source)
            self.stack = self.stack.pop_all()

    def open(self, source: random.Random) -> Store:
        """Start the processes and return the store."""
        raise NotImplementedError

    def worker(self, *opening: Any) -> None:
        """Start another process."""
        worker = Worker(*opening)
        self.stack.callback(worker.close)
        self.workers.append(worker)

    def prepare(self, keys: Keys) -> None:
        """Create what the actors of a round expect."""
        self.store.stream(keys.stream).group(GROUP).create()

    def kill(self, source: random.Random) -> None:
        """Kill the process that owns the data; return when it has ended, and when the next one has begun."""
        raise NotImplementedError

    def reopened(self) -> Store | None:
        """Close the store and open its files again; None if its kind has no files."""
        return None

    def complaint(self) -> str:
        """Return what the processes of the world wrote about a failure."""
        return ""

    def close(self) -> None:
        """Close the store and end the processes."""
        self.stack.close()


class Memory(World):
    """An in-memory store."""

    kind = "memory"
    separate_after_fork = True

    def open(self, source: random.Random) -> Store:
        """Open a store in memory."""
        return self.stack.enter_context(rillet.open())


class OwnedDirectory(World):
    """A directory that this process owns."""

    kind = "owner"

    def open(self, source: random.Random) -> Store:
        """Open a directory, and let another process attach."""
        options: dict[str, Any] = {"appendfsync": source.choice(("always", "everysec", "everysec"))}
        store = self.stack.enter_context(rillet.open(self.folder / "store", **options))
        self.worker("open", str(self.folder / "store"), options)
        return store

    def reopened(self) -> Store | None:
        """Open the directory again."""
        self.close()
        return rillet.open(self.folder / "store")


class Attached(World):
    """A directory that another process owns."""

    kind = "attached"
    kills = 1

    def open(self, source: random.Random) -> Store:
        """Let another process open a directory, and attach to it, with a third process."""
        options: dict[str, Any] = {"appendfsync": source.choice(("always", "everysec", "everysec"))}
        for _ in range(2):
            self.worker("open", str(self.folder / "store"), options)
        store = self.stack.enter_context(rillet.open(self.folder / "store", **options))
        assert not store.owner
        return store

    def kill(self, source: random.Random) -> None:
        """Kill the owner; a process that is attached becomes the next owner."""
        self.ended = True
        owner = self.workers.pop(0)
        owner.kill()
        owner.process.wait()

    def reopened(self) -> Store | None:
        """Open the directory again."""
        self.close()
        return rillet.open(self.folder / "store")


class OwnerProcess(World):
    """A directory that a separate process owns, which its clients start."""

    kind = "process"
    kills = 3

    def open(self, source: random.Random) -> Store:
        """Start the owner process, and let two other processes attach to it."""
        self.path = self.folder / "store"
        options: dict[str, Any] = {
            "appendfsync": source.choice(("always", "everysec", "everysec")),
            "owner": "process",
            "owner_grace": source.choice((0.0, 0.05)),
        }
        self.stack.callback(await_end, self.folder)
        store = self.stack.enter_context(rillet.open(self.path, **options))
        for _ in range(2):
            self.worker("open", str(self.path), options)
        return store

    def kill(self, source: random.Random) -> None:
        """End the owner process, also one that still starts; a client starts the next one."""
        number = source.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGINT))
        announced = None
        with contextlib.suppress(FileNotFoundError, ValueError):
            announced = announced_pid(self.path)
        for process in owner_processes(self.folder):
            with contextlib.suppress(ProcessLookupError):
                end(process, number if process == announced else signal.SIGKILL)

    def reopened(self) -> Store | None:
        """Open the directory in this process."""
        self.close()
        return rillet.open(self.path)


class Redis(World):
    """A connection to redis-server."""

    kind = "redis"

    def open(self, source: random.Random) -> Store:
        """Start redis-server and connect to it."""
        judge = self.stack.enter_context(running_redis())
        url = f"redis://127.0.0.1:{judge.port}/0"
        self.worker("connect", url, {})
        return self.stack.enter_context(rillet.connect(url))


class Serve(World):
    """A connection to `rillet serve`."""

    kind = "serve"

    def open(self, source: random.Random) -> Store:
        """Start a server and connect to it."""
        loop = source.choice(("uvloop", "asyncio"))
        server = self.stack.enter_context(running(self.folder, "--appendonly", "yes", loop=loop))
        url = f"redis://127.0.0.1:{server.port}/0"
        self.worker("connect", url, {})
        return self.stack.enter_context(rillet.connect(url))


class Restart(World):
    """A connection to `rillet serve`, which is killed and started again."""

    kind = "restart"
    kills = 2

    def open(self, source: random.Random) -> Store:
        """Start a server and connect to it."""
        self.path = self.folder / "data"
        self.path.mkdir()
        self.server = RestartedServer("rillet", self.path)
        self.stack.callback(self._end)
        self.worker("connect", self.server.url, {})
        return self.stack.enter_context(rillet.connect(self.server.url))

    def kill(self, source: random.Random) -> None:
        """End the server, and start it again after a pause."""
        self.server.end(source.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
        time.sleep(source.choice((0.0, 0.05, 0.5)))
        self.server.start()

    def _end(self) -> None:
        self.server.end(signal.SIGTERM)

    def reopened(self) -> Store | None:
        """Open the directory of the server as a store."""
        self.close()
        return rillet.open(self.path)

    def complaint(self) -> str:
        """Return the errors of the server if one has a traceback."""
        errors = self.server.errors()
        return errors if "Traceback" in errors else ""


KINDS: dict[str, type[World]] = {
    one.kind: one for one in (Memory, OwnedDirectory, Attached, OwnerProcess, Redis, Serve, Restart)
}


def available() -> list[str]:
    """Return the names of the kinds that this machine can run."""
    return [name for name in KINDS if name != "redis" or redis_binary() is not None]


def new_world(kind: str, source: random.Random) -> tuple[World, Callable[[], None]]:
    """Return a world in a new folder, and the function that removes the folder."""
    folder = Path(tempfile.mkdtemp(prefix="rillet-model-"))
    return KINDS[kind](folder, source), lambda: shutil.rmtree(folder, ignore_errors=True)


__all__ = ["KINDS", "Worker", "World", "available", "new_world"]
