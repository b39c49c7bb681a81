"""Senders of rows as commands that write keys.

    TableSender              HSET, SET, SADD, ZADD: repeated commands have the same result, so chunks are sent as plain
                             pipelines, and sent again after a lost connection
    TableTransactionSender   RPUSH, HINCRBY, ZINCRBY: transactions with a commit record, as for streams
                             (write/transactions.py); in a cluster, for each slot

A chunk has 256 KiB, and at most two chunks wait for replies on each connection. Replies are counted, not parsed,
unless one is an error. Any error but the following ends the task; it names the key.

**Commands that were not executed** (MOVED, ASK, LOADING ...). Later commands on the same key may have been executed: an
HSET after its DEL, or the SET of a later row. So the sender waits for all replies, and sends again the command and all
later ones on its key, in their order, one of each key at a time. This is only right for commands whose repetition has
the same result. If a later RPUSH, HINCRBY or ZINCRBY was executed (exactlyOnce=none), the task fails.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rillet.client.cluster import slot_of
from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError, StaysAway
from rillet.client.redirection import not_executed
from rillet.client.reply_stream import ReplyStream
from rillet.client.servers import Servers
from rillet.client.transaction import retry
from rillet.columns.command_packing import CommandPacker
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.table_options import TableOptions
from rillet.spark.tables.commands import TableLayout
from rillet.spark.write.commits import Identity, shown
from rillet.spark.write.query_record import TaskNotes
from rillet.spark.write.transactions import Chunk, Result, TaskTransactions, TransactionSender
from rillet.spark.write.writer import CHUNK

_BULK = (b"HINCRBYFLOAT", b"ZINCRBY")  # commands whose replies have two lines
_ADDS = (b"RPUSH", b"HINCRBY", *_BULK)  # commands whose repetition changes the result


def commands_in(data: bytes | bytearray) -> Iterator[list[bytes]]:
    """Yield the commands of a packed chunk as lists of words."""
    at = 0
    while at < len(data):
        end = data.index(b"\r\n", at)
        count = int(data[at + 1 : end])
        at = end + 2
        words = []
        for _ in range(count):
            end = data.index(b"\r\n", at)
            size = int(data[at + 1 : end])
            words.append(bytes(data[end + 2 : end + 2 + size]))
            at = end + size + 4
        yield words


def _lines(words: list[bytes]) -> int:
    return 2 if words[0] in _BULK else 1


def refused_key(servers: Servers, options: TableOptions, key: bytes, line: str) -> ConnectorError:
    """Return the error for a command that the server rejected."""
    return ConnectorError(f"rillet: {servers} refused to write the {options.type} {shown(key)}: {line}", line)


class TableSender:
    """Writes rows by commands whose repetition does not change the result."""

    def __init__(
        self, servers: Servers, options: TableOptions, layout: TableLayout, notes: TaskNotes | None = None
    ) -> None:
        self.servers = servers
        self.options = options
        self.layout = layout
        self.notes = notes  # each chunk ends with a note of its number, which shows whether a server has lost chunks
        self.rows = 0
        self._packer = layout.packer()
        self._lanes: dict[Connection, tuple[ReplyStream, deque[tuple[bytearray, int]]]] = {}

    def send(self, batch: Any) -> None:
        """Pack the rows of a record batch, whose keys are whole, and send full chunks."""
        self.rows += batch.num_rows
        if not batch.num_rows:
            return
        if not self.layout.cluster:
            self._pack(batch, None)
            return
        slots = [slot_of(key) for key in batch.column(self.layout.key).to_pylist()]
        nodes: dict[object, int] = {}
        owners = self.servers.owners()
        codes = [nodes.setdefault(owners[slot], slot) for slot in slots]  # a node is named by one of its slots
        for slot, rows in self.layout.grouped(batch, codes):
            self._pack(rows, slot)

    def _pack(self, rows: Any, slot: int | None) -> None:
        packer: CommandPacker = self._packer
        self.layout.load(packer, rows)
        row = 0
        while row < rows.num_rows:
            try:
                row = packer.pack(row, rows.num_rows, CHUNK)
            except ValueError as error:
                raise ConnectorError(f"rillet: writing a {self.options.type}: {error}") from None
            if packer.used >= CHUNK or (packer.used and (slot is not None or row == rows.num_rows)):
                lines = packer.lines
                data = packer.take_bytes()
                if self.notes is not None:
                    data += self.notes.next(slot)[1]
                    lines += 1
                self._send(data, lines, slot)

    def _send(self, data: bytearray, lines: int, slot: int | None) -> None:
        """Send a chunk, then read the replies to earlier chunks on the same connection."""
        try:
            connection = self.servers.connection(b"") if slot is None else self.servers.slot_connection(slot)
            lane = self._lanes.get(connection)
            if lane is None:
                lane = self._lanes[connection] = ReplyStream(connection), deque()
            lane[1].append((data, lines))
            connection.send(data)
            self._settle(connection, 1)
        except StaysAway:
            raise
        except ConnectionLost:
            queued = any(data is sent for _, queue in self._lanes.values() for sent, _ in queue)
            self._recover()
            if not queued:
                self._repeat([data])

    def _settle(self, connection: Connection, most: int) -> None:
        """Read replies until at most `most` chunks wait for theirs."""
        replies, queue = self._lanes[connection]
        while len(queue) > most:
            data, lines = queue[0]
            left = replies.skip(lines)
            if left:
                self._errors(connection, lines - left)
                return
            queue.popleft()
            self._acknowledged(data)

    def _acknowledged(self, data: bytearray) -> None:
        """Remember the note at the end of a chunk that the server has executed."""
        if self.notes is not None:
            self.notes.acknowledge(data)

    def _errors(self, connection: Connection, line: int) -> None:
        """Read all replies; the first error follows `line` lines of this connection's oldest chunk."""
        again: list[list[bytes]] = []
        keys: set[bytes] = set()
        first = self._lanes[connection]
        for lane in (first, *(lane for lane in self._lanes.values() if lane is not first)):
            replies, queue = lane
            for data, _ in queue:
                again += self._not_executed(replies, data, line, keys)
                line = 0
        self._one_by_one(again)
        for _, queue in self._lanes.values():
            for data, _ in queue:
                self._acknowledged(data)
            queue.clear()

    def _not_executed(
        self, replies: ReplyStream, data: bytearray, line: int, keys: set[bytes]
    ) -> Iterator[list[bytes]]:
        """Yield the commands of a chunk that must be sent again: those on `keys`, to which refused ones are added."""
        for words in commands_in(data):
            if line > 0:
                line -= _lines(words)
                continue
            reply = replies.reply()
            if not_executed(reply):
                keys.add(words[1])
            elif isinstance(reply, ReplyError):
                raise refused_key(self.servers, self.options, words[1], str(reply))
            elif words[1] in keys and words[0] in _ADDS:
                raise ConnectorError(
                    f"rillet: {self.servers} refused a command for the {self.options.type} {shown(words[1])} for a "
                    f"moment, and executed a later {words[0].decode()}: this cannot be corrected without adding twice; "
                    "leave out exactlyOnce=none"
                )
            if words[1] in keys:
                yield words

    def _one_by_one(self, commands: list[list[bytes]]) -> None:
        """Send commands again on other connections, one of each key at a time; redirections are followed."""
        turns: list[list[list[bytes]]] = []
        sent: Counter[bytes] = Counter()
        for words in commands:
            if sent[words[1]] == len(turns):
                turns.append([])
            turns[sent[words[1]]].append(words)
            sent[words[1]] += 1
        with Servers(self.options) as servers:
            servers.waits = True
            if self.notes is None:
                self._send_turns(servers, turns, partial(retry, servers))
            else:  # a lost connection may mean a restart without what was sent before: all of it again
                retry(servers, partial(self._send_noted, servers, turns))
        if commands and self.layout.cluster:
            self.servers.map_is_stale()

    def _send_noted(self, servers: Servers, turns: list[list[list[bytes]]]) -> None:
        assert self.notes is not None
        self.notes.check(servers)
        self._send_turns(servers, turns, lambda send: send())

    def _send_turns(
        self, servers: Servers, turns: list[list[list[bytes]]], run: Callable[[Callable[[], list[Any]]], list[Any]]
    ) -> None:
        for turn in turns:
            for at in range(0, len(turn), 1000):
                part = turn[at : at + 1000]
                replies = run(partial(servers.each, [(words[1], words) for words in part]))
                for words, reply in zip(part, replies, strict=True):
                    if isinstance(reply, ReplyError):
                        raise refused_key(self.servers, self.options, words[1], str(reply))

    def _repeat(self, chunks: list[bytearray]) -> None:
        """Send chunks again whose replies were lost."""
        for data in chunks:
            self._one_by_one(list(commands_in(data)))
            self._acknowledged(data)

    def _recover(self) -> None:
        """After a lost connection, send all chunks again that wait for replies."""
        lanes = list(self._lanes.items())
        self._lanes.clear()
        for connection, _ in lanes:
            self.servers.forget(connection)
        self._repeat([data for _, (_, queue) in lanes for data, _ in queue])

    def finish(self) -> dict[bytes, int]:
        """Wait for all replies; return the number of rows."""
        try:
            for connection in list(self._lanes):
                self._settle(connection, 0)
        except StaysAway:
            raise
        except ConnectionLost:
            self._recover()
        return {self.layout._place(): self.rows}

    def close(self) -> None:
        """Do nothing: a failed task holds its connections only."""


