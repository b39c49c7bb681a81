"""What a store does with keys of any type."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Counter, Hash, List, Set, SortedSet, Store, Stream, String
from rillet.errors import CommandError, StoreClosed, StoreError
from rillet.store import codecs
from tests.store.conftest import Frontend
from tests.store.types.conftest import only


def _fill(store: Store) -> None:
    store.hash("{k}hash")["f"] = "v"
    store.set("{k}set").add("m")
    store.zset("{k}zset")["m"] = 1
    store.list("{k}list").append("v")
    store.string("{k}string").set_value("v")
    store.stream("{k}stream").add({"f": "v"})


CLASSES = {"hash": Hash, "set": Set, "zset": SortedSet, "list": List, "string": String, "stream": Stream}


def test_the_object_of_a_key(store: Store) -> None:
    _fill(store)
    for name, kind in CLASSES.items():
        found = store["{k}" + name]
        assert type(found) is kind
        assert found.name == "{k}" + name
        assert store.type("{k}" + name) == name
    assert isinstance(store.counter("c"), Counter)
    for missing in ("none", b"none"):
        with pytest.raises(KeyError, match="none"):
            _ = store[missing]
        with pytest.raises(KeyError, match="none"):
            del store[missing]
    assert store.type("none") is None
    assert ("{k}hash" in store, b"{k}hash" in store, "none" in store, 5 in store) == (True, True, False, False)
    assert sorted(store) == sorted("{k}" + name for name in CLASSES)
    for name in CLASSES:
        del store["{k}" + name]
    assert list(store) == []
    with pytest.raises(TypeError, match="a name must be str or bytes, not 5"):
        _ = store[5]  # type: ignore[index]


def test_expiry(store: Store) -> None:
    _fill(store)
    for name in CLASSES:
        key = "{k}" + name
        assert store.ttl(key) is None
        assert store.expire(key, 5000)
        assert 4000 < (store.ttl(key) or 0) <= 5000
        assert store.expire(key, timedelta(hours=10))
        assert 35000 < (store.ttl(key) or 0) <= 36000
        assert store.expire_at(key, datetime.now(UTC) + timedelta(hours=5))
        assert 17000 < (store.ttl(key) or 0) <= 18001
        assert (store.persist(key), store.persist(key)) == (True, False)
        assert store.ttl(key) is None
        assert store.expire(key, 0)
        assert key not in store
    assert not store.expire("none", 1)
    assert not store.expire_at("none", datetime.now(UTC))
    assert not store.persist("none")
    with pytest.raises(KeyError, match="none"):
        store.ttl("none")
    with pytest.raises(ValueError, match="^moment must have a time zone"):
        store.expire_at("none", datetime(2030, 1, 1))


def test_expiry_by_the_object(store: Store) -> None:
    tags = store.set("tags")
    assert (tags.expire(5), tags.exists(), tags.delete()) == (False, False, False)
    with pytest.raises(KeyError, match="tags"):
        tags.ttl()
    tags.add("a")
    assert tags.expire(timedelta(hours=1, milliseconds=500))
    assert 3000 < (tags.ttl() or 0) <= 3600.5
    assert tags.persist()
    assert tags.expire_at(datetime.now(UTC) - timedelta(seconds=1))
    assert not tags.exists()


def test_rename_and_copy(store: Store) -> None:
    store.hash("{k}a")["f"] = "v"
    assert store.rename("{k}a", "{k}b")
    assert store.hash("{k}b") == {"f": "v"}
    assert store.copy("{k}b", "{k}c")
    assert not store.copy("{k}b", "{k}c")
    assert not store.rename("{k}b", "{k}c", replace=False)
    assert store.rename("{k}b", "{k}d", replace=False)
    store.hash("{k}d")["f"] = "w"
    assert store.copy("{k}d", "{k}c", replace=True)
    assert store.hash("{k}c") == {"f": "w"}
    assert not store.copy("{k}none", "{k}e")
    with pytest.raises(CommandError, match="^ERR no such key$"):
        store.rename("{k}none", "{k}a")


def test_names_that_are_not_names(store: Store) -> None:
    makers: list[Any] = [store.hash, store.set, store.zset, store.list, store.string, store.counter, store.exists]
    for make in makers:
        for wrong in (5, None, 1.5):
            with pytest.raises(TypeError, match="a name must be str or bytes"):
                make(wrong)
    every = bytes(range(256))
    store.set(every).add("x")
    assert store.set(store.set(every).name).key == every
    assert next(iter(store)) == store.set(every).name


def test_arguments_of_a_wrong_type_change_nothing() -> None:
    with rillet.open() as store:
        target: Any = store
        calls: list[tuple[Any, str]] = [
            (lambda: target.counter("k").incr(1.5), "by must be an int, not 1.5"),
            (lambda: target.hash("k").incr("f", 1.5), "by must be an int, not 1.5"),
            (lambda: target.list("k")[1.5], "index must be an int, not 1.5"),
            (lambda: target.set("k").pop_many(1.5), "count must be an int of at least 0, not 1.5"),
            (lambda: target.hash("k").update(5), "expected a mapping or pairs, got 5"),
            (lambda: target.hash("k").update("ab"), "expected a mapping or pairs, got 'ab'"),
            (lambda: target.hash("k").update([("a", "b", "c")]), r"\('a', 'b', 'c'\) is not a pair"),
            (lambda: target.zset("k").update({"a": None}), "the score of 'a' must be a number, not None"),
            (lambda: target.zset("k").add(["ab"]), "'ab' is not a pair"),
            (lambda: target.expire("k", "5"), "seconds must be seconds or a timedelta, not '5'"),
            (lambda: target.set("k") | 5, "unsupported operand type"),
        ]  # fmt: skip
        for call, text in calls:
            with pytest.raises(TypeError, match=text):
                call()
        assert list(store) == []


def test_a_closed_store_raises_an_error(frontend: Frontend) -> None:
    store = frontend.store
    objects: list[Any] = [store.hash("h"), store.set("s"), store.zset("z"), store.list("l")]
    store.close()
    calls: list[Any] = [
        *(lambda one=one: len(one) for one in objects), *(lambda one=one: list(one) for one in objects),
        lambda: "k" in store, lambda: store["k"], lambda: store.string("k").get_value(), lambda: list(store),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(StoreClosed):
            call()


def test_values_of_a_user_defined_codec(store: Store) -> None:
    class Reversed:
        def encode(self, value: str) -> bytes:
            return value[::-1].encode()

        def decode(self, raw: bytes) -> str:
            return raw.decode()[::-1]

    mirrored = store.hash("h", codec=Reversed())
    mirrored["f"] = "abc"
    assert mirrored["f"] == "abc"
    assert store.hash("h")["f"] == "cba"


def test_data_of_all_types_survives_a_restart(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "store") as store:
        _fill(store)
        store.hash("json", codec=codecs.json)["f"] = [1, None]
        assert store.hash("{k}hash").pop("f") == "v"
    with rillet.open(tmp_path / "store") as store:
        assert "{k}hash" not in store
        assert store.set("{k}set") == {"m"}
        assert store.zset("{k}zset") == {"m": 1.0}
        assert store.list("{k}list") == ["v"]
        assert store.string("{k}string").get_value() == "v"
        assert store.hash("json", codec=codecs.json) == {"f": [1, None]}


def test_a_type_without_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    with rillet.open() as store:
        monkeypatch.setattr(Store, "run", lambda self, argv: b"ReJSON-RL")
        with pytest.raises(StoreError, match=r"has the type 'ReJSON-RL', which has no class: use execute\(\)"):
            _ = store["k"]


@only("memory", "owner", "attached", "redis", "cluster")
def test_each_change_is_atomic_among_threads(store: Store) -> None:
    """Eight threads change the same keys: each field is popped once, each default is set once, and no step is lost."""
    names = [f"field-{n}" for n in range(50)]
    popped: list[tuple[str, str]] = []
    defaults: list[tuple[str, str]] = []

    def work(worker: int) -> None:
        for name in names:
            value = store.hash("pop").pop(name, None)
            if value is not None:
                popped.append((name, value))
            defaults.append((name, store.hash("defaults").setdefault(name, str(worker))))
            store.counter("counter").incr()
            store.zset("scores").incr("member", 0.5)

    store.hash("pop").update(dict.fromkeys(names, "v"))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(popped) == [(name, "v") for name in sorted(names)]
    assert "pop" not in store
    assert set(defaults) == set(store.hash("defaults").items())
    assert len(defaults) == 8 * len(names)
    assert store.counter("counter").get_value() == 8 * len(names)
    assert store.zset("scores") == {"member": 4.0 * len(names)}
