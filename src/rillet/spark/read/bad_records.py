"""Rows that do not convert go to a stream, with the reason: the option badRecords=stream:NAME.

A task reads its entries with four more columns: the stream, the two halves of the ID, and the entry as JSON if one of
its values does not convert. Batches without such entries lose these columns again, without a copy. The others are
divided: the sound rows go on to Spark, an entry for each bad row is appended to the stream NAME on the same server:

    stream   events                         id       1526919030474-5
    reason   the field 'delay' is not of type double: 'late'
    entry    {"delay": "late", "carrier": "UA"}

**Exactly once.** The transaction that appends the entries also stores the position of the last of them, in a key of its
own for each task; an attempt that runs again, or beside another one, skips what lies before this position:

    WATCH key;  GET key;  MULTI;  XADD NAME ...;  SET key "<batch> <range> <ms> <seq>";  EXEC

    streaming query   the key has the query's ID and the number of the task, and is kept; the batch is the hash of its
                      end. A repeated batch has the same end, and the same tasks with the same ranges (offsets.py)
    batch read        a random name that the planner makes for the read; the key expires after a day

The entries are written before Spark receives the sound rows of the same record batch, so none is missing when Spark
commits a batch. They are no part of the sink's commit: they are visible earlier, and stay if the batch is never
repeated. Entries that are deleted or changed between two attempts may be missing.

Rejected: the sink's commit records (commits.py), which the driver closes after a batch: a Python source is not called
then; and IDs of the source as IDs in NAME, because tasks run at the same time and IDs must rise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark import TaskContext
from xxhash import xxh3_64_hexdigest

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.client.transaction import retry, transact
from rillet.columns.arrow_batch import field_alias, require_values
from rillet.columns.row_builder import SOURCES, RowBuilder
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.options import Options
from rillet.spark.read.offsets import Part
from rillet.spark.write.commits import BATCH_SECONDS, record_key
from rillet.types.stream.id import StreamID

CORRUPT = "rillet: a bad record"
"""The name of the column with bad entries; no field of a user's schema has it."""
SHOWN = 100  # the maximum length of a value in a reason, in characters
PAYLOAD = "rillet: the payload"
MOST = 1000  # entries in a transaction
TRIES = 100


class TaskName(NamedTuple):
    """What all attempts of a read task have in common: the batch, and the number of the task in it."""

    batch: str
    number: int


def batch_name(end: Mapping[str, StreamID]) -> str:
    """Return the name of a micro-batch, by the last ID of each stream."""
    return xxh3_64_hexdigest(json.dumps(sorted(end.items())).encode())


