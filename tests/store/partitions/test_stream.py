"""Partitioned streams: entries, their partitions, the form in the store, and changes of the number of partitions."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any, TypedDict

import pytest
from xxhash import xxh3_64_intdigest

import rillet
from rillet import InvalidEntry, PartitionMismatch, Store
from rillet.client.cluster import slot_of
from rillet.keyspace.helper_keys import consumers_key, owner_key, partitions_key, retries_key
from rillet.store.command_steps import drive, run_step
from rillet.store.partitions.layout import keys_of, partition_of
from rillet.store.partitions.upkeep import opened, repartitioned
from tests.store.conftest import RILLET, only
from tests.waiting import until

IN_MEMORY = only("memory")


def filled(store: Store, partitions: int = 4, entries: int = 40) -> rillet.PartitionedStream[Any]:
    orders = store.partitioned("orders", partitions=partitions, by="customer")
    orders.add_many({"customer": n % 7, "n": n} for n in range(entries))
    return orders


# -- entries ---------------------------------------------------------------------------------------------


def test_entries_are_in_the_partition_of_their_field(store: Store) -> None:
    orders = store.partitioned("orders", partitions=4, by="customer")
    ids = [orders.add({"n": n, "customer": f"c{n}"}) for n in range(20)]
    assert len(orders) == orders.length() == 20
    for number, stream in enumerate(orders.partitions()):
        for entry in stream:
            assert xxh3_64_intdigest(entry["customer"].encode()) % 4 == number
            assert entry.id == ids[int(entry["n"])]


def test_the_hash_is_the_published_one() -> None:
    """The values of XXH3_64bits(input), seed 0, of the reference implementation (xxhsum -H3)."""
    assert xxh3_64_intdigest(b"") == 0x2D06800538D394C2
    assert xxh3_64_intdigest(b"a") == 0xE6C632B61E964E1F
    assert xxh3_64_intdigest(b"abc") == 0x78AF5F94892F3950
    assert partition_of(b"abc", 16) == 0x78AF5F94892F3950 % 16


def test_add_many_returns_the_ids_in_order(store: Store) -> None:
    orders = store.partitioned("orders", partitions=3, by="customer")
    ids = orders.add_many(({"customer": n % 5, "n": n} for n in range(50)), batch=7)
    found = {entry["n"]: entry.id for entry in orders}
    assert [found[str(n)] for n in range(50)] == ids
    assert orders.add_many([]) == []


def test_entries_are_merged_by_id(store: Store) -> None:
    orders = filled(store)
    entries = list(orders)
    assert [entry.id for entry in entries] == sorted(entry.id for entry in entries)
    assert sorted(int(entry["n"]) for entry in entries) == list(range(40))
    assert list(orders.scan(page=3)) == entries
    assert orders.range(count=5) == entries[:5]
    assert orders.range(count=0) == []
    assert orders.range(entries[3].id, entries[3].id)[0].id == entries[3].id
    assert orders.range() == entries


def test_partitions_are_trimmed(store: Store) -> None:
    orders = store.partitioned("orders", partitions=2, by="customer")
    for n in range(20):
        orders.add({"customer": n % 5, "n": n}, maxlen=3, approximate=False)
    assert all(len(stream) == 3 for stream in orders.partitions())


def test_the_stats_are_those_of_the_partitions(store: Store) -> None:
    orders = filled(store)
    assert sum(one.length for one in orders.stats().streams) == 40


# -- the form ----------------------------------------------------------------------------------------------


def test_nothing_is_created_before_the_first_use(store: Store) -> None:
    orders = store.partitioned("orders", partitions=4, by="customer")
    orders.group("billing").consumer("w1")
    with pytest.raises(PartitionMismatch):
        store.partitioned("others").add({"customer": 1})
    assert list(store.keys()) == []


def test_the_form_is_in_the_store(store: Store) -> None:
    filled(store, 2, 3)
    assert dict(store.hash("rillet:partitions:{orders}orders").items()) == {
        "by": "customer", "hash": "xxh3_64", "epoch": "1", "partitions:1": "2",
    }  # fmt: skip
    assert sorted(store.keys()) == ["orders:1:0:{2}", "orders:1:1:{0}", "rillet:partitions:{orders}orders"]
    assert store.execute("TYPE", "orders:1:0:{2}") == b"stream"


@pytest.mark.parametrize("partitions", [1, 2, 3, 16, 100, 1024])
@pytest.mark.parametrize("name", [b"orders", b"{a}b", b"}x{", b"50%", b"a:1"])
def test_the_keys_are_spread_over_the_slots(name: bytes, partitions: int) -> None:
    keys = keys_of(name, 1, partitions)
    assert [slot_of(key) * partitions // 16384 for key in keys] == list(range(partitions))
    for key in keys[:3]:
        assert slot_of(key) == slot_of(owner_key(key, b"g:{h}")) == slot_of(retries_key(key, b"g"))
    assert slot_of(partitions_key(name)) == slot_of(consumers_key(name, b"g}"))


def test_another_number_of_partitions_is_an_error(store: Store) -> None:
    filled(store)
    other = store.partitioned("orders", partitions=8, by="customer")
    for call in (lambda: other.add({"customer": 1}), lambda: len(other), lambda: list(other),
                 lambda: next(iter(other.group("g").consumer("w").messages(stop_when_empty=True))),
                 other.group("g").create):  # fmt: skip
        with pytest.raises(PartitionMismatch, match=r"has 4 partitions, not 8: leave out .* repartition\(8\)"):
            call()
    assert len(store.partitioned("orders")) == 40


def test_another_field_is_an_error(store: Store) -> None:
    filled(store)
    with pytest.raises(PartitionMismatch, match="partitioned by 'customer', not by 'city'"):
        store.partitioned("orders", partitions=4, by="city").add({"city": 1})
    with pytest.raises(PartitionMismatch, match="is not a partitioned stream of this store: pass partitions and by"):
        store.partitioned("others").add({"customer": 1})
    with pytest.raises(PartitionMismatch, match="pass partitions and by"):
        store.partitioned("others", by="customer").length()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [((0, "k"), ValueError), ((1025, "k"), ValueError), ((True, "k"), TypeError), (("4", "k"), TypeError),
     ((4, 5), TypeError)],
)  # fmt: skip
def test_bad_arguments(arguments: Any, error: type[Exception]) -> None:
    with rillet.open() as store, pytest.raises(error):
        store.partitioned("orders", *arguments)


def test_a_missing_field_is_an_error_before_anything_is_written(store: Store) -> None:
    orders = store.partitioned("orders", partitions=4, by="customer")
    with pytest.raises(ValueError, match="'orders' needs the field 'customer', which selects its partition"):
        orders.add({"n": 1})
    with pytest.raises(ValueError, match="needs the field 'customer'"):
        orders.add_many([{"customer": 1}, {"n": 1}])
    assert len(orders) == 0


def test_a_rejected_entry_does_not_stop_the_others_of_its_batch(store: Store) -> None:
    orders = store.partitioned("orders", partitions=2, by="customer")
    store.delete(orders.partitions()[0].name)
    store.string(orders.partitions()[0].name).set_value("other")
    with pytest.raises(rillet.WrongType):
        orders.add_many({"customer": n} for n in range(10))
    assert 0 < len(orders.partitions()[1]) < 10


def test_a_typed_stream(store: Store) -> None:
    class Order(TypedDict):
        customer: int
        total: float

    orders = store.partitioned("orders", partitions=3, by="customer", type=Order)
    orders.add({"customer": 1, "total": 2.5})
    assert [entry.value for entry in orders] == [{"customer": 1, "total": 2.5}]
    orders.partitions()[0].store.stream(orders.partitions()[0].name).add({"customer": "x"})
    messages = orders.group("g").consumer("w").messages(stop_when_empty=True)
    found, errors = [], 0
    while True:
        try:
            message = next(messages)
        except InvalidEntry:
            errors += 1
        except StopIteration:
            break
        else:
            found.append(message.value)
            message.ack()
    assert (found, errors) == ([{"customer": 1, "total": 2.5}], 1)


def test_another_description_is_refused(store: Store) -> None:
    store.hash("rillet:partitions:{orders}orders").update({"by": "k", "hash": "crc32", "epoch": "1"})
    with pytest.raises(rillet.StoreError, match="has the hash 'crc32', not 'xxh3_64'"):
        store.partitioned("orders").length()


def test_a_partitioned_stream_is_pickled(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "store") as store:
        orders = filled(store)
        with pickle.loads(pickle.dumps(orders)).store as other:
            assert len(other.partitioned("orders")) == 40


# -- changes of the number of partitions ---------------------------------------------------------------------


def test_repartition(store: Store) -> None:
    orders = filled(store)
    other = store.partitioned("orders", partitions=4, by="customer")
    assert len(other) == 40
    orders.repartition(6)
    assert len(orders.partitions()) == 6
    orders.add({"customer": 1, "n": 40})
    other.add({"customer": 1, "n": 41})  # with the old description
    other.add_many({"customer": n % 7, "n": n} for n in range(42, 60))
    assert [entry["n"] for entry in orders if entry["customer"] == "1"] == [
        *(str(n) for n in range(40) if n % 7 == 1), "40", "41", *(str(n) for n in range(42, 60) if n % 7 == 1),
    ]  # fmt: skip
    assert len(orders) == 60
    with pytest.raises(PartitionMismatch, match="has 6 partitions, not 4"):
        store.partitioned("orders", partitions=4, by="customer").length()
    orders.repartition(6)  # changes nothing
    assert list(orders.layout().epochs.values()) == [4, 6]


def test_a_sealed_partition_refuses_entries_of_other_clients(store: Store) -> None:
    orders = filled(store)
    old = orders.partitions()[0]
    orders.repartition(2)
    with pytest.raises(rillet.CommandError, match="exhausted the last possible ID"):
        store.execute("XADD", old.name, "*", "customer", "1")


@pytest.mark.parametrize("stop", range(1, 6))
@pytest.mark.parametrize("continued", ["writer", "repartition"])
def test_a_killed_change_is_continued(stop: int, continued: str) -> None:
    """The change ends before its command number `stop`."""
    with rillet.open() as store:
        orders = filled(store)
        steps = repartitioned(orders.key, 6)
        command: Any = next(steps)
        for _ in range(stop):
            try:
                command = steps.send(run_step(store, command))
            except StopIteration:
                break
        else:
            steps.close()
        if continued == "repartition":
            store.partitioned("orders").repartition(6)
        orders.add_many({"customer": n % 7, "n": n} for n in range(40, 60))
        sealed = stop >= 4 or continued == "repartition"
        assert len(orders.partitions()) == (6 if sealed else 4)
        for customer in range(7):
            found = [int(entry["n"]) for entry in orders if entry["customer"] == str(customer)]
            assert found == list(range(customer, 60, 7))


def test_a_change_stops_between_two_partitions() -> None:
    """Some keys are sealed, others are not: entries for the sealed ones go to the next epoch, in order."""
    with rillet.open() as store:
        orders = filled(store)
        steps = repartitioned(orders.key, 6)
        command: Any = next(steps)
        for _ in range(3):
            command = steps.send(run_step(store, command))
        store.run_many(command[:2])
        orders.add_many({"customer": n % 7, "n": n} for n in range(40, 60))
        for customer in range(7):
            found = [int(entry["n"]) for entry in orders if entry["customer"] == str(customer)]
            assert found == list(range(customer, 60, 7))


def test_a_creation_is_continued() -> None:
    for stop in range(1, 4):
        with rillet.open() as store:
            steps = opened(b"orders", 4, b"customer")
            command: Any = next(steps)
            for _ in range(stop):
                command = steps.send(run_step(store, command))
            orders = store.partitioned("orders", partitions=4, by="customer")
            orders.add({"customer": 1})
            assert len(orders) == 1


def test_another_change_is_under_way() -> None:
    with rillet.open() as store:
        orders = filled(store)
        steps = repartitioned(orders.key, 6)
        command: Any = next(steps)
        for _ in range(2):
            command = steps.send(run_step(store, command))
        with pytest.raises(PartitionMismatch, match=r"to 6 partitions is under way: call repartition\(6\) to finish"):
            store.partitioned("orders").repartition(8)
        with pytest.raises(PartitionMismatch, match="nothing to repartition"):
            drive(store, repartitioned(b"others", 3))


def _rest(steps: Any, command: Any) -> Any:
    """Yield the next command of a generator, and what follows."""
    while True:
        try:
            command = steps.send((yield command))
        except StopIteration:
            return


def test_a_program_that_overslept_several_changes_creates_no_old_key() -> None:
    """It was about to create keys of an epoch that has begun, ended, and was deleted since."""
    with rillet.open() as store:
        orders = filled(store)
        steps = repartitioned(orders.key, 2)
        command: Any = next(steps)
        for _ in range(2):
            command = steps.send(run_step(store, command))
        orders.repartition(2)
        orders.repartition(3)
        for message in orders.group("g").consumer("w").messages(stop_when_empty=True):
            message.ack()
        assert orders.delete_drained() == 6
        keys = set(store.keys())
        drive(store, _rest(steps, command))
        assert set(store.keys()) == keys
        assert len(orders.partitions()) == 3


def test_drained_keys_are_deleted(store: Store) -> None:
    orders = filled(store)
    group, slow = orders.group("billing"), orders.group("slow")
    slow.create()
    for message in group.consumer("w").messages(stop_when_empty=True):
        message.ack()
    assert orders.delete_drained() == 0  # it receives entries
    orders.repartition(6)
    assert orders.delete_drained() == 0  # no group has noticed
    for message in group.consumer("w").messages(stop_when_empty=True):
        message.ack()
    assert group.info().epoch == 2
    assert orders.delete_drained() == 0  # the other group has read nothing
    for message in slow.consumer("w").messages(stop_when_empty=True):
        message.ack()
    assert orders.delete_drained() == 4
    assert len(orders) == 0
    assert not [key for key in list(store.keys()) if "orders:1:" in key]
    orders.add({"customer": 1})
    assert len(orders) == 1


def test_without_a_group_nothing_is_drained(store: Store) -> None:
    orders = filled(store)
    orders.repartition(3)
    assert orders.delete_drained() == 0
    assert len(orders) == 40


def test_delete(store: Store) -> None:
    orders = filled(store)
    next(iter(orders.group("billing").consumer("w").messages()))
    orders.repartition(3)
    assert orders.delete() == 7
    assert list(store.keys()) == []
    assert orders.delete() == 0
    orders.add({"customer": 1})  # creates it again
    assert len(orders) == 1


def test_deleted_keys(store: Store) -> None:
    orders = filled(store)
    store.delete(*orders.layout().streams())
    with pytest.raises(PartitionMismatch, match="is missing, such as 'orders:1:0:"):
        orders.add({"customer": 1})
    with pytest.raises(PartitionMismatch, match="is missing"):
        orders.group("g").create()
    orders.delete()
    orders.add({"customer": 1})
    store.delete(*store.keys())
    orders.add({"customer": 1})
    assert len(orders) == 1


# -- asyncio -----------------------------------------------------------------------------------------------


def test_asyncio(store: Store) -> None:
    async def use() -> None:
        orders = store.aio().partitioned("orders", partitions=4, by="customer")
        await orders.add({"customer": 1, "n": 0})
        await orders.add_many({"customer": n % 7, "n": n} for n in range(1, 20))
        assert await orders.length() == 20
        group = orders.group("billing")
        found = []
        async for message in group.consumer("w").messages(stop_when_empty=True):
            found.append(int(message["n"]))
            await message.ack()
        assert sorted(found) == list(range(20))
        await orders.repartition(2)
        await orders.add({"customer": 3, "n": 20})
        async for message in group.consumer("w").messages(stop_when_empty=True):
            found.append(int(message["n"]))
            await message.ack()
        assert found[20:] == [20]
        assert (await group.info()).pending == 0
        assert sorted([int(entry["n"]) async for entry in orders]) == list(range(21))
        assert await orders.delete_drained() == 4
        assert await orders.delete() == 2

    asyncio.run(use())


# -- repeated calls ------------------------------------------------------------------------------------------


@RILLET
def test_a_repeated_add_adds_nothing(store: Store) -> None:
    orders = store.partitioned("orders", partitions=4, by="customer")
    first = orders.add({"customer": 1, "n": 0}, idmp=("p", "a"))
    assert orders.add({"customer": 1, "n": 0}, idmp=("p", "a")) == first
    again = orders.add({"customer": 1, "n": 0}, idmpauto="p")
    assert orders.add({"customer": 1, "n": 0}, idmpauto="p") == again != first
    some = [{"customer": n % 3, "n": n} for n in range(10)]
    ids = orders.add_many(some, idmp=("p", range(10)), batch=3)
    assert orders.add_many(some, idmp=("p", range(10)), batch=4) == ids
    assert len(orders) == 12


@RILLET
def test_a_repeated_add_adds_nothing_after_a_change(store: Store) -> None:
    orders = store.partitioned("orders", partitions=4, by="customer")
    stale = store.partitioned("orders")
    some = [{"customer": n % 7, "n": n} for n in range(20)]
    ids = orders.add_many(some, idmp=("p", range(20)))
    stale.length()
    orders.repartition(3)
    later = orders.add({"customer": 5, "n": 20}, idmp=("p", 20))
    orders.repartition(5)
    for writer in (orders, stale, store.partitioned("orders")):
        assert writer.add_many([*some, {"customer": 5, "n": 20}, {"customer": 6, "n": 21}],
                               idmp=("p", range(22)))[:21] == [*ids, later]  # fmt: skip
    assert [int(entry["n"]) for entry in orders if entry["customer"] == "6"] == [6, 13, 21]
    assert len(orders) == 22


@IN_MEMORY
def test_wrong_producers_are_refused(store: Store) -> None:
    orders: Any = store.partitioned("orders", partitions=4, by="customer")
    one = {"customer": 1}
    with pytest.raises(ValueError, match="idmp has fewer message IDs than there are entries"):
        orders.add_many([one, one], idmp=("p", ["a"]))
    for call in (lambda: orders.add(one, idmp=("p", "a"), delay=1),
                 lambda: orders.add_many([one], idmpauto="p", delay=1)):  # fmt: skip
        with pytest.raises(ValueError, match="cannot be combined with delay and at"):
            call()
    for wrong in ("pa", 1, ("p",)):
        with pytest.raises(TypeError, match="pass idmp="):
            orders.add(one, idmp=wrong)
        with pytest.raises(TypeError, match="pass idmp="):
            orders.add_many([one], idmp=wrong)
    with pytest.raises(ValueError, match="both were passed"):
        orders.add(one, idmp=("p", "a"), idmpauto="p")
    assert len(orders) == 0


# -- retention -----------------------------------------------------------------------------------------------


@RILLET
def test_retention_of_all_partitions(store: Store) -> None:
    orders = filled(store)
    assert orders.retention() is None
    orders.retain(entries=3, groups="ignore")
    until(lambda: len(orders) == 12, "entries go")
    policy = orders.retention()
    assert policy is not None
    assert (policy.entries, policy.age, policy.groups, policy.drops_entries) == (3, None, "ignore", 0)
    orders.repartition(2)
    orders.add_many({"customer": n % 7, "n": n} for n in range(40))
    until(lambda: len(orders) == 12 + 6, "entries of the new partitions go")
    for stream in orders.partitions():
        policy = stream.retention()
        assert policy is not None
        assert policy.entries == 3
    orders.retain()
    assert orders.retention() is None
    orders.repartition(3)
    assert orders.retention() is None
    assert not store.exists("rillet:retention")


@IN_MEMORY
def test_what_groups_hold_back_is_added_up(store: Store) -> None:
    orders = filled(store)
    orders.retain(entries=2)
    group = orders.group("g")
    group.create()
    policy = orders.retention()
    assert policy is not None
    (held,) = policy.held
    assert held.group == "g"
    assert held.entries == 40 - 8
    assert held.first_id <= next(iter(orders)).id
    for message in group.consumer("w").messages(stop_when_empty=True):
        message.ack()
    until(lambda: len(orders) == 8, "entries go")


@IN_MEMORY
def test_a_policy_goes_with_the_keys(store: Store) -> None:
    orders = filled(store)
    orders.retain(entries=5)
    orders.repartition(2)
    for message in orders.group("g").consumer("w").messages(stop_when_empty=True):
        message.ack()
    assert orders.delete_drained() == 4
    assert store.execute("HLEN", "rillet:retention") == 2
    orders.delete()
    assert not store.exists("rillet:retention")


@IN_MEMORY
@pytest.mark.parametrize("stop", range(8))
def test_a_policy_that_changes_while_the_partitions_do(store: Store, stop: int) -> None:
    orders = filled(store)
    orders.retain(entries=5)
    steps = repartitioned(orders.key, 6)
    command: Any = next(steps)
    for _ in range(stop):
        try:
            command = steps.send(run_step(store, command))
        except StopIteration:
            break
    store.partitioned("orders").retain(entries=9)
    drive(store, _rest(steps, command))
    orders.repartition(6)
    for stream in orders.partitions():
        policy = stream.retention()
        assert policy is not None
        assert policy.entries == 9


@only("redis")
def test_redis_has_no_retention(store: Store) -> None:
    orders = filled(store)
    with pytest.raises(rillet.StoreError, match="this server has no retention, only rillet has it"):
        orders.retain(entries=5)
    assert orders.retention() is None
    orders.repartition(2)
    assert len(orders) == 40
