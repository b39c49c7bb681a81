"""Look-ups of the keys that a DataFrame contains: `read_keys` returns their rows, `enrich` adds fields to each row.

Both run in `mapInArrow`: an Arrow batch of keys becomes a pipeline of HMGETs (client/key_reader.py), whose replies
become Arrow columns, without Python objects for the values.

`enrich` looks up the different keys of each batch. It keeps the fields in a cache in the Python worker, which Spark
uses again for later tasks and micro-batches:

    table    one row for each key, in the order of the look-ups
    rows     key -> its row in the table, and the time of the look-up

A key is looked up again when its row is older than `max_age`. When the table would exceed `cache` rows, the cache
starts again with the keys of the current batch. A key that does not exist is in the cache, too, with nulls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from string import Formatter
from typing import TYPE_CHECKING, Any

from rillet.real_time import monotonic
from rillet.spark.errors import plainly
from rillet.spark.option_types import duration
from rillet.spark.options import OptionError
from rillet.spark.server_address import require_store
from rillet.spark.spark_versions import struct_type
from rillet.spark.table_options import WRITE_ONLY, TableOptions, parse_table
from rillet.spark.tables.reader import read_table
from rillet.spark.tables.schema import arrow_schema_of, default_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_KEY = "__rillet_key"
_caches: dict[tuple[Any, ...], _Cache] = {}


def read_keys(
    df: DataFrame, keys: str | None = None, *, schema: str | StructType | None = None, **options: str
) -> DataFrame:
    """Return the table of the keys that a DataFrame contains, each once; keys that do not exist have no row.

    keys: a template of the whole key, such as "user:{user_id}"; by default, keyPrefix and the column keyColumn, or the
    only column. options: as for `spark.read`, with `type`. A key of another type is an error.
    """
    with plainly():
        parsed = _parsed({"type": "hash", **options})
        if df.isStreaming:
            raise OptionError("rillet: read_keys needs a batch DataFrame: use enrich for a streaming one")
        if keys is None:
            name = parsed.key_name if parsed.key_name in df.columns else df.columns[0]
            if name != parsed.key_name and len(df.columns) > 1:
                raise OptionError(f"rillet: there is no column {parsed.key_name!r}: give keys or keyColumn")
            keys = parsed.key_prefix.replace("{", "{{").replace("}", "}}") + "{" + name + "}"
        wanted = struct_type(schema if schema is not None else default_schema(parsed))
        arrow_schema = arrow_schema_of(parsed, wanted)
        column = _key_column(df, keys).alias(_KEY)
    rows = df.select(column).where(f"{_KEY} is not null")
    rows = rows.repartition(df.sparkSession.sparkContext.defaultParallelism, _KEY).distinct()
    return rows.mapInArrow(partial(_read_batches, parsed, arrow_schema), wanted)


def _read_batches(options: TableOptions, schema: Any, batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows of the keys in record batches; runs in a Spark task."""
    with plainly():
        yield from read_table(options, schema, (_keys(batch.column(0)).to_pylist() for batch in batches))


def enrich(
    df: DataFrame, keys: str, fields: Sequence[str] | str | StructType, *, prefix: str = "", cache: int = 100_000,
    max_age: float | str = 60, **options: str,
) -> DataFrame:  # fmt: skip
    """Return the rows of a batch or streaming DataFrame with fields of the hashes that the template `keys` names.

    fields: names, which become string columns, or a schema such as "name string, tier int". prefix: added to the names
    of the new columns. A row whose hash or field is missing has nulls. cache: how many hashes each Python worker keeps,
    for up to max_age (seconds, or a text such as "5m"; 0: look up every batch).
    """
    with plainly():
        parsed = _parsed({"type": "hash", **options})
        parsed.refuse(("keyColumn", "keyPrefix", "ttlColumn", "columnNameOfCorruptRecord"), "enrich")
        parsed = replace(parsed, key_column=_KEY)
        if parsed.type != "hash" or parsed.mode == "DROPMALFORMED":
            raise OptionError("rillet: enrich reads hashes, with the mode PERMISSIVE or FAILFAST")
        added, read = _added(fields, prefix)
        clash = [field.name for field in added.fields if field.name in df.columns]
        if clash:
            raise OptionError(f"rillet: the DataFrame already has the columns {', '.join(clash)}: set prefix")
        try:
            age = float(max_age) if not isinstance(max_age, str) else duration(max_age)
        except ValueError as error:
            raise OptionError(f"rillet: max_age is {max_age!r}: {error}") from None
        if age < 0 or cache < 0:
            raise OptionError("rillet: max_age and cache must not be negative")
        arrow_schema = arrow_schema_of(parsed, read)
        column = _key_column(df, keys)
    from pyspark.sql.types import StructType

    schema = StructType([*df.schema.fields, *added.fields])
    task = partial(_enrich_batches, parsed, arrow_schema, [field.name for field in added.fields], cache, age)
    return df.withColumn(_KEY, column).mapInArrow(task, schema)


