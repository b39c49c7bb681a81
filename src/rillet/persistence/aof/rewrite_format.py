"""The writers of the base of a log that is rewritten.

    Forked     a forked child writes the data of the moment of the fork; for a server, which must keep serving
    Spawned    a new process replays the closed files and writes the result; for a library, which must not fork the
               application's process. It starts in milliseconds, whatever the size of the data
    Inline     this process writes the base while the engine waits: the fallback, also used in tests

`start` receives the path of the base and the closed files of the log. When the base is complete and on the disk, the
writer calls `ended` with an error ("" for success) and the kind of the base, "rdb" or "aof", from `poll` or by itself.
`stop` ends the writer early, without calling `ended`.

A Spawned writer writes the data that a restart would load. The times at which consumers were last seen are those of
the logged deliveries (docs/formats/aof.md). The process needs memory for a copy of the data.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import rillet
from rillet.persistence.aof.base import write_base
from rillet.persistence.disk import REAL, Disk
from rillet.persistence.fork import ChildOutcome, Children, ChildReport
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import PARAMETERS, Settings

PURPOSE = "AOF"
BASE, SNAPSHOT = "base", "snapshot"
"""The file that a spawned process writes: the base of a log, or an independent RDB file."""
Ended = Callable[[str, str], None]
# Settings that the spawned process must not receive, or that do not affect a replay.
_PRIVATE = ("requirepass", "unixsocket", "bind", "port", "dir", "logfile", "save", "appendonly", "appendfsync")


class BaseWriter(Protocol):
    """Interface of the writers of a log's base."""

    def start(self, path: Path, sources: list[Path], ended: Ended) -> None:
        """Start to write the base; OSError if that fails."""

    def poll(self) -> None:
        """Check without waiting whether the base is complete; if so, call `ended`."""

    def stop(self) -> None:
        """Stop the writer and return when it has ended."""


class InlineBaseWriter:
    """Writes the base of a log in this process, before `start` returns."""

    def __init__(self, engine: Engine, disk: Disk = REAL) -> None:
        self._engine = engine
        self._disk = disk
        self._ended: Ended | None = None
        self._kind = ""

    def start(self, path: Path, sources: list[Path], ended: Ended) -> None:
        """Write the base. O(data)"""
        self._kind = write_base(path, self._engine, self._disk)
        self._ended = ended

    def poll(self) -> None:
        """Call `ended` once after the base was written."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended("", self._kind)

    def stop(self) -> None:
        """Forget that the base was written, without calling `ended`."""
        self._ended = None


class AdoptedBase(InlineBaseWriter):
    """Makes an RDB file the base of a log: it is moved, not copied. O(1)"""

    def __init__(self, engine: Engine, disk: Disk, file: Path) -> None:
        super().__init__(engine, disk)
        self._file = file

    def start(self, path: Path, sources: list[Path], ended: Ended) -> None:
        """Move the file."""
        self._disk.rename(self._file, path)
        self._kind, self._ended = "rdb", ended


class ForkedBaseWriter:
    """Forks a child that writes the base."""

    def __init__(self, engine: Engine, children: Children) -> None:
        self._engine = engine
        self._children = children
        self._ended: Ended | None = None
        self.copied = 0

    def start(self, path: Path, sources: list[Path], ended: Ended) -> None:
        """Fork a child that writes the base; OSError."""
        engine = self._engine

        def job(report: ChildReport) -> str:
            return write_base(path, engine, progress=report)

        self._ended = ended
        self._children.start(PURPOSE, job, self._over, keys=sum(len(database) for database in engine.databases))

    def _over(self, outcome: ChildOutcome) -> None:
        ended, self._ended = self._ended, None
        if outcome.ok:
            self.copied = outcome.copied
        if ended is not None:
            ended(outcome.error, str(outcome.result))

    def poll(self) -> None:
        """Check whether the child that writes the base has ended."""
        self._children.poll()

    def stop(self) -> None:
        """Kill the child that writes the base."""
        self._ended = None
        if self._children.is_at(PURPOSE):
            self._children.stop()


class SpawnedBaseWriter:
    """Starts a Python process that writes the base, or a snapshot (rillet.persistence.aof.rewrite_process)."""

    def __init__(self, settings: Settings, what: str = BASE) -> None:
        self._settings = settings
        self._what = what
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: Ended | None = None

    @staticmethod
    def possible() -> bool:
        """Return whether a Python process can be started: not if Python is embedded in another program."""
        return Path(sys.executable or "").name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)

    def start(self, path: Path, sources: list[Path], ended: Ended) -> None:
        """Start the process; it ends when this process ends, because its stdin is closed."""
        home = str(Path(rillet.__file__).parent.parent)
        paths = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
        process = subprocess.Popen(
            # -P: do not import modules from the working directory.
            [sys.executable, "-P", "-m", "rillet.persistence.aof.rewrite_process"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": paths}, start_new_session=True,
        )  # fmt: skip
        self._process = process
        request = {"path": str(path), "sources": [str(one) for one in sources], "settings": _texts(self._settings),
                   "modules": self._settings.loaded_modules,
                   "module_settings": _module_texts(self._settings)}  # fmt: skip
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({**request, "what": self._what}).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            self.stop()
            raise
        self._ended = ended

    @property
    def pid(self) -> int:
        """The ID of the process that writes the base, 0 if there is none."""
        return 0 if self._process is None else self._process.pid

    def poll(self) -> None:
        """Check whether the process that writes the base has ended, and read its answer."""
        process = self._process
        if process is None or process.poll() is None:
            return
        assert process.stdout is not None
        said, ended = process.stdout.read(), self._ended
        self._close()
        try:
            answer: dict[str, Any] = json.loads(said)
        except ValueError:
            answer = {"error": f"the process ended with status {process.returncode}"}
        if ended is not None:
            ended(str(answer.get("error", "")), str(answer.get("kind", "")))

    def stop(self) -> None:
        """Kill the process that writes the base."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            self._close()

    def _close(self) -> None:
        process, self._process, self._ended = self._process, None, None
        assert process is not None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def descriptors(self) -> list[int]:
        """Return the file descriptors of the pipes to the process."""
        process = self._process
        pipes = () if process is None else (process.stdin, process.stdout)
        return [pipe.fileno() for pipe in pipes if pipe is not None]

    def forget_in_child(self) -> None:
        """In a forked child, forget the spawned process, because it belongs to the parent."""
        if self._process is not None:
            self._process.returncode = 0
            self._process = None


def _texts(settings: Settings) -> dict[str, str]:
    """Return the settings that differ from their defaults, as text."""
    texts = {}
    for name, parameter in PARAMETERS.items():
        value = getattr(settings, parameter.attribute)
        is_default = value == parameter.default_in(settings.compat)
        if not is_default and not parameter.alias and not parameter.multi and name not in _PRIVATE:
            texts[parameter.attribute] = parameter.show(value)
    return texts


def _module_texts(settings: Settings) -> dict[str, str]:
    """Return the settings of modules as text, by their full names."""
    parameters = settings.module_parameters.values()
    return {entry.name: entry.show(getattr(settings, entry.attribute)) for entry in parameters}
