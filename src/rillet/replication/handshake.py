"""The link of a replica to its master, from the first byte to the end of the snapshot, without a socket.

    PING ► +PONG                                        -NOAUTH and -NOPERM also mean that the master is there
    AUTH user password ► +OK                            with `masterauth`
    REPLCONF listening-port, ip-address, rdb-no-*,      errors of an older master are ignored
             version, capa ► +OK
    PSYNC id offset ► +CONTINUE [id]                    partial: the stream continues at the offset
                      +FULLRESYNC id offset             full: a snapshot, then the stream from this offset
                      +RDBCHANNELSYNC client            full: the snapshot on a second link (channel_handshake.py)
                      -LOADING, -NOMASTERLINK           later
                      another error ► SYNC              a master before 2.8: a snapshot without an offset

    $<size> CR LF <bytes>                               a snapshot of a file
    $EOF:<mark> CR LF <bytes> <mark>                    a snapshot that the master writes while it sends it
    LF ...                                              before the snapshot: the master is alive

`MasterLink.receive` takes bytes and returns events; `outgoing` returns the bytes to send. So the same code serves the
server's event loop, a store, and a test that feeds one byte at a time. After `Continued`, `ChannelOffered` and
`SnapshotEnd`, all bytes are the stream of changes.

**The end of a snapshot without a size** is the first occurrence of the mark, 40 random digits that the master has
chosen. The last 39 bytes are held back until it is certain that they do not begin the mark.
(Redis: replication.c, syncWithMaster, slaveTryPartialResynchronization, readSyncBulkPayload.)
"""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

from rillet.replication.errors import LinkError
from rillet.runtime.replica_versions import RILLET
from rillet.types.compat import NEWEST

MARK_SIZE = 40
_RILLET = (RILLET + NEWEST.redis_version).encode()  # other masters ignore what they do not know
_LONGEST_LINE = 64 * 1024
_ID_SIZE = 40
Phase = Literal["ping", "handshake", "psync", "header", "snapshot", "stream", "done"]


class Position(NamedTuple):
    """A history and the number of its bytes that are applied."""

    id: str
    offset: int


class LinkOptions(NamedTuple):
    """The properties that a replica reports to its master.

    ephemeral: the snapshot is not stored, so it needs no compression.
    failover: the master must become a replica's master first (FAILOVER of the server that connects).
    rdb_channel: the replica can receive the snapshot on a second link.
    """

    user: bytes = b""
    password: bytes = b""
    port: int = 0
    ip: bytes = b""
    version: bytes = b""
    ephemeral: bool = False
    failover: bool = False
    rdb_channel: bool = False


class FullSync(NamedTuple):
    """The master sends a snapshot, which is the data at this position; id is "" after SYNC."""

    id: str
    offset: int


class SnapshotBegin(NamedTuple):
    """The snapshot follows; size is -1 if it ends with a mark."""

    size: int


class SnapshotData(NamedTuple):
    """Bytes of the snapshot."""

    data: bytes


class SnapshotEnd(NamedTuple):
    """The snapshot is complete."""


class Continued(NamedTuple):
    """The stream continues at the requested position; id: the name of the history, "" if the master sent none."""

    id: str


class ChannelOffered(NamedTuple):
    """The master sends the snapshot on a second link, which must name this client of the master."""

    client: int


class StreamData(NamedTuple):
    """Bytes of the stream of changes."""

    data: bytes


class Note(NamedTuple):
    """A line for the log."""

    text: str


Event = FullSync | SnapshotBegin | SnapshotData | SnapshotEnd | Continued | ChannelOffered | StreamData | Note


