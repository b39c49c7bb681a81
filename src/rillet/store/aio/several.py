"""The asyncio form of rillet.store.several.

Made from store/several.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from rillet.store.aio.group import AsyncMultiConsumer
from rillet.store.aio.stream import AsyncStream
from rillet.store.durations import Seconds, milliseconds_in
from rillet.store.encoding import decode, encode_name
from rillet.store.entry import Entry, stream_parts
from rillet.store.positions import Position, encode_after
from rillet.store.several import Positions
from rillet.store.slots import by_slot

if TYPE_CHECKING:
    from rillet.store.aio.store import AsyncStore

StreamLike: TypeAlias = "str | bytes | AsyncStream[Any]"


async def read(store: AsyncStore, after: Positions, count: int | None,
               block: Seconds | None) -> dict[str, list[Entry[Any]]]:  # fmt: skip
    """Return the entries of each stream after its position, by the stream's name; see AsyncStore.read."""
    if not after:
        raise ValueError("pass at least one stream and the position after which to read it: {'orders': '0'}")
    found: dict[str, list[Entry[Any]]] = {}
    streams = {key_of(stream): stream_of(store, stream) for stream in after}
    for argv in read_commands(store, after, count, block):
        for key, part in stream_parts(await store.run(argv)):
            found[decode(key)] = list(streams[key].entries_of(part))
    return found


def read_commands(store: AsyncStore, after: Positions, count: int | None, block: Seconds | None) -> list[list[bytes]]:
    """Return the XREAD of several streams: one command, or one for each slot of a cluster."""
    positions = {key_of(stream): encode_after(position) for stream, position in after.items()}
    argv = [b"XREAD"]
    if count is not None:
        argv += [b"COUNT", b"%d" % count]
    if block is not None:
        argv += [b"BLOCK", milliseconds_in(block)]
    keys = by_slot(store, list(positions), block is not None)
    return [[*argv, b"STREAMS", *some, *(positions[key] for key in some)] for some in keys]


def key_of(stream: StreamLike) -> bytes:
    """Return the key of a stream or of its name."""
    return stream.key if isinstance(stream, AsyncStream) else encode_name(stream)


def stream_of(store: AsyncStore, stream: StreamLike) -> AsyncStream[Any]:
    """Return the stream of a name; a Stream keeps its type."""
    if not isinstance(stream, AsyncStream):
        return AsyncStream(store, stream)
    return stream if stream.store is store else AsyncStream(store, stream.key, stream.form, stream.on_invalid)


async def consumer(store: AsyncStore, group: str | bytes, name: str | bytes, streams: Iterable[StreamLike],
                   start: Position, create: bool) -> AsyncMultiConsumer[Any]:  # fmt: skip
    """Return a consumer of the group of that name in each stream; see AsyncStore.consumer."""
    if isinstance(streams, (str, bytes)):
        raise TypeError(f"streams must be a list of names, not one name: pass [{streams!r}]")
    by_key = {key_of(stream): stream_of(store, stream) for stream in streams}
    return AsyncMultiConsumer([await stream.group(group, start, create=create) for stream in by_key.values()], name)


__all__ = ["consumer", "key_of", "read", "read_commands", "stream_of"]
