"""The calls that actors make: each is a Step, the same for the synchronous and the asyncio API.

A place is where the values of a call go. The law reads each place at the end of the round:

    stream    XADD, and the group `g` that delivers its entries
    list      a list, and a second one to which elements move
    set, zset, hash
    pair      two streams, a list and a counter that one transaction writes
    cas       a stream whose entries are numbered by a counter that a transaction watches
    counter   INCR
    own:NAME  a string that only the actor NAME writes
    none      the reply is all there is to check
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

GROUP = "g"
Result = Any


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a round."""

    prefix: str

    def __getattr__(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def own(self, actor: str) -> str:
        """Return the key that only one actor writes."""
        return f"{self.prefix}own:{actor}"


@dataclass(slots=True)
class Step:
    """One call to make.

    call: a function of a Store that returns a result, or of an AsyncStore that returns an awaitable.
    plain: makes plain data of the result. expected: raises AssertionError if the reply belongs to another call.
    """

    name: str
    place: str
    call: Callable[[Any], Any]
    tokens: tuple[str, ...] = ()
    may_take: int = 0
    plain: Callable[[Any], Any] = lambda result: result
    expected: Callable[[Any], None] | None = None
    afterwards: Callable[[Any], None] | None = None  # called with the plain result of a call that returned
    partial: Callable[[], Any] = lambda: None  # the result of a call that was interrupted


@dataclass
class Choices:
    """The random choices of one actor, and what it remembers: its entries and the messages that it has to handle."""

    actor: str
    keys: Keys
    source: random.Random
    is_async: bool = False
    names: Sequence[str] | None = None
    made: int = 0
    added: list[tuple[str, str]] = field(default_factory=list)
    to_ack: list[str] = field(default_factory=list)

    def token(self) -> str:
        """Return a new value, which no other call writes."""
        self.made += 1
        return f"{self.keys.prefix}{self.actor}.{self.made}"

    def block(self) -> float:
        return self.source.choice((0.001, 0.005, 0.02))

    def step(self) -> Step:
        """Return the next call to make."""
        names = self.names or COMMON
        return OPERATIONS[self.source.choice(names)](self)


def _equals(expected: Any) -> Callable[[Any], None]:
    def check(result: Any) -> None:
        assert result == expected, f"the reply is {result!r}, not {expected!r}"

    return check


# -- replies ---------------------------------------------------------------------------------------------


def echo(me: Choices) -> Step:
    word = me.token()
    return Step("echo", "none", lambda store: store.execute("ECHO", word), expected=_equals(word.encode()))


def echoes(me: Choices) -> Step:
    words = [me.token() for _ in range(3)]
    return Step("echoes", "none", lambda store: store.execute_many([["ECHO", word] for word in words]),
                expected=_equals([word.encode() for word in words]))  # fmt: skip


# -- streams ---------------------------------------------------------------------------------------------


def _entry(token: str) -> dict[str, str]:
    return {"t": token}


def add(me: Choices) -> Step:
    token = me.token()
    return Step("add", "stream", lambda store: store.stream(me.keys.stream).add(_entry(token)), (token,), plain=str,
                afterwards=lambda made: me.added.append((made, token)))  # fmt: skip


def add_many(me: Choices) -> Step:
    tokens = tuple(me.token() for _ in range(me.source.randint(2, 6)))
    return Step("add_many", "stream", lambda store: store.stream(me.keys.stream).add_many(map(_entry, tokens)), tokens,
                plain=lambda ids: [str(one) for one in ids],
                afterwards=lambda ids: me.added.extend(zip(ids, tokens, strict=True)))  # fmt: skip


def get_own(me: Choices) -> Step:
    if not me.added:
        return echo(me)
    made, token = me.source.choice(me.added)
    return Step("get_own", "none", lambda store: store.stream(me.keys.stream).get(made),
                plain=lambda entry: entry and entry["t"], expected=_equals(token))  # fmt: skip


def read(me: Choices) -> Step:
    def read_from(store: Any) -> Any:
        return store.stream(me.keys.stream).read("$", count=5, block=me.block())

    return Step("read", "none", read_from, plain=_delivered)


def _delivered(messages: Any) -> list[tuple[str, str]]:
    return [(str(message.id), message["t"]) for message in messages or ()]


# -- groups ----------------------------------------------------------------------------------------------


def _group(store: Any, me: Choices) -> Any:
    """Return the group (asyncio: a coroutine); it exists, see kinds.prepare."""
    return store.stream(me.keys.stream).group(GROUP, create=False)


def _remember(me: Choices) -> Callable[[Any], None]:
    return lambda delivered: me.to_ack.extend(made for made, _ in delivered)


def group_read(me: Choices) -> Step:
    count, block = me.source.randint(1, 5), me.source.choice((None, me.block()))

    async def read_async(store: Any) -> Any:
        return await (await _group(store, me)).consumer(me.actor).read(count, block=block)

    def read_now(store: Any) -> Any:
        return _group(store, me).consumer(me.actor).read(count, block=block)

    return Step("group_read", "new", read_async if me.is_async else read_now, plain=_delivered,
                afterwards=_remember(me))  # fmt: skip


def claim(me: Choices) -> Step:
    count = me.source.randint(1, 4)

    async def claim_async(store: Any) -> Any:
        return (await (await _group(store, me)).consumer(me.actor).claim(0.0, count))[1]

    def claim_now(store: Any) -> Any:
        return _group(store, me).consumer(me.actor).claim(0.0, count)[1]

    return Step("claim", "old", claim_async if me.is_async else claim_now, plain=_delivered, afterwards=_remember(me))


def ack(me: Choices) -> Step:
    if not me.to_ack:
        return group_read(me)
    me.source.shuffle(me.to_ack)
    count = me.source.randint(1, 3)
    ids, me.to_ack = tuple(me.to_ack[:count]), me.to_ack[count:]

    async def ack_async(store: Any) -> Any:
        return await (await _group(store, me)).ack(*ids)

    return Step("ack", "ack", ack_async if me.is_async else lambda store: _group(store, me).ack(*ids), ids)


def messages(me: Choices) -> Step:
    """A loop over `messages`, which acknowledges what it gets, some messages long."""
    limit = me.source.randint(1, 4)
    handled: list[str] = []  # acknowledged, except that the outcome for the last one may be unknown
    options: dict[str, Any] = {"count": 3, "stop_when_empty": me.source.random() < 0.5, "timeout": 0.01,
                               "claim_idle": me.source.choice((None, 0.0))}  # fmt: skip

    async def loop_async(store: Any) -> Any:
        async for message in (await _group(store, me)).consumer(me.actor).messages(**options):
            handled.append(str(message.id))
            await message.ack()
            if len(handled) >= limit:
                break
        return handled

    def loop(store: Any) -> Any:
        for message in _group(store, me).consumer(me.actor).messages(**options):
            handled.append(str(message.id))
            message.ack()
            if len(handled) >= limit:
                break
        return handled

    return Step("messages", "handled", loop_async if me.is_async else loop, partial=lambda: list(handled))


# -- elements --------------------------------------------------------------------------------------------


def push(me: Choices) -> Step:
    token, left = me.token(), me.source.random() < 0.5
    return Step("push", "list", lambda store: _end(store.list(me.keys.list), left, "append", token), (token,))


def push_many(me: Choices) -> Step:
    tokens = tuple(me.token() for _ in range(me.source.randint(2, 5)))
    return Step("push_many", "list", lambda store: store.execute("RPUSH", me.keys.list, *tokens), tokens)


def _end(one: Any, left: bool, method: str, *arguments: Any, **options: Any) -> Any:
    return getattr(one, method + "left" if left else method)(*arguments, **options)


def _taken(result: Any) -> list[str]:
    if result is None:
        return []
    return [result] if isinstance(result, str) else [str(one) for one in result]


def pop(me: Choices) -> Step:
    left, block = me.source.random() < 0.5, me.source.choice((None, me.block()))
    return Step("pop", "list", lambda store: _end(store.list(me.keys.list), left, "pop", default=None, block=block),
                may_take=1, plain=_taken)  # fmt: skip


def pop_many(me: Choices) -> Step:
    count = me.source.randint(2, 4)
    return Step("pop_many", "list", lambda store: store.list(me.keys.list).popleft_many(count), may_take=count,
                plain=_taken)  # fmt: skip


def move(me: Choices) -> Step:
    block = me.source.choice((None, me.block()))
    there = me.source.random() < 0.6
    names = (me.keys.list, me.keys.list2) if there else (me.keys.list2, me.keys.list)
    ends = me.source.choice(("left", "right")), me.source.choice(("left", "right"))
    return Step("move", "none", lambda store: store.list(names[0]).move(store.list(names[1]), *ends, block=block))


def set_add(me: Choices) -> Step:
    token = me.token()
    return Step("set_add", "set", lambda store: store.set(me.keys.set).add(token), (token,))


def set_pop(me: Choices) -> Step:
    count = me.source.randint(1, 3)
    return Step("set_pop", "set", lambda store: store.set(me.keys.set).pop_many(count), may_take=count,
                plain=_taken)  # fmt: skip


def zset_add(me: Choices) -> Step:
    token, score = me.token(), me.source.random()
    return Step("zset_add", "zset", lambda store: store.zset(me.keys.zset).add({token: score}), (token,))


def zset_pop(me: Choices) -> Step:
    least, block = me.source.random() < 0.5, me.source.choice((None, me.block()))

    def pop_one(store: Any) -> Any:
        zset = store.zset(me.keys.zset)
        return (zset.pop_min if least else zset.pop_max)(default=None, block=block)

    return Step("zset_pop", "zset", pop_one, may_take=1, plain=lambda result: [] if result is None else [result[0]])


def hash_set(me: Choices) -> Step:
    token = me.token()
    return Step("hash_set", "hash", lambda store: store.hash(me.keys.hash).set_value(token, token), (token,))


def hash_update(me: Choices) -> Step:
    tokens = tuple(me.token() for _ in range(3))
    return Step("hash_update", "hash", lambda store: store.hash(me.keys.hash).update({one: one for one in tokens}),
                tokens)  # fmt: skip


def hash_pop(me: Choices) -> Step:
    """Remove a random field, as popitem does in two commands; another caller may be faster."""
    token = f"{me.keys.prefix}{me.actor}.{me.source.randint(1, max(1, me.made))}"
    return Step("hash_pop", "hash", lambda store: store.hash(me.keys.hash).pop(token, None), may_take=1, plain=_taken)


# -- transactions ----------------------------------------------------------------------------------------


def _fill(transaction: Any, keys: Keys, token: str) -> None:
    transaction.add(keys.pair1, _entry(token))
    transaction.execute("INCR", keys.pairs)
    transaction.execute("RPUSH", keys.pair_list, token)
    transaction.add(keys.pair2, _entry(token))


def transaction(me: Choices) -> Step:
    token = me.token()

    async def run_async(store: Any) -> None:
        async with store.transaction() as one:
            _fill(one, me.keys, token)

    def run(store: Any) -> None:
        with store.transaction() as one:
            _fill(one, me.keys, token)

    return Step("transaction", "pair", run_async if me.is_async else run, (token,))


def batch_transaction(me: Choices) -> Step:
    token, keys = me.token(), me.keys
    commands = [["MULTI"], ["XADD", keys.pair1, "*", "t", token], ["INCR", keys.pairs],
                ["RPUSH", keys.pair_list, token], ["XADD", keys.pair2, "*", "t", token], ["EXEC"]]  # fmt: skip
    return Step("batch_transaction", "pair", lambda store: store.execute_many(commands), (token,),
                plain=lambda replies: None)  # fmt: skip


def compare_and_set(me: Choices) -> Step:
    token, number, entries = me.token(), me.keys.cas_count, me.keys.cas

    async def run_async(store: Any) -> None:
        async def body(one: Any) -> None:
            value = int(await store.execute("GET", number) or 0)
            one.execute("SET", number, value + 1)
            one.add(entries, {"t": token, "n": value + 1})

        await store.transact(body, watch=[number])

    def run(store: Any) -> None:
        def body(one: Any) -> None:
            value = int(store.execute("GET", number) or 0)
            one.execute("SET", number, value + 1)
            one.add(entries, {"t": token, "n": value + 1})

        store.transact(body, watch=[number])

    return Step("compare_and_set", "cas", run_async if me.is_async else run, (token,))


# -- strings ---------------------------------------------------------------------------------------------


def increment(me: Choices) -> Step:
    return Step("increment", "counter", lambda store: store.execute("INCR", me.keys.counter))


def own_set(me: Choices) -> Step:
    token = me.token()
    return Step("own_set", f"own:{me.actor}", lambda store: store.string(me.keys.own(me.actor)).set_value(token),
                (token,), plain=lambda _: None)  # fmt: skip


def own_get(me: Choices) -> Step:
    return Step("own_get", f"own:{me.actor}", lambda store: store.string(me.keys.own(me.actor)).get_value())


Operation = Callable[[Choices], Step]
OPERATIONS: dict[str, Operation] = {
    one.__name__: one
    for one in (echo, echoes, add, add_many, get_own, read, group_read, claim, ack, messages, push, push_many, pop,
                pop_many, move, set_add, set_pop, zset_add, zset_pop, hash_set, hash_update, hash_pop, transaction,
                batch_transaction, compare_and_set, increment, own_set, own_get)
}  # fmt: skip
# Frequent calls occur more than once.
COMMON = [*OPERATIONS, "echo", "add", "add", "ack", "push", "push", "pop", "transaction", "group_read"]

__all__ = ["COMMON", "GROUP", "OPERATIONS", "Choices", "Keys", "Step"]
