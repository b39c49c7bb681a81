"""A blocking connection to one server, and the words in which it refuses.

Bulk reading does not go through redis-py: its objects are what a fast reader must not make. A command is packed
by hand; the answer to XRANGE is received straight into its decoder's buffer; every other answer is small and
read with `call`. One connection is used by one thread, strictly in turn: no reply is left behind when the next
kind of request goes out.

An error reply becomes one sentence (`refusal`) that names the server and says what to do about it, so that the first
line of Spark's exception is enough. A password is in none of them.

`endpoint` is the one place that knows what a `path` is.
"""

from __future__ import annotations

import functools
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rillet.client.address import Address, AddressError, Tls
from rillet.columns.receive_buffer import ReceiveBuffer
from rillet.errors import ProtocolError, RilletError, StoreError
from rillet.protocol.reply_parser import INCOMPLETE, ReplyError, ReplyParser
from rillet.spark.options import Options

if TYPE_CHECKING:
    from rillet.store import Store

__all__ = [
    "Address", "AddressError", "Connection", "ConnectionLost", "ConnectorError", "endpoint", "pack",
    "refusal",
    "require_store",
]  # fmt: skip

RECEIVE = 1 << 18  # 256 KiB a system call; larger ones gain nothing


class ConnectorError(RilletError):
    """Reading from or writing to a server failed; the text names the server and what it said."""


class ConnectionLost(ConnectorError):
    """The server went away, or never was there; what was asked may be asked again."""


def pack(*words: bytes) -> bytes:
    """Return a command as RESP."""
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def refusal(address: Address, command: str, line: str) -> str:
    """Return the sentence that says why a server refused a command."""
    prefix = line.partition(" ")[0]
    if command == "AUTH":
        who = "the password" if address.user is None else f"the user {address.user!r} or the password"
        return f"rillet: {address} refused {who}: {line}"
    if prefix == "NOAUTH":
        return f"rillet: {address} asks for a password (in the url or as option password): {line}"
    if prefix == "NOPERM":
        return f"rillet: {address} does not let {address.user or 'the default user'} run {command}: {line}"
    if prefix in ("MOVED", "ASK") and not address.seeds:
        return f"rillet: {address} is a node of a cluster: use redis+cluster:// in the url: {line}"
    if prefix == "LOADING":
        return f"rillet: {address} is still loading its data: {line}"
    if prefix == "MASTERDOWN":
        return f"rillet: {address} is a replica without its master, and answers when that is back: {line}"
    return f"rillet: {address} refused {command}: {line}"


@functools.lru_cache(8)
def _context(tls: Tls) -> ssl.SSLContext:
    """Return what TLS connections are made with; it takes some milliseconds to read the system's authorities."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConnectorError(f"rillet: caFile {tls.ca_file} cannot be used: {error}") from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file is not None:
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file)
        except (OSError, ssl.SSLError) as error:
            files = " with keyFile ".join(filter(None, (tls.cert_file, tls.key_file)))
            raise ConnectorError(f"rillet: certFile {files} cannot be used: {error}") from error
    return context


class Connection:
    """A connected socket; a context manager."""

    replica = False  # whether it leads to a replica that may lag behind; Servers sets it
    lost = False  # whether it broke: of no use any more

    def __init__(self, address: Address, timeout: float) -> None:
        self.address = address
        self._socket = self._connect(timeout)
        self._parser = ReplyParser()
        try:
            if address.user is not None or address.password is not None:
                user = () if address.user is None else (address.user.encode(),)
                self.call(b"AUTH", *user, (address.password or "").encode())
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
                return connected if self.address.tls is None else self._encrypted(connected, self.address.tls)
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

    def _encrypted(self, connected: socket.socket, tls: Tls) -> ssl.SSLSocket:
        """Shake hands; a refusal by either side raises ConnectorError, which no retry changes."""
        try:
            return _context(tls).wrap_socket(connected, server_hostname=self.address.host)
        except ssl.SSLCertVerificationError as error:
            connected.close()
            raise ConnectorError(
                f"rillet: the certificate of {self.address} is not accepted: {error.verify_message} "
                "(caFile names the authority's certificate)"
            ) from error
        except ssl.SSLError as error:
            connected.close()
            raise ConnectorError(f"rillet: TLS with {self.address} failed: {error.reason or error}") from error
        except TimeoutError as error:
            connected.close()
            raise ConnectionLost(f"rillet: TLS with {self.address} failed: nothing is answered to it") from error
        except BaseException:
            connected.close()
            raise

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

    def receive(self, decoder: ReceiveBuffer) -> None:
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
        replies = self.replies(commands)
        self.check(commands, replies)
        return replies

    def replies(self, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """Send commands at once and return their replies; error replies are among them, as ReplyError."""
        self.send_all(commands)
        return [self.reply() for _ in commands]

    def send_all(self, commands: Sequence[Sequence[bytes]]) -> None:
        """Pack and send commands; as many replies are to be read."""
        self.send(b"".join([pack(*words) for words in commands]))

    def check(self, commands: Sequence[Sequence[bytes]], replies: Sequence[Any]) -> None:
        """Raise ConnectorError about the first error reply to some commands."""
        for words, reply in zip(commands, replies, strict=True):
            if isinstance(reply, ReplyError):
                raise ConnectorError(refusal(self.address, words[0].decode(), str(reply)))

    def reply(self) -> Any:
        """Wait for one reply; an error reply is returned, as a ReplyError."""
        try:
            while (reply := self._parser.next()) is INCOMPLETE:
                received = self._socket.recv(RECEIVE)
                if not received:
                    raise self._lost(None)
                self._parser.feed(received)
        except OSError as error:
            raise self._lost(error) from error
        except ProtocolError as error:
            hint = " (does it want TLS? then the url begins with rediss://)" if self.address.tls is None else ""
            raise ConnectorError(
                f"rillet: what {self.address} answers is not Redis's protocol{hint}: {error}"
            ) from error
        return reply

    def _lost(self, error: OSError | None) -> ConnectorError:
        """Return what to raise: ConnectionLost, but for a TLS server that found our certificate wanting."""
        self.lost = True
        if isinstance(error, ssl.SSLError) and error.reason and not isinstance(error, ssl.SSLEOFError):
            return ConnectorError(f"rillet: {self.address} ended TLS: {error.reason} (certFile, keyFile)")
        hint = ""
        if isinstance(error, ssl.SSLEOFError) and self.address.tls is not None and self.address.tls.cert_file is None:
            hint = " (a server that wants a certificate, certFile and keyFile, may end TLS like this)"
        lost = error or "closed by the server"
        return ConnectionLost(f"rillet: the connection to {self.address} was lost: {lost}{hint}")


_stores: dict[str, Store] = {}  # opened by this process, which stays owner or attached until it ends


def endpoint(options: Options) -> Address:
    """Return where the server of these options listens; for a path, the owner's socket inside the store's directory.

    Where nobody owns the store, this process does from now on: the other tasks attach to it.
    """
    if options.url is not None:
        return Address.of(options)
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
