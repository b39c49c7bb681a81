"""Decodes the entries of a stream in an RDB file, one node at a time, into columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rillet.columns.arrow_batch import record_batch, rows_for
from rillet.columns.node_decoder import NodeDecoder, nodes_of
from rillet.columns.resp_decoder import DONE
from rillet.persistence.rdb.stream_parts import StreamParts
from rillet.types.stream.id import MAX

_BATCH_BYTES = 16 << 20


def entry_batches(parts: StreamParts, name: bytes, schema: Any, most: int) -> Iterator[Any]:
    """Read the nodes of a stream; yield its entries as record batches."""
    rows = rows_for(schema, name)
    for identifier in parts.nodes():
        node = parts.reader.string()
        decoder = NodeDecoder(rows, nodes_of([(identifier, node)]), (0, 0), (MAX, MAX), most, _BATCH_BYTES)
        while decoder.decode() != DONE:
            yield record_batch(rows, schema)
    if rows.length:
        yield record_batch(rows, schema)
