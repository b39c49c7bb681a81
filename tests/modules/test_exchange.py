"""Values of module types between a redis-server with Redis's modules in C, and rillet with their twins in Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import rillet
from rillet.store.store import Store
from tests.judge import Judge
from tests.modules.redis_modules import NEEDS_COMPILER, NEEDS_SOURCE, genuine, twin

pytestmark = [NEEDS_SOURCE, NEEDS_COMPILER]
MODULES = (("datatype",), ("datatype2",), ("testrdb", "2"), ("blockonkeys",), ("test_lazyfree",))
# Commands that create a value of each type; their replies are compared, too.
LONG = "text that LZF compresses " * 40
VALUES: dict[str, list[list[Any]]] = {
    "datatype": [["datatype.set", "dt", -1111, "MyString"]],
    "datatype with an integer in text": [["datatype.set", "dt", 2**31 - 1, "123456"]],
    "datatype with a long text": [["datatype.set", "dt", 0, LONG]],
    "datatype2": [["mem.alloc", "m", 3], ["mem.write", "m", 1, "data"], ["mem.write", "m", 2, LONG]],
    "datatype2 without blocks": [["mem.alloc", "m", 2], ["mem.free", "m"]],
    "testrdb": [["testrdb.set.key", "r", "value"]],
    "blockonkeys": [["fsl.push", "f", n] for n in (-(2**63), -70000, -1, 0, 1, 63, 64, 16383, 16384, 2**32, 2**63 - 1)],
    "test_lazyfree": [["lazyfreelink.insert", "l", n] for n in range(100)],
}
READERS = {"dt": ["datatype.get"], "r": ["testrdb.get.key"], "f": ["fsl.getall"], "l": ["lazyfreelink.len"]}


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with genuine(tmp_path_factory.mktemp("modules"), *MODULES) as one:
        yield one


@pytest.fixture(scope="module")
def client(judge: Judge) -> Iterator[redis.Redis]:
    with judge.client() as one:
        yield one


@pytest.fixture
def store() -> Iterator[Store]:
    with rillet.open(
        compat="7.0", enable_debug_command="yes", modules=[(twin(name), *given) for name, *given in MODULES]
    ) as one:
        yield one


def genuine_reply(client: redis.Redis, *words: Any) -> Any:
    return client.execute_command(*words)


def read(ask: Any, key: str) -> list[Any]:
    if key == "m":
        return [ask("mem.read", "m", at) for at in range(3)]
    return [ask(*READERS[key], key)]


@pytest.mark.parametrize("case", VALUES)
def test_a_value_has_the_same_dump_type_digest_and_replies(client: redis.Redis, store: Store, case: str) -> None:
    client.flushall()
    key = str(VALUES[case][0][1])
    for words in VALUES[case]:
        assert genuine_reply(client, *words) == store.execute(*words), words
    for words in (
        ["TYPE", key],
        ["OBJECT", "ENCODING", key],
        ["DEBUG", "DIGEST-VALUE", key],
        ["DUMP", key],
        ["SCAN", 0, "TYPE", client.type(key)],
    ):
        assert genuine_reply(client, *words) == store.execute(*words), words
    assert genuine_reply(client, "DEBUG", "DIGEST") == store.execute("DEBUG", "DIGEST")


@pytest.mark.parametrize("case", VALUES)
def test_each_restores_the_others_payload(client: redis.Redis, store: Store, case: str) -> None:
    client.flushall()
    key = str(VALUES[case][0][1])
    for words in VALUES[case]:
        store.execute(*words)
    assert genuine_reply(client, "RESTORE", key, 0, store.execute("DUMP", key)) in (b"OK", True)
    expected = read(store.execute, key)
    assert read(client.execute_command, key) == expected
    payload = genuine_reply(client, "DUMP", key)
    store.execute("DEL", key)
    assert store.execute("RESTORE", key, 5_000_000, payload) == b"OK"
    assert read(store.execute, key) == expected
    assert store.execute("PTTL", key) > 0


def test_a_damaged_payload_is_refused_by_both(client: redis.Redis, store: Store) -> None:
    from rillet.structs.crc64 import crc64

    store.execute("fsl.push", "f", 5)
    payload = store.execute("DUMP", "f")
    head = payload[:-8]
    for at in range(1, len(head) - 2):
        for flip in (1, 0x40, 0x80):
            damaged = bytearray(head)
            damaged[at] ^= flip
            sealed = bytes(damaged) + crc64(bytes(damaged)).to_bytes(8, "little")
            if 1 <= at <= 9:  # another type; a genuine server ends if the module reads beyond the value
                with pytest.raises(redis.ResponseError, match="Bad data format"):
                    genuine_reply(client, "RESTORE", "damaged", 0, sealed, "REPLACE")
                with pytest.raises(rillet.CommandError, match="Bad data format"):
                    store.execute("RESTORE", "damaged", 0, sealed, "REPLACE")
            else:
                assert outcome(store.execute, ["RESTORE", "damaged", 0, sealed, "REPLACE"]) in (
                    b"OK",
                    "Bad data format",
                )


def test_copy_has_the_same_replies(client: redis.Redis, store: Store) -> None:
    client.flushall()
    for words in (
        ["datatype.set", "a", 1, "x"],
        ["datatype.set", "answer", 42, "x"],
        ["fsl.push", "f", 1],
        ["mem.alloc", "m", 2],
        ["mem.write", "m", 1, "data"],
        ["COPY", "a", "b"],
        ["datatype.get", "b"],
        ["COPY", "answer", "b"],
        ["COPY", "answer", "b", "REPLACE"],
        ["datatype.get", "b"],
        ["COPY", "f", "g"],
        ["COPY", "m", "n", "DB", 1],
        ["mem.usage", 1],
        ["RENAME", "a", "aa"],
        ["datatype.get", "aa"],
        ["MOVE", "aa", 2],
        ["EXISTS", "aa"],
        ["mem.read", "m", 1],
        ["DEL", "m"],
        ["mem.usage", 0],
        ["SWAPDB", 0, 1],
        ["mem.usage", 0],
    ):
        assert outcome(client.execute_command, words) == outcome(store.execute, words), words
    store.execute("FLUSHALL")
    client.flushall()


def outcome(ask: Any, words: list[Any]) -> Any:
    try:
        return ask(*words)
    except (redis.ResponseError, rillet.CommandError) as error:
        return str(error).removeprefix("ERR ")


@pytest.mark.parametrize(
    "command",
    [
        "GET",
        "APPEND x",
        "LPUSH x",
        "SADD x",
        "ZADD 1 x",
        "HSET f v",
        "XADD * f v",
        "INCR",
        "LLEN",
        "SCARD",
        "ZCARD",
        "HGETALL",
        "XLEN",
        "SETRANGE 1 x",
        "GETBIT 0",
        "BITCOUNT",
        "STRLEN",
        "LPOP",
        "SPOP",
        "ZPOPMIN",
        "HDEL f",
        "XRANGE - +",
        "SETBIT 1 1",
        "GETDEL",
        "GETEX",
        "LINDEX 0",
        "SSCAN 0",
        "XADD NOMKSTREAM * f v",
    ],
)
def test_other_commands_refuse_the_value(client: redis.Redis, store: Store, command: str) -> None:
    name, *rest = command.split()
    for ask in (client.execute_command, store.execute):
        ask("DEL", "dt")
        ask("datatype.set", "dt", 1, "x")
    assert outcome(client.execute_command, [name, "dt", *rest]) == outcome(store.execute, [name, "dt", *rest])


def test_rdb_files_in_both_directions(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    ours, theirs = tmp_path / "ours.rdb", tmp_path / "dump.rdb"
    with rillet.open(compat="7.0", modules=[(twin(name), *given) for name, *given in MODULES]) as store:
        for case in VALUES.values():
            for words in case:
                store.execute(*words)
        store.execute("PEXPIRE", "r", 100_000_000)
        store.execute("testrdb.set.before", "first")
        store.execute("testrdb.set.after", "second")
        expected = {key: read(store.execute, key) for key in ("dt", "m", "r", "f", "l")}
        store.save(ours)
    folder = tmp_path / "server"
    folder.mkdir()
    (folder / "dump.rdb").write_bytes(ours.read_bytes())
    with (
        genuine(modules, *MODULES, arguments=("--dir", str(folder), "--save", "3600 1")) as judge,
        judge.client() as client,
    ):
        assert {key: read(client.execute_command, key) for key in expected} == expected
        assert client.pttl("r") > 0
        assert (genuine_reply(client, "testrdb.get.before"), genuine_reply(client, "testrdb.get.after")) == (
            b"first",
            b"second",
        )
        genuine_reply(client, "testrdb.set.before", "one")
        genuine_reply(client, "testrdb.set.after", "two")
        assert genuine_reply(client, "SAVE") in (b"OK", True)
        theirs.write_bytes((folder / "dump.rdb").read_bytes())
    with rillet.open(tmp_path / "dump.rdb", readonly=True, modules=[(twin(n), *g) for n, *g in MODULES]) as store:
        assert {key: read(store.execute, key) for key in expected} == expected
        assert store.execute("PTTL", "r") > 0
        assert (store.execute("testrdb.get.before"), store.execute("testrdb.get.after")) == (b"one", b"two")
