"""The options for tables of hashes, strings, lists, sets, sorted sets, arrays, bitmaps, JSON values and keys.

These are all values of `type` but stream.

`table_type` returns the type that the options name, and `parse_table` checks the options for it. As for streams, one
error lists every mistake. `_TYPES` lists the types of keys that an option applies to; all others are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rillet.spark.option_types import boolean, duration, field_map, names, non_empty, one_of, whole_number
from rillet.spark.options import (
    ALL,
    READ,
    WRITE,
    OptionError,
    Options,
    SinkOptions,
    declared,
    option,
    pair_problems,
    read_values,
    server_problems,
)
from rillet.types.stream.id import MAX

TYPES = ("hash", "string", "list", "set", "zset", "array", "bitmap", "json", "keys")
WRITTEN = ("hash", "string", "list", "set", "zset", "array", "bitmap")
NAMES_OF_KEYS = {"keys": "name"}  # the default of keyColumn, if it is not `key`


def lifetime(text: str) -> int:
    """Return a lifetime in milliseconds, from a number of seconds or a number with a unit (90, 500ms, 30m, 1d)."""
    milliseconds = round(duration(text) * 1000)
    if not 0 < milliseconds < MAX // 2:
        raise ValueError("expected a time of at least 1ms")
    return milliseconds


@dataclass(frozen=True)
class TableOptions(SinkOptions):
    """The checked options of a table; small, because Spark sends them with every task."""

    type: str = option(one_of("stream", *TYPES), ALL, "hash")
    key_pattern: str | None = option(non_empty, READ)
    keys: tuple[str, ...] | None = option(names, READ)
    key_prefix: str = option(non_empty, ALL, "")
    key_column: str | None = option(non_empty, ALL)
    value_column: str | None = option(non_empty, ALL)
    score_column: str = option(non_empty, ALL, "score")
    ttl_column: str | None = option(non_empty, ALL)
    mode: str = option(one_of("PERMISSIVE", "DROPMALFORMED", "FAILFAST"), READ, "PERMISSIVE")
    corrupt_column: str = option(non_empty, READ, "_corrupt", name="columnNameOfCorruptRecord")
    infer_schema: bool = option(boolean, READ, False)
    sample_keys: int = option(whole_number(1), READ, 1000)
    min_partitions: int | None = option(whole_number(1), READ)
    scan_count: int = option(whole_number(1), READ, 1000)
    pipeline_keys: int = option(whole_number(1), READ, 1000)
    batch_rows: int = option(whole_number(1), READ, 10_000)
    field_columns: tuple[str, ...] | None = option(names, WRITE)
    fields: dict[str, str] | None = option(field_map, WRITE)
    nulls: str = option(one_of("keep", "delete"), WRITE, "keep")
    add_columns: tuple[str, ...] | None = option(names, WRITE)
    ttl: int | None = option(lifetime, WRITE)  # milliseconds
    if_exists: str = option(one_of("append", "ignore", "error"), WRITE, "append")
    exactly_once: str = option(one_of("auto", "transaction", "none"), WRITE, "auto")
    transaction_bytes: int = option(whole_number(1 << 10), WRITE, 16 << 20)
    fail_on_data_loss: bool = option(boolean, WRITE, True)
    txn_app_id: str | None = option(non_empty, WRITE)
    txn_version: int | None = option(whole_number(0), WRITE)

    # What the parts that write streams expect of their options (write/transactions.py).
    read_from = "master"
    id_column = maxlen = minid = None
    trim_exactly = False

    @property
    def key_name(self) -> str:
        """Return the name of the column that contains the keys."""
        return self.key_column or NAMES_OF_KEYS.get(self.type, "key")

    @property
    def value_name(self) -> str:
        """Return the name of the column that contains the values or members."""
        return self.value_column or ("member" if self.type in ("set", "zset") else "value")

    @property
    def adds(self) -> bool:
        """Return whether a repeated write changes the result, so that its transactions must recognize it."""
        return self.type == "list" or bool(self.add_columns) or self.exactly_once == "transaction"

    def glob(self) -> bytes:
        """Return the glob of the keys to read: keyPattern, or all keys with the prefix."""
        return self.key_pattern.encode() if self.key_pattern is not None else escaped(self.key_prefix) + b"*"


TABLE = declared(TableOptions)
_LOWER = {one.name.lower(): one for one in TABLE}
TABLE_NAMES = tuple(one.name for one in TABLE)
READ_ONLY = tuple(one.name for one in TABLE if one.use == READ)
WRITE_ONLY = tuple(one.name for one in TABLE if one.use == WRITE)

# The types that an option applies to, if they are not all.
_TYPES = {
    "valueColumn": ("string", "list", "set", "zset", "array", "json"),
    "scoreColumn": ("zset",),
    "inferSchema": ("hash",),
    "fieldColumns": ("hash",),
    "fields": ("hash",),
    "nulls": ("hash", "string"),
    "addColumns": ("hash", "zset"),
    "ttlColumn": (*WRITTEN, "json"),
}
# Options that streams do not have.
_OF_TABLES = {one.name for one in TABLE} - {one.name for one in declared(Options)}
_NOT_TOGETHER = (("keyPattern", "keys"), ("fieldColumns", "fields"), ("ttl", "ttlColumn"))
_NEEDS = (("sampleKeys", "inferSchema"), ("txnAppId", "txnVersion"), ("txnVersion", "txnAppId"))


def escaped(text: str) -> bytes:
    """Return a glob that matches exactly this text."""
    return b"".join(b"\\" + bytes((byte,)) if byte in b"*?[]\\" else bytes((byte,)) for byte in text.encode())


def table_type(given: Mapping[str, str]) -> str | None:
    """Return the text of the option `type`; None for streams."""
    found = next((value for name, value in given.items() if name.lower() == "type"), "stream")
    return None if found.lower() == "stream" else found


def require_type(given: Mapping[str, str]) -> None:
    """Raise OptionError if options of tables are set and the type is missing."""
    found = [one.name for one in TABLE if one.name.lower() in {name.lower() for name in given}]
    wrong = [name for name in found if name in _OF_TABLES]
    if wrong:
        raise OptionError(f"rillet: {', '.join(wrong)}: set the option type to one of {', '.join(TYPES)}")


def parse_table(given: Mapping[str, str]) -> TableOptions:
    """Return the checked options, or raise an OptionError that lists every mistake."""
    values = {name.lower(): value for name, value in given.items()}
    parsed, wrong = read_values(values, _LOWER)
    wrong += server_problems(values)
    kind = parsed.get("type")
    for name, kinds in _TYPES.items():
        if name.lower() in values and kind is not None and kind not in kinds:
            wrong.append(f"{name} applies to the types {', '.join(kinds)}, not to {kind}")
    wrong += pair_problems(values, _NOT_TOGETHER, _NEEDS)
    options = TableOptions(**parsed, named=frozenset(values))
    prefix = options.key_prefix
    if options.key_pattern is not None and not options.key_pattern.encode().startswith(escaped(prefix)):
        wrong.append(f"keyPattern does not begin with keyPrefix {prefix!r}")
    wrong += [f"the key {key!r} does not begin with keyPrefix {prefix!r}" for key in options.keys or ()
              if not key.startswith(prefix)]  # fmt: skip
    if wrong:
        raise OptionError("rillet: " + "; ".join(wrong))
    return options
