"""Reads the values of many keys in pipelines, into the rows of a TableDecoder.

    reader = KeyReader(servers, side, rows, plan, pipeline=1000)
    for _ in reader.read(batches of keys): take the rows

Two pipelines are under way on each connection of `servers`, so the server executes one while the replies to the other
are decoded. All other requests use the connections of `side`, on which no replies are outstanding.

A plan states the commands for a key and the parts of a row that their replies become (columns/table_decoder.py):

    KeyPlan("hash", [(b"HMGET", b"name", b"age")], [ReplyPart(VALUES, [name, age], required=True)])

The key follows the first word of each command; for OBJECT and MEMORY, the second.

**Large values.** For lists, sets, sorted sets and arrays, the plan names the command that returns the size. A value of
more than PAGE elements is read in pages: LRANGE for a list, ARSCAN for an array, SSCAN or ZSCAN for the others. The
reader remembers the members of one such value, because these last scans may return a member twice.

**Absent keys.** HMGET replies with nulls both for a missing key and for a hash without these fields. So the reader
requests EXISTS for absent keys, and adds a row of nulls for those that exist. With `keeps`, every absent key gets a
row of nulls.

**Errors.** A redirection (MOVED, ASK ...) is followed, key by key. `wrong_type` is called for a key of another type; it
raises an error or ignores the key. A lost connection is replaced, up to the timeout; keys that are not complete are
requested again. The rows of complete keys are kept, so no row is duplicated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError, StaysAway
from rillet.client.redirection import Patience, not_executed
from rillet.client.servers import Servers
from rillet.client.transaction import retry
from rillet.columns.command_packing import pack_keys
from rillet.columns.row_builder import RowBuilder
from rillet.columns.table_decoder import DONE, FULL, ReplyPart, TableDecoder
from rillet.errors import ProtocolError
from rillet.protocol.reply_parser import ReplyError

PAGE = 10_000  # elements; a larger list, set, sorted set or array is read in pages
LAST_INDEX = b"18446744073709551614"  # of an array
AT_ONCE = 100_000  # elements of small lists, sets and sorted sets in one pipeline


@dataclass(frozen=True)
class KeyPlan:
    """The commands for each key, and the parts of its row; `size`: LLEN, SCARD ... if a key has several rows."""

    noun: str
    commands: Sequence[tuple[bytes, ...]]
    parts: list[ReplyPart]
    size: bytes = b""
    checks: bool = False  # whether an absent key may exist

    def words(self, key: bytes) -> list[tuple[bytes, ...]]:
        """Return the commands for a key."""
        return [(*words[:n], key, *words[n:]) for words, n in ((words, _place(words)) for words in self.commands)]


def _place(words: tuple[bytes, ...]) -> int:
    """Return the number of words of a command before its key."""
    return 2 if words[0] in (b"OBJECT", b"MEMORY") else 1


@dataclass
class _Request:
    """A pipeline whose replies have not been decoded."""

    connection: Connection
    keys: list[bytes]
    keeps: bool = False


@dataclass
class _Template:
    """The bytes around the key in each command of a plan."""

    around: list[tuple[bytes, bytes]] = field(default_factory=list)

    @classmethod
    def from_plan(cls, plan: KeyPlan) -> _Template:
        """Return the template of a plan's commands."""
        around = []
        for words in plan.commands:
            n = _place(words)
            before = b"*%d\r\n" % (len(words) + 1) + b"".join(map(_bulk, words[:n]))
            around.append((before, b"".join(map(_bulk, words[n:]))))
        return cls(around)

    def packed(self, keys: list[bytes]) -> bytearray:
        """Return the commands for keys in RESP encoding."""
        return pack_keys(self.around, keys)