class BadRecords:
    """Divides the record batches of one task, and appends its bad records to their stream."""

    def __init__(self, options: Options, servers: Servers, ranges: Sequence[Part], schema: Any, name: TaskName) -> None:
        """schema: the Arrow schema of the rows that Spark receives."""
        import pyarrow as pa

        more = [pa.field("stream", pa.string()), pa.field("id_ms", pa.int64()), pa.field("id_seq", pa.int64()),
                pa.field(CORRUPT, pa.string())]  # fmt: skip
        self._payload, self._field = options.payload_decoder, options.payload_field
        if self._payload is not None:
            more.append(pa.field(PAYLOAD, pa.binary(), metadata={"field": options.payload_field}))
        self.schema = pa.schema([*(field.with_nullable(True) for field in schema), *more])
        self._given = schema
        self._servers = servers
        self._ranges = ranges
        self._at = 0  # the range of the last bad record
        self._batch = name.batch
        self._target = str(options.bad_records).encode()
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        source = f"{options.place()} {options.keys()} {options.stream_pattern} {options.partitioned_stream}"
        self._lasting = query is not None
        self._key = record_key(
            self._target, f"bad-records {query or name.batch} {xxh3_64_hexdigest(source.encode())} {name.number}"
        )

    def sound(self, batch: Any, rows: RowBuilder) -> Any:
        """Return the sound rows of a record batch with the columns for Spark; append the others to their stream."""
        import pyarrow as pa
        import pyarrow.compute as pc

        own = len(self._given)
        if batch.column(own + 3).null_count < batch.num_rows:
            is_sound = pc.is_null(batch.column(own + 3))
            self._append(batch.filter(pc.invert(is_sound)), [column.label for column in rows.columns])
            batch = batch.filter(is_sound)
        require_values(batch.columns, self._given)
        return pa.RecordBatch.from_arrays(batch.columns[:own], schema=self._given)

    def _append(self, bad: Any, labels: Sequence[str]) -> None:
        own = len(self._given)
        streams, ms, seq, texts = (column.to_pylist() for column in bad.columns[own : own + 4])
        payloads = [None] * len(texts) if self._payload is None else bad.column(own + 4).to_pylist()
        reasons = self._reasons(bad, texts, labels, payloads)
        found = []
        for row, stream in enumerate(streams):
            identifier = StreamID(ms[row] % (1 << 64), seq[row] % (1 << 64))
            words = [b"stream", stream.encode(), b"id", str(identifier).encode(), b"reason", reasons[row].encode(),
                     b"entry", texts[row].encode()]  # fmt: skip
            if (payload := payloads[row]) is not None:
                words += [b"payload", payload]
            found.append(((self._range_of(stream, identifier), *identifier), words))
        for start in range(0, len(found), MOST):
            self._write(found[start : start + MOST])

    def _range_of(self, stream: str, identifier: StreamID) -> int:
        """Return the number of the range of an entry; the entries come in the order of the ranges."""
        while True:
            name, after, last = self._ranges[self._at]
            if name == stream and after < identifier <= last:
                return self._at
            self._at += 1

    def _reasons(
        self, bad: Any, texts: Sequence[str], labels: Sequence[str], payloads: list[bytes | None]
    ) -> list[str]:
        """Return what is wrong with each row: the fields that are present and have become null."""
        entries = [json.loads(text) for text in texts]
        found: list[list[str]] = [[] for _ in texts]
        if self._payload is not None:
            for row, reason in enumerate(self._payload.reasons(payloads)):
                if reason:
                    found[row].append(f"the field {self._field!r} {reason}: {(payloads[row] or b'')[:SHOWN]!r}")
        for field, column, label in zip(self._given, bad.columns, labels, strict=False):
            if self._payload is not None and field.name == self._payload.column:
                continue
            alias = field_alias(field.metadata or {})
            if column.null_count and (alias is not None or field.name not in SOURCES):
                name = field.name if alias is None else alias.decode("utf-8", "replace")
                for row, is_sound in enumerate(column.is_valid().to_pylist()):
                    if not is_sound and name in entries[row]:
                        value = repr(entries[row][name][:SHOWN])
                        found[row].append(f"the field {name!r} is not of type {label}: {value}")
        return ["; ".join(reasons) or "a value does not have the type of its column" for reasons in found]

    def _write(self, found: Sequence[tuple[tuple[int, int, int], Sequence[bytes]]]) -> None:
        """Append entries in one transaction with the position of the last one, unless an attempt has done so."""
        servers, target, key = self._servers, self._target, self._key

        def commands() -> list[Sequence[bytes]]:
            kind = servers.call(target, b"TYPE", target)
            if kind not in (b"stream", b"none"):
                raise ConnectorError(f"rillet: badRecords: {target.decode()!r} is a {kind.decode()}, not a stream")
            known = (servers.call(target, b"GET", key) or b"").decode().split()
            done = tuple(map(int, known[1:])) if known[:1] == [self._batch] else (-1, 0, 0)
            left = [one for one in found if one[0] > done]
            if not left:
                return []
            position = " ".join([self._batch, *map(str, left[-1][0])]).encode()
            expiry = () if self._lasting else (b"EX", b"%d" % BATCH_SECONDS)
            return [*((b"XADD", target, b"*", *words) for _, words in left), (b"SET", key, position, *expiry)]

        replies = retry(servers, lambda: transact(servers, target, [key], commands, TRIES), target)
        if replies is None:
            raise ConnectorError(f"rillet: badRecords: other attempts of the same task write to {target.decode()!r}")
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise ConnectorError(f"rillet: badRecords: writing to {target.decode()!r}: {reply}", str(reply))
