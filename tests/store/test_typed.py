"""Typed streams: a value of each kind of class survives, its fields are plain, and invalid entries do no harm."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

from rillet import Message, Store, Stream
from rillet.errors import InvalidEntry, InvalidValue, WrongType
from rillet.store import codecs
from tests.forked import ran
from tests.store.conftest import Frontend, only


class Status(Enum):
    NEW = "new"
    PAID = "paid"


@dataclass
class Order:
    customer: int
    total: Decimal
    paid: bool = False
    tags: list[str] = field(default_factory=list)
    note: str | None = None


class Payment(msgspec.Struct, rename="camel", tag=True):
    order_id: int
    amount: Annotated[int, msgspec.Meta(gt=0)]


class Refund(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    order_id: int
    reason: str | None = None


class Patch(msgspec.Struct):
    number: int
    name: str | msgspec.UnsetType = msgspec.UNSET
    tags: list[str] | msgspec.UnsetType = msgspec.UNSET
    until: timedelta = timedelta(hours=1)


@dataclass
class Change:
    name: str | msgspec.UnsetType


class Address(pydantic.BaseModel):
    city: str


class Customer(pydantic.BaseModel):
    number: int = pydantic.Field(alias="customerNumber", gt=0)
    address: Address
    status: Status = Status.NEW
    nickname: str | None = None


class Visit(TypedDict):
    page: str
    seconds: float
    referrer: NotRequired[str]


BAD = {"customer": "x"}


def one(customer: int) -> dict[str, str]:
    return {"customer": str(customer), "total": "1"}


ORDER = Order(42, Decimal("99.90"), True, ["new", "eu"])
CUSTOMER = Customer(customerNumber=7, address=Address(city="Zürich"))
VALUES: list[tuple[Any, Any, dict[str, str]]] = [
    (Order, ORDER, {"customer": "42", "total": "99.90", "paid": "true", "tags": '["new","eu"]'}),
    (Order, Order(1, Decimal(2), note=""), {"customer": "1", "total": "2", "paid": "false", "tags": "[]", "note": ""}),
    (Payment, Payment(1, 5), {"type": "Payment", "orderId": "1", "amount": "5"}),
    (Patch, Patch(1), {"number": "1", "until": "PT3600S"}),
    (Patch, Patch(1, "", ["a"]), {"number": "1", "name": "", "tags": '["a"]', "until": "PT3600S"}),
    (Change, Change("x"), {"name": "x"}),
    (Payment | Refund, Refund(1), {"type": "Refund", "order_id": "1"}),
    (Customer, CUSTOMER, {"customerNumber": "7", "address": '{"city":"Zürich"}', "status": "new"}),
    (Visit, {"page": "/", "seconds": 1.5}, {"page": "/", "seconds": "1.5"}),
    (Visit, {"page": "", "seconds": 0.0, "referrer": "x"}, {"page": "", "seconds": "0.0", "referrer": "x"}),
]


@pytest.mark.parametrize(("kind", "value", "fields"), VALUES, ids=lambda value: str(value)[:20])
@only("memory", "redis")
def test_each_attribute_is_a_field_that_any_client_reads(
    store: Store, kind: Any, value: Any, fields: dict[str, str]
) -> None:
    stream = store.stream("s", type=kind)
    id = stream.add(value)
    assert stream[id].value == value
    assert type(stream[id].value) is type(value)
    assert stream[id].fields == fields
    assert store.redis(decode_responses=True).xrange("s") == [(str(id), fields)]


@pytest.mark.parametrize("codec", ["json", "msgpack"])
@pytest.mark.parametrize(("kind", "value", "fields"), VALUES, ids=lambda value: str(value)[:20])
@only("memory")
def test_a_codec_stores_the_whole_value_in_one_field(
    store: Store, kind: Any, value: Any, fields: dict[str, str], codec: Any
) -> None:
    stream = store.stream("s", type=kind, codec=codec)
    entry = stream[stream.add(value)]
    assert entry.value == value
    assert [name for name, _ in entry.pairs] == [b"value"]


def test_every_method_that_reads_returns_values(store: Store) -> None:
    stream = store.stream("s", type=Order)
    ids = stream.add_many([ORDER, ("*", Order(2, Decimal(1)))])
    values = [entry.value for entry in stream]
    assert values == [ORDER, Order(2, Decimal(1))]
    entry = stream.get(ids[0])
    assert entry is not None
    assert entry.value == ORDER
    assert [entry.value for entry in stream.range(count=2)] == values
    assert [entry.value for entry in stream.reverse()] == [entry.value for entry in reversed(stream)] == values[::-1]
    assert [entry.value for entry in stream.read(block=5)] == [entry.value for entry in stream.scan(page=1)] == values
    assert next(stream.follow(after="0")).value == ORDER
    assert [entry.value for entry in store.read({stream: "0"})["s"]] == values
    consumer = stream.group("g").consumer("c")
    assert [message.value for message in consumer.read(1)] == values[:1]
    assert [message.value for message in consumer.read(after="0")] == values[:1]
    assert [(message.value, message.ack()) for message in consumer.messages(stop_when_empty=True)] == [
        (value, True) for value in values
    ]


@only("memory", "redis")
def test_a_transaction_adds_values(store: Store) -> None:
    orders, plain = store.stream("orders", type=Order), store.stream("plain")
    with store.transaction() as transaction:
        added = transaction.add(orders, Order(7, Decimal("1.50")), id="5-1")
        transaction.add(plain, {"n": 1})
        transaction.add(b"plain", [("n", 2)])
        with pytest.raises(TypeError, match="stream 'orders'.*Order"):
            transaction.add(orders, {"customer": 7})  # type: ignore[misc]
        with pytest.raises(TypeError, match="a name must be str or bytes"):
            transaction.add(7, {"n": 1})  # type: ignore[call-overload]
    assert (orders.range()[0].id, orders.range()[0].value) == (added.result, Order(7, Decimal("1.50")))
    assert [one["n"] for one in plain] == ["1", "2"]


def test_a_consumer_of_several_streams_keeps_their_types(store: Store) -> None:
    orders, visits = store.stream("orders", type=Order), store.stream("visits", type=Visit)
    orders.add(ORDER)
    visits.add({"page": "/", "seconds": 2})
    store.stream("raw").add({"a": 1})
    consumer = store.consumer("g", "c", [orders, visits, "raw"])
    values = {message.stream.name: message.value for message in consumer.messages(stop_when_empty=True)}
    assert values == {"orders": ORDER, "visits": {"page": "/", "seconds": 2.0}, "raw": {"a": "1"}}


WRONG: list[tuple[Any, Any, type[Exception], str]] = [
    (Order, {"customer": 1}, TypeError, "stream 's': expected Order, got {'customer': 1} (dict)"),
    (Order, Order("x", Decimal(1)), TypeError,  # type: ignore[arg-type]
     "stream 's': field 'customer' of Order: expected int, got 'x' (str)"),
    (Order, Order(1, Decimal(1), note=5), TypeError,  # type: ignore[arg-type]
     "stream 's': field 'note' of Order: expected str or None, got 5 (int)"),
    (Order, Order(1, None), TypeError,  # type: ignore[arg-type]
     "stream 's': field 'total' of Order: expected Decimal, got None (NoneType)"),
    (Order, Order(1, Decimal(1), tags=["a", 5]), InvalidValue,  # type: ignore[list-item]
     "stream 's': field 'tags' of Order: expected list[str], got ['a', 5]: Expected `str`, got `int` - at `$[1]`"),
    (Payment, Payment(1, -5), InvalidValue, "Expected `int` >= 1"),
    (Payment, Refund(1), TypeError, "stream 's': expected Payment, got Refund(order_id=1, reason=None) (Refund)"),
    (Customer, CUSTOMER.model_copy(update={"number": -1}), InvalidValue,
     "stream 's': field 'number': Input should be greater than 0, got -1"),
    (Patch, Patch(1, None), TypeError,  # type: ignore[arg-type]
     "stream 's': field 'name' of Patch: expected str or UNSET, got None"),
    (Patch, Patch(1, 5), TypeError,  # type: ignore[arg-type]
     "stream 's': field 'name' of Patch: expected str or UNSET, got 5 (int)"),
    (Patch, Patch(msgspec.UNSET), TypeError,  # type: ignore[arg-type]
     "stream 's': field 'number' of Patch: expected int, got"),
    (Visit, {"page": "/"}, TypeError, "stream 's': the key 'seconds' of Visit is missing"),
    (Visit, {"page": "/", "seconds": 1, "x": 1}, TypeError, "stream 's': the key 'x' is not one of Visit"),
    (Visit, {"page": 5, "seconds": 1}, TypeError, "stream 's': field 'page' of Visit: expected str, got 5 (int)"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "error", "text"), WRONG)
@only("memory")
def test_add_rejects_an_invalid_value(store: Store, kind: Any, value: Any, error: type[Exception], text: str) -> None:
    stream: Stream[Any] = store.stream("s", type=kind)
    with pytest.raises(error) as caught:
        stream.add(value)
    assert text in str(caught.value)
    with pytest.raises(error):
        stream.add_many([value])
    assert not stream.exists()


INVALID: list[tuple[Any, dict[str, Any], str, str | None]] = [
    (Order, {"customer": "x", "total": "1"}, "field 'customer': expected int, got 'x'", "customer"),
    (Order, {"customer": "1"}, "the field 'total' is missing", "total"),
    (Order, {"customer": "1", "total": "1", "tags": "[5]"}, "Expected `str`, got `int`", "tags"),
    (Payment, {"orderId": 1, "amount": 1}, "the field 'type' is missing", "type"),
    (Payment, {"type": "X", "orderId": 1, "amount": 1}, "field 'type': b'X' is not a known tag", "type"),
    (Payment, {"type": "Payment", "orderId": 1, "amount": 0}, "Expected `int` >= 1", "amount"),
    (Refund, {"type": "Refund", "order_id": 1, "x": 1}, "the field 'x' is unknown, and Refund forbids it", "x"),
    (Customer, {"customerNumber": 0, "address": '{"city":"x"}'},
     "field 'number': Input should be greater than 0, got 0", "number"),
    (Visit, {"page": "/"}, "the field 'seconds' is missing", "seconds"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "fields", "text", "name"), INVALID)
@only("memory")
def test_reading_an_invalid_entry_raises(
    store: Store, kind: Any, fields: dict[str, Any], text: str, name: str | None
) -> None:
    id = store.stream("s").add(fields)
    stream: Stream[Any] = store.stream("s", type=kind)
    with pytest.raises(InvalidEntry) as caught:
        stream.range()
    error = caught.value
    assert str(error).startswith(f"stream 's', entry {id}: ")
    assert text in error.reason
    assert (error.field, error.entry.id, error.message) == (name, id, None)
    assert error.entry.fields == {key: str(value) for key, value in fields.items()}
    assert id in stream
    assert stream.first_id == id


@only("memory")
def test_missing_fields_take_defaults_and_unknown_fields_are_ignored(store: Store) -> None:
    raw, stream = store.stream("s"), store.stream("s", type=Order)
    raw.add({"total": "1", "unknown": "x", "customer": "5"})
    assert stream.range()[0].value == Order(5, Decimal(1))


@only("memory")
def test_an_unset_field_is_absent(store: Store) -> None:
    changes = store.stream("s", type=Change)
    assert changes[changes.add(Change(msgspec.UNSET))].value == Change(msgspec.UNSET)
    store.stream("s").add({"x": 1})
    assert changes.range()[-1].value.name is msgspec.UNSET

    class Both(msgspec.Struct):
        name: str | msgspec.UnsetType | None = msgspec.UNSET

    class Other(msgspec.Struct):
        name: str | msgspec.UnsetType = "x"

    class Items(TypedDict):
        name: str | msgspec.UnsetType

    for kind in (Both, Other):
        with pytest.raises(TypeError, match="name may be UNSET and has another default or may be None"):
            store.stream("s", type=kind)
    with pytest.raises(TypeError, match="use NotRequired"):
        store.stream("s", type=Items)


def test_a_reader_that_skips(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    raw = store.stream("s")
    ids = raw.add_many([BAD, one(1), {"a": 1}, one(2), {"b": 1}])
    stream = store.stream("s", type=Order, on_invalid="skip")
    with caplog.at_level(logging.WARNING, "rillet.store"):
        assert [entry.value.customer for entry in stream] == [1, 2]
    assert caplog.messages[0] == f"stream 's', entry {ids[0]}: field 'customer': expected int, got 'x': skipped"
    assert [entry.value.customer for entry in stream.range(count=2)] == [1, 2]
    assert [entry.value.customer for entry in stream.reverse(count=1)] == [2]
    assert [entry.value.customer for entry in stream.read(count=1)] == [1]
    assert [entry.value.customer for entry in stream.read(ids[1], count=1)] == [2]
    assert stream.read(ids[3]) == []
    assert stream.get(ids[0]) is None
    consumer = stream.group("g").consumer("c")
    assert [message.value.customer for message in consumer.messages(stop_when_empty=True)] == [1, 2]
    assert [pending.id for pending in consumer.pending()] == [ids[1], ids[3]]


def test_an_iterator_raises_once_for_an_invalid_message_and_continues(store: Store) -> None:
    ids = store.stream("s").add_many([one(1), BAD, one(2), one(3)])
    consumer = store.stream("s", type=Order).group("g").consumer("c")
    messages: Iterator[Message[Order]] = consumer.messages(stop_when_empty=True)
    assert next(messages).ack()
    with pytest.raises(InvalidEntry) as caught:
        next(messages)
    assert (caught.value.message.id, caught.value.message.fields) == (ids[1], BAD)
    assert [(pending.id, pending.deliveries) for pending in consumer.pending()] == [
        (ids[1], 1), (ids[2], 0), (ids[3], 0)
    ]  # fmt: skip
    assert [(message.id, message.deliveries, message.ack()) for message in messages] == [
        (ids[2], 1, True), (ids[3], 1, True)
    ]  # fmt: skip
    assert caught.value.message.ack()
    assert consumer.pending() == []


def test_a_restart_continues_after_an_invalid_message(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    ids = store.stream("s").add_many([BAD, one(1), BAD, one(2)])
    consumer = store.stream("s", type=Order).group("g").consumer("c")
    found = []

    def work() -> None:
        for message in consumer.messages(stop_when_empty=True):
            found.append((message.id, message.deliveries, message.ack()))

    for _ in range(2):  # each invalid message ends the worker's loop once
        with pytest.raises(InvalidEntry):
            work()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "rillet.store"):
        work()
    assert found == [(ids[1], 1, True), (ids[3], 1, True)]
    assert caplog.messages == [
        f"stream 's', entry {id}: field 'customer': expected int, got 'x': delivered before, stays pending"
        for id in (ids[0], ids[2])
    ]
    assert [(pending.id, pending.deliveries) for pending in consumer.pending()] == [(ids[0], 3), (ids[2], 2)]
    with pytest.raises(InvalidEntry) as caught:
        consumer.claim_ids(ids[0])
    assert caught.value.message.ack()


WORKER = """
import sys, rillet
from tests.store.test_typed import Order

