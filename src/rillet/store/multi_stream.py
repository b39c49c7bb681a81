"""Several streams in one command: the XREAD of `Store.read`, and the consumer of `Store.consumer`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from rillet.store.arguments.argument_checks import flag, integer_of, items_of
from rillet.store.arguments.durations import Seconds, milliseconds_in
from rillet.store.arguments.encoding import decode, encode_name
from rillet.store.arguments.positions import Position, encode_after
from rillet.store.arguments.slots import HasTransport, by_slot
from rillet.store.entry import Entry, stream_parts
from rillet.store.group import MultiConsumer
from rillet.store.stream import Stream

if TYPE_CHECKING:
    from rillet.store.store import Store

StreamLike: TypeAlias = "str | bytes | Stream[Any]"
# The keys are of type StreamLike. The annotation is Any, because a mapping is invariant in its keys: mypy would reject
# a dict[str, StreamID] as Mapping[StreamLike, Position].
Positions: TypeAlias = "Mapping[Any, Position]"


def read(store: Store, after: Positions, count: int | None, block: Seconds | None) -> dict[str, list[Entry[Any]]]:
    """Return the entries of each stream after its position, by the stream's name; see Store.read."""
    if not isinstance(after, Mapping):
        raise TypeError("after must be a mapping from streams to positions, such as {'orders': '0'}, "
                        f"not {after!r:.200}")  # fmt: skip
    if not after:
        raise ValueError("pass at least one stream and the position after which to read it: {'orders': '0'}")
    found: dict[str, list[Entry[Any]]] = {}
    streams = {key_of(stream): stream_of(store, stream) for stream in after}
    positions = {key_of(stream): encode_after(position, "a position in after") for stream, position in after.items()}
    for argv in read_commands(store, positions, count, block):
        for key, part in stream_parts(store.run(argv)):
            found[decode(key)] = list(streams[key].entries_of(part))
    return found


def read_commands(
    store: HasTransport, positions: Mapping[bytes, bytes], count: int | None, block: Seconds | None
) -> list[list[bytes]]:
    """Return the XREAD of several streams: one command, or one for each slot of a cluster."""
    argv = [b"XREAD"]
    if count is not None:
        argv += [b"COUNT", integer_of(count, "count", 1)]
    if block is not None:
        argv += [b"BLOCK", milliseconds_in(block, "block")]
    keys = by_slot(store, list(positions), block is not None)
    return [[*argv, b"STREAMS", *some, *(positions[key] for key in some)] for some in keys]


def key_of(stream: StreamLike) -> bytes:
    """Return the key of a stream or of its name."""
    return stream.key if isinstance(stream, Stream) else encode_name(stream, "a stream")


def stream_of(store: Store, stream: StreamLike) -> Stream[Any]:
    """Return the stream of a name; a Stream keeps its type."""
    if not isinstance(stream, Stream):
        return Stream(store, stream)
    return stream if stream.store is store else Stream(store, stream.key, stream.form, stream.on_invalid)


def consumer(
    store: Store, group: str | bytes, name: str | bytes, streams: Iterable[StreamLike], start: Position, create: bool
) -> MultiConsumer[Any]:  # fmt: skip
    """Return a consumer of the group of that name in each stream; see Store.consumer."""
    flag(create, "create")
    by_key = {key_of(stream): stream_of(store, stream) for stream in items_of(streams, "streams", "names or streams")}
    encode_name(group, "group")
    return MultiConsumer([stream.group(group, start, create=create) for stream in by_key.values()], name)
