"""Copies entries from one server to another as RESP bytes; no value becomes a Python object.

The fields and values in XRANGE's reply have the same bytes as the last arguments of XADD:

    reply     *2 $15 1526919030474-0   *4 $1 a $1 1 $1 b $1 2
                      ID                  └──────┬──────┘
    command   *7 $4 XADD $6 events $15 1526919030474-0  $1 a $1 1 $1 b $1 2

So names that are not UTF-8, and fields that occur twice, are copied unchanged. The connector's compiled decoder
(columns.resp_decoder) only finds the end of each entry, one entry per call. Python replaces the RESP bytes before the
entry's fields: 2.4 us per entry with sending and receiving, regardless of the number of fields. A migration computes
its digests from the same bytes. All servers encode an entry identically, so streams with equal digests hold equal
entries.

`RawPages` reads ahead: it requests the next page as soon as the last ID of a page is known. It opens its own
connections, because other users of a connection would receive the pending replies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from rillet.client.errors import ConnectorError
from rillet.client.protocol import pack
from rillet.client.servers import Servers
from rillet.columns.resp_decoder import DONE, FULL, MORE, RangeDecoder, ReplyFailed
from rillet.columns.row_builder import RowBuilder
from rillet.errors import ProtocolError
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.options import Options
from rillet.spark.pipelines.group_info import after, shown
from rillet.types.stream.id import StreamID

PAGE = 1000
CHUNK = 1 << 20


class RawEntry(NamedTuple):
    """An entry: its ID, the number of its fields and values, and the RESP bytes of its fields and values."""

    id: bytes
    words: int
    body: bytes


class _Reply:
    """A partly received reply to XRANGE; Connection.receive stores the received bytes in it."""

    def __init__(self) -> None:
        self.decoder = RangeDecoder(RowBuilder(b""), 0, 1 << 62)
        self.space, self.filled = self.decoder.space, self.decoder.filled
        self.whole = False

    def entries(self) -> list[RawEntry]:
        """Return the completely received entries; raise ReplyFailed with the text of an error reply."""
        decoder, decode, ends = self.decoder, self.decoder.decode, []
        state = decode()  # decodes only the reply's header, because max_rows is still 0
        start = decoder.pos
        while state == FULL:
            decoder.max_rows += 1
            state = decode()
            if state == MORE:
                decoder.max_rows -= 1
                break
            ends.append(decoder.pos)
        self.whole = state == DONE
        if not ends:
            return []
        with memoryview(decoder.buf) as buffer:
            data = bytes(buffer[start : ends[-1]])
        entries, at = [], 0
        for end in ends:
            # *2 $15 1526919030474-0 *4, then the fields and values, which are copied unchanged
            _, _, identifier, count, body = data[at : end - start].split(b"\r\n", 4)
            entries.append(RawEntry(identifier, int(count[1:]), body))
            at = end - start
        return entries


class RawPages:
    """Iterates over the entries of (start, last] of a stream, page by page; a context manager."""

    def __init__(self, options: Options, key: bytes, start: StreamID, last: StreamID, page: int = PAGE) -> None:
        self.servers = Servers(options)
        self.key, self.page = key, page
        self.next: bytes | None = after(start)
        self.last = last
        self.reply: _Reply | None = None

    def __enter__(self) -> RawPages:
        return self

    def __exit__(self, *_: object) -> None:
        self.servers.close()

    def __iter__(self) -> Iterator[list[RawEntry]]:
        self._request()
        while self.reply is not None:
            entries = self._receive()
            self.next = after(StreamID.parse(entries[-1].id)) if len(entries) == self.page else None
            self.reply = None
            self._request()
            if entries:
                yield entries

    def _request(self) -> None:
        if self.next is None:
            return
        self.connection = self.servers.connection(self.key)
        end = b"%d-%d" % self.last
        self.connection.send(pack(b"XRANGE", self.key, self.next, end, b"COUNT", b"%d" % self.page))
        self.reply = _Reply()

    def _receive(self) -> list[RawEntry]:
        """Return the requested page of entries; request the page again if the stream has moved to another node."""
        while True:
            reply = self.reply
            assert reply is not None
            try:
                entries = reply.entries()
                while not reply.whole:
                    self.connection.receive(cast("Any", reply))
                    entries += reply.entries()
                return entries
            except ProtocolError as error:
                raise ConnectorError(f"rillet: {self.servers} sent a malformed reply to XRANGE: {error}") from None
            except ReplyFailed as error:
                if not self.servers.redirected(self.key, str(error)):
                    message = f"rillet: {self.servers} rejected XRANGE of {shown(self.key)!r}: {error}"
                    raise ConnectorError(message) from None
                self._request()


class RawEntryWriter:
    """Appends entries to one stream; sends each chunk before it reads the replies to the previous one."""

    def __init__(self, servers: Servers, key: bytes) -> None:
        self.servers = servers
        self.key = key
        self.head = b"$4\r\nXADD\r\n$%d\r\n%b\r\n" % (len(key), key)
        self.unanswered: list[bytes] = []
        self.connection: Any = None
        self.written = self.bytes = 0

    def add(self, entries: Iterable[RawEntry]) -> None:
        """Send entries with their IDs; each ID must be larger than the one before."""
        commands: list[bytes] = []
        size = 0
        for one in entries:
            commands.append(b"*%d\r\n%b$%d\r\n%b\r\n%b" % (one.words + 3, self.head, len(one.id), one.id, one.body))
            size += len(commands[-1])
            if size >= CHUNK:
                self._send(commands)
                commands, size = [], 0
        if commands:
            self._send(commands)

    def _send(self, commands: list[bytes]) -> None:
        """Send a chunk of XADD commands, then read the replies to the previous chunk."""
        before, self.unanswered = self.unanswered, commands
        if not before:  # keep a connection that still has pending replies
            self.connection = self.servers.connection(self.key)
        self.connection.send(b"".join(commands))
        self.bytes += sum(map(len, commands))
        self._read_replies(before, ahead=len(commands))

    def finish(self) -> None:
        """Read the replies to the last chunk of XADD commands."""
        before, self.unanswered = self.unanswered, []
        self._read_replies(before)

    def _read_replies(self, commands: list[bytes], ahead: int = 0) -> None:
        replies = [self.connection.reply() for _ in commands]
        rejected = [place for place, reply in enumerate(replies) if isinstance(reply, ReplyError)]
        self.written += len(commands) - len(rejected)
        if not rejected:
            return
        message = str(replies[rejected[0]])
        again = [commands[place] for place in rejected]
        for _ in range(ahead):  # the server rejects the chunk that was sent ahead, too
            self.connection.reply()
        again += self.unanswered if ahead else []
        self.unanswered = []
        if not self.servers.redirected(self.key, message):
            raise ConnectorError(f"rillet: {self.servers} rejected an append to {shown(self.key)!r}: {message}")
        for command in again:
            self.connection = self.servers.connection(self.key)
            self.connection.send(command)
            self._read_replies([command])