def encode(*words: bytes) -> bytes:
    """Return a command in RESP."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


class SnapshotLink:
    """The base of the links that carry a snapshot: lines, then the snapshot, in the phases `header` and `snapshot`."""

    after_snapshot: Phase = "stream"

    def __init__(self) -> None:
        self.phase: Phase = "ping"
        self._out: list[bytes] = []
        self._rest = b""  # received bytes without the end of their line
        self._mark = b""
        self._left = 0  # bytes of a snapshot with a size that have not come
        self._held = b""  # the end of the received snapshot, which may begin the mark

    def outgoing(self) -> bytes:
        """Return the bytes to send now."""
        data, self._out = b"".join(self._out), []
        return data

    def receive(self, data: bytes) -> list[Event]:
        """Return the events that received bytes cause; LinkError if the master refuses or sends nonsense."""
        events: list[Event] = []
        while data and self.phase != "done":
            if self.phase == "stream":
                events.append(StreamData(data))
                break
            data = self._snapshot(data, events) if self.phase == "snapshot" else self._line(data, events)
        return events

    def _line(self, data: bytes, events: list[Event]) -> bytes:
        """Handle one line, if it is complete; return the bytes after it."""
        end = data.find(b"\n")
        if end < 0:
            self._rest += data
            if len(self._rest) > _LONGEST_LINE:
                raise LinkError("the master sent a line that is too long")
            return b""
        line, self._rest = (self._rest + data[:end]).rstrip(b"\r"), b""
        if self.phase == "header":
            self._header(line, events)
        else:
            self._answer(line, events)
        return data[end + 1 :]

    def _answer(self, line: bytes, events: list[Event]) -> None:
        """Handle a line before the snapshot."""
        raise NotImplementedError

    def _header(self, line: bytes, events: list[Event]) -> None:
        if not line:
            return  # the master is alive
        if line.startswith(b"-"):
            raise LinkError(f"MASTER aborted replication with an error: {shown_line(line[1:])}")
        size = line[1:]
        if line.startswith(b"$EOF:") and len(line) >= 5 + MARK_SIZE:
            self._mark = line[5 : 5 + MARK_SIZE]
            events.append(SnapshotBegin(-1))
        elif line.startswith(b"$") and size.isdigit():
            self._left = int(size)
            events.append(SnapshotBegin(self._left))
        else:
            raise LinkError(f"Bad protocol from MASTER, the first byte is not '$' (we received '{shown_line(line)}'), "
                            "are you sure the host and port are right?")  # fmt: skip
        self.phase = "snapshot"
        if not self._mark and not self._left:
            self._end(events)

    def _snapshot(self, data: bytes, events: list[Event]) -> bytes:
        """Handle bytes of the snapshot; return those after it."""
        if self._mark:
            return self._marked(data, events)
        part, rest = (data, b"") if len(data) <= self._left else (data[: self._left], data[self._left :])
        self._left -= len(part)
        events.append(SnapshotData(part))
        if not self._left:
            self._end(events)
        return rest

    def _marked(self, data: bytes, events: list[Event]) -> bytes:
        whole = self._held + data if self._held else data
        at = whole.find(self._mark)
        if at >= 0:
            if at:
                events.append(SnapshotData(whole[:at]))
            self._held = b""
            self._end(events)
            return whole[at + MARK_SIZE :]
        keep = max(len(whole) - MARK_SIZE + 1, 0)
        self._held = whole[keep:]
        if keep:
            events.append(SnapshotData(whole[:keep]))
        return b""

    def _end(self, events: list[Event]) -> None:
        self._mark = b""
        self.phase = self.after_snapshot
        events.append(SnapshotEnd())


class MasterLink(SnapshotLink):
    """One connection to a master; `position`: where the replica wants to continue, or None."""

    def __init__(self, options: LinkOptions, position: Position | None) -> None:
        super().__init__()
        self._options = options
        self._position = position
        self._out.append(encode(b"PING"))
        self._awaited: deque[str] = deque()

    def _answer(self, line: bytes, events: list[Event]) -> None:
        if self.phase == "ping":
            self._ponged(line)
        elif self.phase == "handshake":
            self._answered(line, events)
        else:
            self._resync(line, events)

    def _ponged(self, line: bytes) -> None:
        known = (b"+", b"-NOAUTH", b"-NOPERM", b"-ERR operation not permitted")
        if not line.startswith(known):
            raise LinkError(f"Error reply to PING from master: '{shown_line(line)}'")
        options = self._options
        if options.password:
            self._ask("AUTH", b"AUTH", *([options.user] if options.user else []), options.password)
        self._ask("listening-port", b"REPLCONF", b"listening-port", b"%d" % options.port)
        if options.ip:
            self._ask("ip-address", b"REPLCONF", b"ip-address", options.ip)
        if options.ephemeral:
            self._ask("rdb-no-compress", b"REPLCONF", b"rdb-no-compress", b"1", b"rdb-no-checksum", b"1")
        channel = (b"capa", b"rdb-channel-repl") if options.rdb_channel else ()
        self._ask("capa", b"REPLCONF", b"capa", b"eof", b"capa", b"psync2", b"capa", _RILLET, *channel)
        if options.version:
            self._ask("version", b"REPLCONF", b"version", options.version)
        self.phase = "handshake"

    def _ask(self, what: str, *words: bytes) -> None:
        self._awaited.append(what)
        self._out.append(encode(*words))

    def _answered(self, line: bytes, events: list[Event]) -> None:
        what = self._awaited.popleft()
        if line.startswith(b"-"):
            if what == "AUTH":
                raise LinkError(f"Unable to AUTH to MASTER: {shown_line(line)}")
            if what not in ("rdb-no-compress", "version"):  # most masters do not know these
                events.append(Note(f"(Non critical) Master does not understand REPLCONF {what}: {shown_line(line)}"))
        if not self._awaited:
            self._ask_psync(events)

    def _ask_psync(self, events: list[Event]) -> None:
        words = [b"PSYNC", b"?", b"-1"]
        if self._position is None:
            events.append(Note("Partial resynchronization not possible (no cached master)"))
        else:
            name, offset = self._position
            events.append(Note(f"Trying a partial resynchronization (request {name}:{offset + 1})."))
            words[1:] = [name.encode(), b"%d" % (offset + 1)]
        if self._options.failover:
            words.append(b"FAILOVER")
        self._out.append(encode(*words))
        self.phase = "psync"

    def _resync(self, line: bytes, events: list[Event]) -> None:
        if not line:
            return  # the master is alive
        words = line.split(b" ")
        if words[0] == b"+CONTINUE" and self._position is not None:
            name = words[1].decode("ascii", "replace") if len(words) > 1 and len(words[1]) == _ID_SIZE else ""
            self.phase = "stream"
            events.append(Continued(name))
        elif words[0] == b"+FULLRESYNC":
            self.phase = "header"
            events.append(full_sync(words))
        elif words[0] == b"+RDBCHANNELSYNC" and self._options.rdb_channel:
            if len(words) < 2 or not words[1].isdigit():
                raise LinkError(f"Master replied with wrong +RDBCHANNELSYNC syntax: {shown_line(line)}")
            self.phase = "stream"
            events.append(ChannelOffered(int(words[1])))
        elif words[0] in (b"-NOMASTERLINK", b"-LOADING"):
            raise LinkError(f"Master is currently unable to PSYNC but should be in the future: {shown_line(line)}")
        else:
            if words[0] == b"-ERR":
                events.append(Note(f"Master does not support PSYNC or is in error state (reply: {shown_line(line)})"))
            else:
                events.append(Note(f"Unexpected reply to PSYNC from master: {shown_line(line)}"))
            events.append(Note("Retrying with SYNC..."))
            self._out.append(encode(b"SYNC"))
            self.phase = "header"
            events.append(FullSync("", -1))


def full_sync(words: list[bytes]) -> FullSync:
    """Return what the words of +FULLRESYNC say; LinkError."""
    if len(words) < 3 or len(words[1]) != _ID_SIZE or not words[2].isdigit():
        raise LinkError("Master replied with wrong +FULLRESYNC syntax.")
    return FullSync(words[1].decode("ascii", "replace"), int(words[2]))


def shown_line(line: bytes) -> str:
    """Return a line of the master for the log."""
    return line.decode("utf-8", "backslashreplace")
