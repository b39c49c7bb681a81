"""The columns of a table for each type of keys, and the commands that read them.

    type      columns (besides the key)                  commands for each key
    hash      a column for each field                    HMGET; HGETALL if there is a map column `fields`, or `_corrupt`
    string    value                                      GET
    json      value                                      JSON.GET
    list      index, value                               LLEN, LRANGE      a row for each element
    set       member                                     SCARD, SMEMBERS   a row for each member
    zset      member, score                              ZCARD, ZRANGE     a row for each member
    array     index, value                               ARCOUNT, ARSCAN   a row for each index with a value
    bitmap    offset                                     GET               a row for each bit that is 1
    keys      type, encoding, ttl, idle, bytes           TYPE, OBJECT ENCODING, TTL, OBJECT IDLETIME, MEMORY USAGE

Only the commands of the schema's columns are sent. The key is the column `keyColumn`, without `keyPrefix`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rillet.client.key_reader import LAST_INDEX, KeyPlan
from rillet.columns.arrow_batch import KIND_NAMES, field_alias, kind_of, map_value_kind, set_type
from rillet.columns.column import BINARY, BYTE, INT, LONG, SHORT, STRING, Column
from rillet.columns.row_builder import MODES, RowBuilder
from rillet.columns.table_decoder import BITS, INDEXED, ITEMS, PAIRS, SCALAR, SCORED, VALUES, ReplyPart
from rillet.spark.column_types import unsupported_columns
from rillet.spark.options import OptionError
from rillet.spark.table_options import TableOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# The name of the type in TYPE's reply and in SCAN's option TYPE.
SCAN_TYPES = {"json": b"ReJSON-RL", "keys": b"", "bitmap": b"string"}
_NUMBERS = (BYTE, SHORT, INT, LONG)
_KEY_COMMANDS = {
    "type": (b"TYPE",),
    "encoding": (b"OBJECT", b"ENCODING"),
    "ttl": (b"TTL",),
    "idle": (b"OBJECT", b"IDLETIME"),
    "bytes": (b"MEMORY", b"USAGE"),
}


def default_schema(options: TableOptions) -> str:
    """Return the schema of a table for which the user gave none."""
    key, value = f"`{options.key_name}` string", f"`{options.value_name}` string"
    columns = {
        "hash": f"{key}, fields map<string,string>",
        "list": f"{key}, index bigint, {value}",
        "array": f"{key}, index bigint, {value}",
        "bitmap": f"{key}, offset bigint",
        "zset": f"{key}, {value}, `{options.score_column}` double",
        "keys": f"{key}, type string, encoding string, ttl bigint, idle bigint, bytes bigint",
    }.get(options.type, f"{key}, {value}")
    return columns + (f", `{options.ttl_column}` bigint" if options.ttl_column else "")


def arrow_schema_of(options: TableOptions, schema: StructType) -> Any:
    """Return the Arrow schema of a table; raise an OptionError that lists every column that cannot be read."""
    from pyspark.errors import PySparkTypeError

    from rillet.spark.spark_versions import arrow_schema

    wrong = unsupported_columns(schema)
    if options.ttl_column is not None and options.type not in ("hash", "string", "json"):
        wrong.append("ttlColumn can be read for the types hash, string and json only")
    if not wrong:
        try:
            converted = arrow_schema(schema)
            wrong = TableRows(options, converted).wrong
        except PySparkTypeError as error:
            wrong = [str(error)]
    if wrong:
        raise OptionError(f"rillet: the schema does not fit the type {options.type}: {'; '.join(wrong)}")
    return converted


class TableRows:
    """The row builder of a table's schema, and the plan to read a key. `wrong` lists the errors in the schema.

    field_names: the fields of a hash by column, if they are not the columns' own names.
    """

    def __init__(self, options: TableOptions, schema: Any) -> None:
        self.options = options
        self.rows = RowBuilder(b"", MODES[options.mode])
        self.rows.noun = options.type
        self.rows.before = options.key_prefix.encode()
        self.wrong: list[str] = []
        self.values: dict[str, Column] = {}  # by the column's name; of a hash, by the field's name
        self.fields: list[bytes] = []  # of a hash
        self.whole = False  # whether all fields of a hash are read
        self.ttl: Column | None = None
        for field in schema:
            if text := self._add(field):
                self.wrong.append(text)
        if self.wrong:
            return
        self.plan = self._plan()

    def _add(self, field: Any) -> str | None:
        """Add the column for a field of the Arrow schema; return an error message if the column does not fit."""
        options, rows, kind, name = self.options, self.rows, kind_of(field.type), field.name
        alias = field_alias(field.metadata or {})
        if alias is None and name == options.key_name:
            if kind not in (STRING, BINARY, *_NUMBERS):
                return f"column {name!r} cannot be {field.type}: it contains keys (string, binary or an integer type)"
            rows.add_key(kind)
            return None
        if alias is None and name == options.corrupt_column and kind == STRING and options.type != "keys":
            rows.add_corrupt()
            self.whole = True
            return None
        if alias is None and options.type == "hash" and name == "fields":
            value = map_value_kind(field.type)
            if value is None:
                return f"column {name!r} must be map<string,string> or map<string,binary>, not {field.type}"
            rows.add_map(value)
            self.whole = True
            return None
        if kind is None:
            return f"column {name!r} cannot be {field.type} (supported: {KIND_NAMES})"
        if alias is None and name == options.ttl_column:
            self.ttl = rows.add_value(name.encode(), kind)
            return None if kind in _NUMBERS else f"column {name!r} cannot be {field.type}: it contains seconds (bigint)"
        if options.type == "hash":
            return self._add_field(field, name.encode() if alias is None else alias, kind)
        if name not in self._names():
            return f"there is no column {name!r}: the columns are {', '.join((options.key_name, *self._names()))}"
        self.values[name] = set_type(rows.add_value(name.encode(), kind), field.type)
        return None

    def _add_field(self, field: Any, name: bytes, kind: int) -> str | None:
        """Add a column for a field of a hash."""
        try:
            column = self.rows.add_field(name, kind)
        except ValueError as error:
            return str(error)
        self.values[field.name] = set_type(column, field.type)
        self.fields.append(name)
        return None

    def _names(self) -> Sequence[str]:
        """Return the names of the columns that contain values."""
        options = self.options
        return {
            "list": ("index", options.value_name),
            "array": ("index", options.value_name),
            "bitmap": ("offset",),
            "zset": (options.value_name, options.score_column),
            "keys": tuple(_KEY_COMMANDS),
        }.get(options.type, (options.value_name,))

    def _plan(self) -> KeyPlan:
        """Return the commands that read a key, and the parts of its rows."""
        options, value = self.options, self.values.get(self.options.value_name)
        kind = options.type
        if kind == "list":
            part = ReplyPart(ITEMS, [self.values.get("index"), value])
            return KeyPlan(kind, [(b"LRANGE", b"0", b"-1")], [part], b"LLEN")
        if kind == "bitmap":
            return KeyPlan(kind, [(b"GET",)], [ReplyPart(BITS, [self.values.get("offset")])])
        if kind == "array":
            part = ReplyPart(INDEXED, [self.values.get("index"), value])
            return KeyPlan(kind, [(b"ARSCAN", b"0", LAST_INDEX)], [part], b"ARCOUNT")
        if kind == "set":
            return KeyPlan(kind, [(b"SMEMBERS",)], [ReplyPart(ITEMS, [None, value])], b"SCARD")
        if kind == "zset":
            part = ReplyPart(SCORED, [value, self.values.get(options.score_column)])
            return KeyPlan(kind, [(b"ZRANGE", b"0", b"-1", b"WITHSCORES")], [part], b"ZCARD")
        if kind == "keys":
            wanted = [name for name in _KEY_COMMANDS if name == "type" or name in self.values]
            parts = [
                ReplyPart(SCALAR, [self.values.get(name)], name == "type", name != "type", True) for name in wanted
            ]
            return KeyPlan("key", [_KEY_COMMANDS[name] for name in wanted], parts)
        commands: list[tuple[bytes, ...]] = []
        parts = []
        if self.ttl is not None:
            commands.append((b"TTL",))
            parts.append(ReplyPart(SCALAR, [self.ttl], positive=True))
        if kind != "hash":
            commands.append((b"JSON.GET",) if kind == "json" else (b"GET",))
            parts.append(ReplyPart(SCALAR, [value], required=True))
        elif self.whole:
            commands.append((b"HGETALL",))
            parts.append(ReplyPart(PAIRS, [], required=True))
        elif self.fields:
            commands.append((b"HMGET", *self.fields))
            parts.append(ReplyPart(VALUES, list(self.values.values()), required=True))
        else:
            commands.append((b"HLEN",))
            parts.append(ReplyPart(SCALAR, [None], required=True))
        return KeyPlan(kind, commands, parts, checks=bool(kind == "hash" and self.fields and not self.whole))
