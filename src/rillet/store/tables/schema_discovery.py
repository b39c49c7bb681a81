"""Arrow tables without a given schema: each field becomes a column, and columns of numeric texts become numeric.

Every field gets a column, initially of strings. The first batch in which a column has values determines its type. If
all these values are integers or doubles (`schema_inference.typed`), the column stores numbers from then on
(`columns/column.py`: WHOLE, REAL), so later texts are parsed only once. Other columns keep their texts, and `typed`
examines all of them at the end.

    batch 1     "17" "18" ...    typed: int64        the column becomes WHOLE
    batch 2      19   20  ...    int64
    batch 3      21  "2.5" ...   double              it becomes REAL, and batches 1 and 2 are cast at the end
    batch 4     "n/a"            NotPlain            the whole range is read again, as texts

The result is the same as if all texts had been kept. Only a column that has numbers in its first 16,384 entries and
other text later requires a second read. The interpreted build determines all types at the end, because Arrow's casts
are faster than its parser. Rejected: a smaller first batch. Its buffers would have to grow for the second batch, and
the growth costs more than the casts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    import pyarrow as pa
except ModuleNotFoundError:  # `arrow.require_pyarrow` reports the missing package
    pass

from rillet.columns.arrow_batch import record_batch
from rillet.columns.column import COMPILED, REAL, STRING, WHOLE, Column
from rillet.columns.row_builder import FIELD, ID, ID_TIME, SOURCES, RowBuilder
from rillet.store.tables.schema_inference import few_of, typed


class DiscoveredSchema:
    """The columns of a table that is read without a given schema: the current rows, and batches of earlier rows."""

    def __init__(self, key: bytes, columns: Sequence[str] | None, early: bool = COMPILED) -> None:
        """columns: the columns to read (None: all). early: decide after one batch whether a column is numeric."""
        self.rows = RowBuilder(key)
        self.early = early
        self.batches: list[Any] = []
        self.decided: set[bytes] = set()
        self._known: tuple[tuple[int, ...], Any] = ((), None)
        if columns is None:
            self.rows.add_source(ID)
            self.rows.add_source(ID_TIME)
            self.rows.discovers = True
        for name in columns or ():
            if name == "fields":
                raise ValueError('a column named "fields" requires fields="map" or a schema that contains it')
            if name in SOURCES:
                self.rows.add_source(SOURCES[name])
            else:
                self.rows.add_field(name.encode(), STRING)

    def finish_batch(self) -> None:
        """Append the current rows to the batches."""
        batch = record_batch(self.rows, self._schema())
        if self.early:
            for index, column in enumerate(self.rows.columns):
                if column.kind == STRING and column.source == FIELD and column.name not in self.decided:
                    batch = self._decide(batch, index, column)
        self.batches.append(batch)

    def _decide(self, batch: Any, index: int, column: Column) -> Any:
        """Make a column numeric if all its texts in a batch are numbers; return the batch with its final column."""
        texts = pa.chunked_array([batch.column(index)])
        if not len(few_of(texts)):
            return batch
        self.decided.add(column.name)
        found = typed(texts)
        if found.type not in (pa.int64(), pa.float64()):
            return batch
        column.be_plain(WHOLE if found.type == pa.int64() else REAL)
        return batch.set_column(index, batch.schema.field(index).with_type(found.type), found.combine_chunks())

    def _schema(self) -> Any:
        """Return the Arrow schema of the current columns; each column's metadata contains its field name."""
        now = tuple(column.kind for column in self.rows.columns)
        if self._known[1] is None or self._known[0] != now:
            self._known = (now, self._new_schema())
        return self._known[1]

    def _new_schema(self) -> Any:
        kinds = {STRING: pa.string(), WHOLE: pa.int64(), REAL: pa.float64()}
        own_kinds = {"id_ms": pa.int64(), "id_seq": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
        own = {source: name for name, source in SOURCES.items()}
        fields = []
        taken: set[str] = set()
        for column in self.rows.columns:
            if column.source == FIELD:
                name = free_name(column.name.decode("utf-8", "backslashreplace"), taken)
                fields.append(pa.field(name, kinds[column.kind], metadata={"field": column.name}))
            else:
                name = own[column.source]
                fields.append(pa.field(name, own_kinds.get(name, pa.string())))
            taken.add(name)
        return pa.schema(fields)

    def table(self) -> Any:
        """Return all batches as one table."""
        schema = self._schema()
        found = []
        for index, field in enumerate(schema):
            column = pa.chunked_array([self._chunk(batch, index, field.type) for batch in self.batches], field.type)
            if field.metadata is not None:
                if pa.types.is_string(field.type):
                    column = typed(column)
                same = field.metadata[b"field"] == field.name.encode()
                field = pa.field(field.name, column.type, metadata=None if same else field.metadata)
            found.append((field, column))
        return pa.table([column for _, column in found], pa.schema([field for field, _ in found]))

    def _chunk(self, batch: Any, index: int, kind: Any) -> Any:
        """Return a batch's column, converted to the type `kind`; rows without the field are null."""
        there = batch.column(index) if index < batch.num_columns else None
        if there is None or (pa.types.is_string(there.type) and not pa.types.is_string(kind)):
            return pa.nulls(batch.num_rows, kind)
        # Integers beyond 2^53 are rounded, as a cast of their texts to double would do.
        return there if there.type == kind else there.cast(kind, safe=False)


def free_name(name: str, taken: set[str]) -> str:
    """Return a unique column name for a field; a field named `id` or `timestamp` becomes `id_field`, and so on."""
    wanted = f"{name}_field" if name in SOURCES else name
    found, number = wanted, 1
    while found in taken:
        number += 1
        found = f"{wanted}_{number}"
    return found
