"""Entries from one server to another as the bytes they came in: no value becomes an object.

An entry of XRANGE's reply ends with the words that XADD takes, in the form that XADD takes them:

    reply     *2 $15 1526919030474-0   *4 $1 a $1 1 $1 b $1 2
                      ID                  └──────┬──────┘
    command   *7 $4 XADD $6 events $15 1526919030474-0  $1 a $1 1 $1 b $1 2

So names that are no UTF-8, and fields that occur twice, arrive as they are. Where an entry ends is what the connector's
decoder (columns.resp, compiled) knows: it is given no column to fill, and stepped from entry to entry. What is left to
Python is to cut off the head of each and to put another one there: 2.4 us an entry with sending and receiving, however
many words it has. A digest is of the same bytes; every server writes them alike, so two streams with one digest hold
the same entries.

`Pages` reads ahead: the next page is asked for as soon as the last ID of one is known. Its connections are its own,
since replies are under way on them.
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
from rillet.spark.pipelines.group_info import after
from rillet.types.stream.id import StreamID

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
        self.decoder = RangeDecoder(RowBuilder(b""), 0, 1 << 62)
        self.space, self.filled = self.decoder.space, self.decoder.filled
        self.whole = False
        self.words: dict[bytes, int] = {}

    def entries(self) -> list[RawEntry]:
        """Return the entries that are whole by now; ReplyFailed has the text of an error reply."""
        decoder, decode, ends = self.decoder, self.decoder.decode, []
        state = decode()  # no more than the head of the reply: the rows are full
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
        found, at, words = [], 0, self.words
        for end in ends:
            # *2 $15 1526919030474-0 *4, and what goes on as it came
            _, _, identifier, count, body = data[at : end - start].split(b"\r\n", 4)
            number = words.get(count)
            if number is None:
                number = words[count] = int(count[1:])
            found.append(RawEntry(identifier, number, body))
            at = end - start
        return found


class RawPages:
    """The entries of (after, last] of a stream, page by page; a context manager and an iterator."""

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
                while not reply.whole:
                    self.connection.receive(cast("Any", reply))
                    found += reply.entries()
                return found
            except ProtocolError as error:
                raise ConnectorError(f"rillet: what {self.servers} answers to XRANGE is no page: {error}") from None
            except ReplyFailed as error:
                if not self.servers.redirected(self.key, str(error)):
                    name = self.key.decode("utf-8", "replace")
                    raise ConnectorError(f"rillet: {self.servers} refused XRANGE of {name!r}: {error}") from None
                self._ask()


class RawEntryWriter:
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
