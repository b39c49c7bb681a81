"""What type checkers know about streams: an error in each line whose error is ignored, and in no other.

mypy checks that in `make lint`: it reports a comment that ignores nothing. tests/store/test_typing.py asks pyright.
"""

# ruff: noqa: B018

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import msgspec
import pydantic

import rillet
from rillet import Consumer, Entry, Group, Message, MultiConsumer, Store, Stream, StreamID
from rillet.aio import AsyncMessage, AsyncStore, AsyncStream
from rillet.records import Queued
from rillet.store.codecs import text_of


@dataclass
class Order:
    customer: int


class Payment(msgspec.Struct, tag=True):
    amount: int


class Refund(msgspec.Struct, tag=True):
    amount: int


class Person(pydantic.BaseModel):
    name: str


class Visit(TypedDict, total=False):
    page: str


def typed(store: Store) -> None:
    orders = store.stream("orders", type=Order, on_invalid=store.stream("invalid"))
    assert_type(orders, Stream[Order])
    assert_type(orders.add(Order(1)), StreamID)
    with store.transaction() as transaction:
        assert_type(transaction.add(orders, Order(1)), Queued)
        assert_type(transaction.add(store.stream("plain"), {"n": 1}), Queued)
        assert_type(transaction.add("plain", {"n": 1}), Queued)
        transaction.add(orders, {"customer": 1})  # type: ignore[misc]
    assert_type(orders.add_many([Order(1), ("*", Order(2))]), list[StreamID])
    orders.add({"customer": 1})  # type: ignore[call-overload]
    orders.add(Person(name="x"))  # type: ignore[call-overload]
    assert_type(orders.range()[0].value, Order)
    assert_type(orders.range()[0].fields, dict[str, str])
    assert_type(orders["1-0"].value.customer, int)
    assert_type(orders.get("1-0"), Entry[Order] | None)
    for entry in orders:
        assert_type(entry, Entry[Order])
        entry.value.total  # type: ignore[attr-defined]
    assert_type(orders.follow(), Iterator[Entry[Order]])
    assert_type(orders.scan(), Iterator[Entry[Order]])
    group = orders.group("g")
    assert_type(group, Group[Order])
    consumer = group.consumer("c")
    assert_type(consumer, Consumer[Order])
    for message in consumer.messages(stop=lambda: True):
        assert_type(message, Message[Order])
        assert_type(message.value, Order)
        assert_type(message.stream, Stream[Order])
        message.stream.add(1)  # type: ignore[call-overload]
        assert_type(message.ack(), bool)
    assert_type(consumer.messages(batch=5), Iterator[list[Message[Order]]])
    assert_type(consumer.read(), list[Message[Order]])
    assert_type(consumer.claim(5)[1], list[Message[Order]])
    consumer.ack(*consumer.read())
    assert_type(store.consumer("g", "c", [orders]), MultiConsumer[Order])


def other_types(store: Store) -> None:
    assert_type(store.stream("s", type=Payment).range()[0].value, Payment)
    assert_type(store.stream("s", type=Person, codec="json").range()[0].value, Person)
    visits = store.stream("s", type=Visit)
    assert_type(visits, Stream[Visit])
    visits.add({"page": "/"})
    visits.add({"page": 1})  # type: ignore[call-overload]
    events: Stream[Payment | Refund] = store.stream("s", type=Payment | Refund)
    events.add(Refund(1))
    events.add(Order(1))  # type: ignore[call-overload]
    assert_type(store.stream("s", codec="raw"), Stream[bytes])
    assert_type(store.stream("s", codec="json"), Stream[Any])
    assert_type(store.stream("s", codec=text_of(int)), Stream[int])
    store.stream("s", type=Order, on_invalid="ignore")  # type: ignore[call-overload]


def untyped(store: Store) -> None:
    stream = store.stream("s")
    same: Stream = stream
    assert_type(same.add({"a": 1, b"b": "x"}), StreamID)
    same.add([("a", 1)])
    same.add(5)  # type: ignore[call-overload]
    entry: Entry = stream.range()[0]
    assert_type(entry["a"], str)
    group: Group = stream.group("g")
    worker: Consumer = group.consumer("c")
    message: Message = worker.read()[0]
    message.stream.add({"a": 1})
    several: MultiConsumer = store.consumer("g", "c", ["a", "b"])
    worker.ack(message)
    several.ack(*several.read())
    assert_type(store.read({"s": "0", stream: "$"}), dict[str, list[Entry[Any]]])


async def tasks(store: AsyncStore) -> None:
    orders = store.stream("orders", type=Order, on_invalid=store.stream("invalid"))
    assert_type(orders, AsyncStream[Order])
    assert_type(await orders.add(Order(1)), StreamID)
    await orders.add({"customer": 1})  # type: ignore[call-overload]
    async for entry in orders:
        assert_type(entry.value, Order)
    consumer = (await orders.group("g")).consumer("c")
    messages: AsyncIterator[AsyncMessage[Order]] = consumer.messages()
    async for message in messages:
        assert_type(message.value, Order)
        await message.ack()


with rillet.open() as opened:
    typed(opened)
