"""Partitioned streams of the library (rillet.store.partitions), read and written by their name.

    partitionedStream = orders      the keys of all its partitions; the description of the stream is in the store

**Order.** A task reads a whole partition of a micro-batch, so the rows with one value of the `by` field are in order.
After a change of the number of partitions, a query reads the old keys to their end before it reads the new ones: a
micro-batch has partitions of one epoch only. So if an offset has a key of an epoch, all earlier epochs were read, and
their keys may be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.spark.option_types import EARLIEST
from rillet.spark.options import Options
from rillet.spark.read.offsets import Offset
from rillet.spark.read.stream_info import StreamInfo
from rillet.store.partitions.layout import Layout, description_key, epoch_of, layout_of


def description(options: Options, servers: Servers) -> Layout:
    """Return the description of the partitioned stream that the options name."""
    name = str(options.partitioned_stream)
    key = description_key(name.encode())
    layout = layout_of(name.encode(), servers.call(key, b"HGETALL", key))
    if layout is None or layout.epoch == 0:
        raise ConnectorError(
            f"rillet: there is no partitioned stream {name!r} at {servers.connection(key).address}: create it with "
            f"store.partitioned({name!r}, partitions=..., by=...)"
        )
    return layout


def keys_of_all(layout: Layout) -> list[str]:
    """Return the keys of all epochs, the oldest first."""
    return [key.decode() for key in layout.all_keys()]


def open_keys(layout: Layout, infos: Mapping[str, StreamInfo | None], start: Mapping[str, object]) -> list[str]:
    """Return the keys that a micro-batch may read: those of each epoch whose earlier epochs were read to their end."""
    found: list[str] = []
    for epoch in layout.epochs:
        keys = [key.decode() for key in layout.streams(epoch)]
        found += keys
        for key in keys:
            info = infos.get(key)
            if info is not None and info.top is not None and info.top > start.get(key, EARLIEST):  # type: ignore[operator]
                return found
    return found


def without_read(offset: Offset, layout: Layout) -> Offset:
    """Return an offset without the keys of deleted epochs that were read to their end."""
    epochs = {key: epoch_of(layout.name, key.encode()) for key in offset.streams}
    newest = max((epoch for epoch in epochs.values() if epoch is not None), default=0)
    gone = {key for key, epoch in epochs.items() if epoch is not None and epoch < min(newest, min(layout.epochs))}
    if not gone:
        return offset
    kept = {key: last for key, last in offset.streams.items() if key not in gone}
    return replace(offset, streams=kept, unread=offset.unread - gone)
