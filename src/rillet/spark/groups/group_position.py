"""Sets a consumer group's last-delivered-id to the query's offset: groupMode=follow, and the base class of both modes.

Spark's checkpoint alone determines which entries are read again after a restart. Tools that watch a server (XINFO
GROUPS, lag alarms, inspectors) cannot see the checkpoint. The option `group` makes the progress visible to them. Both
modes update the group when Spark calls `latestOffset`, because Spark then passes the offset up to which all entries are
in the sink, even after the last batch of an available-now query. (Spark calls `commit` one batch late, or never.)

`GroupFollower` sets the group's last-delivered-id to the committed offset. If the offset has an exact count, it also
sets entries-read, so that the group's lag is exact and reaches 0. Tasks read with XRANGE, so no entry becomes pending.
No other consumer should use the group. A missing group is created. The first trigger of a query moves the group to the
query's position, forwards or backwards (a query that restarts from an older checkpoint has a larger lag). Later
triggers only move the group forwards, so they keep the position if another client has moved the group further. After a
lost connection, the position is read again, because a server that crashed may have lost the last second of writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.options import Options
from rillet.spark.read.data_loss import DataLoss
from rillet.spark.read.metadata import id_text
from rillet.spark.read.stream_info import xinfo_groups
from rillet.types.stream.id import MAX, StreamID


@dataclass(frozen=True)
class GroupMove:
    """A change of a group's last-delivered-id in a stream; `read`: the new entries-read, if known."""

    stream: str
    to: StreamID
    read: int | None = None
    create: bool = False


class GroupPosition:
    """A consumer group on the servers, and its last-delivered-id in each stream."""

    def __init__(self, options: Options, servers: Servers) -> None:
        assert options.group is not None
        self.options = options
        self.servers = servers
        self.name = options.group.encode()
        self.consumer = options.consumer.encode()
        self.done: dict[str, StreamID] = {}  # by stream: the last offset set in the group or acknowledged

    def positions(self, streams: Iterable[str]) -> dict[str, StreamID | None]:
        """Return the group's last-delivered-id in each stream; None if the stream does not have the group.

        The result omits missing streams. One round trip per node.
        """
        names = list(streams)
        positions: dict[str, StreamID | None] = {}
        for name, groups in zip(names, xinfo_groups(self.servers, [name.encode() for name in names]), strict=True):
            if groups is not None:
                ids = [StreamID.parse(group["last-delivered-id"]) for group in groups if group["name"] == self.name]
                positions[name] = ids[0] if ids else None
        return positions

    def move_all(self, moves: Sequence[GroupMove]) -> None:
        """Set the group's position in several streams, in one round trip per node."""
        replies = self.servers.each([(move.stream.encode(), self._command(move)) for move in moves])
        for move, reply in zip(moves, replies, strict=True):
            if isinstance(reply, ReplyError):
                self.move(move)

    def move(self, move: GroupMove) -> None:
        """Set the group's position in one stream; raise ConnectorError if the server rejects it."""
        stream, key = move.stream, move.stream.encode()
        (reply,) = self.servers.replies(key, [self._command(move)])
        if isinstance(reply, ReplyError) and "syntax" in str(reply).lower() and move.read is not None:
            # Redis before 7.0 rejects the argument ENTRIESREAD.
            (reply,) = self.servers.replies(key, [self._command(move, counted=False)])
        if isinstance(reply, ReplyError) and reply.prefix == "BUSYGROUP":  # another client has just created the group
            self.move(replace(move, create=False))
        elif isinstance(reply, ReplyError):
            where = self.servers.connection(key).address
            raise ConnectorError(
                f"rillet: the group {self.options.group!r} of {stream!r} at {where} cannot be moved: {reply}"
            )

    # ---- the consumer's pending entries ----

    def pending_ids(self, stream: str, low: bytes, high: bytes, count: int) -> list[StreamID]:
        """Return up to `count` IDs from `low` to `high` that are pending for the consumer, in order (XPENDING)."""
        key = stream.encode()
        entries = self.servers.call(key, b"XPENDING", key, self.name, low, high, b"%d" % count, self.consumer)
        return [StreamID.parse(entry[0]) for entry in entries]

    def pending_after(self, stream: str, after: StreamID, high: bytes, count: int) -> list[StreamID]:
        """Return up to `count` IDs after `after`, up to `high`, that are pending for the consumer."""
        if after.ms == after.seq == MAX:  # the largest ID: XPENDING would reject the range
            return []
        return self.pending_ids(stream, b"(" + id_text(after), high, count)

    def moved_back(self, stream: str, position: StreamID, delivered: StreamID) -> DataLoss:
        """Return the error for a group whose last-delivered-id is before entries that it has already delivered."""
        where = self.servers.connection(stream.encode()).address
        return DataLoss(
            f"rillet: entries may have been lost before being read: the group {self.options.group!r} of the stream "
            f"{stream!r} at {where} is at {position}, although it has delivered entries up to {delivered}: another "
            "client moved the group back, or its server crashed and lost the last changes. Set failOnDataLoss=false to "
            "continue and read the entries that the group delivers again"
        )

    def deleted_entries(self, stream: str, entries: int) -> DataLoss:
        """Return the error for entries that were delivered to the consumer and deleted before they were read."""
        where = self.servers.connection(stream.encode()).address
        lost = f"{entries} {'entry was' if entries == 1 else 'entries were'}"
        return DataLoss(
            f"rillet: {lost} lost before being read: delivered from the stream {stream!r} at {where} to the consumer "
            f"{self.options.consumer!r} of the group {self.options.group!r} and then deleted. Set failOnDataLoss=false "
            "to continue without them"
        )

    # ---- the command XGROUP ----

    def _command(self, move: GroupMove, counted: bool = True) -> list[bytes]:
        words = [b"XGROUP", b"CREATE" if move.create else b"SETID", move.stream.encode(), self.name, id_text(move.to)]
        return [*words, b"ENTRIESREAD", b"%d" % move.read] if counted and move.read is not None else words


class GroupFollower(GroupPosition):
    """Sets the consumer group's last-delivered-id to the offsets that Spark has committed."""

    def __init__(self, options: Options, servers: Servers) -> None:
        super().__init__(options, servers)
        self.moved: set[str] = set()  # streams in which this query has set the position

    def committed(self, streams: Mapping[str, StreamID], added: Mapping[str, int]) -> None:
        """Set the group's position to the committed offset of each stream; skip missing streams.

        Two round trips for all streams whose offset has changed; none if no offset has changed.
        """
        current = self.positions(stream for stream, offset in streams.items() if self.done.get(stream) != offset)
        self.move_all([
            GroupMove(stream, streams[stream], added.get(stream), create=position is None)
            for stream, position in current.items()
            if position is None or stream not in self.moved or position < streams[stream]
        ])  # fmt: skip
        self.done.update({stream: streams[stream] for stream in current})
        self.moved.update(current)
