"""String and Counter on every kind of store, and against a variable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rillet import Store, String
from rillet.errors import CommandError, InvalidValue, WrongType
from rillet.store import codecs
from rillet.store.codecs import json_of
from tests.store.types.models import MODELLED


def test_a_string_has_one_value(store: Store) -> None:
    name = store.string("name")
    assert (name.get_value(), name.size(), name.exists(), name.get_range()) == (None, 0, False, b"")
    assert name.set_value("ann")
    assert (name.get_value(), name.size(), name.exists()) == ("ann", 3, True)
    assert (name.set_value("bob", nx=True), name.get_value()) == (False, "ann")
    assert (name.set_value("bob", xx=True), name.get_value()) == (True, "bob")
    assert not store.string("none").set_value("x", xx=True)
    assert name.get_and_set("cid") == "bob"
    assert name.get_and_set("dan", nx=True) == "cid"
    assert name.get_and_delete() == "cid"
    assert name.get_and_delete() is None
    assert name.get_and_set("eve") is None
    assert name.append(" müller") == 11
    assert name.get_value() == "eve müller"
    assert (name.get_range(0, 2), name.get_range(-3)) == (b"eve", b"ler")
    assert name.set_range(0, b"EVE") == 11
    assert name.get_value() == "EVE müller"
    assert name.delete()
    assert name.set_range(2, "x") == 3
    assert name.get_value() == "\x00\x00x"
    assert repr(name) == "String('name')"


def test_expiry_of_a_string(store: Store) -> None:
    key = store.string("key")
    key.set_value("x", expire=5000)
    assert 4000 < (key.ttl() or 0) <= 5000
    key.set_value("y", keep_expiry=True)
    assert 4000 < (key.ttl() or 0) <= 5000
    key.set_value("z")
    assert key.ttl() is None
    key.set_value("x", expire_at=datetime.now(UTC) + timedelta(hours=5))
    assert 17000 < (key.ttl() or 0) <= 18001
    assert key.get_and_expire(timedelta(hours=1)) == "x"
    assert 3000 < (key.ttl() or 0) <= 3600
    assert key.get_and_expire(None) == "x"
    assert key.ttl() is None
    assert key.get_and_set("y", expire=100) == "x"
    assert key.persist()
    assert not key.persist()
    for options in ({"expire": 1, "keep_expiry": True}, {"nx": True, "xx": True}):
        with pytest.raises(ValueError, match="^pass "):
            key.set_value("x", **options)
    for wrong in (-1, 0):
        with pytest.raises(ValueError, match=f"^expire must be .* 0 seconds, not {wrong}$"):
            key.set_value("x", expire=wrong)


def test_codecs(store: Store) -> None:
    session = store.string("session", codec=json_of(dict[str, int]))
    session.set_value({"visits": 1})
    assert session.get_value() == {"visits": 1}
    assert store.string("session").get_value() == '{"visits":1}'
    assert_type(session, String[dict[str, int]])
    raw = store.string("raw", codec=codecs.raw)
    raw.set_value(bytes(range(256)))
    assert raw.get_value() == bytes(range(256))
    store.string("session").set_value("text")
    with pytest.raises(InvalidValue, match="^key 'session': "):
        session.get_value()


def test_a_counter(store: Store) -> None:
    visits = store.counter("visits")
    assert (visits.get_value(), int(visits), float(visits), visits.reset()) == (0, 0, 0.0, 0)
    assert (visits.incr(), visits.incr(10), visits.decr(), visits.decr(5)) == (1, 11, 10, 5)
    assert int(visits) == visits.get_value() == 5
    visits.set_value(7, expire=5000)
    assert 4000 < (visits.ttl() or 0) <= 5000
    assert (visits.reset(), visits.get_value()) == (7, 0)
    assert visits.incr_float(0.5) == 0.5
    assert visits.incr_float(1.25) == visits.get_float() == float(visits) == 1.75
    with pytest.raises(InvalidValue, match="^key 'visits': expected int, got '1.75'$"):
        visits.get_value()
    visits.set_value(2**63 - 1)
    with pytest.raises(CommandError, match="^ERR increment or decrement would overflow$"):
        visits.incr()
    assert repr(visits) == "Counter('visits')"


def test_a_key_of_another_type(store: Store) -> None:
    store.hash("hash")["f"] = "v"
    for call in (store.string("hash").get_value, store.counter("hash").incr, lambda: store.string("hash").append("x")):
        with pytest.raises(WrongType):
            call()
    assert store.string("hash").set_value("x")  # SET replaces a value of any type


NUMBERS = st.integers(-(2**40), 2**40)


@MODELLED
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(["incr", "decr", "set", "reset"]), NUMBERS), max_size=20))
def test_a_counter_like_a_variable(store: Store, steps: list[tuple[str, int]]) -> None:
    store.delete("key")
    counter, model = store.counter("key"), 0
    for step, number in steps:
        if step == "set":
            counter.set_value(number)
            model = number
        elif step == "reset":
            assert counter.reset() == model
            model = 0
        else:
            model += number if step == "incr" else -number
            assert getattr(counter, step)(number) == model
        assert counter.get_value() == model


@MODELLED
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(["append", "set_range", "set_value"]), st.text(max_size=5),
                                st.integers(0, 12)), max_size=12))  # fmt: skip
def test_a_string_like_a_bytearray(store: Store, steps: list[tuple[Any, ...]]) -> None:
    store.delete("key")
    string, model = store.string("key"), b""
    for step, text, offset in steps:
        data = text.encode()
        if step == "append":
            model += data
            assert string.append(text) == len(model)
        elif step == "set_range" and data:
            model = model[:offset].ljust(offset, b"\x00") + data + model[offset + len(data) :]
            assert string.set_range(offset, text) == len(model)
        elif step == "set_value":
            model = data
            string.set_value(text)
        assert string.get_range() == model
        assert string.size() == len(model)
