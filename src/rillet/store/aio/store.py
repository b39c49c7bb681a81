"""The asyncio form of rillet.store.store: AsyncStore.

Made from store/store.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import UnionType
from typing import Any, Literal, overload

from rillet.store.aio import multi_stream as several
from rillet.store.aio.command_steps import drive
from rillet.store.aio.group import AsyncMultiConsumer
from rillet.store.aio.keys import AsyncKeyCommands
from rillet.store.aio.multi_stream import StreamLike
from rillet.store.aio.runner import AsyncRunner
from rillet.store.aio.script import AsyncScript, AsyncStoredFunction
from rillet.store.aio.stream import AsyncStream
from rillet.store.arguments.argument_checks import encoded, flag, items_of, text_bytes, whole_number, words_of
from rillet.store.arguments.durations import Seconds
from rillet.store.arguments.encoding import Value, decode, encode_name
from rillet.store.arguments.positions import Position
from rillet.store.codecs import Codec
from rillet.store.entry import Entry, texts
from rillet.store.multi_stream import Positions
from rillet.store.stats import PENDING, StoreStats, survey
from rillet.store.typed.form_choice import form_of
from rillet.store.typed.forms import CodecName, OnInvalid, V, checked_action


class AsyncStore(AsyncRunner, AsyncKeyCommands):
    """The asyncio API of a Store. `synchronous` is that Store; closing one closes both."""

    # -- commands --------------------------------------------------------------------------------------

    async def execute(self, *args: Value, text: bool = False) -> Any:
        """Run any command and return its reply (bytes, int, list, None ...); raise an error reply.

        text: with str in place of bytes, also in lists. The default is bytes, because a value may be any bytes.
        """
        reply = await self.run(self._accepted(words_of(args, "args")))
        return texts(reply) if flag(text, "text") else reply

    async def execute_many(self, commands: Sequence[Sequence[Any]], *, text: bool = False) -> list[Any]:
        """Run commands in order, in one exchange and one write to the log; raise the first error at the end.

        They may be one transaction, from MULTI to EXEC. text: as for `execute`.
        """
        argvs = [words_of(argv, "a command") for argv in items_of(commands, "commands", "commands")]
        whole = len(argvs) > 1 and (argvs[0], argvs[-1]) == ([b"MULTI"], [b"EXEC"])
        for argv in argvs[1:-1] if whole else argvs:
            self._accepted(argv)
        replies = await self.run_many(argvs)
        return list(map(texts, replies)) if flag(text, "text") else replies

    # -- streams and keys ------------------------------------------------------------------------------

    @overload
    def stream(self, name: str | bytes) -> AsyncStream: ...

    @overload
    def stream(self, name: str | bytes, *, type: UnionType, codec: CodecName | Codec[Any] = "fields",
               on_invalid: OnInvalid = "raise") -> AsyncStream[Any]: ...  # fmt: skip

    @overload
    def stream(self, name: str | bytes, *, type: type[V], codec: CodecName | Codec[Any] = "fields",
               on_invalid: OnInvalid = "raise") -> AsyncStream[V]: ...  # fmt: skip

    @overload
    def stream(self, name: str | bytes, *, codec: Codec[V], on_invalid: OnInvalid = "raise") -> AsyncStream[V]: ...

    @overload
    def stream(self, name: str | bytes, *, codec: Literal["raw"],
               on_invalid: OnInvalid = "raise") -> AsyncStream[bytes]: ...  # fmt: skip

    @overload
    def stream(self, name: str | bytes, *, codec: Literal["json", "msgpack"],
               on_invalid: OnInvalid = "raise") -> AsyncStream[Any]: ...  # fmt: skip

    def stream(self, name: str | bytes, *, type: Any = None, codec: CodecName | Codec[Any] = "fields",
               on_invalid: OnInvalid = "raise") -> Any:  # fmt: skip
        """Return the stream of that name; its first entry creates the key.

        type: the class of its values: a dataclass, a msgspec Struct, a pydantic model, a TypedDict, or a union of
        tagged Structs; without it, entries are fields. Each attribute is a field, unless the codec stores the whole
        value in the field `value`: "json", "msgpack", "raw" or any codec. on_invalid: what happens to an entry that is
        not a value of the type when it is read: "raise" (InvalidEntry), "skip", "dead_letter" (the dead letters of
        messages()), or the stream for such entries. See rillet.store.typed.forms.
        """
        return AsyncStream(self, name, form_of(type, codec), checked_action(on_invalid))

    async def streams(self) -> list[AsyncStream]:
        """Return all streams of the store, sorted by name. O(keys)"""
        names = set()
        async for name in self.keys(kind="stream"):
            names.add(name)
        return [AsyncStream(self, name) for name in sorted(names)]

    async def read(self, after: Positions, count: int | None = None,
                   block: Seconds | None = None) -> dict[str, list[Entry[Any]]]:  # fmt: skip
        """Return the entries of several streams after a position in each: read({"orders": "0", "jobs": "$"}) (XREAD).

        The result has the name of each stream, as in `after`, and its entries.
        count: the most entries of each stream. block: seconds to wait for a new entry in any stream, 0 without limit.
        Streams without such entries are absent. A cluster can wait only for streams in the same slot (ValueError).
        """
        return await several.read(self, after, count, block)

    @overload
    async def consumer(self, group: str | bytes, name: str | bytes, streams: Iterable[str | bytes], *,
                       start: Position = "0", create: bool = True) -> AsyncMultiConsumer: ...  # fmt: skip

    @overload
    async def consumer(self, group: str | bytes, name: str | bytes, streams: Iterable[AsyncStream[V]], *,
                       start: Position = "0", create: bool = True) -> AsyncMultiConsumer[V]: ...  # fmt: skip

    @overload
    async def consumer(self, group: str | bytes, name: str | bytes, streams: Iterable[StreamLike], *,
                       start: Position = "0", create: bool = True) -> AsyncMultiConsumer[Any]: ...  # fmt: skip

    async def consumer(self, group: str | bytes, name: str | bytes, streams: Iterable[StreamLike], *,
                       start: Position = "0", create: bool = True) -> AsyncMultiConsumer[Any]:  # fmt: skip
        """Return a consumer that reads several streams with one command, each through its group of that name.

        The first read or claim creates missing groups (and streams) to deliver the entries after `start`, unless create
        is False; see AsyncStream.group. A typed Stream keeps its type: its messages have a `value`.
        """
        return await several.consumer(self, group, name, streams, start, create)

    async def stats(self, *streams: str | bytes, previous: StoreStats | None = None, pending: int = PENDING,
                    memory: bool = True) -> StoreStats:  # fmt: skip
        """Return the stats of streams, by default of all, with their groups and consumers; see rillet.store.stats.

        previous: an earlier result, from which the rate of each stream is computed. pending: the most pending messages
        of a group that are read to sort them by age. memory: also measure the memory of each stream.
        CommandError for a name that is not a stream. O(keys + groups + pending messages)
        """
        whole_number(pending, "pending", 0)
        flag(memory, "memory")
        if previous is not None and not isinstance(previous, StoreStats):
            raise TypeError(f"previous must be an earlier result of stats(), not {previous!r:.200}")
        keys = {encode_name(name, "one of streams") for name in streams}
        if not streams:
            async for name in self.keys(kind="stream"):
                keys.add(encode_name(name))
        found = await drive(self, survey(sorted(keys), pending, memory, bool(streams)), raises=False)
        return found if previous is None else found.since(previous)

    async def delete(self, *names: Value) -> int:
        """Delete keys; return how many existed."""
        keys = [encoded(name, "one of names") for name in names]
        if self.transport.clustered:  # a cluster rejects DEL with keys of several slots
            return sum(await self.run_many([[b"DEL", key] for key in keys]))
        return int(await self.run([b"DEL", *keys])) if keys else 0

    # -- channels ------------------------------------------------------------------------------------

    async def publish(self, channel: str | bytes, data: Value, *, shard: bool = False) -> int:
        """Send a message to the current subscribers of a channel; return their number. The message is not stored."""
        command = b"SPUBLISH" if flag(shard, "shard") else b"PUBLISH"
        return int(await self.run([command, encode_name(channel, "channel"), encoded(data, "data")]))

    def script(self, source: str | bytes) -> AsyncScript:
        """Return a Lua script as a function: `f(keys=[...], args=[...])`. It runs as one step (docs/scripts.md)."""
        return AsyncScript(self, source)

    async def load_functions(self, source: str | bytes, *, replace: bool = False) -> str:
        """Load a library of Lua functions, and return its name (docs/functions.md). replace: also over an older one."""
        words = [b"REPLACE"] if flag(replace, "replace") else []
        words.append(text_bytes(source, "source"))
        name: bytes = await self.run([b"FUNCTION", b"LOAD", *words])
        return name.decode()

    def function(self, name: str | bytes) -> AsyncStoredFunction:
        """Return a function of a library that is loaded: `f(keys=[...], args=[...])`. It runs as one step."""
        return AsyncStoredFunction(self, name)

    # -- other APIs ------------------------------------------------------------------------------------

    async def info(self) -> dict[str, str]:
        """Return the fields of INFO."""
        lines = decode(await self.execute("INFO")).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
