"""FUNCTION and FCALL against the real servers, and libraries in payloads, files and logs, in both directions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.errors import CommandError, LogCorrupt
from rillet.persistence.aof.base import base_commands
from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.writer import write_rdb
from rillet.protocol.command_parser import pack_command
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.scripting.functions import metadata
from tests.differential.wire import Local, Redis
from tests.judge import PEERS, Judge, required_binary, running_redis
from tests.persistence.test_rdb_file import Bare
from tests.server.test_serve_while_loading import starting

pytest.importorskip("lupa.lua51")

COUNTER = b"#!lua name=counter\nlocal n = 0\nredis.register_function('count', function() n = n + 1 return n end)"
SETTER = (
    b"#!lua name=setter\nredis.register_function{function_name='put', description='SET', "
    b"callback=function(keys, args) return redis.call('set', keys[1], args[1]) end}"
)
X = "#!lua name=x\n"
FAILING_LOADS = (
    "error('a')", "redis.register_function('f')", "redis.call('x')", "bad bad", "redis.register_function()", "return 1",
    "redis.register_function(1,2,3)", "redis.register_function(nil, 2)", "redis.register_function('a', 2)",
    "redis.register_function('a-b', function() end)", "redis.register_function('', function() end)",
    "redis.register_function('a', function() end) redis.register_function('a', function() end)",
    "redis.register_function{function_name='n', callback=1}", "redis.register_function{callback=function() end}",
    "redis.register_function{function_name='n'}", "redis.register_function{function_name={}}",
    "redis.register_function{function_name='n', callback=function() end, flags=1}",
    "redis.register_function{function_name='n', callback=function() end, flags={1}}",
    "redis.register_function{function_name='n', callback=function() end, flags={'x'}}",
    "redis.register_function{function_name='n', callback=function() end, more=1}",
    "redis.register_function{function_name='n', callback=function() end, [1]=1}",
    "redis.register_function{function_name='n', callback=function() end, [true]=1}",
    "local a = redis.REPL_ALL", "local a = redis.sha1hex", "local a = _G", "a = 1", "redis.x = 1", "pairs(redis)",
    "local t = math.random()", "redis.register_function('G', function() end)", "redis.setresp(3)",
)  # fmt: skip
WRONG_FIRST_LINES = (
    "no", "#!lua", "#!lua\n", "#!lua name=x y=1\n", "#!lua name=x name=y\n", "#! name=x\n", "#!py name=x\n",
    "#!lua name=\n", '#!lua name="a b"\n', '#!lua name="a\n', "#!lua NAME=abc \n return 1", "#!LUA name=a\0b\n",
)  # fmt: skip
FUNCTIONS = r"""#!lua name=functions
local c = 0
redis.register_function('g', function(keys, args) c = c + 1 return {c, #keys, #args, keys[1], args[1]} end)
redis.register_function('e1', function() error('boom') end)
redis.register_function('e2', function() return redis.call('incr', 's') end)
redis.register_function('e3', function() return redis.error_reply('MY ERR') end)
redis.register_function('e4', function() return nope end)
redis.register_function('e5', function() error({err='X y'}) end)
redis.register_function('e6', function() x = 1 end)
redis.register_function('e7', function() return redis.register_function('q', function() end) end)
redis.register_function('e8', function() return tostring(KEYS) end)
redis.register_function('e9', function() local a = cjson.decode('[') return a end)
redis.register_function('map', function() redis.setresp(3) return redis.call('hgetall', 'h') end)
"""
HACKS = """#!lua name=hacks
local lib = redis
lib.register_function('f1', function() lib.redis = redis end)
lib.register_function('f2', function() lib.register_function('f3', function() end) end)
lib.register_function('f4', function() return tostring(lib.call) end)
lib.register_function('f5', function() getmetatable(_G).__index.redis = 1 end)
lib.register_function('f6', function() return {tostring(redis.register_function), tostring(redis.call ~= nil)} end)
"""
COMMANDS = [
    *(["function", "load", X + source] for source in FAILING_LOADS[:-2]),
    *(["function", "load", line] for line in WRONG_FIRST_LINES),
    ["function", "load", FUNCTIONS], ["function", "load", FUNCTIONS], ["function", "load", "replace", FUNCTIONS],
    *(["function", "load", "REPLACE", X + source] for source in FAILING_LOADS),
    ["function", "load", "what", FUNCTIONS], ["function", "load"],
    ["set", "s", "text"], ["hset", "h", "f", "v"],
    ["fcall", "g", "1", "a", "b"], ["fcall", "G", "1", "a", "b"], ["fcall", "g", "0"], ["fcall", "g", "2", "a"],
    ["fcall", "g", "-1"], ["fcall", "g", "x"], ["fcall", "nope", "0"], ["fcall", "g"],
    *(["fcall", f"e{number}", "0"] for number in range(1, 10)), ["fcall", "map", "0"], ["fcall_ro", "g", "0"],
    ["function", "load", HACKS], *(["fcall", f"f{number}", "0"] for number in range(1, 7)),
    ["function", "delete", "hacks"],
    ["function", "load", X + "redis.register_function('e1', function() end)"],
    ["function", "load", X + "redis.register_function{function_name='w', flags={'no-writes'}, callback=function() "
                             "return redis.call('set', 'k', 'v') end}"],
    ["fcall", "w", "0"], ["fcall_ro", "w", "0"], ["function", "delete", "functions"],
    ["function", "load", "replace", X + "redis.register_function{function_name='v', flags={'no-writes', 'ALLOW-OOM'}, "
                                        "description='d', callback=function() return 1 end}"],
    ["function", "list"], ["function", "list", "withcode"], ["function", "list", "libraryname", "X*"],
    ["function", "list", "libraryname", "y"], ["function", "list", "libraryname"], ["function", "list", "x"],
    ["function", "list", "withcode", "withcode"], ["function", "stats"], ["function", "kill"],
    ["function", "delete", "nope"], ["function", "nope"], ["function", "restore", "a", "b", "c"],
    ["function", "restore", "a", "b"], ["function", "restore", "a"], ["function", "flush", "a"],
    ["function", "flush", "sync", "a"], ["command", "getkeys", "fcall", "f", "2", "a", "b", "c"],
    ["config", "set", "maxmemory", "1"], ["fcall", "v", "0"], ["function", "load", FUNCTIONS],
    ["function", "restore", "a"], ["config", "set", "maxmemory", "0"], ["function", "dump"], ["function", "flush"],
    ["function", "dump"],
]  # fmt: skip


def words(*parts: str | bytes) -> list[bytes]:
    return [part if isinstance(part, bytes) else part.encode() for part in parts]


@pytest.mark.parametrize("compat", PEERS)
@pytest.mark.parametrize("resp", [2, 3])
def test_every_reply_is_the_servers(compat: str, resp: int) -> None:
    """Replies, error texts and the bytes of FUNCTION DUMP."""
    binary = required_binary(compat)
    different = []
    with running_redis(binary=binary) as server, Redis(server.port) as theirs:
        ours = Local(Engine(Settings(compat=compat, dump_format="native")), resp)
        theirs.run(words("hello", str(resp)))
        for command in COMMANDS:
            mine, real = ours.run(words(*command)), theirs.run(words(*command))[0]
            if mine != real:
                different.append(f"{command}\n   ours   {mine!r}\n   theirs {real!r}")
    assert not different, f"{len(different)} of them:\n" + "\n".join(different)


def failure(reply: object) -> str:
    """Return the text of an error reply."""
    assert isinstance(reply, Exception), reply
    return str(reply)


def test_a_load_must_end_soon() -> None:
    ours = Local(Engine(Settings(compat="7.0")), 2)
    assert ours.run(words("function", "load", SETTER)) == b"$6\r\nsetter\r\n"
    for endless in ("while true do end", "local function f() return f() end f()"):
        reply = ours.run(words("function", "load", X + endless))
        assert reply == b"-ERR Error registering functions: ERR FUNCTION LOAD timeout\r\n"
    assert ours.run(words("fcall", "put", "1", "k", "v")) == b"+OK\r\n"


def test_variables_of_a_library_live_until_it_is_replaced() -> None:
    one = Bare()
    one("FUNCTION", "LOAD", COUNTER)
    assert [one("FCALL", "count", 0) for _ in range(3)] == [1, 2, 3]
    one("SCRIPT", "FLUSH")
    assert one("FCALL", "count", 0) == 4
    one("FUNCTION", "LOAD", "REPLACE", COUNTER)
    assert one("FCALL", "count", 0) == 1


def test_payloads_travel_between_servers(judge: Judge) -> None:
    """FUNCTION DUMP of each side is FUNCTION RESTORE of the other; the policies do the same."""
    one = Bare()
    one("FUNCTION", "LOAD", COUNTER)
    one("FUNCTION", "LOAD", SETTER)
    with judge.client() as client:
        run = client.execute_command
        run("FUNCTION", "FLUSH")
        run("FUNCTION", "RESTORE", one("FUNCTION", "DUMP"))
        assert run("FCALL", "count", 0) == 1
        for policy, error in (("APPEND", "already exists"), ("REPLACE", ""), ("FLUSH", "")):
            payload = run("FUNCTION", "DUMP")
            if error:
                assert error in failure(one("FUNCTION", "RESTORE", payload, policy))
            else:
                assert one("FUNCTION", "RESTORE", payload, policy) == b"OK"
        assert one("FCALL", "put", 1, "k", "v") == b"OK"
        run("FUNCTION", "FLUSH")


def test_a_restore_is_whole_or_nothing() -> None:
    one, two = Bare(), Bare()
    one("FUNCTION", "LOAD", COUNTER)
    one("FUNCTION", "LOAD", SETTER)
    payload = one("FUNCTION", "DUMP")
    two("FUNCTION", "LOAD", COUNTER.replace(b"counter", b"other"))
    for policy in ("APPEND", "REPLACE"):
        assert "Function count already exists" in failure(two("FUNCTION", "RESTORE", payload, policy))
    assert two("FUNCTION", "STATS")[3][1][1] == 1
    assert two("FCALL", "count", 0) == 1
    for damaged in (payload[:-1], payload[:5], b"", payload[1:]):
        assert "payload version or checksum" in failure(two("FUNCTION", "RESTORE", damaged))


def test_damaged_records_in_a_payload_are_errors() -> None:
    """With skip-checksum-validation, as a hostile payload with a right checksum."""
    one = Bare()
    one.engine.settings.skip_checksum_validation = True
    footer = b"\x0a\x00" + bytes(8)
    for record, message in (
        (b"\xf5\xff", "Failed loading library payload"), (b"\xf5\x85abc", "Failed loading library payload"),
        (b"\x00\x01a", "given type is not a function"), (b"\xf5\x02no", "Missing library metadata"),
        (b"\xf6\x01a", "Failed loading library payload"),
    ):  # fmt: skip
        assert message in failure(one("FUNCTION", "RESTORE", record + footer))
    newer = Bare(compat="newest")
    newer.engine.settings.skip_checksum_validation = True
    assert "Pre-GA function format not supported" in failure(newer("FUNCTION", "RESTORE", b"\xf6\x01a" + footer))


def test_libraries_in_rdb_files(tmp_path: Path, judge: Judge) -> None:
    """A file of each side is loaded by the other; loading runs no code before a command needs functions."""
    one = Bare()
    one("FUNCTION", "LOAD", COUNTER)
    one("FUNCTION", "LOAD", SETTER)
    one("SET", "k", "v")
    path = tmp_path / "dump.rdb"
    write_rdb(path, one.engine)
    with running_redis(folder=tmp_path) as server, server.client() as client:
        assert client.execute_command("FCALL", "count", 0) == 1
        client.execute_command("FUNCTION", "LOAD", COUNTER.replace(b"count", b"more"))
        client.execute_command("SAVE")
    two = Bare()
    load_rdb(path, two.engine)
    assert two.engine.scripts is None
    assert two("GET", "k") == b"v"
    assert {two("FCALL", name, 0) for name in ("count", "more")} == {1}
    # A library that was not needed goes to the next file, too.
    three, four = Bare(), Bare()
    load_rdb(path, three.engine)
    write_rdb(path, three.engine)
    load_rdb(path, four.engine)
    assert four("FUNCTION", "STATS")[3][1] == [b"libraries_count", 3, b"functions_count", 3]


def test_a_damaged_library_in_a_file_is_named(tmp_path: Path) -> None:
    for code, message in ((b"no", "Missing library metadata"), (b"#!lua\n", "Library name was not given")):
        (tmp_path / "x.rdb").write_bytes(b"REDIS0010\xf5" + bytes([len(code)]) + code + b"\xff" + bytes(8))
        with pytest.raises(LogCorrupt, match=f"Failed loading library, {message}"):
            load_rdb(tmp_path / "x.rdb", Bare().engine)


def test_a_file_with_a_library_that_is_there_is_rejected(tmp_path: Path) -> None:
    one = Bare()
    one("FUNCTION", "LOAD", COUNTER)
    write_rdb(tmp_path / "dump.rdb", one.engine)
    with pytest.raises(LogCorrupt, match="Failed loading library, Library 'counter' already exists"):
        load_rdb(tmp_path / "dump.rdb", one.engine)
    load_rdb(tmp_path / "dump.rdb", one.engine, merge=True)
    assert one("FCALL", "count", 0) == 1


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_a_store_keeps_its_functions(tmp_path: Path, preamble: str) -> None:
    """The log contains FUNCTION commands and the effects of functions; a rewrite contains the libraries."""
    where = tmp_path / "store"
    settings: dict[str, Any] = {"aof_use_rdb_preamble": preamble}
    with rillet.open(where, **settings) as store, store.redis() as client:
        client.execute_command("FUNCTION", "LOAD", COUNTER)
        client.execute_command("FUNCTION", "LOAD", SETTER)
        client.execute_command("FUNCTION", "DELETE", "counter")
        client.execute_command("FCALL", "put", 1, "k", "v")
    log = b"".join(path.read_bytes() for path in (where / "appendonlydir").glob("*incr*"))
    assert log.count(SETTER) == 1
    assert b"FCALL" not in log.upper()
    with rillet.open(where, **settings) as store, store.redis() as client:
        assert client.get("k") == b"v"
        assert client.execute_command("FCALL", "put", 1, "k", "w") == b"OK"
        client.execute_command("BGREWRITEAOF")
    with rillet.open(where, **settings) as store, store.redis() as client:
        assert client.execute_command("FCALL", "put", 1, "k", "x") == b"OK"


def test_logs_travel_between_servers(tmp_path: Path, judge: Judge) -> None:
    """A log of Redis with FUNCTION commands opens in a store, and the store's log in Redis."""
    arguments = ("--appendonly", "yes", "--appendfsync", "always")
    with running_redis(*arguments, folder=tmp_path) as server, server.client() as client:
        client.execute_command("FUNCTION", "LOAD", SETTER)
        client.execute_command("FCALL", "put", 1, "k", "v")
    with rillet.open(tmp_path, compat="7.0", aof_checksums="no") as store, store.redis() as own:
        assert own.execute_command("FCALL", "put", 1, "k", "w") == b"OK"
        own.execute_command("FUNCTION", "LOAD", COUNTER)
    with running_redis(*arguments, folder=tmp_path) as server, server.client() as client:
        assert client.get("k") == b"w"
        assert client.execute_command("FCALL", "count", 0) == 1


def test_a_base_of_commands_begins_with_the_libraries() -> None:
    one = Bare()
    one("FUNCTION", "LOAD", SETTER)
    one("SET", "k", "v")
    assert list(base_commands(one.engine))[0] == pack_command([b"FUNCTION", b"LOAD", SETTER])


def test_metadata() -> None:
    assert metadata(b"#!lua name=a\nrest\n", False) == (b"a", b"lua", b"\nrest\n")
    assert metadata(b"#!l'u'a name='a'b\nrest\n", True) == (b"ab", b"lua", b"\nrest\n")
    with pytest.raises(CommandError, match="Invalid library metadata"):
        metadata(b"#!lua name='a'b\nrest\n", False)


LIBRARY = """#!lua name=counters
redis.register_function('bump', function(keys, args) return redis.call('INCRBY', keys[1], args[1]) end)
redis.register_function{function_name='value', callback=function(keys) return redis.call('GET', keys[1]) end,
                        flags={'no-writes'}}
"""


def test_a_store_loads_and_calls_functions() -> None:
    with rillet.open() as store:
        assert store.load_functions(LIBRARY) == "counters"
        with pytest.raises(CommandError, match="already exists"):
            store.load_functions(LIBRARY)
        assert store.load_functions(LIBRARY, replace=True) == "counters"
        assert store.function("bump")(keys=["n"], args=[5]) == 5
        assert store.function("value")(keys=["n"], read_only=True) == b"5"
        with pytest.raises(CommandError, match="write flag"):
            store.function("bump")(keys=["n"], args=[5], read_only=True)


async def _asynchronously(store: Store) -> object:
    aio = store.aio()
    name = await aio.load_functions(LIBRARY)
    return name, await aio.function("bump")(keys=["n"], args=[2])


def test_an_asyncio_store_loads_and_calls_functions() -> None:
    with rillet.open() as store:
        assert asyncio.run(_asynchronously(store)) == ("counters", 2)


@pytest.mark.parametrize("options", [("--save", "3600 1"), ("--save", "", "--appendonly", "yes")])
def test_a_server_finds_its_functions_after_a_restart(tmp_path: Path, options: tuple[str, ...]) -> None:
    for number in (5, 10):
        with starting(tmp_path, *options) as (process, port), rillet.connect(f"redis://127.0.0.1:{port}") as store:
            if number == 5:
                store.load_functions(LIBRARY)
            assert store.function("bump")(keys=["n"], args=[5]) == number
            process.terminate()
            process.wait(timeout=30)
