"""The arguments that say where the data is, PATH|URL and --db, and how a command opens it.

    looking     opened(options)                  a directory that no process has open is read without changing a byte
    changing    opened(options, write=True)      this process becomes its owner, as by rillet.open
    speaking    talking(options)                 a connection for any commands, also MULTI and SUBSCRIBE
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import rillet
from rillet.client.address import Address
from rillet.client.connection import Connection
from rillet.client.servers import ClientOptions
from rillet.store.backends.read_access import Visit, visit, with_database
from rillet.store.store import Store
from rillet.types.stream.id import StreamID

PLACE = "PATH|URL"
Start = StreamID | timedelta | str  # an ID or a time, an age, "-" or "$"
_AGE = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def place_arguments(parser: argparse.ArgumentParser, help: str = "the directory of a store, or the url of a server",
                    name: str = "place") -> None:  # fmt: skip
    """Add PATH|URL and --db."""
    parser.add_argument(name, metavar=PLACE, help=help)
    db_argument(parser)


def db_argument(parser: argparse.ArgumentParser) -> None:
    """Add --db."""
    parser.add_argument("--db", type=_database, default=None, metavar="N", help="the database (default 0)")


def _database(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected the number of a database, got {text!r}")
    return int(text)


def start_of(text: str) -> StreamID | timedelta:
    """Return the ID of an argument ID|TIME, the first ID of a time, or an age; argparse.ArgumentTypeError."""
    if match := _AGE.fullmatch(text):
        return timedelta(seconds=float(match[1]) * _SECONDS[match[2]])
    with suppress(ValueError):
        return StreamID.parse(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither an ID (1700000000000-0), nor a time in ISO 8601, nor an "
                                         "age such as 30s, 10m, 2h or 1d") from None  # fmt: skip
    seconds = time.timestamp() if time.tzinfo is not None else (time - datetime(1970, 1, 1)).total_seconds()
    return StreamID(max(0, int(seconds * 1000)), 0)


def position_of(text: str) -> Start:
    """Return the value of an argument TIME|ID that may also be "-" or "$"."""
    return text if text in ("-", "$") else start_of(text)


def first_id(store: Store, start: StreamID | timedelta) -> StreamID:
    """Return the first ID of a position; an age counts from the time of the store."""
    if not isinstance(start, timedelta):
        return start
    seconds, microseconds = map(int, store.execute("TIME"))
    return StreamID(max(0, seconds * 1000 + microseconds // 1000 - round(start.total_seconds() * 1000)), 0)


def opened(options: argparse.Namespace, *, write: bool = False, create: bool = False) -> Store:
    """Return the store of the place; StoreError, NotAStore if there is none.

    write: to change it. create: with write, a directory that does not exist is created.
    """
    store = visit(options.place)
    if write and store.url is None:
        store.close()  # a read-only view of a directory that no process has open
        store = rillet.open(options.place, create=create)
    return chosen(store, options.db)


def visited(options: argparse.Namespace) -> Visit:
    """Return a place to look at repeatedly, in the chosen database."""
    return Visit(options.place, lambda store: chosen(store, options.db))


def chosen(store: Store, db: int | None) -> Store:
    """Return a store whose commands in this thread are for a database."""
    if db is not None:
        try:
            store.execute("SELECT", db)
        except BaseException:
            store.close()
            raise
    return store


def server_url(store: Store, options: argparse.Namespace) -> str:
    """Return a url under which a client reaches the data of an opened store, in the chosen database."""
    url = options.place if "://" in options.place else store.url
    if url is None:
        url = store.serve().url
    return with_database(str(url), options.db)


@contextmanager
def talking(options: argparse.Namespace, *, create: bool = False) -> Iterator[tuple[Connection, Address]]:
    """Open a connection to the server, or to the process that owns the directory, which may be this one."""
    with tempfile.TemporaryDirectory(prefix="rillet-") as folder:
        if "://" in options.place:
            with _connected(ClientOptions.from_url(options.place, strict=False).address(), options.db) as both:
                yield both
            return
        with rillet.open(options.place, create=create) as store:
            url = store.url or store.serve(unix=Path(folder) / "socket").url
            with _connected(Address.parse(url, strict=False), options.db) as both:
                yield both


@contextmanager
def _connected(address: Address, db: int | None) -> Iterator[tuple[Connection, Address]]:
    if address.seeds:
        address = replace(address.at(address.seeds[0]), seeds=())
    if db is not None:
        address = replace(address, db=db)
    with Connection(address, None) as connection:
        yield connection, address
