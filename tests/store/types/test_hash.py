"""Hash on every kind of store, and against a dict."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, assert_type

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rillet import Hash, Store
from rillet.errors import CommandError, InvalidValue, WrongType
from rillet.store import codecs
from rillet.store.codecs import json_of, text_of
from tests.store.types.conftest import only
from tests.store.types.models import MODELLED, NAMES, compare


def test_a_hash_is_a_mapping(store: Store) -> None:
    prices = store.hash("prices")
    assert (len(prices), list(prices), dict(prices), bool(prices), prices.exists()) == (0, [], {}, False, False)
    prices["apple"] = "1.20"
    prices.update({"pear": "2.00"}, plum="0.80")
    prices.update([("fig", "3")])
    prices.update()
    everything = {"apple": "1.20", "pear": "2.00", "plum": "0.80", "fig": "3"}
    assert (len(prices), bool(prices)) == (4, True)
    assert dict(prices) == dict(prices.items()) == prices.get_all() == everything
    assert prices == everything
    assert prices == store.hash("prices")
    assert prices != store.hash("other")
    assert prices != {"apple": "1.20"}
    assert (prices == 5) is False
    assert sorted(prices.keys()) == sorted(everything)
    assert sorted(prices.values()) == sorted(everything.values())
    assert ("apple" in prices, "none" in prices) == (True, False)
    assert (prices.contains(b"apple"), prices.contains(5)) == (True, False)
    assert ("1.20" in prices.values(), ("fig", "3") in prices.items(), "7" in prices.values()) == (True, True, False)
    assert (prices["apple"], prices.get("apple")) == ("1.20", "1.20")
    assert (prices.get("none"), prices.get("none", "0")) == (None, "0")
    assert prices.mget(["fig", "none", "apple"]) == ["3", None, "1.20"]
    assert prices.mget([]) == []
    assert (prices.setdefault("fig", "9"), prices.setdefault("kiwi", "9")) == ("3", "9")
    assert (prices.add("kiwi", "8"), prices.add("lime", "8")) == (False, True)
    assert (prices.set_value("lime", "7"), prices.set_value("date", "7")) == (False, True)
    assert (prices.pop("lime"), prices.pop("lime", "x"), prices.pop("lime", None)) == ("7", "x", None)
    assert prices.remove("date", "kiwi", "none") == 2
    assert prices.remove() == 0
    del prices["fig"]
    assert sorted(prices.scan("p*")) == [("pear", "2.00"), ("plum", "0.80")]
    assert prices.random() in prices
    for missing in (lambda: prices["fig"], lambda: prices.pop("fig"), lambda: prices.__delitem__("fig")):
        with pytest.raises(KeyError, match="fig"):
            missing()
    assert {prices.popitem() for _ in range(3)} == {("apple", "1.20"), ("pear", "2.00"), ("plum", "0.80")}
    with pytest.raises(KeyError, match="the hash 'prices' is empty"):
        prices.popitem()
    assert prices.random() is None
    prices["a"] = "b"
    prices.clear()
    assert not store.exists("prices")
    assert repr(prices) == "Hash('prices')"


def test_numbers_in_a_hash(store: Store) -> None:
    stock = store.hash("stock", codec=text_of(int))
    assert (stock.incr("apple"), stock.incr("apple", 5), stock.incr("apple", -2)) == (1, 6, 4)
    assert stock["apple"] == 4
    stock["pear"] = 2**62
    assert store.hash("stock")["pear"] == str(2**62)
    assert stock.incr_float("weight", 0.5) == 0.5
    assert store.hash("stock", codec=text_of(float)).get("weight") == 0.5
    with pytest.raises(InvalidValue, match="^key 'stock': expected int, got '0.5'$"):
        _ = stock["weight"]
    store.hash("stock")["text"] = "x"
    with pytest.raises(CommandError, match="^ERR hash value is not an integer$"):
        stock.incr("text")


def test_values_of_any_type_and_bytes_of_any_kind(store: Store) -> None:
    prices = store.hash("prices", codec=text_of(Decimal))
    prices["apple"] = Decimal("1.20")
    assert prices["apple"] == Decimal("1.20")
    lists = store.hash("lists", codec=json_of(list[int]))
    lists.update(a=[1], b=[])
    assert lists.get_all() == {"a": [1], "b": []}
    assert lists.pop("a") == [1]
    raw = store.hash("raw", codec=codecs.raw)
    every = bytes(range(256))
    raw[every] = every
    name = next(iter(raw))
    assert raw[name] == raw[every] == every
    assert store.hash("raw")[name].encode("utf-8", "surrogateescape") == every
    for wrong in (None, True, object()):
        with pytest.raises(TypeError):
            store.hash("text")["f"] = wrong  # type: ignore[assignment]
        with pytest.raises(TypeError):
            store.hash("text")[wrong] = "v"  # type: ignore[index]
    assert not store.exists("text")
    assert_type(prices, Hash[Decimal])
    assert_type(prices.get("x"), Decimal | None)
    assert_type(store.hash("h")["f"] if store.exists("h") else "", str)


def test_iteration_reads_pages(store: Store) -> None:
    many = store.hash("many")
    many.update({f"field-{n}": str(n) for n in range(5000)})
    assert len(many) == 5000
    assert dict(many.items()) == {f"field-{n}": str(n) for n in range(5000)}
    assert set(many) == {f"field-{n}" for n in range(5000)}
    assert sum(map(int, many.values())) == sum(range(5000))
    first = next(many.scan())
    assert many[first[0]] == first[1]


def test_a_key_of_another_type(store: Store) -> None:
    store.string("text").set_value("x")
    wrong = store.hash("text")
    calls: list[Any] = [
        lambda: wrong["f"], lambda: wrong.pop("f", None), lambda: wrong.setdefault("f", "x"), lambda: list(wrong),
        lambda: wrong.update(f="x"), lambda: wrong.get_all(), lambda: len(wrong),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(WrongType):
            call()


VALUES = st.integers(-3, 3).map(str)
FIELDS = st.sampled_from(["a", "b", "c", "ü", ""])
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["__getitem__", "__delitem__", "__contains__", "get", "pop"]), FIELDS),
    st.tuples(st.sampled_from(["__setitem__", "setdefault", "get", "pop"]), FIELDS, VALUES),
    st.tuples(st.just("update"), st.dictionaries(FIELDS, VALUES)),
    st.tuples(st.sampled_from(["__len__", "clear"])),
)


@MODELLED
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(ACTIONS, max_size=20), name=NAMES)
def test_like_a_dict(store: Store, actions: list[tuple[Any, ...]], name: str) -> None:
    store.delete(name)
    stored, model = store.hash(name), dict[str, str]()
    for action in actions:
        compare(stored, model, action)
    assert stored == model
    assert dict(stored.items()) == model
    assert store.exists(name) == bool(model)


JSON = st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=4)


@only("memory")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fields=st.dictionaries(st.text(max_size=5), JSON, max_size=5))
def test_json_values_survive(store: Store, fields: dict[str, Any]) -> None:
    stored = store.hash("h", codec=codecs.json)
    stored.clear()
    stored.update(fields)
    assert stored == fields


@only("memory", "owner", "socket")
def test_fields_expire(store: Store) -> None:
    """Times are seconds, timedeltas or datetimes; a value that is set again has no expiry."""
    cart = store.hash("cart")
    cart.update(a="1", b="2", c="3")
    assert (cart.expire_field("a", 60), cart.expire_field("none", 60)) == (True, False)
    assert cart.expire_field("b", timedelta(hours=1))
    assert cart.expire_field_at("c", datetime.now(UTC) + timedelta(seconds=90))
    assert [round(cart.field_ttl(field) or 0) for field in "abc"] == [60, 3600, 90]
    assert (cart.persist_field("a"), cart.persist_field("a"), cart.field_ttl("a")) == (True, False, None)
    with pytest.raises(KeyError, match="none"):
        cart.field_ttl("none")
    cart["b"] = "4"
    assert cart.field_ttl("b") is None
    assert cart.incr("c") == 4
    assert round(cart.field_ttl("c") or 0) == 90
    assert cart.get_and_expire(["c", "none"], 30) == ["4", None]
    assert round(cart.field_ttl("c") or 0) == 30
    assert cart.get_and_expire(["c"], None) == ["4"]
    assert cart.field_ttl("c") is None
    assert cart.get_and_delete(["c", "none"]) == ["4", None]
    assert (cart.get_and_delete([]), cart.get_and_expire([], 1)) == ([], [])
    assert cart.expire_field("a", 0)
    assert dict(cart) == {"b": "4"}


@only("memory", "owner", "socket")
def test_fields_are_set_with_an_expiry(store: Store) -> None:
    tokens = store.hash("tokens", codec=text_of(int))
    assert tokens.set_values({"ann": 1, "bob": 2}, expire=60)
    assert (tokens.set_values({"ann": 9, "eve": 9}, nx=True), tokens.set_values({"eve": 9}, xx=True)) == (False, False)
    assert tokens.set_values([("ann", 5)], keep_expiry=True, xx=True)
    assert round(tokens.field_ttl("ann") or 0) == 60
    assert tokens.set_values({"bob": 3})
    assert tokens.field_ttl("bob") is None
    assert tokens.set_values({"bob": 4}, expire_at=datetime.now(UTC) + timedelta(minutes=1))
    assert round(tokens.field_ttl("bob") or 0) == 60
    assert tokens.set_values({})
    assert dict(tokens) == {"ann": 5, "bob": 4}
    with pytest.raises(ValueError, match="pass one of expire, expire_at and keep_expiry"):
        tokens.set_values({"ann": 1}, expire=1, keep_expiry=True)
    with pytest.raises(ValueError, match="pass nx or xx, not both"):
        tokens.set_values({"ann": 1}, nx=True, xx=True)


@only("redis")
def test_a_server_without_field_expiry_says_so(store: Store) -> None:
    with pytest.raises(CommandError, match="unknown command 'HPEXPIRE'"):
        store.hash("h").expire_field("a", 1)
