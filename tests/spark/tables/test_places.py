"""Tables on every kind of place, without Spark: a redis-server, a rillet server, an embedded store, a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import ArrayType, StringType, StructType  # noqa: E402

import rillet  # noqa: E402
from rillet.client import key_reader, key_scan  # noqa: E402
from rillet.client.errors import ConnectorError  # noqa: E402
from rillet.client.servers import Servers  # noqa: E402
from rillet.spark.options import OptionError  # noqa: E402
from rillet.spark.table_options import parse_table  # noqa: E402
from rillet.spark.tables import reader as table_reader  # noqa: E402
from rillet.spark.tables.lookup import _KEY, _added, _Cache, _enrich_batches  # noqa: E402
from rillet.spark.tables.reader import TableReader  # noqa: E402
from rillet.spark.tables.schema import arrow_schema_of  # noqa: E402
from tests.cluster import Cluster, running_cluster  # noqa: E402
from tests.judge import Judge, redis_binary, running_redis  # noqa: E402
from tests.server.harness import running  # noqa: E402
from tests.spark.tables.tables import reader, rows, write  # noqa: E402

pytestmark = pytest.mark.slow
N = 700


@dataclass
class Place:
    """A place by the connector's options."""

    options: dict[str, Any]
    cluster: Cluster | None = None

    def call(self, *words: str | bytes) -> Any:
        """Send one command; its second word is the key."""
        packed = [word if isinstance(word, bytes) else word.encode() for word in words]
        with Servers(parse_table({**self.options, "type": "hash"})) as servers:
            return servers.call(packed[1], *packed)


@pytest.fixture(scope="module", params=["redis", "rillet", "store", "cluster"])
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    folder: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "redis":
        with running_redis() as judge:
            yield Place({"url": f"redis://127.0.0.1:{judge.port}"})
    elif request.param == "rillet":
        with running(folder) as server:
            yield Place({"url": f"redis://127.0.0.1:{server.port}"})
    elif request.param == "store":
        with rillet.open(folder / "tables.rillet"):
            yield Place({"path": str(folder / "tables.rillet")})
    else:
        with running_cluster() as cluster:
            yield Place({"url": cluster.url, "timeout": "20"}, cluster)


