"""The commands that write a row, for each type of keys.

    hash      HSET key field value ...                       nulls=delete: HDEL key field ... for the null columns
                                                             (of a map column: HDEL key name for each null value)
              HINCRBY or HINCRBYFLOAT key field number       for each of the addColumns
    string    SET key value KEEPTTL, or SET key value PX ms  nulls=delete: DEL key for a null value
    list      RPUSH key value
    set       SADD key member
    zset      ZADD key score member                          addColumns=<scoreColumn>: ZINCRBY key number member
    array     ARSET key index value
    bitmap    SETBIT key offset 1, or the value of the column `bit`
    all       PEXPIRE key ms                                 with ttl or ttlColumn; a null leaves the lifetime unchanged

mode("overwrite") of hashes and strings writes DEL before HSET, and SET without KEEPTTL, so that a key has nothing from
before. A row with a null key is an error. A row without a value to write (a null member, value or element; a hash
with only nulls) is left out; the driver logs a warning with the number of these rows.

`TableLayout` checks the schema on the driver and loads record batches into a CommandPacker in tasks. Spark sends it
with every task, so it is small.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rillet.client.cluster import slot_of
from rillet.client.errors import ConnectorError
from rillet.columns.command_packing import CommandForm, CommandPacker
from rillet.columns.string_column import as_texts, texts
from rillet.spark.options import OptionError
from rillet.spark.table_options import WRITTEN, TableOptions
from rillet.spark.write.commits import slot_tags

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_KEY = 0  # the index of the key among a packer's columns
_REMOVED = "__rillet_removed"  # the column of the names that a map column maps to null, one a row


class TableLayout:
    """The commands for the rows of a table, and how rows are divided among transactions."""

    by_turns = False
    of_map = False

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool) -> None:
        """Check the schema of the rows; raise an OptionError that lists every column that cannot be written."""
        self.options = options
        self.overwrite = overwrite
        self.cluster = False  # set in tasks: whether each slot has its own transactions
        self.without_value = 0  # rows of a task of which nothing was written
        kinds = {field.name: field.dataType for field in schema.fields}
        self.key = options.key_name
        self.with_bit = options.type == "bitmap" and "bit" in kinds
        self.prefix = options.key_prefix.encode()
        self.added = list(options.add_columns or ())
        self.fields = self._fields(kinds) if options.type == "hash" else {}
        wrong = self._missing(kinds)
        if not wrong:
            wrong = [text for name in self.columns() for text in _without_text(name, kinds[name], self._is_map(name))]
            wrong += [f"column {name!r} is {kinds[name].simpleString()}, not a number"
                      for name in self._numbers() if not _is_number(kinds[name])]  # fmt: skip
            wrong += [f"column {name!r} is {kinds[name].simpleString()}, not an integer"
                      for name in self._indexes() if not _is_index(kinds[name])]  # fmt: skip
        if wrong:
            raise OptionError("rillet: " + "; ".join(wrong))
        self.whole_numbers = {name for name in self.added if _is_whole(kinds[name])}

    def _fields(self, kinds: dict[str, DataType]) -> dict[str, str]:
        """Return the field name for each column of a hash."""
        from pyspark.sql.types import MapType

        options = self.options
        if options.fields:
            return options.fields
        if options.field_columns:
            return {name: name for name in options.field_columns}
        if isinstance(kinds.get("fields"), MapType):
            self.of_map = True
            return {}
        return {name: name for name in kinds if name not in (self.key, options.ttl_column)}

    def _missing(self, kinds: dict[str, DataType]) -> list[str]:
        """Return error messages for missing columns, and for columns that would not be written."""
        options = self.options
        if options.type not in WRITTEN:
            return [f"the type {options.type} can be read, not written (written types: {', '.join(WRITTEN)})"]
        wrong = [f"there is no column {name!r}" for name in self.columns() if name not in kinds]
        if options.type == "hash":
            wrong += [f"addColumns: {name!r} is not a column that is written"
                      for name in self.added if name in kinds and name not in self.fields]  # fmt: skip
            others = [name for name in kinds if name not in self.columns()]
            if self.of_map and others:
                wrong.append(
                    "the map column 'fields' is the whole hash, so there is no place for the columns "
                    f"{', '.join(others)}: add them to the map, leave them out, or select columns with fieldColumns"
                )
            if not self.fields and not self.of_map:
                wrong.append("there is no column to write besides the key")
        else:
            if options.type == "zset" and self.added not in ([], [options.score_column]):
                wrong.append(f"addColumns can only be {options.score_column}, the scoreColumn")
            own = [*self.columns(), *(["index"] if options.type == "list" else [])]
            others = [name for name in kinds if name not in own]
            if others and not wrong:
                wrong.append(f"a {options.type} has no place for the columns {', '.join(others)}: select "
                             f"{', '.join(self.columns())}")  # fmt: skip
        return wrong

    @property
    def removes(self) -> bool:
        """Return whether a null in the map column deletes the field."""
        return self.of_map and self.options.nulls == "delete" and not self.overwrite

    def _is_map(self, name: str) -> bool:
        return self.of_map and name == "fields"

    def _numbers(self) -> list[str]:
        """Return the columns that must contain numbers."""
        options = self.options
        scores = [options.score_column] if options.type == "zset" else []
        return list(dict.fromkeys([*scores, *self.added, *([options.ttl_column] if options.ttl_column else [])]))

    def _indexes(self) -> list[str]:
        """Return the columns that must contain integers."""
        return {"array": ["index"], "bitmap": ["offset"]}.get(self.options.type, [])

    def columns(self) -> list[str]:
        """Return the names of the columns that are written, the key first."""
        options = self.options
        names = [self.key]
        if options.type == "hash":
            names += ["fields"] if self.of_map else list(self.fields)
        elif options.type == "bitmap":
            names += ["offset", "bit"] if self.with_bit else ["offset"]
        else:
            names.append(options.value_name)
            if options.type == "zset":
                names.append(options.score_column)
            if options.type == "array":
                names.append("index")
        return [*names, options.ttl_column] if options.ttl_column else names

    # ---- commands ----

    @property
    def transactional(self) -> bool:
        """Return whether repeated commands would change the result, so that rows are written in transactions."""
        once = self.options.exactly_once
        return once == "transaction" or (once == "auto" and (self.options.type == "list" or bool(self.added)))

    def packer(self) -> CommandPacker:
        """Return a packer for the commands of rows, whose columns `load` sets."""
        return CommandPacker(self._commands())

    def _commands(self) -> list[CommandForm]:
        options = self.options
        place = {name: number for number, name in enumerate(self.columns())}
        commands: list[CommandForm] = []
        lifetime: list[bytes] = []
        if options.type == "hash":
            if self.overwrite:
                commands.append(CommandForm([b"DEL", _KEY]))
            set_columns = [place[name] for name in self.fields if name not in self.added]
            if self.of_map:
                commands.append(CommandForm([b"HSET", _KEY], of_map=True))
                if self.removes:
                    commands.append(CommandForm([b"HDEL", _KEY, len(place)]))
            elif set_columns:
                commands.append(CommandForm([b"HSET", _KEY], pairs=set_columns))
                if options.nulls == "delete" and not self.overwrite:
                    commands.append(CommandForm([b"HDEL", _KEY], nulls=set_columns))
            for name in self.added:
                whole = name in self.whole_numbers
                words: list[bytes | int] = [b"HINCRBY" if whole else b"HINCRBYFLOAT", _KEY, self.fields[name].encode()]
                commands.append(CommandForm([*words, place[name]], bulk=not whole))
        elif options.type == "string":
            if options.ttl is not None:
                lifetime = [b"PX", b"%d" % options.ttl]
            elif not self.overwrite:
                lifetime = [b"KEEPTTL"]
            commands.append(CommandForm([b"SET", _KEY, 1, *lifetime]))
            if options.nulls == "delete":
                commands.append(CommandForm([b"DEL", _KEY], only_null=1))
        elif options.type == "zset":
            verb = b"ZINCRBY" if self.added else b"ZADD"
            commands.append(CommandForm([verb, _KEY, 2, 1], bulk=bool(self.added)))
        elif options.type == "bitmap":
            commands.append(CommandForm([b"SETBIT", _KEY, 1, 2 if self.with_bit else b"1"]))
        elif options.type == "array":
            commands.append(CommandForm([b"ARSET", _KEY, 2, 1]))
        else:
            commands.append(CommandForm([b"RPUSH" if options.type == "list" else b"SADD", _KEY, 1]))
        if options.ttl is not None and not lifetime:
            commands.append(CommandForm([b"PEXPIRE", _KEY, b"%d" % options.ttl]))
        if options.ttl_column:
            commands.append(CommandForm([b"PEXPIRE", _KEY, place[options.ttl_column]]))
        return commands

    def load(self, packer: CommandPacker, batch: Any, ids: Any = None) -> None:
        """Load the columns of a record batch, whose keys `with_keys` has made, into a packer."""
        loaded = []
        for name in self.columns():
            column = batch.column(name)
            if self._is_map(name):
                packer.map_of(column.buffers()[1].to_pybytes(), column.offset, texts(column.keys), texts(column.items))
                loaded.append(texts(batch.column(self.key)))  # keeps the indexes of the columns
            else:
                loaded.append(texts(column, self.fields.get(name, name)))
        if self.removes:
            loaded.append(texts(batch.column(_REMOVED)))
        packer.rows_of(loaded)

    # ---- rows ----

    def with_keys(self, batch: Any) -> Any:
        """Return the rows of a record batch that write something, with whole keys, and lifetimes in milliseconds."""
        import pyarrow as pa
        import pyarrow.compute as pc

        options = self.options
        keys = as_texts(batch.column(self.key)).cast(pa.binary())
        if keys.null_count:
            raise ConnectorError(f"rillet: the column {self.key!r} contains a null: every row needs a key")
        if self.prefix:
            keys = pc.binary_join_element_wise(pa.scalar(self.prefix), keys, pa.scalar(b""))
        arrays = []
        for name in self.columns():
            column = keys if name == self.key else batch.column(name)
            if name == options.ttl_column:
                column = self._milliseconds(column, keys)
            if name == options.score_column and options.type == "zset":
                self._require_scores(column, batch.column(options.value_name), keys)
            if name == "index" and options.type == "array":
                self._require_indexes(column, batch.column(options.value_name), keys)
            if name == "bit" and self.with_bit:
                column = column.cast(pa.int64())
            arrays.append(column)
        made = pa.RecordBatch.from_arrays(arrays, self.columns())
        self.without_value += self._count_without_value(made)
        if self.removes:
            return self._with_removed(made)
        if self.of_map or (options.type in ("hash", "string") and (options.nulls == "delete" or self.overwrite)):
            return made
        value = "offset" if options.type == "bitmap" else options.value_name
        wanted = list(self.fields) if options.type == "hash" else [value]
        wanted += [options.ttl_column] if options.ttl_column else []
        if any(made.column(name).null_count == 0 for name in wanted):
            return made
        used = pc.is_valid(made.column(wanted[0]))
        for name in wanted[1:]:
            used = pc.or_(used, pc.is_valid(made.column(name)))
        return made.filter(used)

    def _values(self) -> list[str]:
        """Return the columns with the values of a row."""
        if self.options.type == "hash":
            return ["fields"] if self.of_map else list(self.fields)
        return ["offset" if self.options.type == "bitmap" else self.options.value_name]

    def _count_without_value(self, batch: Any) -> int:
        """Return how many rows have no value, and delete none."""
        import pyarrow.compute as pc

        columns = [batch.column(name) for name in self._values()]
        if self.of_map:
            (maps,) = columns
            if not maps.items.null_count:
                ends = maps.offsets
                empty = pc.or_(pc.equal(ends[1:], ends[:-1]), pc.is_null(maps))
                return int(pc.sum(empty).as_py() or 0)
            return sum(not any(value is not None or self.removes for _, value in row or ()) for row in maps.to_pylist())
        deletes = self.options.nulls == "delete" and not self.overwrite and self.options.type in ("hash", "string")
        if deletes or any(column.null_count == 0 for column in columns):
            return 0
        used = pc.is_valid(columns[0])
        for column in columns[1:]:
            used = pc.or_(used, pc.is_valid(column))
        return int(batch.num_rows) - int(pc.sum(used).as_py() or 0)

    def _with_removed(self, batch: Any) -> Any:
        """Return the rows with the column of removed names; each name gets a row, which follows the row of its map."""
        import pyarrow as pa

        maps = batch.column("fields")
        rows: list[int] = []
        names: list[Any] = []
        if maps.items.null_count:
            for row, pairs in enumerate(maps.to_pylist()):
                removed = [name for name, value in pairs or () if value is None]
                rows += [row] * (1 + len(removed))
                names += [None, *removed]
        else:
            rows, names = list(range(batch.num_rows)), [None] * batch.num_rows
        first = pa.array(rows, pa.int64(), mask=[name is not None for name in names] or None)
        columns = [batch.column(name).take(pa.array(rows, pa.int64()) if name == self.key else first)
                   for name in batch.schema.names]  # fmt: skip
        return pa.RecordBatch.from_arrays([*columns, pa.array(names, pa.string())], [*batch.schema.names, _REMOVED])

    def _milliseconds(self, column: Any, keys: Any) -> Any:
        """Return lifetimes in seconds as milliseconds; raise ConnectorError if one is not above 0."""
        import pyarrow as pa
        import pyarrow.compute as pc

        made = pc.round(pc.multiply(column.cast(pa.float64()), 1000.0)).cast(pa.int64())
        wrong = pc.index(pc.less(made, 1), True).as_py()
        if wrong >= 0:
            raise ConnectorError(
                f"rillet: the ttlColumn {self.options.ttl_column!r} is {column[wrong]} for the key "
                f"{_shown(keys[wrong])}: expected seconds above 0, or null for no change"
            )
        return made

    def _require_scores(self, scores: Any, members: Any, keys: Any) -> None:
        import pyarrow.compute as pc

        missing = pc.is_null(scores, nan_is_null=str(scores.type) in ("float", "double"))
        wrong = pc.index(pc.and_(missing, pc.is_valid(members)), True).as_py()
        if wrong >= 0:
            raise ConnectorError(
                f"rillet: the scoreColumn {self.options.score_column!r} has no number for the member "
                f"{members[wrong].as_py()!r} of {_shown(keys[wrong])}"
            )

    def _require_indexes(self, indexes: Any, values: Any, keys: Any) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        bad = pc.fill_null(pc.less(indexes, pa.scalar(0).cast(indexes.type)), True)
        wrong = pc.index(pc.and_(bad, pc.is_valid(values)), True).as_py()
        if wrong >= 0:
            raise ConnectorError(
                f"rillet: the column 'index' is {indexes[wrong].as_py()} for a value of {_shown(keys[wrong])}: "
                "expected an index of at least 0"
            )

    # ---- transactions (write/transactions.py) ----

    @property
    def single(self) -> bool:
        """Return whether all rows of a task are in the same transactions."""
        return not self.cluster

    def streams(self) -> list[bytes]:
        """Return the name of the commit record's place for a single server; none for a cluster."""
        return [] if self.cluster else [self._place()]

    def _place(self) -> bytes:
        return self.prefix or self.options.type.encode()

    def shares(self, batch: Any, turn: int) -> Iterator[tuple[bytes, Any]]:
        """Yield the rows that share transactions: all rows, or those of a slot, with a name in that slot."""
        if not self.cluster:
            if batch.num_rows:
                yield self._place(), batch
            return
        tags = slot_tags()
        for slot, rows in self.grouped(batch, [slot_of(key) for key in batch.column(self.key).to_pylist()]):
            yield tags[slot], rows

    def grouped(self, batch: Any, numbers: list[int]) -> Iterator[tuple[int, Any]]:
        """Yield each number with the rows of a record batch that have it, in order."""
        import pyarrow as pa
        import pyarrow.compute as pc

        codes = pa.array(numbers, pa.int32())
        order = pc.sort_indices(codes)
        codes, batch = codes.take(order), batch.take(order)
        at = 0
        for pair in pc.value_counts(codes).to_pylist():
            yield pair["values"], batch.slice(at, pair["counts"])
            at += pair["counts"]


