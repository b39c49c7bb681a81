"""Writes rows with exactlyOnce=idmp: the server skips rows that it already has (Redis 8.6 or newer, or rillet).

    XADD events IDMP <query>:<batch>:<partition>:<block> <row> * ...

The server stores the names of each producer's last messages to a stream: at most 10,000, for at most a day. So each
block of 10,000 rows of a task has its own producer name, which contains the block's number. The message name of a row
is its number in the block. If a row is sent again within the stream's `idmp-duration`, the server replies with the ID
of the existing entry and appends nothing.

Limits:

- A batch that is repeated after the `idmp-duration` appends its rows again. The writer raises a shorter `idmp-duration`
  to an hour and never shortens it; XCFGSET allows up to a day.
- Rows are identified by their position. If another attempt has other rows at the same positions, rows are lost and
  duplicated without an error.
- Each message name takes 76 bytes of the server's memory.
- If the writer raises the `idmp-duration`, the server forgets the messages of all other producers of that stream.

Advantages over transactions: no queue on the server, no additional keys but the record of a streaming query
(query_record.py), and rows are visible immediately. Because of the limits above, idmp is not the default.
"""

from __future__ import annotations

from typing import Any

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.client.transaction import multi_exec
from rillet.columns.row_packing import RowPacker
from rillet.spark.options import Options
from rillet.spark.read.stream_info import pairs_to_dict
from rillet.spark.write.commits import Identity, shown
from rillet.spark.write.query_record import TaskNotes
from rillet.spark.write.row_encoder import RowEncoder
from rillet.spark.write.writer import PlainSender, append_words

WINDOW_ROWS = 10_000  # the largest number of messages that a stream can remember per producer
WINDOW_SECONDS = 3_600


class ProducerSender(PlainSender):
    """Writes rows with XADD IDMP: each row has a producer and a message name, so the server skips repeated rows."""

    def __init__(
        self, servers: Servers, options: Options, layout: RowEncoder, identity: Identity, notes: TaskNotes | None
    ) -> None:
        super().__init__(servers, options, layout, identity.partition, notes)
        self.name = f"{identity.query}:{identity.batch}:{identity.partition}"
        self.placed: dict[bytes, int] = {}  # by stream: number of rows packed so far

    def begin(self, stream: bytes) -> None:
        """Check that the key is a stream, and raise its `idmp-duration` if it is shorter than an hour."""
        super().begin(stream)
        self.placed[stream] = 0
        if not self.servers.call(stream, b"EXISTS", stream):
            self._make(stream)
        info = pairs_to_dict(self.servers.call(stream, b"XINFO", b"STREAM", stream))
        if "idmp-duration" not in info:
            raise self._unsupported(stream)
        seconds, rows = max(info["idmp-duration"], WINDOW_SECONDS), max(info["idmp-maxsize"], WINDOW_ROWS)
        if (seconds, rows) != (info["idmp-duration"], info["idmp-maxsize"]):
            window = (b"IDMP-DURATION", b"%d" % seconds, b"IDMP-MAXSIZE", b"%d" % rows)
            self.servers.call(stream, b"XCFGSET", stream, *window)

    def _make(self, stream: bytes) -> None:
        """Create an empty stream: XCFGSET requires that the key exists."""
        (reply,) = self.servers.replies(stream, [(b"XCFGSET", stream, b"IDMP-MAXSIZE", b"%d" % WINDOW_ROWS)])
        if "unknown command" in str(reply):
            raise self._unsupported(stream)
        group = b"rillet:%b" % self.name.encode()
        create = (b"XGROUP", b"CREATE", stream, group, b"$", b"MKSTREAM")
        multi_exec(self.servers, stream, [create, (b"XGROUP", b"DESTROY", stream, group)])

    def _unsupported(self, stream: bytes) -> ConnectorError:
        return ConnectorError(
            f"rillet: the server of {shown(stream)} ({self.servers}) does not support IDMP, which requires Redis 8.6: "
            f"leave out exactlyOnce"
        )

    def _pack(self, stream: bytes, rows: Any) -> None:
        """Pack rows as XADD commands; each block of 10,000 rows has its own producer name."""
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
        """Return a packer for XADD commands with the current block's producer name."""
        producer = f"{self.name}:{self.placed[stream] // WINDOW_ROWS}"
        return RowPacker([*append_words(self.options, stream), b"IDMP", producer.encode()], b"*")

    def ids(self, stream: bytes, rows: Any) -> Any:
        """Return the IDMP message names of rows, which are the rows' numbers in their block."""
        import pyarrow as pa

        first = self.placed[stream] % WINDOW_ROWS
        return pa.array(range(first, first + rows.num_rows), pa.int32())
