"""Entries from one server to another as the bytes they came in: no value becomes an object.

An entry of XRANGE's reply ends with the words that XADD takes, in the form that XADD takes them:

    reply     *2 $15 1526919030474-0   *4 $1 a $1 1 $1 b $1 2
                      ID                  └──────┬──────┘
    command   *7 $4 XADD $6 events $15 1526919030474-0  $1 a $1 1 $1 b $1 2

So names that are no UTF-8, and fields that occur twice, arrive as they are. The walk over the lengths is all that there
is to do: about a third of a microsecond a word. A digest is of the same bytes; every server writes them alike, so two
streams with one digest hold the same entries.

`Pages` reads ahead: the next page is asked for as soon as the last ID of one is known. Its connections are its own,
since replies are under way on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from rillet.protocol.replies import ReplyError
from rillet.spark.connection import ConnectorError, pack
from rillet.spark.options import Options
from rillet.spark.pipelines.pending import after
from rillet.spark.servers import Servers
from rillet.types.stream_id import StreamID

PAGE = 1000
CHUNK = 1 << 20


class RawEntry(NamedTuple):
    """An entry: its ID, how many words its fields and values are, and those as RESP."""

    id: bytes
    words: int
    body: bytes


class _Reply:
    """The reply to an XRANGE as it arrives; what Connection.receive fills."""

    def __init__(self) -> None:
        self.buf = bytearray(1 << 18)
        self.used = self.at = 0
        self.left = -1  # entries that are still to come; -1: nothing was read yet
        self.names: dict[int, list[bytes]] = {}

    def space(self, n: int) -> memoryview:
        """Return room for n bytes at least."""
        if len(self.buf) - self.used < n:
            del self.buf[: self.at]
            self.used -= self.at
            self.at = 0
            if len(self.buf) - self.used < n:
                self.buf.extend(bytes(len(self.buf) + n))
        return memoryview(self.buf)[self.used :]

    def filled(self, n: int) -> None:
        """Take note of n bytes that were put there."""
        self.used += n

    def entries(self) -> list[RawEntry]:
        """Return the entries that are whole by now; ReplyError's text raises ValueError."""
        buf, used = self.buf, self.used
        if self.left < 0:
            stop = buf.find(b"\r\n", self.at, used)
            if stop < 0:
                return []
            line = bytes(buf[self.at : stop])
            if line[:1] == b"-":
                raise ValueError(line[1:].decode("utf-8", "replace"))
            self.left, self.at = max(int(line[1:]), 0), stop + 2
        found = []
        while self.left:
            entry, end = _entry(buf, self.at, used, self.names)
            if entry is None:
                break
            found.append(entry)
            self.at = end
            self.left -= 1
        return found


