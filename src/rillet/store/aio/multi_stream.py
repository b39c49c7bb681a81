"""The asyncio form of rillet.store.multi_stream.

Made from store/multi_stream.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from rillet.store.aio.group import AsyncMultiConsumer
from rillet.store.aio.stream import AsyncStream
from rillet.store.arguments.argument_checks import flag, items_of
from rillet.store.arguments.durations import Seconds
from rillet.store.arguments.encoding import decode, encode_name
from rillet.store.arguments.positions import Position, encode_after
from rillet.store.entry import Entry, stream_parts
from rillet.store.multi_stream import Positions, read_commands

if TYPE_CHECKING:
    from rillet.store.aio.store import AsyncStore

StreamLike: TypeAlias = "str | bytes | AsyncStream[Any]"


async def read(store: AsyncStore, after: Positions, count: int | None,
               block: Seconds | None) -> dict[str, list[Entry[Any]]]:  # fmt: skip
    """Return the entries of each stream after its position, by the stream's name; see AsyncStore.read."""
    if not isinstance(after, Mapping):
        raise TypeError("after must be a mapping from streams to positions, such as {'orders': '0'}, "
                        f"not {after!r:.200}")  # fmt: skip
    if not after:
        raise ValueError("pass at least one stream and the position after which to read it: {'orders': '0'}")
    found: dict[str, list[Entry[Any]]] = {}
    streams = {key_of(stream): stream_of(store, stream) for stream in after}
    positions = {key_of(stream): encode_after(position, "a position in after") for stream, position in after.items()}
    for argv in read_commands(store, positions, count, block):
        for key, part in stream_parts(await store.run(argv)):
            found[decode(key)] = list(streams[key].entries_of(part))
    return found


def key_of(stream: StreamLike) -> bytes:
    """Return the key of a stream or of its name."""
    return stream.key if isinstance(stream, AsyncStream) else encode_name(stream, "a stream")


def stream_of(store: AsyncStore, stream: StreamLike) -> AsyncStream[Any]:
    """Return the stream of a name; a Stream keeps its type."""
    if not isinstance(stream, AsyncStream):
        return AsyncStream(store, stream)
    return stream if stream.store is store else AsyncStream(store, stream.key, stream.form, stream.on_invalid)


async def consumer(store: AsyncStore, group: str | bytes, name: str | bytes, streams: Iterable[StreamLike],
                   start: Position, create: bool) -> AsyncMultiConsumer[Any]:  # fmt: skip
    """Return a consumer of the group of that name in each stream; see AsyncStore.consumer."""
    flag(create, "create")
    by_key = {key_of(stream): stream_of(store, stream) for stream in items_of(streams, "streams", "names or streams")}
    encode_name(group, "group")
    return AsyncMultiConsumer([await stream.group(group, start, create=create) for stream in by_key.values()], name)