def _shown(key: Any) -> str:
    return repr(key.as_py().decode(errors="backslashreplace"))


def _is_number(kind: DataType) -> bool:
    from pyspark.sql.types import NumericType

    return isinstance(kind, NumericType)


def _is_index(kind: DataType) -> bool:
    """Return whether a column can contain indexes: an integer type, or decimal(p,0) for those above a bigint."""
    from pyspark.sql.types import DecimalType

    return _is_whole(kind) or (isinstance(kind, DecimalType) and kind.scale == 0)


def _is_whole(kind: DataType) -> bool:
    from pyspark.sql.types import IntegralType

    return isinstance(kind, IntegralType)


def _without_text(name: str, kind: DataType, of_map: bool) -> list[str]:
    """Return the reasons why a column cannot be converted to text; an empty list if it can."""
    from pyspark.sql.types import AtomicType, MapType, NumericType, StringType

    from rillet.spark.spark_versions import VariantType

    if isinstance(kind, MapType) and of_map:
        if not isinstance(kind.keyType, StringType):
            return ["the keys of the map column 'fields' must be strings"]
        kind = kind.valueType
    if isinstance(kind, VariantType) or not isinstance(kind, (AtomicType, NumericType)):
        return [f"column {name!r} is {kind.simpleString()}, which cannot be converted to text: use to_json"]
    return []
