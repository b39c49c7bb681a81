"""exactlyOnce = idmp: the server leaves out what it has had already (Redis 8.6 and newer, and rillet).

    XADD events IDMP <query>:<batch>:<partition>:<block> <row> * ...

A stream remembers, for each producer, its last messages, at most 10,000 and for at most a day. So a task is not one
producer but one for every 10,000 rows: the producer's name says which of them, the message's is the row's number there.
A row that is sent again while the server remembers it is answered with the ID that it got, and nothing is appended.

What this guarantees, and what not:

- Only within the window: `idmp-duration` of the stream, which is raised to an hour where it is less (XCFGSET makes it a
  day, and is kept to). A batch repeated later appends its rows again.
- Only for rows that come in the same order: a row is known by its place. Where another attempt has other rows at these
  places, rows are lost and doubled, and nobody notices.
- 76 bytes of the server's memory for a row, as long as it is remembered.
- Raising the window makes the server forget what other producers of that stream had sent before.

What it has over transactions: no keys beside the stream, no queue in the server, rows that can be read at once. That is
why it is there, and why it is not the default.
"""

from __future__ import annotations

from typing import Any

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.columns.row_packing import RowPacker
from rillet.spark.options import Options
from rillet.spark.write.commits import Identity, shown
from rillet.spark.write.row_encoder import RowEncoder
from rillet.spark.write.writer import PlainSender, append_words

WINDOW_ROWS = 10_000  # the most that a stream can be told to remember of a producer
WINDOW_SECONDS = 3_600


class ProducerSender(PlainSender):
    """Writes rows that have names of their own."""

    def __init__(self, servers: Servers, options: Options, layout: RowEncoder, identity: Identity) -> None:
        super().__init__(servers, options, layout, identity.partition)
        self.name = f"{identity.query}:{identity.batch}:{identity.partition}"
        self.placed: dict[bytes, int] = {}  # rows of each stream that have their names

    def begin(self, stream: bytes) -> None:
        """Meet a stream for the first time, and see to it that it remembers enough."""
        super().begin(stream)
        self.placed[stream] = 0
        if not self.servers.call(stream, b"EXISTS", stream):
            self._make(stream)
        flat = self.servers.call(stream, b"XINFO", b"STREAM", stream)
        told = dict(zip(flat[::2], flat[1::2], strict=True))
        if b"idmp-duration" not in told:
            raise self._without(stream)
        seconds, rows = max(told[b"idmp-duration"], WINDOW_SECONDS), max(told[b"idmp-maxsize"], WINDOW_ROWS)
        if (seconds, rows) != (told[b"idmp-duration"], told[b"idmp-maxsize"]):
            window = (b"IDMP-DURATION", b"%d" % seconds, b"IDMP-MAXSIZE", b"%d" % rows)
            self.servers.call(stream, b"XCFGSET", stream, *window)

    def _make(self, stream: bytes) -> None:
        """Make an empty stream where there is none, as XCFGSET asks for one."""
        (told,) = self.servers.replies(stream, [(b"XCFGSET", stream, b"IDMP-MAXSIZE", b"%d" % WINDOW_ROWS)])
        if "unknown command" in str(told):
            raise self._without(stream)
        group = b"rillet:%b" % self.name.encode()
        making = [(b"MULTI",), (b"XGROUP", b"CREATE", stream, group, b"$", b"MKSTREAM")]
        self.servers.calls(stream, [*making, (b"XGROUP", b"DESTROY", stream, group), (b"EXEC",)])

    def _without(self, stream: bytes) -> ConnectorError:
        return ConnectorError(
            f"rillet: the server of {shown(stream)} ({self.servers}) does not know producers (IDMP), which came with "
            f"Redis 8.6: leave exactlyOnce out"
        )

    def _pack(self, stream: bytes, rows: Any) -> None:
        """Pack rows, those of each block under the name of its own producer."""
        at = 0
        while at < rows.num_rows:
            if self.placed[stream] % WINDOW_ROWS == 0 and stream in self.packers:
                packer = self.packers.pop(stream)
                if packer.used:
                    self.chunk(stream, packer)
            piece = rows.slice(at, WINDOW_ROWS - self.placed[stream] % WINDOW_ROWS)
            super()._pack(stream, piece)
            self.placed[stream] += piece.num_rows
            at += piece.num_rows

    def packer(self, stream: bytes) -> RowPacker:
        """Return a packer of the commands of the block that comes now."""
        producer = f"{self.name}:{self.placed[stream] // WINDOW_ROWS}"
        return RowPacker([*append_words(self.options, stream), b"IDMP", producer.encode()], b"*")

    def ids(self, stream: bytes, rows: Any) -> Any:
        """Return the rows' names."""
        import pyarrow as pa

        first = self.placed[stream] % WINDOW_ROWS
        return pa.array(range(first, first + rows.num_rows), pa.int32())