with rillet.open(sys.argv[1]) as store:
    worker = store.stream("s", type=Order).group("g").consumer("c")
    for message in worker.messages(stop_when_empty=True):
        print(message.value.customer, flush=True)
        message.ack()
"""


@pytest.mark.slow
def test_a_worker_process_that_ends_at_each_error_handles_all_valid_messages(tmp_path: Path) -> None:
    import rillet

    path = str(tmp_path / "store")
    with rillet.open(path) as store:
        ids = store.stream("s").add_many([BAD, one(1), BAD, one(2), BAD])
    runs = [ran(WORKER, path) for _ in range(4)]
    assert [(status, output.split()) for status, output, _ in runs] == [(1, []), (1, ["1"]), (1, ["2"]), (0, [])]
    assert ["InvalidEntry: stream 's', entry" in errors for _, _, errors in runs] == [True, True, True, False]
    with rillet.open(path) as store:
        assert [pending.id for pending in store.stream("s").group("g").pending()] == [ids[0], ids[2], ids[4]]


def test_max_deliveries_counts_across_restarts_of_the_owner(tmp_path: Path) -> None:
    import rillet

    found = []
    for start in range(5):
        with rillet.open(tmp_path / "store") as store:
            if start == 0:
                store.stream("s").add({"a": 1})
            consumer = store.stream("s").group("g").consumer("c")
            messages = consumer.messages(stop_when_empty=True, max_deliveries=3, dead_letters="dead")
            found.append([message.deliveries for message in messages])
            dead = len(store.stream("dead"))
    assert (found, dead) == ([[1], [2], [3], [], []], 1)


@pytest.mark.parametrize("batch", [2, 3, 10])
@only("memory", "redis")
def test_batches_continue_after_an_invalid_message(store: Store, batch: int) -> None:
    numbers = [one(number) for number in range(3)]
    ids = store.stream("s").add_many([numbers[0], BAD, BAD, numbers[1], BAD, numbers[2], BAD])
    consumer = store.stream("s", type=Order).group("g").consumer("c")
    messages = consumer.messages(batch=batch, stop_when_empty=True)
    found, invalid = [], []
    while True:
        try:
            found += next(messages)
        except InvalidEntry as error:
            invalid.append(error.entry.id)
        except StopIteration:
            break
    assert [message.value.customer for message in found] == [0, 1, 2]
    assert invalid == [ids[1], ids[2], ids[4], ids[6]]
    assert [(pending.id, pending.deliveries) for pending in consumer.pending()] == [(id, 1) for id in ids]


@only("memory", "redis")
def test_another_consumer_may_claim_what_follows_an_invalid_message(store: Store) -> None:
    ids = store.stream("s").add_many([BAD, one(1), one(2)])
    group = store.stream("s", type=Order).group("g")
    messages = group.consumer("c").messages(stop_when_empty=True)
    with pytest.raises(InvalidEntry):
        next(messages)
    assert [message.ack() for message in group.consumer("other").claim_ids(ids[1])] == [True]
    store.stream("s").delete(ids[2])
    assert list(messages) == []


@only("memory", "redis")
def test_a_claimed_invalid_message_stays_pending(store: Store) -> None:
    ids = store.stream("s").add_many([BAD, one(1)])
    group = store.stream("s", type=Order).group("g")
    store.stream("s").group("g").consumer("dead").read()
    worker = group.consumer("c")
    claimed = worker.messages(claim_idle=0, stop_when_empty=True, timeout=0.01)
    assert [(message.id, message.ack()) for message in claimed] == [(ids[1], True)]
    assert [pending.id for pending in worker.pending()] == [ids[0]]


@only("memory", "redis")
def test_messages_has_a_stream_for_invalid_entries(store: Store) -> None:
    stream = store.stream("{s}", type=Order, on_invalid="dead_letter")
    ids = store.stream("{s}").add_many([one(1), BAD])
    consumer = stream.group("g").consumer("c")
    with pytest.raises(ValueError, match=r"on_invalid='dead_letter' of the stream '{s}' needs a place: pass "
                                         r"dead_letters='a stream' to messages\(\)"):  # fmt: skip
        consumer.messages()
    with pytest.raises(ValueError, match="needs a place"):
        store.consumer("g", "c", [stream, "raw"]).messages(max_deliveries=2, on_exhausted="drop")
    assert [entry.id for entry in stream] == ids[:1]
    messages = consumer.messages(stop_when_empty=True, dead_letters="{s}.dead")
    assert [(message.id, message.ack()) for message in messages] == [(ids[0], True)]
    assert [entry["_error"] for entry in store.stream("{s}.dead")] == ["field 'customer': expected int, got 'x'"]
    assert consumer.pending() == []
    store.stream("{s}").add(BAD)
    with pytest.raises(InvalidEntry):
        consumer.read()  # it has no dead letters
    assert len(consumer.pending()) == 1


def test_a_consumer_with_a_stream_for_invalid_entries(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    raw, invalid = store.stream("{s}"), store.stream("{s}.invalid")
    ids = raw.add_many([{"customer": "1", "total": "1"}, {"customer": "x"}])
    stream = store.stream("{s}", type=Order, on_invalid=invalid)
    assert len(stream.range()) == 1
    assert not invalid.exists()
    consumer = stream.group("g").consumer("c")
    with caplog.at_level(logging.WARNING, "rillet.store"):
        assert [message.ack() for message in consumer.messages(stop_when_empty=True)] == [True]
    assert caplog.messages[-1].endswith(": acknowledged and written to {s}.invalid")
    assert [entry.fields for entry in invalid] == [
        {"customer": "x", "_stream": "{s}", "_group": "g", "_id": str(ids[1]), "_deliveries": "1",
         "_error": "field 'customer': expected int, got 'x'"}
    ]  # fmt: skip
    assert consumer.pending() == []


@only("memory", "redis")
def test_a_message_stays_pending_if_its_dead_letter_is_refused(store: Store) -> None:
    store.execute("SET", "dead", "not a stream")
    store.stream("s").add({"customer": "x"})
    consumer = store.stream("s", type=Order, on_invalid=store.stream("dead")).group("g").consumer("c")
    with pytest.raises(WrongType):
        consumer.read()
    assert len(consumer.pending()) == 1


@only("memory", "redis")
def test_max_deliveries_counts_invalid_messages(store: Store) -> None:
    store.stream("s").add(BAD)
    consumer = store.stream("s", type=Order).group("g").consumer("c")
    with pytest.raises(InvalidEntry):
        list(consumer.messages(stop_when_empty=True, max_deliveries=2, dead_letters="dead"))
    for letters in (0, 1):
        assert list(consumer.messages(stop_when_empty=True, max_deliveries=2, dead_letters="dead")) == []
        assert len(store.stream("dead")) == letters


@only("memory")
def test_a_codec_of_the_user_and_a_raw_stream(store: Store) -> None:
    raw = store.stream("raw", codec="raw")
    assert raw[raw.add(b"\xff")].value == b"\xff"
    numbers = store.stream("numbers", codec=codecs.text_of(int))
    assert numbers[numbers.add(5)].value == 5
    anything = store.stream("any", codec="json")
    assert anything[anything.add({"a": [1, None]})].value == {"a": [1, None]}


@only("owner")
def test_a_read_only_store_reads_values(frontend: Frontend, tmp_path: Any) -> None:
    import rillet

    frontend.store.stream("s", type=Order).add(ORDER)
    with rillet.open(str(frontend.store.path), readonly=True) as store:
        assert [entry.value for entry in store.stream("s", type=Order)] == [ORDER]


def test_a_transaction_of_asyncio_adds_values(store: Store) -> None:
    async def body() -> None:
        twin = store.aio()
        async with twin.transaction() as transaction:
            transaction.add(twin.stream("orders", type=Order), Order(7, Decimal("1.50")))
        assert (await twin.stream("orders", type=Order).range())[0].value.customer == 7

    asyncio.run(body())


def test_the_asyncio_form(frontend: Frontend) -> None:
    async def main() -> None:
        store = frontend.store.aio()
        stream = store.stream("{s}", type=Order, on_invalid=store.stream("{s}.invalid"))
        await stream.add(ORDER)
        await store.stream("{s}").add({"customer": "x"})
        await stream.add(ORDER)
        assert [entry.value async for entry in stream] == [ORDER, ORDER]
        consumer = (await stream.group("g")).consumer("c")
        values = [(message.value, await message.ack()) async for message in consumer.messages(stop_when_empty=True)]
        assert values == [(ORDER, True), (ORDER, True)]
        assert await store.stream("{s}.invalid").length() == 1
        assert (await consumer.pending()) == []

    asyncio.run(main())


def test_an_asyncio_iterator_continues_after_an_invalid_message(frontend: Frontend) -> None:
    import asyncio

    async def main() -> None:
        store = frontend.store.aio()
        ids = await store.stream("s").add_many([one(1), BAD, one(2)])
        consumer = (await store.stream("s", type=Order).group("g")).consumer("c")
        messages = consumer.messages(stop_when_empty=True)
        assert (await anext(messages)).id == ids[0]
        with pytest.raises(InvalidEntry) as caught:
            await anext(messages)
        assert await caught.value.message.ack()
        assert [(message.id, message.deliveries) async for message in messages] == [(ids[2], 1)]
        batches = consumer.messages(stop_when_empty=True, batch=5)
        assert [[message.id for message in batch] async for batch in batches] == [[ids[0], ids[2]]]

    asyncio.run(main())