def _enrich_batches(
    options: TableOptions, schema: Any, names: list[str], size: int, age: float, batches: Iterable[Any]
) -> Iterator[Any]:
    """Yield the record batches with the added columns; runs in a Spark task."""
    import pyarrow as pa

    with plainly():
        place = (options, schema.serialize().to_pybytes(), size, age)  # the text of a schema leaves out long metadata
        cache = _caches.get(place)
        if cache is None:
            _caches.clear()  # a worker usually serves one query
            cache = _caches[place] = _Cache(options, schema, size, age)
        for batch in batches:
            columns = [batch.column(at) for at, name in enumerate(batch.schema.names) if name != _KEY]
            kept = [name for name in batch.schema.names if name != _KEY]
            columns += cache.columns(_keys(batch.column(batch.schema.names.index(_KEY))))
            yield pa.RecordBatch.from_arrays(columns, [*kept, *names])


class _Cache:
    """The fields of the keys that this process has looked up."""

    def __init__(self, options: TableOptions, schema: Any, size: int, age: float) -> None:
        self.options = options
        self.schema = schema
        self.size = size
        self.age = age
        self.table: Any = None
        self.rows: dict[bytes, tuple[int, float]] = {}

    def columns(self, keys: Any) -> list[Any]:
        """Return a column for each field, with a value for each of the keys."""
        import pyarrow as pa

        encoded = keys.dictionary_encode()
        different: list[bytes] = encoded.dictionary.to_pylist()
        self._load(different)
        places = pa.array([self.rows[key][0] for key in different], pa.int64()).take(encoded.indices)
        return [column.take(places).combine_chunks() for column in self.table.columns[1:]]

    def _load(self, keys: list[bytes]) -> None:
        """Look up the keys that are not in the cache, or are too old."""
        import pyarrow as pa

        now = monotonic()
        missing = [key for key in keys if key not in self.rows or now - self.rows[key][1] >= self.age]
        if self.table is not None and self.table.num_rows + len(missing) > self.size:
            self.table = None
            self.rows.clear()
            missing = keys
        if self.table is None:
            self.table = self.schema.empty_table()
        if not missing:
            return
        found = pa.Table.from_batches(read_table(self.options, self.schema, [missing], keeps=True), self.schema)
        deleted = set(missing).difference(found.column(0).to_pylist())  # keys of another type, deleted meanwhile
        if deleted:
            nulls = [pa.array(sorted(deleted), self.schema.types[0])]
            nulls += [pa.nulls(len(deleted), kind) for kind in self.schema.types[1:]]
            found = pa.concat_tables([found, pa.table(nulls, self.schema)])
        first = self.table.num_rows
        for place, key in enumerate(found.column(0).to_pylist(), first):
            self.rows[key] = place, now
        self.table = pa.concat_tables([self.table, found])
        if self.table.column(0).num_chunks > 8:
            self.table = self.table.combine_chunks()


# ---- keys and fields -----------------------------------------------------------------------------------------------


def _parsed(options: dict[str, str]) -> TableOptions:
    parsed = parse_table(options)
    parsed.refuse(WRITE_ONLY, "look-ups")
    parsed.refuse(("keyPattern", "keys", "minPartitions", "scanCount", "inferSchema"), "look-ups")
    require_store(parsed.path)
    return parsed


def _added(fields: Sequence[str] | str | StructType, prefix: str) -> tuple[StructType, StructType]:
    """Return the schema of the added columns, and the schema to read: the key, then the fields."""
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    if isinstance(fields, (str, StructType)):
        struct = struct_type(fields)
    else:
        struct = StructType([StructField(name, StringType()) for name in fields])
    if not struct.fields:
        raise OptionError("rillet: enrich needs at least one field")
    read = [StructField(_KEY, BinaryType())]
    for field in struct.fields:
        metadata = {"field": field.name, **(field.metadata or {})}
        read.append(StructField(field.name, field.dataType, True, metadata))
    added = [StructField(prefix + field.name, field.dataType) for field in struct.fields]
    return StructType(added), StructType(read)


def template_parts(template: str, names: Sequence[str]) -> list[tuple[str, str | None]]:
    """Return the parts of a template, each a literal and the column that follows it; raise OptionError if malformed."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise OptionError(f"rillet: the template of keys {template!r} is malformed: {error}") from None
    used = [name for _, name, _, _ in parts if name is not None]
    formatted = [name for _, name, form, conversion in parts if name is not None and (form or conversion)]
    unknown = [name for name in used if name not in names]
    problem = ""
    if formatted:
        problem = f"has a format or a conversion for {formatted[0]!r}: format it in a column before, and name that one"
    elif unknown:
        problem = f"names columns that do not exist: {', '.join(map(repr, unknown))}"
    elif not used:
        problem = "names no column"
    if problem:
        raise OptionError(f"rillet: the template of keys {template!r} {problem}; write {{column}} for a column's value")
    return [(literal, name) for literal, name, _, _ in parts]


def _key_column(df: DataFrame, template: str) -> Column:
    """Return the column of keys for a template such as "user:{user_id}"; null if one of its columns is null."""
    from pyspark.sql import functions as F

    columns = []
    for literal, name in template_parts(template, df.columns):
        if literal:
            columns.append(F.lit(literal))
        if name is not None:
            column = F.col("`" + name.replace("`", "``") + "`")
            columns.append(column if dict(df.dtypes)[name] == "binary" else column.cast("string"))
    return F.concat(*columns) if len(columns) > 1 else columns[0]


def _keys(column: Any) -> Any:
    """Return a column of keys as bytes."""
    import pyarrow as pa

    return column.cast(pa.binary())