def _entry(buf: bytearray, at: int, used: int, names: dict[int, list[bytes]]) -> tuple[RawEntry | None, int]:
    """Return the entry at a position and the position behind it; None where it is not whole yet.

    names: the names of the last entry with so many words, as RESP. Where they come again they are stepped over at once.
    """
    find = buf.find
    stop = find(b"\r\n", at + 5, used)
    if stop < 0:
        return None, at
    id_end = stop + 2 + int(buf[at + 5 : stop])
    count_end = find(b"\r\n", id_end + 3, used)
    if count_end < 0:
        return None, at
    words = int(buf[id_end + 3 : count_end])
    position = count_end + 2
    known = names.setdefault(words, [b"-"] * (words // 2))
    for place in range(words // 2):
        start = position
        if buf.startswith(known[place], start):
            position += len(known[place])
        else:
            head = find(b"\r\n", position + 1, used)
            if head < 0:
                return None, at
            position = head + 4 + int(buf[position + 1 : head])
            if position > used:
                return None, at
            known[place] = bytes(buf[start:position])
        head = find(b"\r\n", position + 1, used)
        if head < 0:
            return None, at
        position = head + 4 + int(buf[position + 1 : head])
    if position > used:
        return None, at
    return RawEntry(bytes(buf[stop + 2 : id_end]), words, bytes(buf[count_end + 2 : position])), position


class Pages:
    """The entries of (after, last] of a stream, page by page; a context manager and an iterator."""

    def __init__(self, options: Options, key: bytes, start: StreamID, last: StreamID, page: int = PAGE) -> None:
        self.servers = Servers(options)
        self.key, self.page = key, page
        self.next: bytes | None = after(start)
        self.last = last
        self.reply: _Reply | None = None

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, *_: object) -> None:
        self.servers.close()

    def __iter__(self) -> Iterator[list[RawEntry]]:
        self._ask()
        while self.reply is not None:
            found = self._received()
            self.next = after(StreamID.parse(found[-1].id)) if len(found) == self.page else None
            self.reply = None
            self._ask()
            if found:
                yield found

    def _ask(self) -> None:
        if self.next is None:
            return
        self.connection = self.servers.connection(self.key)
        end = b"%d-%d" % self.last
        self.connection.send(pack(b"XRANGE", self.key, self.next, end, b"COUNT", b"%d" % self.page))
        self.reply = _Reply()

    def _received(self) -> list[RawEntry]:
        """Return the whole page, asking again where the stream has moved."""
        while True:
            reply = self.reply
            assert reply is not None
            try:
                found = reply.entries()
                while reply.left:
                    self.connection.receive(cast("Any", reply))
                    found += reply.entries()
                return found
            except ValueError as error:
                if not self.servers.redirected(self.key, str(error)):
                    name = self.key.decode("utf-8", "replace")
                    raise ConnectorError(f"rillet: {self.servers} refused XRANGE of {name!r}: {error}") from None
                self._ask()


class Writer:
    """XADD after XADD to one stream, a chunk ahead of its replies."""

    def __init__(self, servers: Servers, key: bytes) -> None:
        self.servers = servers
        self.key = key
        self.head = b"$4\r\nXADD\r\n$%d\r\n%b\r\n" % (len(key), key)
        self.under_way: list[bytes] = []
        self.connection: Any = None
        self.written = self.bytes = 0

    def add(self, entries: Iterable[RawEntry]) -> None:
        """Send entries with their IDs, which must rise."""
        commands: list[bytes] = []
        size = 0
        for one in entries:
            commands.append(b"*%d\r\n%b$%d\r\n%b\r\n%b" % (one.words + 3, self.head, len(one.id), one.id, one.body))
            size += len(commands[-1])
            if size >= CHUNK:
                self._leave(commands)
                commands, size = [], 0
        if commands:
            self._leave(commands)

    def _leave(self, commands: list[bytes]) -> None:
        """Send a chunk, then read the replies of the one before."""
        before, self.under_way = self.under_way, commands
        if not before:  # else replies are under way, and nothing may be asked beside them
            self.connection = self.servers.connection(self.key)
        self.connection.send(b"".join(commands))
        self.bytes += sum(map(len, commands))
        self._answers(before, ahead=len(commands))

    def finish(self) -> None:
        """Wait until everything is answered."""
        before, self.under_way = self.under_way, []
        self._answers(before)

    def _answers(self, commands: list[bytes], ahead: int = 0) -> None:
        replies = [self.connection.reply() for _ in commands]
        refused = [place for place, reply in enumerate(replies) if isinstance(reply, ReplyError)]
        self.written += len(commands) - len(refused)
        if not refused:
            return
        said = str(replies[refused[0]])
        again = [commands[place] for place in refused]
        for _ in range(ahead):  # what came behind is refused for the same reason
            self.connection.reply()
        again += self.under_way if ahead else []
        self.under_way = []
        if not self.servers.redirected(self.key, said):
            name = self.key.decode("utf-8", "replace")
            raise ConnectorError(f"rillet: {self.servers} refused to append to {name!r}: {said}")
        for command in again:
            self.connection = self.servers.connection(self.key)
            self.connection.send(command)
            self._answers([command])
