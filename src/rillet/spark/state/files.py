"""The files of a state table: a row for each key, in a folder for each bucket of keys; all functions run in tasks.

    db int, key string, key_bytes binary, type string, version bigint, expires timestamp, expires_ms bigint,
    value string                                       strings
    elements array<string>                             lists in order, sets sorted
    fields map<string,string>                          hashes
    scores map<string,double>                          sorted sets, in order
    entries array<struct<id string, fields map<...>>>  streams
    dump binary                                        every type: the payload of DUMP

    snapshot ── snapshot_task (some parts) ──► a file per bucket ─┐
    old file of a bucket ─────────────────────────────────────────┴─ merge_task ◄── written keys
                └── lookup_task: the keys that a batch needs

`dump` is the exact value, with groups, pending entries and expiries of fields; a batch is applied to it. The other
columns are text: bytes that are not UTF-8 become \\x.. escapes. A value of more than 64 MiB has only `dump`.

A file's row groups have at most 64 MiB or one row, and are read one after another, so a task holds little more.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from rillet.errors import RilletError
from rillet.spark.archive.manifest import Part
from rillet.spark.archive.targets import FileTarget
from rillet.spark.changes.storage import Storage
from rillet.store.store import Store
from rillet.transfer.batch_engine import StateKey
from rillet.transfer.dumped_values import Values, entries_of
from rillet.transfer.rdb_parts import SnapshotPart, snapshot_keys
from rillet.transfer.rdb_tables import moment, shown
from rillet.transfer.touched_keys import Moves
from rillet.types.stream.id import StreamID

_GROUP_ROWS = 1 << 15
_WAITING_BYTES = 64 << 20  # of rows of all open files of a task
_MOST_TEXT = 64 << 20  # bytes of a value that is shown as text
_LOOKUP = ("db", "key_bytes", "expires_ms", "version", "dump")


def bucket_of(key: bytes, buckets: int) -> int:
    """Return the bucket of a key, in all databases."""
    return zlib.crc32(key) % buckets


def schema() -> Any:
    """Return the Arrow schema of the files."""
    import pyarrow as pa

    text = pa.string()
    texts = pa.map_(text, text)
    return pa.schema([
        ("db", pa.int32()), ("key", text), ("key_bytes", pa.binary()), ("type", text), ("version", pa.int64()),
        ("expires", pa.timestamp("us", tz="UTC")), ("expires_ms", pa.int64()), ("value", text),
        ("elements", pa.list_(text)), ("fields", texts), ("scores", pa.map_(text, pa.float64())),
        ("entries", pa.list_(pa.struct([("id", text), ("fields", texts)]))), ("dump", pa.binary()),
    ])  # fmt: skip


# -- rows ------------------------------------------------------------------------------------------------------------


class RowMaker:
    """Makes rows of keys; a context manager. It decodes values in an engine for each family of servers."""

    def __init__(self) -> None:
        self._values: dict[int, Values] = {}

    def __enter__(self) -> RowMaker:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._values.values():
            one.__exit__(None, None, None)

    def row(self, one: StateKey) -> tuple[dict[str, Any], int]:
        """Return the row of a key, and about how many bytes it has."""
        version = int.from_bytes(one.payload[-10:-8], "little")
        values = self._values.get(version)
        if values is None:
            values = self._values[version] = Values(version)
        never = one.expires < 0
        row = {
            "db": one.db, "key": shown(one.key), "key_bytes": one.key, "version": one.version,
            "expires": None if never else moment(one.expires), "expires_ms": None if never else one.expires,
            "dump": one.payload,
        }  # fmt: skip
        with values.holding(one.key, one.payload) as store:
            row["type"] = kind = store.execute("TYPE", one.key).decode()
            words = _words(store, one.key, kind)
        size = sum(map(len, words)) + 8 * len(words)
        if size <= _MOST_TEXT:
            row.update(_columns(words, kind))
        return row, 256 + len(one.payload) + min(size, _MOST_TEXT)


def _words(store: Store, key: bytes, kind: str) -> list[Any]:
    """Return the elements of a value; those of a stream are ID, number of words, words."""
    if kind == "string":
        return [store.execute("GET", key)]
    if kind == "list":
        return list(store.execute("LRANGE", key, 0, -1))
    if kind == "set":
        return sorted(store.execute("SMEMBERS", key))
    if kind == "hash":
        return list(store.execute("HGETALL", key))
    if kind == "zset":
        return list(store.execute("ZRANGE", key, 0, -1, "WITHSCORES"))
    if kind == "stream":
        return [word for one, words in entries_of(store, key) for word in (one, b"%d" % len(words), *words)]
    return []


def _columns(words: list[bytes], kind: str) -> dict[str, Any]:
    """Return the columns of a value that has these elements."""
    if kind == "string":
        return {"value": shown(words[0])}
    if kind in ("list", "set"):
        return {"elements": list(map(shown, words))}
    if kind == "hash":
        return {"fields": _pairs(words)}
    if kind == "zset":
        return {"scores": [(shown(name), float(score)) for name, score in zip(words[::2], words[1::2], strict=True)]}
    return {"entries": list(_entries(words))} if kind == "stream" else {}


def _entries(words: list[bytes]) -> Iterator[dict[str, Any]]:
    at = 0
    while at < len(words):
        end = at + 2 + int(words[at + 1])
        yield {"id": words[at].decode(), "fields": _pairs(words[at + 2 : end])}
        at = end


def _pairs(words: list[bytes]) -> list[tuple[str, str]]:
    texts = list(map(shown, words))
    return list(dict(zip(texts[::2], texts[1::2], strict=True)).items())


# -- files -----------------------------------------------------------------------------------------------------------


class StateFile:
    """A file that is being written; its rows have the columns `schema`, which a MERGE of Delta writes as views."""

    def __init__(self, target: FileTarget, bucket: int, offset: int) -> None:
        import pyarrow.parquet as pq

        self._target, self._bucket, self._offset = target, bucket, offset
        self.schema = schema()
        self._path, self._file = target.create()
        self._writer = pq.ParquetWriter(self._file, self.schema, compression=target.compression, use_dictionary=False)
        self._rows: list[dict[str, Any]] = []
        self._tables: list[Any] = []  # rows of other files
        self.waiting = self._count = self._written = 0

    def add(self, row: dict[str, Any], size: int) -> None:
        """Add a row of about `size` bytes."""
        self._make_room(1, size)
        self._rows.append(row)

    def copy(self, table: Any) -> None:
        """Add the rows of a row group of another file."""
        if table.num_rows:
            self._make_room(table.num_rows, table.nbytes)
            self._tables.append(table)

    def _make_room(self, rows: int, size: int) -> None:
        """Count rows that are added; before that, write the waiting ones if the group would become too large."""
        if self._count and (self._count + rows > _GROUP_ROWS or self.waiting + size > _WAITING_BYTES):
            self.flush()
        self._count += rows
        self.waiting += size

    def flush(self) -> None:
        """Write the waiting rows as a row group."""
        import pyarrow as pa

        if self._rows:
            self._tables.append(pa.Table.from_pylist(self._rows, schema=self.schema))
        if self._tables:
            self._writer.write_table(pa.concat_tables(self._tables), row_group_size=self._count)
        self._written += self._count
        self._rows, self._tables, self.waiting, self._count = [], [], 0, 0

    def close(self) -> Part:
        """Complete the file; return its description."""
        self.flush()
        self._writer.close()
        place = StreamID(self._offset, 0)
        part = Part(self._path, str(self._bucket), None, place, place, self._written, self._file.tell())
        return self._target.finish(part, self._file)


# -- tasks -----------------------------------------------------------------------------------------------------------


def snapshot_task(folder: str, run: str, parts: Iterable[SnapshotPart], offset: int, buckets: int,
                  target: FileTarget) -> list[Part]:  # fmt: skip
    """Write the keys of parts of a snapshot to a file for each bucket. Holds one part at a time."""
    storage = Storage(folder)
    files: dict[int, StateFile] = {}
    with RowMaker() as rows:
        for part in parts:
            for key in snapshot_keys(storage.snapshot_bytes(run, part), part):
                bucket = bucket_of(key.key, buckets)
                if bucket not in files:
                    files[bucket] = StateFile(target, bucket, offset)
                files[bucket].add(*rows.row(StateKey(key.db, key.key, key.expires, offset, key.payload)))
                if sum(file.waiting for file in files.values()) > _WAITING_BYTES:
                    max(files.values(), key=lambda file: file.waiting).flush()
    return [file.close() for file in files.values()]


def lookup_task(path: str, wanted: frozenset[tuple[int, bytes]], whole: frozenset[int],
                target: FileTarget) -> list[StateKey]:  # fmt: skip
    """Return the wanted keys of a file, and all keys of the databases `whole`."""
    found = []
    with target.read(path) as file:
        for number in range(file.num_row_groups):
            batch = file.read_row_group(number, columns=list(_LOOKUP))
            dbs, keys = batch.column("db").to_pylist(), batch.column("key_bytes").to_pylist()
            for row, place in enumerate(zip(dbs, keys, strict=True)):
                if place in wanted or place[0] in whole:
                    expires = batch.column("expires_ms")[row].as_py()
                    found.append(StateKey(*place, -1 if expires is None else expires,
                                          batch.column("version")[row].as_py(),
                                          batch.column("dump")[row].as_py()))  # fmt: skip
    return found


def merge_task(bucket: int, offset: int, olds: Iterable[str], gone: frozenset[tuple[int, bytes]],
               moves: Moves | None, written: Iterable[StateKey],
               target: FileTarget) -> Part:  # fmt: skip
    """Write a bucket's new file: the rows of its old files without the keys `gone`, and the written keys.

    moves: the databases to which the rows belong from now on (`gone` means these), if they do not all stay.
    """
    made = StateFile(target, bucket, offset)
    for path in olds:
        with target.read(path) as file:
            for number in range(file.num_row_groups):
                made.copy(_kept(file.read_row_group(number).cast(made.schema), gone, moves))
    with RowMaker() as rows:
        for one in written:
            made.add(*rows.row(one))
    return made.close()


def _kept(batch: Any, gone: frozenset[tuple[int, bytes]], moves: Moves | None) -> Any:
    """Return the rows that remain, with their database."""
    import pyarrow as pa

    if not gone and moves is None:
        return batch
    if batch.schema.names[:1] != ["db"]:
        raise RilletError("rillet: a file of the state table has other columns")
    dbs: list[int | None] = batch.column("db").to_pylist()
    if moves is not None:
        dbs = [None if db is None else moves.target(db) for db in dbs]
        batch = batch.set_column(0, batch.schema.field("db"), pa.array(dbs, pa.int32()))
    keys = batch.column("key_bytes").to_pylist()
    return batch.filter(pa.array([db is not None and (db, key) not in gone
                                  for db, key in zip(dbs, keys, strict=True)]))  # fmt: skip
