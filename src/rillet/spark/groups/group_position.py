"""Sets a consumer group's last-delivered-id to the query's offset: groupMode=follow, and the base class of both modes.

Spark's checkpoint alone decides what is read again after a restart. Tools that watch a server (XINFO GROUPS, lag
alarms, inspectors) cannot see the checkpoint. The option `group` makes the progress visible to them. Both modes act
when Spark calls `latestOffset`, because Spark then passes the offset up to which all entries are in the sink, also
after the last batch of an available-now query. (Spark calls `commit` one batch late, or never.)

`GroupFollower` sets the group's last-delivered-id to the committed offset. If the offset has an exact count, it also
sets entries-read, so that the group's lag is exact and reaches 0. Tasks read with XRANGE, so no entry becomes pending.
The group belongs to Spark. It is created if it is missing. The first trigger of a query moves it to the query's
position, forwards or backwards (a query that restarts from an older checkpoint has a larger lag). After that it never
moves backwards, so a position that another client has moved further is kept. After a lost connection, the position is
read again, because a server that crashed may have lost its last second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.options import Options
from rillet.spark.read.metadata import id_text
from rillet.spark.read.stream_info import xinfo_groups
from rillet.types.stream.id import StreamID


@dataclass(frozen=True)
class GroupMove:
    """A group's new last-delivered-id in a stream. `read`: entries-read there, if known; `create`: create the group."""

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
        self.done: dict[str, StreamID] = {}  # the last offset to which the group was moved or acknowledged

    def positions(self, streams: Iterable[str]) -> dict[str, StreamID | None]:
        """Return the group's last-delivered-id in each stream; None if the stream does not have the group.

        Missing streams are left out. One round trip per node.
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
        if isinstance(reply, ReplyError) and "syntax" in str(reply).lower() and move.read is not None:  # before 7.0
            (reply,) = self.servers.replies(key, [self._command(move, counted=False)])
        if isinstance(reply, ReplyError) and reply.prefix == "BUSYGROUP":  # another client has created it meanwhile
            self.move(replace(move, create=False))
        elif isinstance(reply, ReplyError):
            where = self.servers.connection(key).address
            raise ConnectorError(
                f"rillet: the group {self.options.group!r} of {stream!r} at {where} cannot be moved: {reply}"
            )

    def _command(self, move: GroupMove, counted: bool = True) -> list[bytes]:
        words = [b"XGROUP", b"CREATE" if move.create else b"SETID", move.stream.encode(), self.name, id_text(move.to)]
        return [*words, b"ENTRIESREAD", b"%d" % move.read] if counted and move.read is not None else words


class GroupFollower(GroupPosition):
    """Moves the group to the offsets that Spark has committed."""

    def __init__(self, options: Options, servers: Servers) -> None:
        super().__init__(options, servers)
        self.moved: set[str] = set()  # streams in which this query has set the position

    def committed(self, streams: Mapping[str, StreamID], added: Mapping[str, int]) -> None:
        """Set the group's position to the offsets up to which all entries are in the sink; skip missing streams.

        Two round trips for all streams whose offset has changed, none for the others.
        """
        current = self.positions(stream for stream, offset in streams.items() if self.done.get(stream) != offset)
        self.move_all([
            GroupMove(stream, streams[stream], added.get(stream), create=position is None)
            for stream, position in current.items()
            if position is None or stream not in self.moved or position < streams[stream]
        ])  # fmt: skip
        self.done.update({stream: streams[stream] for stream in current})
        self.moved.update(current)
