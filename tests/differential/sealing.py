"""Seals the nodes of an engine's streams, all that may be, so that the next commands find nearly everything on disk.

A store does so when its streams exceed `stream_memory`, whose least value is far more than the streams of a comparison
have. So this seals after each batch of commands, into real files.
"""

from __future__ import annotations

from pathlib import Path

from rillet.persistence.disk import REAL
from rillet.persistence.rdb.plain_keys import versioned_values
from rillet.persistence.segments.compression import compressor
from rillet.persistence.segments.folder import SegmentFolder
from rillet.runtime.engine import Engine
from rillet.structs.listpack import Listpack
from rillet.types.stream.nodes import NodeIterator, SealedNodes
from rillet.types.stream.stream import Stream


class Freezer:
    """Seals the streams of an engine into files of a folder."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine = engine
        self._folder = engine.segments = SegmentFolder(REAL, folder)
        self.sealed = 0  # nodes, in total
        self._compress = compressor()

    def streams(self) -> list[Stream]:
        """Return the streams of all databases."""
        return [value for database in self._engine.databases for value in versioned_values(database.keys)
                if isinstance(value, Stream)]  # fmt: skip

    def freeze(self) -> None:
        """Seal every node that may leave memory, and remove the files that no stream has any more."""
        for stream in self.streams():
            for _, nodes in stream.sealed_ranges()[:1]:
                stream.unseal(nodes.source, nodes.first, nodes.count // 2)
                stream.check()
            for run in runs_of(stream):
                self._seal(stream, run)
            stream.check()
        used = {nodes.source.path.name for stream in self.streams() for _, nodes in stream.sealed_ranges()}
        self._folder.remove(set(self._folder.names()) - used)

    def _seal(self, stream: Stream, run: list[tuple[bytes, Listpack]]) -> None:
        """Seal consecutive nodes."""
        writer = self._folder.begin(0, self._compress if self.sealed % 2 else None)
        written = 0
        for key, node in run:
            if not writer.add(key, node):
                break
            written += 1
        if not written:
            writer.abandon()
            return
        writer.close_data()
        segment = self._folder.add(writer, writer.finish())
        stream.seal(SealedNodes(segment, 0, written, segment.living_of(0, written)))
        self.sealed += written

    def close(self) -> None:
        """Close the files."""
        self._folder.close()


def runs_of(stream: Stream) -> list[list[tuple[bytes, Listpack]]]:
    """Return the consecutive nodes in memory, without the last node of the stream."""
    runs: list[list[tuple[bytes, Listpack]]] = [[]]
    nodes = NodeIterator(stream)
    nodes.seek("^")
    while nodes.next():
        if nodes.range is None:
            runs[-1].append((nodes.key, nodes.node()))
        elif runs[-1]:
            runs.append([])
    if runs[-1]:
        runs[-1].pop()
    return [run for run in runs if run]