class KeyReader:
    """Reads keys into `rows`; see the module's docstring."""

    def __init__(
        self, servers: Servers, side: Servers, rows: RowBuilder, plan: KeyPlan, *, pipeline: int = 1000,
        batch_rows: int = 16384, batch_bytes: int = 32 << 20, prefix: int = 0, keeps: bool = False,
        wrong_type: Callable[[bytes, str], None] | None = None,
    ) -> None:  # fmt: skip
        self.servers = servers
        self.side = side
        self.rows = rows
        self.plan = plan
        self.pipeline = pipeline
        self.keeps = keeps
        self.wrong_type = wrong_type
        self._decoder_for = partial(TableDecoder, rows, plan.parts, batch_rows, batch_bytes, prefix, keeps)
        self._template = _Template.from_plan(plan)
        self._decoders: dict[Connection, TableDecoder] = {}
        self._alone = self._decoder_for()  # decodes replies that were received key by key
        self._queue: deque[_Request] = deque()
        self._waiting: deque[tuple[list[bytes], bool]] = deque()  # keys to request, and whether absent keys get rows
        self._patience: Patience | None = None

    def read(self, batches: Iterable[Sequence[bytes]]) -> Iterator[None]:
        """Read the keys into the rows; yield for each full batch of rows, and at the end."""
        for batch in batches:
            for at in range(0, len(batch), self.pipeline):
                keys = list(batch[at : at + self.pipeline])
                if self.plan.size:
                    yield from self._sized(keys)
                else:
                    self._waiting.append((keys, self.keeps))
                    yield from self._drain(2)
        yield from self._drain(0)
        if self.rows.length:
            yield

    # ---- pipelines ----

    def _drain(self, most: int) -> Iterator[None]:
        """Send what is waiting, and decode replies until at most `most` pipelines are under way."""
        while self._waiting or len(self._queue) > most:
            try:
                while self._waiting:
                    self._send()
                if len(self._queue) > most:
                    yield from self._receive()
            except StaysAway:
                raise
            except ConnectionLost:
                self._recover()
                self._patience = self._patience or Patience(self.servers.options.timeout)
                if not self._patience.again():
                    raise

    def _send(self) -> None:
        """Send the pipelines for the keys that wait longest."""
        keys, keeps = self._waiting[0]
        requests = [_Request(connection, part, keeps) for connection, part in self.servers.by_node(keys)]
        self._waiting.popleft()
        self._queue.extend(requests)
        for request in requests:
            request.connection.send(self._template.packed(request.keys))

    def _receive(self) -> Iterator[None]:
        """Decode the replies to the oldest pipeline."""
        request = self._queue[0]
        connection = request.connection
        decoder = self._decoders.get(connection)
        if decoder is None:
            decoder = self._decoders[connection] = self._decoder_for()
        decoder.keeps = request.keeps
        decoder.expect(request.keys)
        try:
            while (state := decoder.decode()) != DONE:
                if state == FULL:
                    yield
                else:
                    connection.receive(decoder)
        except ProtocolError as error:
            self.servers.forget(connection)
            raise ConnectorError(f"rillet: reading a {self.plan.noun} from {connection.address}: {error}") from error
        self._queue.popleft()
        self._patience = None
        yield from self._settle(decoder)

    def _recover(self) -> None:
        """After a lost connection, put the keys that are not complete back into the queue."""
        again: list[tuple[list[bytes], bool]] = []
        for place, request in enumerate(self._queue):
            decoder = self._decoders.get(request.connection)
            done = 0
            if place == 0 and decoder is not None and decoder.keys is request.keys:
                done = decoder.at
                again += [(existing, True) for existing in self._absent(decoder)]
                again += [([key], request.keeps) for key, _ in decoder.failed]
            if request.keys[done:]:
                again.append((request.keys[done:], request.keeps))
        for decoder in self._decoders.values():
            decoder.rollback()
        for request in self._queue:
            self.servers.forget(request.connection)
        self._queue.clear()
        self._decoders.clear()
        self._waiting.extendleft(reversed(again))

    # ---- keys without a row ----

    def _settle(self, decoder: TableDecoder) -> Iterator[None]:
        """Handle the absent and the failed keys of a pipeline."""
        for absent in self._absent(decoder):
            self._waiting.append((absent, True))
        failed, decoder.failed = decoder.failed, []
        for key, line in failed:
            if not not_executed(ReplyError(line)):
                self._failed(key, line)
                continue
            if line.startswith("MOVED"):
                self.servers.redirected(key, line)
            replies = self._patiently(partial(self.side.replies, key, self.plan.words(key)))
            yield from self._decode_alone([key], self._encoded(replies), decoder.keeps)

    def _patiently(self, action: Callable[[], list[Any]]) -> list[Any]:
        """Return the replies to requests on the second connection; repeat them after a lost connection."""
        try:
            return retry(self.side, action)
        except ConnectionLost as error:
            raise StaysAway(str(error)) from error

    def _absent(self, decoder: TableDecoder) -> list[list[bytes]]:
        """Return the absent keys that exist, in a list if there are any."""
        absent, decoder.absent = decoder.absent, []
        if not absent or not self.plan.checks or decoder.keeps:
            return []
        replies = self._patiently(lambda: self.side.each([(key, (b"EXISTS", key)) for key in absent]))
        existing = [key for key, reply in zip(absent, replies, strict=True) if reply == 1]
        return [existing] if existing else []

    def _failed(self, key: bytes, line: str) -> None:
        """Raise the error for an error reply; call `wrong_type` for a key of another type."""
        if line.startswith("WRONGTYPE") or "wrong Redis type" in line:
            if self.wrong_type is not None:
                self.wrong_type(key, line)
            return
        shown = key.decode(errors="backslashreplace")
        raise ConnectorError(f"rillet: reading {shown!r} from {self.servers}: {line}", line)

    # ---- values that are read alone ----

    def _encoded(self, replies: Sequence[Any]) -> bytes:
        """Return replies in RESP encoding again."""
        pairs = zip(self.plan.commands, replies, strict=True)
        return b"".join([b"+%b\r\n" % reply if words[0] == b"TYPE" else _resp(reply) for words, reply in pairs])

    def _decode_alone(self, keys: list[bytes], data: bytes, keeps: bool = False, first: int = 0) -> Iterator[None]:
        """Decode replies that were received as objects."""
        decoder = self._alone
        decoder.keeps = keeps
        decoder.expect(keys, first)
        decoder.feed(data)
        while decoder.decode() != DONE:
            yield
        failed, decoder.failed = decoder.failed, []
        for key, line in failed:
            self._failed(key, line)
        for absent in self._absent(decoder):
            yield from self._decode_alone(absent, data, True)

    # ---- lists, sets, sorted sets and arrays ----

    def _sized(self, keys: list[bytes]) -> Iterator[None]:
        """Read keys with several rows each: small values in pipelines, large ones in pages."""
        sizes = self._patiently(lambda: self.side.each([(key, (self.plan.size, key)) for key in keys]))
        batch: list[bytes] = []
        total = 0
        for key, size in zip(keys, sizes, strict=True):
            if isinstance(size, ReplyError):
                self._failed(key, str(size))
            elif size > PAGE:
                yield from self._drain(0)
                yield from self._pages(key)
            elif size:
                batch.append(key)
                total += size
                if total >= AT_ONCE:
                    self._waiting.append((batch, False))
                    batch, total = [], 0
                    yield from self._drain(2)
        if batch:
            self._waiting.append((batch, False))
            yield from self._drain(2)

    def _pages(self, key: bytes) -> Iterator[None]:
        """Read a large value in pages."""
        ask = partial(self._call, key)
        if self.plan.size == b"LLEN":
            first = 0
            while page := ask((b"LRANGE", key, b"%d" % first, b"%d" % (first + PAGE - 1))):
                yield from self._decode_alone([key], _resp(page), first=first)
                first += len(page)
                if len(page) < PAGE:
                    return
            return
        if self.plan.size == b"ARCOUNT":
            first = 0
            while page := ask((b"ARSCAN", key, b"%d" % first, LAST_INDEX, b"LIMIT", b"%d" % PAGE)):
                yield from self._decode_alone([key], _resp(page))
                first = int(page[-1][0]) + 1
                if len(page) < PAGE or first > int(LAST_INDEX):
                    return
            return
        scan, step = (b"SSCAN", 1) if self.plan.size == b"SCARD" else (b"ZSCAN", 2)
        seen: set[bytes] = set()
        cursor = b"0"
        while (reply := ask((scan, key, cursor, b"COUNT", b"%d" % PAGE))) is not None:
            cursor, page = reply
            fresh = []
            for at in range(0, len(page), step):
                if page[at] not in seen:
                    seen.add(page[at])
                    fresh += page[at : at + step]
            if fresh:
                yield from self._decode_alone([key], _resp(fresh))
            if cursor == b"0":
                return

    def _call(self, key: bytes, words: tuple[bytes, ...]) -> Any:
        """Return the reply to a command; None if the key has another type now."""
        (reply,) = self._patiently(partial(self.side.replies, key, [words]))
        if isinstance(reply, ReplyError):
            self._failed(key, str(reply))
            return None
        return reply


def _bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


def _resp(reply: Any) -> bytes:
    """Return a reply in RESP encoding."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, ReplyError):
        return b"-%b\r\n" % str(reply).encode()
    if isinstance(reply, bytes):
        return _bulk(reply)
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    return b"*%d\r\n" % len(reply) + b"".join(map(_resp, reply))