@pytest.fixture
def place(started: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The place, empty, which divides small databases, too."""
    monkeypatch.setattr(key_scan, "KEYS_PER_POSITION", 64)
    monkeypatch.setattr(key_scan, "FEWEST", 4)
    if started.cluster is not None:
        started.cluster.flush()
    else:
        with Servers(parse_table({**started.options, "type": "hash"})) as servers:
            servers.call(b"", b"FLUSHALL")
    return started


def numbered(numbers: range) -> Any:
    names = pa.array([None if n % 5 == 0 else f"é{n}" for n in numbers], pa.string())
    return pa.table({"id": pa.array(numbers, pa.int64()), "name": names, "score": [n / 4 for n in numbers]})


def by_id(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: row["id"])


USERS: dict[str, Any] = {"type": "hash", "keyPrefix": "user:", "keyColumn": "id"}
COLUMNS = "id bigint, name string, score double"


def test_hashes_there_and_back(place: Place) -> None:
    options = {**place.options, **USERS}
    write(numbered(range(N)), 3, **options, ttl="1h")
    assert 3500 < place.call("TTL", "user:7") <= 3600
    for parallelism in (1, 4):
        assert by_id(rows(parallelism, COLUMNS, **options)) == numbered(range(N)).to_pylist()
    whole = rows(**{**options, "keyPrefix": "user:5"})
    assert {row["id"]: dict(row["fields"]) for row in whole}["1"] == {"name": "é51", "score": "12.75"}
    # A hash without the columns' fields has a row of nulls; keys of other types have none.
    place.call("HSET", "user:-1", "other", "1")
    place.call("SET", "user:-2", "text")
    found = {row["id"]: row for row in rows(3, "id string, name string", **options)}
    assert found["-1"] == {"id": "-1", "name": None}
    assert len(found) == N + 1
    assert len(rows(3, "id string", **options)) == N + 1
    # Partial update; a null deletes the field on request.
    write(pa.table({"id": [1, 2], "name": ["new", None]}), **options)
    write(pa.table({"id": [3], "name": pa.array([None], pa.string()), "more": [1]}), **options, nulls="delete")
    found = {row["id"]: dict(row["fields"]) for row in rows(**options) if row["id"] in ("1", "2", "3")}
    assert found == {"1": {"name": "new", "score": "0.25"}, "2": {"name": "é2", "score": "0.5"},
                     "3": {"score": "0.75", "more": "1"}}  # fmt: skip


def test_nulls_in_a_map_delete_fields(place: Place) -> None:
    options = {**place.options, "type": "hash", "keyPrefix": "u:", "nulls": "delete"}
    for n in range(4):
        place.call("HSET", f"u:{n}", "a", "old", "b", "old", "c", "old")
    kind = pa.map_(pa.string(), pa.string())
    maps = pa.array([[("a", "1"), ("b", None), ("c", None)], None, [("a", None)], [("a", "2"), ("b", None)]], kind)
    table = pa.table({"key": ["0", "1", "2", "2"], "fields": maps, "ttl": pa.array([None, 100, None, 50], pa.int64())})
    write(table, **options, ttlColumn="ttl")
    old = dict.fromkeys("abc", "old")
    found = {row["key"]: dict(row["fields"]) for row in rows(**place.options, type="hash", keyPrefix="u:")}
    assert found == {"0": {"a": "1"}, "1": old, "2": {"a": "2", "c": "old"}, "3": old}
    assert place.call("TTL", "u:0") == -1
    assert 50 < place.call("TTL", "u:1") <= 100
    assert 0 < place.call("TTL", "u:2") <= 50
    write(pa.table({"key": ["1"], "fields": pa.array([[("a", None)]], kind)}), **options, exactlyOnce="transaction")
    assert place.call("HMGET", "u:1", "a", "b") == [None, b"old"]
    other = pa.table({"key": ["1"], "fields": pa.array([[("a", "1")]], kind), "name": ["Ada"]})
    with pytest.raises(OptionError, match="^rillet: the map column 'fields' is the whole hash, so .* columns name: "):
        write(other, **options)


def test_rows_without_a_value_are_counted(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    kind = pa.map_(pa.string(), pa.string())
    nothing = pa.array([None, None, None], pa.string())
    maps = pa.array([[("a", None)], None, []], kind)
    counters = {"key": ["a", "b", "c"], "n": pa.array([None, None, 1], pa.int64())}
    tables: list[tuple[int, Any, dict[str, Any]]] = [
        (2, pa.table({"key": ["a", "b", "c"], "x": nothing, "y": pa.array([None, 1, None])}), {"type": "hash"}),
        (3, pa.table({"key": ["a", "b", "c"], "fields": maps}), {"type": "hash"}),
        (2, pa.table({"key": ["a", "b", "c"], "fields": maps}), {"type": "hash", "nulls": "delete"}),
        (2, pa.table(counters), {"type": "hash", "addColumns": "n"}),
        (3, pa.table({"key": ["a", "b", "c"], "value": nothing}), {"type": "string"}),
        (3, pa.table({"key": ["a", "b", "c"], "member": nothing}), {"type": "set"}),
        (0, pa.table({"key": ["a", "b", "c"], "value": nothing}), {"type": "string", "nulls": "delete"}),
    ]  # fmt: skip
    for number, (count, table, options) in enumerate(tables):
        caplog.clear()
        write(table, **place.options, **options, keyPrefix=f"{number}:")
        text = f"rillet: {count} rows of the type {options['type']} have only nulls: nothing was written for their keys"
        assert [record.message.partition(" (")[0] for record in caplog.records] == [text] * (count > 0)
    strings = {**place.options, "type": "string", "keyPrefix": "s:"}
    write(pa.table({"key": ["a", "b"], "value": ["1", "2"]}), **strings)
    write(pa.table({"key": ["a", "b"], "value": [None, "3"]}), overwrite=True, **strings)
    assert (place.call("GET", "s:a"), place.call("GET", "s:b")) == (None, b"3")


def test_overwrite_replaces_the_table_and_nothing_else(place: Place) -> None:
    options = {**place.options, **USERS}
    write(numbered(range(N)), **options)
    place.call("SET", "user:x", "another type")
    place.call("HSET", "users", "a", "1")
    write(numbered(range(10, 20)).drop(["score"]), 2, overwrite=True, **options)
    assert by_id(rows(2, COLUMNS, **{**options, "mode": "DROPMALFORMED"})) == [
        {**row, "score": None} for row in numbered(range(10, 20)).to_pylist() if row["name"]
    ]
    assert place.call("EXISTS", "user:x") == place.call("EXISTS", "users") == 1
    with pytest.raises(ConnectorError, match="^rillet: 'user:[0-9]+' already exists at .*ifExists=error.: nothing was"):
        write(numbered(range(1)), **options, ifExists="error")
    write(numbered(range(1)), **options, ifExists="ignore")
    assert place.call("EXISTS", "user:0") == 0
    write(numbered(range(1)), **{**options, "keyPrefix": "fresh:"}, ifExists="error")
    assert place.call("EXISTS", "fresh:0") == 1


@pytest.mark.parametrize("started", ["redis"], indirect=True)
@pytest.mark.parametrize("kind", ["list", "hash"])
def test_an_overwrite_fails_if_keys_cannot_be_deleted(place: Place, kind: str) -> None:
    """A list is deleted before the write, and a hash without a row after it."""
    old = ("RPUSH", "t:old", "x") if kind == "list" else ("HSET", "t:old", "a", "b")
    place.call(*old)
    place.call("ACL", "SETUSER", "limited", "reset", "on", ">pw", "~*", "+@all", "-unlink")
    limited = {"url": place.options["url"].replace("//", "//limited:pw@"), "type": kind, "keyPrefix": "t:"}
    try:
        with pytest.raises(ConnectorError, match="^rillet: .* refused to delete 't:old': NOPERM [^\n]*$"):
            write(pa.table({"key": ["new"], "value": ["v"]}), 1, overwrite=True, **limited)
    finally:
        place.call("ACL", "DELUSER", "limited")
    assert place.call("EXISTS", "t:new") == (0 if kind == "list" else 1)


@pytest.mark.parametrize("started", ["redis", "cluster"], indirect=True)
def test_an_overwrite_keeps_the_commit_records(place: Place) -> None:
    counters = {**place.options, "type": "hash", "keyPrefix": "r", "addColumns": "n"}
    write(pa.table({"key": ["1"], "n": [1]}), **counters, txnAppId="app", txnVersion="1")
    with Servers(parse_table({**place.options, "type": "hash"})) as servers:

        def found(pattern: bytes) -> list[bytes]:
            return sorted(key for node in servers.masters() for key in node.call(b"KEYS", pattern))

        before = found(b"rillet:commits:*")
        place.call("RPUSH", "rillet:commits:{x}:q:2:rows:t", "a chunk")
        assert before
        for kind, column in (("hash", "value"), ("string", "value"), ("list", "value")):
            options = {**place.options, "type": kind, "keyPrefix": "r"}
            write(pa.table({"key": [f"new-{kind}"], column: ["v"]}), 1, overwrite=True, **options, exactlyOnce="none")
        assert found(b"rillet:commits:*") == sorted([*before, b"rillet:commits:{x}:q:2:rows:t"])
        assert found(b"r[1n]*") == [b"rnew-hash", b"rnew-list", b"rnew-string"]


def test_other_types_there_and_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"k{n % 7}" for n in range(N)]
    for kind, name, more in (("set", "member", {}), ("list", "value", {}), ("zset", "member", {"score": 1})):
        table = pa.table({"key": keys, name: [f"v{n}" for n in range(N)]})
        if more:
            table = table.append_column("score", pa.array([n / 2 for n in range(N)]))
        options = {**place.options, "type": kind, "keyPrefix": f"{kind}:"}
        write(table, 2, **options)
        for page in (10_000, 30):  # the same in pages
            monkeypatch.setattr(key_reader, "PAGE", page)
            found = rows(2, **options)
            if kind == "list":
                assert [row["value"] for row in sorted(found, key=lambda row: (row["key"], row["index"]))] == [
                    f"v{n}" for key in range(7) for n in range(key, N, 7)
                ]
            else:
                assert sorted(map(str, found)) == sorted(map(str, table.to_pylist()))
    options = {**place.options, "type": "string", "keyPrefix": "string:"}
    some = pa.table({"key": ["a", "b", "c"], "value": [1, None, 3], "ttl": [None, None, 100]})
    write(some, **options, ttlColumn="ttl")
    assert sorted(map(str, rows(2, "key string, value int, ttl bigint", **options, ttlColumn="ttl"))) in [
        sorted(map(str, [{"key": "a", "value": 1, "ttl": None}, {"key": "c", "value": 3, "ttl": left}]))
        for left in (99, 100)
    ]
    write(pa.table({"key": ["a", "c"], "value": pa.array([None, 4])}), **options, nulls="delete")
    assert place.call("EXISTS", "string:a") == 0
    assert place.call("TTL", "string:c") > 0  # a new value keeps the lifetime
    found = rows(**place.options, type="keys", keyPattern="*:*")
    assert {(row["name"], row["type"]) for row in found} >= {("string:c", "string"), ("zset:k3", "zset")}
    assert len([row for row in found if not row["name"].startswith("rillet:")]) == 22
    assert all(row["encoding"] and row["bytes"] > 20 and row["idle"] >= 0 for row in found)


def test_bitmaps_there_and_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**place.options, "type": "bitmap", "keyPrefix": "seen:", "keyColumn": "day"}
    table = pa.table({"day": [f"d{n % 7}" for n in range(N)], "offset": [n * n for n in range(N)]})
    write(table, 2, **options)
    assert place.call("BITCOUNT", "seen:d3") == N // 7
    assert sorted(map(str, rows(2, **options))) == sorted(map(str, table.to_pylist()))
    bits = pa.table({"day": ["d3", "d3", "new", "d3"], "offset": [9, 10, 7, None], "bit": [False, True, True, True]})
    write(bits, **options, ttl="1h")
    assert [place.call("GETBIT", "seen:d3", offset) for offset in ("9", "10")] == [0, 1]
    assert rows(1, "offset int", **{**place.options, "type": "bitmap", "keys": "seen:new,seen:none"}) == [{"offset": 7}]
    place.call("SET", "seen:empty", "\0")
    place.call("RPUSH", "seen:list", "x")
    assert len(rows(1, "day string", **options)) == N + 1
    with pytest.raises(ConnectorError, match="'seen:list' at .* is a list, not a bitmap"):
        rows(**place.options, type="bitmap", keys="seen:list")
    with pytest.raises(OptionError, match="column 'offset' is string, not an integer"):
        write(pa.table({"day": ["d"], "offset": ["x"]}), **options)


def test_arrays_there_and_back(
    started: Place, place: Place, peer_of: Callable[[str], Judge], monkeypatch: pytest.MonkeyPatch
) -> None:
    if started.cluster is not None:
        pytest.skip("the nodes of the cluster have no arrays")
    if "url" in started.options and not place.call("COMMAND", "INFO", "arset")[0]:
        place = Place({"url": f"redis://127.0.0.1:{peer_of('newest').port}"})
        place.call("FLUSHALL", "SYNC")
    options = {**place.options, "type": "array", "keyPrefix": "a:"}
    table = pa.table({"key": [f"k{n % 7}" for n in range(N)], "index": [n * n for n in range(N)],
                      "value": [f"v{n}" if n % 3 else str(n) for n in range(N)]})  # fmt: skip
    write(table, 2, **options)
    for page in (10_000, 30):  # the same in pages
        monkeypatch.setattr(key_reader, "PAGE", page)
        assert sorted(map(str, rows(2, **options))) == sorted(map(str, table.to_pylist()))
    assert len(rows(2, "key string", **options)) == N
    far = pa.table({"key": ["far", "far", "far"], "index": pa.array([2**64 - 2, 5, 6], pa.decimal128(20, 0)),
                    "value": ["x", "y", None]})  # fmt: skip
    write(far, **options, ttl="1h")
    assert place.call("ARGET", "a:far", str(2**64 - 2)) == b"x"
    found = rows(1, "index decimal(20,0), value string", **{**place.options, "type": "array", "keys": "a:far"})
    assert [(int(row["index"]), row["value"]) for row in found] == [(5, "y"), (2**64 - 2, "x")]
    found = rows(1, **{**place.options, "type": "array", "keys": "a:far"})
    assert [row["index"] for row in found] == [5, None]  # too large for a bigint: a bad value
    for index in (None, -1):
        with pytest.raises(ConnectorError, match=f"the column 'index' is {index} for a value of 'a:k'"):
            write(pa.table({"key": ["k"], "index": pa.array([index], pa.int64()), "value": ["x"]}), **options)
    with pytest.raises(OptionError, match="column 'index' is string, not an integer"):
        write(pa.table({"key": ["k"], "index": ["x"], "value": ["x"]}), **options)
    write(pa.table({"key": ["new"], "index": [1], "value": ["x"]}), overwrite=True, **options)
    assert rows(1, **options) == [{"key": "new", "index": 1, "value": "x"}]


def test_counters_and_lists_are_added_once(place: Place) -> None:
    options = {**place.options, "type": "hash", "keyPrefix": "sum:", "addColumns": "n,x"}
    added = pa.table({"key": ["a", "b", "a"], "n": [1, 2, 3], "x": [0.5, 0.25, None], "last": ["p", "q", "r"]})
    for _ in range(2):  # Spark repeats a batch
        write(added, 1, streaming=True, batch=0, **options)
    write(added.slice(0, 1), 1, streaming=True, batch=1, **options)
    found = {row["key"]: row for row in rows(2, "key string, n int, x double, last string", **options_of(options))}
    assert found["a"] == {"key": "a", "n": 5, "x": 1.0, "last": "p"}
    assert found["b"] == {"key": "b", "n": 2, "x": 0.25, "last": "q"}
    assert len(found) == 2
    scores = {**place.options, "type": "zset", "keyPrefix": "top:", "addColumns": "score"}
    for _ in range(2):
        write(pa.table({"key": ["z", "z"], "member": ["a", "a"], "score": [1, 2.5]}), streaming=True, batch=2, **scores)
    assert place.call("ZSCORE", "top:z", "a") == b"3.5"
    lists = {**place.options, "type": "list", "keyPrefix": "l:"}
    for _ in range(2):
        write(pa.table({"key": ["x", "y", "x"], "value": ["1", "2", "3"]}), streaming=True, batch=3, **lists)
    assert place.call("LRANGE", "l:x", "0", "-1") == [b"1", b"3"]


def test_commit_records_are_no_rows_and_a_store_may_change_its_owner(place: Place) -> None:
    write(pa.table({"key": [f"c{n}" for n in range(N)], "n": range(N)}), **place.options, type="hash", addColumns="n")
    assert len(rows(3, **place.options, type="hash", keyPattern="*")) == N
    assert rows(1, **place.options, type="hash", keyPattern="rillet:commits:*")
    planned: list[Any] = reader(3, type="hash", keyPattern="*", **place.options).partitions()
    kinds = {one.part.kind for one in planned}
    assert kinds == ({"slots"} if place.cluster else {"shares"} if "path" in place.options else {"cursors"})


def options_of(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that also apply to reading."""
    return {name: value for name, value in options.items() if name != "addColumns"}


def test_wrong_types_and_bad_numbers_name_the_key(place: Place) -> None:
    place.call("SET", "t:s", "text")
    for kind, table in (
        ("hash", {"key": ["s"], "f": ["1"]}), ("list", {"key": ["s"], "value": ["1"]}),
        ("set", {"key": ["ok", "s"], "member": ["1", "2"]}), ("zset", {"key": ["s"], "member": ["1"], "score": [1]}),
    ):  # fmt: skip
        with pytest.raises(ConnectorError, match=f"^rillet: .* refused to write the {kind} 't:s': WRONGTYPE [^\n]*$"):
            write(pa.table(table), **place.options, type=kind, keyPrefix="t:")
    place.call("HSET", "t:h", "n", "many")
    with pytest.raises(ConnectorError, match="^rillet: .* the hash 't:h': ERR hash value is not an integer"):
        write(pa.table({"key": ["g", "h"], "n": [1, 2]}), **place.options, type="hash", keyPrefix="t:", addColumns="n")
    with pytest.raises(ConnectorError, match="^rillet: the key 't:s' at .* is a string, not a hash$"):
        rows(**place.options, type="hash", keys="t:h,t:s")
    with pytest.raises(ConnectorError, match="^rillet: the key 't:s' at .* is a string, not a list$"):
        rows(**place.options, type="list", keys="t:s")
    with pytest.raises(ValueError, match="^rillet: in the hash 't:h', the field 'n' is not of type int: 'many' "):
        rows(1, "key string, n int", **place.options, type="hash", keyPrefix="t:", mode="FAILFAST")
    corrupt = rows(1, "key string, n int, _corrupt string", **place.options, type="hash", keys="t:h")
    assert corrupt == [{"key": "t:h", "n": None, "_corrupt": '{"n": "many"}'}]
    options = {**place.options, "type": "hash", "keyPrefix": "t:"}
    with pytest.raises(ConnectorError, match="^rillet: the column 'key' contains a null: every row needs a key"):
        write(pa.table({"key": pa.array([None], pa.string()), "f": ["1"]}), **options)
    with pytest.raises(ConnectorError, match="^rillet: the ttlColumn 'ttl' is 0 for the key 't:a': expected seconds a"):
        write(pa.table({"key": ["a"], "f": ["1"], "ttl": [0]}), **options, ttlColumn="ttl")
    with pytest.raises(ConnectorError, match="^rillet: the scoreColumn 'score' has no number for the member 'm' of"):
        write(pa.table({"key": ["z"], "member": ["m"], "score": pa.array([None], pa.float64())}), **place.options,
              type="zset", keyPrefix="t:")  # fmt: skip


def test_look_ups_are_cached_for_their_age(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(5):
        place.call("HSET", f"tier:{n}", "name", f"t{n}")
    options = parse_table({**place.options, "type": "hash", "keyColumn": _KEY})
    schema = pa.schema([(_KEY, pa.binary()), ("name", pa.string())])
    now = [0.0]
    monkeypatch.setattr("rillet.spark.tables.lookup.monotonic", lambda: now[0])
    cache = _Cache(options, schema, 8, 60.0)

    def look(*keys: str | None) -> list[str | None]:
        (column,) = cache.columns(pa.array([None if key is None else key.encode() for key in keys], pa.binary()))
        return column.to_pylist()

    assert look("tier:1", None, "tier:9", "tier:1") == ["t1", None, None, "t1"]
    place.call("HSET", "tier:1", "name", "new")
    place.call("HSET", "tier:9", "name", "t9")
    assert look("tier:1", "tier:2", "tier:9") == ["t1", "t2", None]
    now[0] = 61.0
    assert look("tier:1", "tier:9") == ["new", "t9"]
    assert look(*(f"tier:{n}" for n in range(12)))[:5] == ["t0", "new", "t2", "t3", "t4"]
    assert look(None) == [None]


@pytest.mark.parametrize("started", ["redis"], indirect=True)
def test_queries_of_different_fields_have_different_caches(place: Place) -> None:
    """Two long field names differ after the part that str(schema) shows."""
    name = "customer_address_billing_street_line_number_one_and_" * 3
    place.call("HSET", "u:9", f"{name}a", "1", f"{name}b", "2")
    options = parse_table({**place.options, "type": "hash", "keyColumn": _KEY})
    found = []
    for field in (f"{name}a", f"{name}b"):
        struct = StructType().add("v", StringType(), True, {"field": field})
        schema = arrow_schema_of(options, _added(struct, "")[1])
        batch = pa.RecordBatch.from_arrays([pa.array(["u:9"])], [_KEY])
        found += [one.to_pylist() for one in _enrich_batches(options, schema, ["v"], 100, 60.0, [batch])]
    assert found == [[{"v": "1"}], [{"v": "2"}]]


@pytest.mark.parametrize("started", ["redis"], indirect=True)
def test_a_key_of_another_type_may_be_deleted_during_a_look_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.call("SET", "tier:1", "a string")
    place.call("HSET", "tier:2", "name", "t2")
    asks = table_reader._wrong_type

    def delete_first(side: Servers, options: Any, key: bytes) -> None:
        place.call("DEL", key)
        asks(side, options, key)

    monkeypatch.setattr(table_reader, "_wrong_type", delete_first)
    schema = pa.schema([(_KEY, pa.binary()), ("name", pa.string())])
    cache = _Cache(parse_table({**place.options, "type": "hash", "keyColumn": _KEY}), schema, 8, 60.0)
    (column,) = cache.columns(pa.array([b"tier:1", b"tier:2", b"tier:1"], pa.binary()))
    assert column.to_pylist() == [None, "t2", None]


def test_a_lost_connection_repeats_nothing(place: Place) -> None:
    """Connections are killed between the batches of a read and of a write."""
    if "path" in place.options:
        pytest.skip("a store's clients cannot be killed from outside")
    options = {**place.options, "type": "hash", "keyPrefix": "user:", "keyColumn": "id"}

    def kill() -> None:
        if place.cluster is None:
            place.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        else:
            for node in place.cluster.masters():
                node.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    class Killing:
        schema = numbered(range(1)).schema
        num_rows = N

        def slice(self, start: int, size: int) -> Killing:
            return self

        def to_batches(self, max_chunksize: int) -> Iterator[Any]:
            for at in range(0, N, 100):
                yield from numbered(range(at, at + 100)).to_batches()
                kill()

    write(Killing(), **options)
    table = reader(3, COLUMNS, **options, batchRows="50", pipelineKeys="30")
    found = []
    for part in table.partitions():
        for number, batch in enumerate(table.read(part)):
            found += batch.to_pylist()
            if number % 2 == 0:
                kill()
    assert by_id(found) == numbered(range(N)).to_pylist()
    lists = {**place.options, "type": "list", "keyPrefix": "list:"}
    write(pa.table({"key": [f"{n % 50}" for n in range(2000)], "value": [str(n) for n in range(2000)]}), **lists)
    table = reader(1, **lists, batchRows="100", pipelineKeys="7")
    found = []
    for part in table.partitions():
        for batch in table.read(part):
            found += batch.to_pylist()
            kill()
    assert sorted(int(row["value"]) for row in found) == list(range(2000))


def test_json_of_a_module() -> None:
    """GET under the name JSON.GET stands in for the module's command."""
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running_redis("--rename-command", "GET", "JSON.GET") as judge, judge.client() as client:
        client.execute_command("SET", "doc:1", '{"name": "Ada", "tags": ["x", "y"]}', "EX", 100)
        client.execute_command("SET", "doc:2", "no JSON")
        options = {"url": f"redis://127.0.0.1:{judge.port}", "type": "json", "keyPrefix": "doc:"}
        found = rows(1, **options, keys="doc:1,doc:3")
        assert found == [{"key": "1", "value": '{"name": "Ada", "tags": ["x", "y"]}'}]
        inner = StructType().add("name", "string").add("tags", ArrayType(StringType()))
        schema = StructType().add("key", "integer").add("value", inner).add("ttl", "long").add("_corrupt", "string")
        parsed = parse_table({**options, "keys": "doc:1,doc:2", "ttlColumn": "ttl"})
        table = TableReader(parsed, schema, 1)
        (one, two) = [row for part in table.partitions() for batch in table.read(part) for row in batch.to_pylist()]
        assert (one["key"], one["value"], one["_corrupt"]) == (1, {"name": "Ada", "tags": ["x", "y"]}, None)
        assert one["ttl"] in (99, 100)
        assert two == {"key": 2, "value": None, "ttl": None, "_corrupt": '{"value": "no JSON"}'}
        assert rows(1, **options) == []  # no key has the module's type
        with pytest.raises(ConnectorError, match="^rillet: reading 'doc:1' from .*: ERR unknown command 'GET'"):
            rows(1, **{**options, "type": "string"}, keys="doc:1")
    with pytest.raises(OptionError, match="^rillet: the schema does not fit the type list: ttlColumn can be read for"):
        reader(1, **{**options, "type": "list"}, ttlColumn="ttl")


@pytest.mark.parametrize("started", ["cluster"], indirect=True)
def test_slots_move_during_a_read_and_a_write(place: Place) -> None:
    assert place.cluster is not None
    key = place.cluster.key_of(0, "m:")
    tag = key.replace("}", "").replace("{", "")
    keys = [f"{{{key}}}:{n}" for n in range(200)]
    options = {**place.options, "type": "hash", "keyPrefix": "{" + key + "}:", "keyColumn": "id"}
    assert tag
    write(pa.table({"id": range(200), "n": range(200)}), **options)
    with place.cluster.moving(key) as move:
        table = reader(2, "id int, n int", **options, pipelineKeys="20", batchRows="20")
        found: list[Any] = []
        for part in table.partitions():
            for batch in table.read(part):
                found += batch.to_pylist()
                if len(found) == 20:
                    move.migrate()
                    write(pa.table({"id": range(300), "n": range(300)}), **options)
    assert {row["id"]: row["n"] for row in found if row["id"] < 200} == {n: n for n in range(200)}
    assert len(found) == len({row["id"] for row in found})
    assert sorted(row["id"] for row in rows(2, "id int, n int", **options)) == list(range(300))
    assert place.call("HGET", keys[7], "n") == b"7"
