"""The data of a running server as an RDB file: sent by the server, or saved by it and read from its directory.

    SYNC                  rillet serve, Redis, Valkey: as a replica receives it, from any machine (client.rdb_transfer)
    BGSAVE, then a copy   a server that refuses SYNC; only on its own machine, because the file must be readable here

Both are the state of one moment, written by a child process while the server serves its clients. A cluster has no such
moment; each of its masters has one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rillet.client.address import Address
from rillet.client.connection import Connection
from rillet.client.rdb_transfer import NoTransfer, receive_rdb
from rillet.errors import CommandError, StoreError
from rillet.persistence.disk import REAL, write_all
from rillet.protocol.reply_parser import ReplyError
from rillet.store.sharing.saving import copy_file, save_in_background

Progress = Callable[[int, int | None], None]


class ServerData:
    """A server whose data `receive` writes to a file; `address` must not be that of a cluster."""

    def __init__(self, address: Address, timeout: float) -> None:
        if address.seeds:
            raise StoreError("a cluster has no common state to copy: make a backup of each master (redis://host:port)")
        self.address = address
        self.timeout = timeout
        self.how = ""
        """The way in which the data was received, for a report."""

    def receive(self, path: Path, progress: Progress) -> None:
        """Write the data to an RDB file, and sync it; StoreError, ConnectorError, OSError. O(data)"""
        refusal = ""
        with Connection(self.address, self.timeout) as connection:
            file = REAL.create(path)
            try:
                receive_rdb(connection, lambda data: write_all(file, data), progress)
                file.sync()
            except NoTransfer as error:
                refusal = str(error)
            finally:
                file.close()
        self.how = "SYNC"
        if refusal:
            self._save(path, refusal)
            self.how = "BGSAVE"

    def _save(self, path: Path, refusal: str) -> None:
        """Let the server write its RDB file, and copy it."""
        with Connection(self.address, self.timeout) as connection:

            def execute(*words: str) -> object:
                (reply,) = connection.replies([[word.encode() for word in words]])
                if isinstance(reply, ReplyError):
                    raise CommandError(str(reply))
                return reply

            try:
                folder = connection.call(b"CONFIG", b"GET", b"dir")[1]
                name = connection.call(b"CONFIG", b"GET", b"dbfilename")[1]
                source = Path(os.fsdecode(folder), os.fsdecode(name))
                if not source.is_absolute():  # the owner of a store has no `dir`
                    raise StoreError(f"{self.address} sends no data ({refusal}): give the path of its directory")
                before = _identity(source)
                save_in_background(execute)
            except CommandError as error:
                raise StoreError(f"{self.address} sends no data ({refusal}), and writes none: {error}") from error
            if _identity(source) in (None, before):
                raise StoreError(f"{self.address} sends no data ({refusal}), and {source} is not its file on this "
                                 "machine: run the backup where the server runs")  # fmt: skip
            copy_file(source, path)


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
