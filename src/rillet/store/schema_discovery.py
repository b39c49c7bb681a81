"""A table of a stream whose columns nobody named: fields become columns as they appear, texts become numbers.

Every field that occurs has a column, of strings to begin with. The first batch in which a column has values decides
what it is: where all of them are whole numbers or doubles (`inferred.typed`), the column takes numbers from then on
(`columns/column.py`: WHOLE, REAL), which confirms the type without a second look at a text. Others stay texts, and
`typed` looks at all of them in the end.

    batch 1     "17" "18" ...    typed: int64        the column becomes WHOLE
    batch 2      19   20  ...    int64
    batch 3      21  "2.5" ...   double              it becomes REAL, and batches 1 and 2 are cast in the end
    batch 4     "n/a"            NotPlain            all of it once more, as texts

So the type is one that every value fits, as if all texts had been kept; only a column that is numbers for 16,384
entries and then something else costs a second reading. Interpreted, Arrow's casts over texts are the faster way, and
nothing is decided early. Rejected: a smaller first batch to decide by; the buffers of the second grow out of those of
the first, and memory that has grown costs more than the casts do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rillet.columns.column import COMPILED, REAL, STRING, WHOLE, Column
from rillet.columns.row_builder import FIELD, ID, ID_TIME, SOURCES, RowBuilder
from rillet.store.schema_inference import few_of, typed


class DiscoveredSchema:
    """The rows to fill, and the batches taken from them."""

    def __init__(self, key: bytes, columns: Sequence[str] | None, early: bool = COMPILED) -> None:
        """`columns` names the ones that are wanted, None all; early: a batch may decide that a column is numbers."""
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
                raise ValueError('the column "fields" is there with fields="map" or in a schema')
            if name in SOURCES:
                self.rows.add_source(SOURCES[name])
            else:
                self.rows.add_field(name.encode(), STRING)

    def take(self) -> None:
        """Take what is in the rows as one more batch."""
        from rillet.columns.arrow_batch import record_batch

        batch = record_batch(self.rows, self._schema())
        if self.early:
            for index, column in enumerate(self.rows.columns):
                if column.kind == STRING and column.source == FIELD and column.name not in self.decided:
                    batch = self._decide(batch, index, column)
        self.batches.append(batch)

    def _decide(self, batch: Any, index: int, column: Column) -> Any:
        """Have a column be numbers from now on where its texts of a batch, if it has any, are; return the batch so."""
        import pyarrow as pa

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
        """Return the schema of the columns as they are; a field's own name is in its metadata."""
        now = tuple(column.kind for column in self.rows.columns)
        if self._known[1] is None or self._known[0] != now:
            self._known = (now, self._made())
        return self._known[1]

    def _made(self) -> Any:
        import pyarrow as pa

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
        """Return all that was taken."""
        import pyarrow as pa

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
        """Return a batch's column as one of that type; nulls where it was not there, or had no value."""
        import pyarrow as pa

        there = batch.column(index) if index < batch.num_columns else None
        if there is None or (pa.types.is_string(there.type) and not pa.types.is_string(kind)):
            return pa.nulls(batch.num_rows, kind)
        # Whole numbers beyond 2^53 are rounded, as their texts would be.
        return there if there.type == kind else there.cast(kind, safe=False)


def free_name(name: str, taken: set[str]) -> str:
    """Return a column's name for a field: `id` and the like mean something else, and no name is there twice."""
    wanted = f"{name}_field" if name in SOURCES else name
    found, number = wanted, 1
    while found in taken:
        number += 1
        found = f"{wanted}_{number}"
    return found
