"""InspectedPlace: what is inspected, and the store over it.

    a directory                 through the process that has it open; else its files, read-only
    a directory, with --write   through rillet.open: a separate process becomes the owner if there is none
    redis:// rediss:// unix://  a rillet, Redis or Valkey server, with the url's user and TLS
    redis+cluster://            a cluster; the keys of all its masters

All reads go through `ask`, which runs a function in one of a few threads: a store over a socket has a connection for
each thread. A directory without an owner is a snapshot; when its files change, it is read again.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import rillet
from rillet.errors import CommandError, StoreError
from rillet.inspector.budget import Budget
from rillet.real_time import monotonic
from rillet.store.arguments.encoding import decode
from rillet.store.backends.read_access import Visit, with_database
from rillet.store.store import Store

Result = TypeVar("Result")
DUMP_LIMIT = 1 << 20
"""The most bytes (MEMORY USAGE) of a value that is dumped: DUMP blocks the server."""
_THREADS = 6
_PASSWORD = re.compile(r"//[^@/]*@")
_LOAD_SHARE = 20  # a snapshot that took a second to read is read again after this many seconds at the earliest


class ReadOnlyPlace(Exception):
    """A write was requested, and the inspector was started without --write."""


class InspectedPlace:
    """A directory, a server or a cluster, and the limits under which it is inspected."""

    def __init__(self, where: str | os.PathLike[str], *, write: bool = False, dump_limit: int = DUMP_LIMIT,
                 db: int | None = None) -> None:  # fmt: skip
        self.where = os.fspath(where)
        if "://" in self.where:
            self.where, db = with_database(self.where, db), None
        self._db = db  # of a directory: each thread selects it
        self._selected = threading.local()
        self.write = write
        self.dump_limit = dump_limit
        self.budget = Budget()
        self._guard = threading.RLock()
        self._visit: Visit | None = None
        self._store: Store | None = None
        began = monotonic()
        if write and "://" not in self.where:
            self._store = rillet.open(self.where, owner="process", create=False)
        else:
            self._visit = Visit(self.where)
        self._loaded, self._load_seconds = monotonic(), monotonic() - began
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="rillet-inspect")
        self.server = self._server()

    # -- the store ------------------------------------------------------------------------------------

    def store(self) -> Store:
        """Return the store; a snapshot whose files changed is read again, but not all the time."""
        if self._visit is None:
            assert self._store is not None
            return self._store
        with self._guard:
            if not self._visit.is_snapshot:
                return self._visit._store
            if monotonic() - self._loaded < max(1.0, self._load_seconds * _LOAD_SHARE):
                return self._visit._store
            began = monotonic()
            store = self._visit.store()
            if store is not self._store:
                self._store, self._load_seconds = store, monotonic() - began
            self._loaded = monotonic()
            return store

    def call(self, function: Callable[[Store], Result]) -> Result:
        """Return function(store); if the owner of a directory ended, the directory is opened again once. StoreError."""
        try:
            return function(self._chosen())
        except StoreError:
            if self._visit is None or "://" in self.where:
                raise
            with self._guard:
                self._visit.reopen()
            return function(self._chosen())

    def _chosen(self) -> Store:
        """Return the store; this thread's commands are for the chosen database."""
        store = self.store()
        if self._db is not None and getattr(self._selected, "store", None) is not store:
            store.execute("SELECT", self._db)
            self._selected.store = store
        return store

    async def ask(self, function: Callable[[Store], Result]) -> Result:
        """Return function(store), run in a thread and accounted for as a request."""

        def work() -> Result:
            with self.budget.asking():
                return self.call(function)

        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def allow_write(self) -> None:
        """Raise ReadOnlyPlace unless the inspector may write."""
        if not self.write:
            raise ReadOnlyPlace("the inspector is read-only: start it with --write to change data")

    # -- facts ----------------------------------------------------------------------------------------

    @property
    def is_snapshot(self) -> bool:
        """True for the files of a directory that no process has open."""
        return self._visit is not None and self._visit.is_snapshot

    @property
    def is_cluster(self) -> bool:
        """True for a cluster."""
        return "+cluster://" in self.where

    @property
    def is_rillet(self) -> bool:
        """True for a rillet store or server, whose own commands give exact figures."""
        return self.server.startswith("rillet")

    @property
    def name(self) -> str:
        """The path or url, without a password."""
        return _PASSWORD.sub("//", self.where)

    @property
    def kind(self) -> str:
        """The kind of the place, in a few words."""
        if self.is_cluster:
            return "cluster"
        if "://" in self.where:
            return "server"
        return "directory, read-only" if self.is_snapshot else "directory, attached"

    def _server(self) -> str:
        info = self.call(lambda store: store.execute("INFO", "server"))
        found = dict(line.split(":", 1) for line in decode(info).splitlines() if ":" in line)
        for name in ("rillet", "valkey", "redis"):
            if f"{name}_version" in found:
                return f"{name} {found[f'{name}_version']}"
        return "server"

    def info(self) -> dict[str, Any]:
        """Return what the page shows about the place, for JSON."""
        return {
            "name": self.name, "kind": self.kind, "server": self.server, "write": self.write,
            "rillet": self.is_rillet, "cluster": self.is_cluster, "snapshot": self.is_snapshot,
            "dump_limit": self.dump_limit, "version": rillet.__version__,
        }  # fmt: skip

    def close(self) -> None:
        """Close the store and the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._visit is not None:
            self._visit.close()
        elif self._store is not None:
            self._store.close()


def supports(store: Store, name: str) -> bool:
    """Return whether the server has a command."""
    try:
        return bool(store.execute("COMMAND", "INFO", name)[0])
    except (CommandError, IndexError, TypeError):
        return False
