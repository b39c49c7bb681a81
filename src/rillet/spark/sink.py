"""Record batches into a stream: what an executor does with the rows that Spark hands it.

Every row becomes one XADD. Which columns become fields:

    fieldColumns given        exactly these
    a map column `fields`     its pairs, and no other column: what the source reads, the sink writes back
    otherwise                 all columns but stream, id, id_ms, id_seq, timestamp (the source's own), and idColumn

A value's text: strings and bytes as they are, numbers in decimal, booleans true and false, timestamps as ISO
8601 in UTC; nulls are left out. Values of other types are refused before the first row is written: to_json() is
Spark's way to texts.

Commands leave in chunks, and the replies of one chunk are read after the next one has left, so the server
always has work and neither side ever holds more than two chunks. The first error reply ends the task with the
server's text.

Guarantee: at least once. A task that Spark runs again appends its rows again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from rillet.columns.pack import Packer, Texts
from rillet.protocol.replies import ReplyError
from rillet.spark.connection import Connection, ConnectorError, endpoint
from rillet.spark.options import READ_ONLY, OptionError, Options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

CHUNK = 1 << 18
OWN_COLUMNS = ("stream", "id", "id_ms", "id_seq", "timestamp")


class _Writing:
    """What both writers share."""

    def __init__(self, options: Options, schema: StructType) -> None:
        options.refuse(READ_ONLY, "writing")
        self.options = options
        self.fields = field_columns(options, schema)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Append the rows of a task."""
        with Connection(endpoint(self.options), self.options.timeout) as connection:
            sender = Sender(connection, self.options)
            for batch in iterator:
                sender.send(batch, self.fields)
            sender.finish()
        return WriterCommitMessage()


class BatchWriter(_Writing, DataSourceArrowWriter):
    """The writer of df.write."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """The writer of df.writeStream."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)


def field_columns(options: Options, schema: StructType) -> list[str]:
    """Return the columns whose values are written; OptionError names all that cannot be."""
    from pyspark.sql.types import AtomicType, MapType, NumericType, StringType, VariantType

    kinds = {field.name: field.dataType for field in schema.fields}
    wanted = list(options.field_columns or ())
    if not wanted and isinstance(kinds.get("fields"), MapType):
        wanted = ["fields"]
    if not wanted:
        wanted = [name for name in kinds if name not in (*OWN_COLUMNS, options.id_column)]
    wrong = [f"there is no column {name!r}" for name in (*wanted, options.id_column) if name and name not in kinds]
    if not wanted:
        wrong.append(
            f"no column is left to write: {', '.join(OWN_COLUMNS)} are the source's own (name them in fieldColumns)"
        )
    for name in wanted:
        kind = kinds.get(name)
        if isinstance(kind, MapType) and wanted == ["fields"]:
            if not isinstance(kind.keyType, StringType):
                wrong.append("the keys of the map column 'fields' must be strings")
            kind = kind.valueType
        if kind is not None and (isinstance(kind, VariantType) or not isinstance(kind, (AtomicType, NumericType))):
            wrong.append(f"column {name!r} is {kind.simpleString()}, which has no text: use to_json")
    if wrong:
        raise OptionError("rillet: " + "; ".join(wrong))
    return wanted


def texts(array: Any, name: str = "") -> Texts:
    """Return an Arrow array as a column of texts."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_timestamp(kind):
        array = _iso_8601(array)
    elif not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        array = array.cast(pa.string())
    valid, offsets, data = (None if buffer is None else buffer.to_pybytes() for buffer in array.buffers())
    return Texts(name.encode(), valid if array.null_count else None, offsets or b"\0\0\0\0", data, array.offset)


def _iso_8601(array: Any) -> Any:
    """Return timestamps as texts, 2013-01-01T05:15:00.000000Z; without Z where the type has no time zone."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = array.cast(pa.timestamp(array.type.unit)).cast(pa.string())
    plain = pc.replace_substring(plain, " ", "T", max_replacements=1)
    return plain if array.type.tz is None else pc.binary_join_element_wise(plain, "Z", "")


class Sender:
    """Packs batches and sends them, one chunk ahead of the replies."""

    def __init__(self, connection: Connection, options: Options) -> None:
        self.connection = connection
        self.options = options
        words = [b"XADD", options.stream.encode()]
        if options.maxlen is not None:
            words += [b"MAXLEN", b"~", b"%d" % options.maxlen]
        self.packer = Packer(words)
        self.unanswered = 0

    def send(self, batch: Any, fields: list[str]) -> None:
        """Append a record batch."""
        import pyarrow as pa

        ids = texts(batch.column(self.options.id_column)) if self.options.id_column else None
        first = batch.column(fields[0])
        if fields == ["fields"] and pa.types.is_map(first.type):
            ends = first.buffers()[1].to_pybytes()
            self.packer.rows_of_map(ends, first.offset, texts(first.keys), texts(first.items), ids)
        else:
            self.packer.rows_of([texts(batch.column(name), name) for name in fields], ids)
        row = 0
        while row < batch.num_rows:
            try:
                row = self.packer.pack(row, batch.num_rows, CHUNK)
            except ValueError as error:
                raise ConnectorError(f"rillet: writing to {self.options.stream!r}: {error}") from None
            if self.packer.used >= CHUNK:
                self._leave()

    def _leave(self) -> None:
        """Send the chunk, then read the replies of the one before."""
        commands = self.packer.commands
        self.connection.send(self.packer.take())
        self._answers(self.unanswered)
        self.unanswered = commands

    def finish(self) -> None:
        """Send what is left and wait until everything is answered."""
        self._leave()
        self._answers(self.unanswered)

    def _answers(self, count: int) -> None:
        for _ in range(count):
            reply = self.connection.reply()
            if isinstance(reply, ReplyError):
                raise ConnectorError(
                    f"rillet: {self.connection.address} refused to append to {self.options.stream!r}: {reply}"
                )
