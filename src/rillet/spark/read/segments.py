"""Reads the pieces of streams that lie in segments, in a task, without the owner of the store (planned_store.py).

The reader finds the first and the last node of a piece by the index of the segment, reads these nodes, many
with one read, checks each node's checksum, and decodes the nodes where they were read. Other nodes are not read.

Only this module of the connector imports persistence: what wrote a segment must read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rillet.client.pages import successor
from rillet.columns.node_decoder import NodeReader
from rillet.persistence.disk import REAL
from rillet.persistence.segments.segment import IndexCache, Segment, parse_reference
from rillet.spark.read.planned_store import Piece
from rillet.types.stream.id import encode_key, key_ms, key_seq

FULL = 1  # of NodeReader.decode


class SegmentReader:
    """Reads pieces from the segments of a folder; at most one of them is open."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._cache = IndexCache(0)  # has the last index only
        self._segment: Segment | None = None
        self._reference = b""

    def read(self, piece: Piece, reader: NodeReader) -> Iterator[None]:
        """Decode a piece, whose bounds are those of `reader`, into its rows; yield whenever they are full.

        Raise SegmentUnreadable if the file is missing or damaged; `reader` then has the entries before that place.
        """
        sealed = piece.sealed
        assert sealed is not None
        segment = self._opened(sealed.reference)
        first = max(segment.find(encode_key(*successor(piece.after))), sealed.number)
        end = min(segment.find(encode_key(*piece.last)) + 1, sealed.number + sealed.nodes)
        for data, nodes in segment.blocks(first, max(end - first, 0)):
            for key, at, size in nodes:
                reader.open(data, at, size, key_ms(key), key_seq(key))
                while reader.decode() == FULL:
                    yield

    def _opened(self, reference: bytes) -> Segment:
        if self._segment is None or self._reference != reference:
            self.close()
            name, content = parse_reference(reference)
            self._segment = Segment(REAL, self._folder / name, content, self._cache)
            self._reference = reference
        return self._segment

    def close(self) -> None:
        """Close the open file."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None