class TableTransactionSender(TransactionSender):
    """Writes rows exactly once, in transactions that also store a commit record."""

    def __init__(self, servers: Servers, options: TableOptions, layout: TableLayout, identity: Identity) -> None:
        super().__init__(servers, options, layout, identity)  # type: ignore[arg-type]
        self.table = options

    def check_type(self, stream: bytes) -> None:
        """Do nothing: the name of a share is not a key."""

    def packer(self, stream: bytes) -> Any:
        """Return a packer for the commands of the rows."""
        return self.layout.packer()  # type: ignore[attr-defined]

    def ids(self, stream: bytes, rows: Any) -> Any:
        """Return None: the rows have no IDs."""
        return None

    def execute(self, share: TaskTransactions, notes: int) -> list[ReplyError] | None:
        """Execute the open transaction; note the key of the first command that fails."""
        self.failed_key = b""

        def before(line: int) -> int:
            count = 0
            for words in self._commands(share.kept):
                if line <= 0:
                    self.failed_key = words[1]
                    return count
                line -= _lines(words)
                count += 1
            return count + line  # the replies to the commands of the commit record have one line each

        lines = sum(_lines(words) for words in self._commands(share.kept)) if self.bulk else None
        if lines is None:
            lines = sum(chunk.commands for chunk in share.kept)
        return share.transaction.execute_lines(lines + notes, before)

    @property
    def bulk(self) -> bool:
        """Return whether some replies have two lines."""
        return any(form.bulk for form in self.layout.packer().forms)  # type: ignore[attr-defined]

    @staticmethod
    def _commands(chunks: list[Chunk]) -> Iterator[list[bytes]]:
        for chunk in chunks:
            yield from commands_in(chunk.data)

    def _naming(self, share: TaskTransactions, action: Callable[[], Result]) -> Result:
        """Call a function; its errors name the key or the command already."""
        return action()

    def refused(self, share: TaskTransactions, error: ReplyError) -> ConnectorError:
        """Return the error for a command that the server rejected inside EXEC."""
        return refused_key(self.servers, self.table, self.failed_key or share.stream, str(error))
