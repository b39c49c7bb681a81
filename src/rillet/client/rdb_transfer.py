r"""Receives the data of a running server as an RDB file, as a replica would (`redis-cli --rdb`).

    client   REPLCONF capa eof   REPLCONF rdb-only 1   SYNC
    server   \n \n ...                      while a child process prepares the file
             $1234\r\n<1234 bytes>          from a file
             $EOF:<40 bytes>\r\n<data><the same 40 bytes>       directly from the child, which does not know its size

The data is that of one moment, and the server serves its clients meanwhile: it forks a child, as for BGSAVE. An option
of REPLCONF that an old server does not know has no effect. The connection ends with the transfer.
"""

from __future__ import annotations

from collections.abc import Callable

from rillet.client.connection import Connection
from rillet.client.errors import ConnectorError
from rillet.errors import StoreError
from rillet.protocol.command_parser import pack_command
from rillet.protocol.reply_parser import ReplyError

_MARK = 40  # bytes of the mark at the end of a transfer without a size
_LONGEST_LINE = 4096


class NoTransfer(StoreError):
    """The server refuses to send its data."""


def receive_rdb(connection: Connection, write: Callable[[bytes], object],
                progress: Callable[[int, int | None], None] = lambda done, total: None) -> int:  # fmt: skip
    """Write the server's data with `write`, and return the number of bytes; the connection cannot be used again.

    progress(bytes done, bytes in total; None: unknown). NoTransfer: the server refused. ConnectorError: it was lost.
    """
    for reply in connection.replies([[b"REPLCONF", b"capa", b"eof"], [b"REPLCONF", b"rdb-only", b"1"]]):
        if isinstance(reply, ReplyError) and str(reply).startswith(("NOPERM", "NOAUTH", "LOADING")):
            raise NoTransfer(str(reply))
    connection.send(pack_command([b"SYNC"]))
    line, data = _header(connection)
    if line.startswith(b"-"):
        raise NoTransfer(line[1:].decode("utf-8", "replace"))
    if line.startswith(b"$EOF:") and len(line) == 5 + _MARK:
        return _until_mark(connection, data, line[5:], write, progress)
    if line.startswith(b"$") and line[1:].isdigit():
        return _of_size(connection, data, int(line[1:]), write, progress)
    raise ConnectorError(f"rillet: {connection.address} answered SYNC with {line[:80]!r}")


def _header(connection: Connection) -> tuple[bytes, bytes]:
    """Return the line that announces the data, and the bytes after it."""
    data = b""
    while True:
        data = (data + connection.receive_bytes()).lstrip(b"\n")
        line, found, rest = data.partition(b"\n")
        if found:
            return line.rstrip(b"\r"), rest
        if len(data) > _LONGEST_LINE:
            raise ConnectorError(f"rillet: {connection.address} answered SYNC with {data[:80]!r}")


def _of_size(connection: Connection, data: bytes, size: int, write: Callable[[bytes], object],
             progress: Callable[[int, int | None], None]) -> int:  # fmt: skip
    done = 0
    while True:
        data = data[: size - done]
        write(data)
        done += len(data)
        progress(done, size)
        if done == size:
            return done
        data = connection.receive_bytes()


def _until_mark(connection: Connection, data: bytes, mark: bytes, write: Callable[[bytes], object],
                progress: Callable[[int, int | None], None]) -> int:  # fmt: skip
    done = 0
    while (end := data.find(mark)) < 0:
        sure = max(0, len(data) - _MARK)  # the rest may be the beginning of the mark
        write(data[:sure])
        done += sure
        progress(done, None)
        data = data[sure:] + connection.receive_bytes()
    write(data[:end])
    return done + end
