"""`visit(place)`: a store to look at, without becoming the owner of a directory. For `rillet stats`, `tail`, `groups`.

    redis://, rediss://, unix://, redis+cluster://      the server
    a directory that a process owns or serves           that process, through its socket
    any other directory                                 a read-only snapshot; no byte is written

`rillet.open` would become the owner if there is none: it would create files, and the program whose directory it is
would attach to an inspection. A snapshot does not follow later changes, so `Visit` opens the place again when needed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from rillet.client.address import Address
from rillet.errors import CommandError, StoreError
from rillet.host.directory import LOG_FOLDER
from rillet.persistence.announcement import Announcement, announced
from rillet.server.unix_socket import answers, unix_url
from rillet.store.backends.read_only import ReadOnlyBackend
from rillet.store.opening import connect, open
from rillet.store.store import Store

Result = TypeVar("Result")
_TRIES = 20  # how often a directory whose owner ended is opened again
_PAUSE = 0.2  # seconds between two tries


def visit(place: str | os.PathLike[str]) -> Store:
    """Open a url, or a directory through the process that has it open, or else read-only.

    NotAStore or StoreError if there is nothing to look at, or the server refuses.
    """
    text = os.fspath(place)
    if "://" in text:
        return connect(text)
    owner = announced(Path(text).absolute())
    for url in () if owner is None else _urls(Path(text).absolute(), owner):
        store = connect(url)
        try:
            # After a kill, another server may use the address of a server.
            if owner is None or not owner.is_server or store.info().get("run_id") == owner.run_id:
                return store
        except StoreError:
            pass  # the owner ended
        except CommandError as error:
            store.close()
            pid = 0 if owner is None else owner.pid
            raise StoreError(f"{text} is served by process {pid} at {url}, which refused: {error}. If it requires a "
                             "password, pass its url: redis://:PASSWORD@host:port") from error  # fmt: skip
        except BaseException:
            store.close()
            raise
        store.close()
    return open(text, readonly=True)


def with_database(url: str, db: int | None) -> str:
    """Return the url with another database; None keeps it."""
    if db is None:
        return url
    address = Address.parse(url, strict=False)
    if db == address.db:
        return url
    base, _, query = url.partition("?")
    if address.unix is not None:
        parts = [one for one in query.split("&") if one and not one.startswith("db=")]
        return f"{base}?{'&'.join([*parts, f'db={db}'])}"
    scheme, _, rest = base.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/{db}" + (f"?{query}" if query else "")


def _urls(folder: Path, owner: Announcement) -> list[str]:
    """Return the urls under which the process that has the directory open can be reached."""
    here = folder / "socket"  # also if the folder was renamed since the owner opened it
    socket = here if not owner.is_server and here.exists() else Path(owner.socket)
    urls = [unix_url(str(socket))] if owner.socket and answers(socket) else []
    return [*urls, owner.url] if owner.url else urls


class Visit:
    """A directory or url that is looked at repeatedly: `store()` shows its present data."""

    def __init__(self, place: str | os.PathLike[str], prepared: Callable[[Store], Store] = lambda store: store) -> None:
        self.place = os.fspath(place)
        self._prepared = prepared  # what is done with a store that was opened, such as SELECT
        self._seen = self._signature()  # before the first look: what changes meanwhile is seen by the next one
        self._store = prepared(visit(place))

    @property
    def is_snapshot(self) -> bool:
        """True if the store is a read-only snapshot of a directory that no process has open."""
        return isinstance(self._store._backend, ReadOnlyBackend)

    def store(self) -> Store:
        """Return the store; a snapshot whose files have changed since, or which has an owner now, is opened again."""
        if self.is_snapshot:
            seen = self._signature()
            if seen != self._seen:
                self.reopen()
                self._seen = seen
        return self._store

    def ask(self, function: Callable[[Store], Result]) -> Result:
        """Return function(store). If the owner of a directory ended, the directory is opened again; StoreError."""
        for _ in range(_TRIES):
            try:
                return function(self.store())
            except StoreError:
                if "://" in self.place:
                    raise
            time.sleep(_PAUSE)
            with contextlib.suppress(StoreError):
                self.reopen()
        return function(self.reopen())

    def reopen(self) -> Store:
        """Open the place again; StoreError."""
        self._store.close()
        self._store = self._prepared(visit(self.place))
        return self._store

    def _signature(self) -> list[tuple[str, int, int]]:
        """Return a value that changes with the files of a directory, and with its owner; the same one for each url."""
        found = []
        for folder in () if "://" in self.place else (Path(self.place), Path(self.place) / LOG_FOLDER):
            with contextlib.suppress(OSError):
                for path in sorted(folder.iterdir()):
                    about = path.stat()
                    found.append((str(path), about.st_size, about.st_mtime_ns))
        return found

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self.close()
