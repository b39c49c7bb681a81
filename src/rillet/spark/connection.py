"""A blocking connection to a server, and where the server is.

Bulk reading does not go through redis-py: its objects are what a fast reader must not make. A command is packed
by hand; the answer to XRANGE is received straight into a RangeDecoder's buffer; every other answer is small and
read with `call`. One connection is used by one thread, strictly in turn: no reply is left behind when the next
kind of request goes out.

`endpoint` is the one place that knows what a `path` is.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from rillet.columns.resp import RangeDecoder
from rillet.errors import RilletError, StoreError
from rillet.protocol.replies import INCOMPLETE, ReplyError, ReplyParser
from rillet.spark.options import OptionError, Options

if TYPE_CHECKING:
    from rillet.store import Store

RECEIVE = 1 << 18  # 256 KiB a system call; larger ones gain nothing


class ConnectorError(RilletError):
    """Reading from or writing to a server failed; the text names the server and what it said."""


class ConnectionLost(ConnectorError):
    """The server went away, or never was there; what was asked may be asked again."""


@dataclass(frozen=True)
class Address:
    """Where a server listens, and as whom to speak to it."""

    host: str = "127.0.0.1"
    port: int = 6379
    unix: str | None = None
    db: int = 0
    user: str | None = None
    password: str | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read redis://[user:password@]host[:port][/db] or unix://[user:password@]/path[?db=n]."""
        parts = urlsplit(url)
        user = unquote(parts.username) if parts.username else None
        password = unquote(parts.password) if parts.password else None
        try:
            if parts.scheme == "unix" and parts.path:
                db = int(parse_qs(parts.query).get("db", ["0"])[0])
                return cls(unix=unquote(parts.path), db=db, user=user, password=password)
            if parts.scheme == "redis" and parts.hostname:
                db = int(parts.path.strip("/") or parse_qs(parts.query).get("db", ["0"])[0])
                return cls(parts.hostname, parts.port or 6379, db=db, user=user, password=password)
        except ValueError:
            pass  # the port or the database is no number
        raise OptionError("rillet: url is neither redis://[user:password@]host[:port][/db] nor unix:///path[?db=n]")

    def __str__(self) -> str:
        """Return the address for messages: without the password."""
        place = self.unix if self.unix is not None else f"{self.host}:{self.port}"
        return f"{place} (database {self.db})" if self.db else place


def pack(*words: bytes) -> bytes:
    """Return a command as RESP."""
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


class Connection:
    """A connected socket; a context manager."""

    def __init__(self, address: Address, timeout: float) -> None:
        self.address = address
        self._socket = self._connect(timeout)
        self._parser = ReplyParser()
        try:
            if address.password is not None:
                user = () if address.user is None else (address.user.encode(),)
                self.call(b"AUTH", *user, address.password.encode())
            if address.db:
                self.call(b"SELECT", b"%d" % address.db)
        except BaseException:
            self.close()
            raise

    def _connect(self, timeout: float) -> socket.socket:
        try:
            if self.address.unix is None:
                connected = socket.create_connection((self.address.host, self.address.port), timeout)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connected
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connected.settimeout(timeout)
            try:
                connected.connect(self.address.unix)
            except OSError:
                connected.close()
                raise
            return connected
        except OSError as error:
            raise ConnectionLost(f"rillet: no server answers at {self.address}: {error}") from error

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, data: bytes | bytearray) -> None:
        """Send packed commands."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from error

    def receive(self, decoder: RangeDecoder) -> None:
        """Wait for more of the reply and put it into the decoder's buffer."""
        try:
            with decoder.space(RECEIVE) as room:
                received = self._socket.recv_into(room)
        except OSError as error:
            raise self._lost(error) from error
        if not received:
            raise self._lost(None)
        decoder.filled(received)

    def call(self, *words: bytes) -> Any:
        """Send one command and return its reply; an error reply raises ConnectorError."""
        return self.calls([words])[0]

    def calls(self, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """Send commands at once and return their replies; the first error reply raises ConnectorError."""
        self.send(b"".join([pack(*words) for words in commands]))
        replies = [self.reply() for _ in commands]
        for words, reply in zip(commands, replies, strict=True):
            if isinstance(reply, ReplyError):
                raise ConnectorError(f"rillet: {self.address} refused {words[0].decode()}: {reply}")
        return replies

    def reply(self) -> Any:
        """Wait for one reply; an error reply is returned, as a ReplyError."""
        while (reply := self._parser.next()) is INCOMPLETE:
            try:
                received = self._socket.recv(RECEIVE)
            except OSError as error:
                raise self._lost(error) from error
            if not received:
                raise self._lost(None)
            self._parser.feed(received)
        return reply

    def _lost(self, error: OSError | None) -> ConnectionLost:
        return ConnectionLost(f"rillet: the connection to {self.address} was lost: {error or 'closed by the server'}")


_stores: dict[str, Store] = {}  # opened by this process, which stays owner or attached until it ends


def endpoint(options: Options) -> Address:
    """Return where the server of these options listens; for a path, the owner's socket inside the store's directory.

    Where nobody owns the store, this process does from now on: the other tasks attach to it.
    """
    if options.url is not None:
        return Address.parse(options.url)
    import rillet.store

    path = str(options.path)
    if path not in _stores:
        _stores[path] = rillet.store.open(path)
    try:
        _stores[path].execute("PING")
    except StoreError:  # the former owner has ended: attach to the next one, or become it
        _stores[path].execute("PING")
    found = _stores[path].socket
    if found is None:
        raise ConnectionLost(f"rillet: the store {path} has no owner that listens")
    return Address(unix=found)


def require_store(options: Options) -> None:
    """Raise ConnectorError where a path names no directory: opening it would make an empty store."""
    if options.path is not None and not Path(options.path).is_dir():
        raise ConnectorError(f"rillet: there is no store at {options.path}")
