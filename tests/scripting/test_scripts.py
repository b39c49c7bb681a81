"""Scripts in an engine of this process: the cache, effects, limits, and what only rillet decides."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

import rillet
from rillet.errors import CommandError
from rillet.keyspace.clock import ManualClock
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.scripting.scripts import MOST_EVAL_SCRIPTS
from rillet.store.store import Store
from tests.differential.wire import Local
from tests.scripting.cases import CRASHES
from tests.variants import long, long_interpreted

pytestmark = pytest.mark.both

SHA_OF_RETURN_1 = b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db"


class Kept:
    """A log that keeps the commands."""

    def __init__(self) -> None:
        self.commands: list[tuple[int, list[bytes]]] = []

    def append(self, db: int, argv: list[bytes]) -> None:
        self.commands.append((db, argv))

    def flush(self) -> None:
        return


@pytest.fixture
def local() -> Local:
    return Local(Engine(Settings(compat="7.0")))


@pytest.fixture
def store() -> Iterator[Store]:
    with rillet.open() as opened:
        yield opened


def test_a_script_is_cached_by_its_sha(local: Local) -> None:
    assert local("evalsha", SHA_OF_RETURN_1, 0) == "NOSCRIPT No matching script. Please use EVAL."
    assert local("script", "load", "return 1") == SHA_OF_RETURN_1
    assert local("evalsha", SHA_OF_RETURN_1.upper(), 0) == 1
    assert local("script", "exists", SHA_OF_RETURN_1, "x") == [1, 0]
    assert local("script", "flush", "sync") == b"OK"
    assert local("script", "exists", SHA_OF_RETURN_1) == [0]
    assert local("evalsha", "short", 0) == "NOSCRIPT No matching script. Please use EVAL."


def test_only_scripts_of_eval_are_evicted() -> None:
    local = Local(Engine(Settings(compat="newest")))
    kept = local("script", "load", "return 'kept'")
    first = "return -1"
    local("eval", first, 0)
    for number in range(MOST_EVAL_SCRIPTS):
        local("eval", f"return {number}", 0)
    scripts = local.engine.scripts
    assert scripts.evicted == 1
    assert len(scripts.cache) == MOST_EVAL_SCRIPTS + 1
    assert local("script", "exists", kept) == [1]
    info = local("info", "stats")
    assert b"evicted_scripts:1\r\n" in info


def test_writes_of_a_script_are_logged_as_one_transaction(local: Local) -> None:
    log = Kept()
    local.engine.log = log
    local("eval", "redis.call('set', 'a', 1) redis.call('incr', 'a') return redis.call('get', 'a')", 0)
    assert [argv[0].upper() for _, argv in log.commands] == [b"MULTI", b"SET", b"INCR", b"EXEC"]
    log.commands.clear()
    local("eval", "redis.call('set', 'a', 1)", 0)
    assert log.commands == [(0, [b"set", b"a", b"1"])]
    log.commands.clear()
    local("eval", "redis.set_repl(redis.REPL_NONE) redis.call('set', 'a', 2) redis.set_repl(redis.REPL_ALL) "
          "redis.call('set', 'b', 3)", 0)  # fmt: skip
    assert log.commands == [(0, [b"set", b"b", b"3"])]
    assert local("get", "a") == b"2"


def test_a_script_that_fails_keeps_and_logs_its_writes(local: Local) -> None:
    log = Kept()
    local.engine.log = log
    assert "boom" in local("eval", "redis.call('set', 'a', 1) error('boom')", 0)
    assert log.commands == [(0, [b"set", b"a", b"1"])]
    assert local("get", "a") == b"1"


def test_time_stands_still_inside_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(1_700_000_000_000)
    local = Local(Engine(Settings(compat="newest"), clock))
    script = """
        redis.call('set', 'k', 'v', 'px', 50)
        local before = redis.call('time')
        redis.call('debug', 'sleep', '0.1')
        local after = redis.call('time')
        return {redis.call('exists', 'k'), before[2] == after[2]}
    """
    # DEBUG is not allowed in a script: the clock is moved by hand instead.
    moving = script.replace("redis.call('debug', 'sleep', '0.1')", "redis.log(3, 'move')")
    monkeypatch.setattr(local.engine.services, "log_line", lambda _text, _level: clock.advance(100))
    assert local("eval", moving, 0) == [1, 1]
    assert local("exists", "k") == 0


def test_a_script_inside_a_transaction(local: Local) -> None:
    local("multi")
    assert local("eval", "return redis.call('incr', KEYS[1])", 1, "n") == b"QUEUED"
    local("eval", "return redis.call('nothing')", 0)
    first, second = local("exec")
    assert first == 1
    assert "Unknown Redis command" in second


def test_a_script_with_flags(local: Local) -> None:
    assert local("eval", "#!lua flags=no-writes\nreturn redis.call('dbsize')", 0) == 0
    assert "Write commands are not allowed from read-only" in local(
        "eval", "#!lua flags=no-writes\nreturn redis.call('set', 'x', 1)", 0
    )
    assert "on @user_script:2." in local("eval", "#!lua\nreturn redis.call('nothing')", 0)
    assert local("eval_ro", "#!lua\nreturn 1", 0) == "ERR Can not execute a script with write flag using *_ro command."
    assert local("eval", "#!lua flags=other\nreturn 1", 0) == "ERR Unexpected flag in script shebang: other"
    assert local("eval", "#!python\nreturn 1", 0) == "ERR Unexpected engine in script shebang: #!python"
    assert local("eval", "#!lua", 0) == "ERR Invalid script shebang"
    assert local("eval", "#!lua name=x\nreturn 1", 0) == "ERR Unknown lua shebang option: name=x"
    assert local("eval", "#!lua 'x\nreturn 1", 0) == "ERR Invalid engine in script shebang"


def test_the_engine_of_a_script_in_valkey() -> None:
    local = Local(Engine(Settings(compat="valkey")))
    assert local("eval", "#!LUA\nreturn 1", 0) == 1
    assert local("eval", "#!python\nreturn 1", 0) == "ERR Could not find scripting engine 'python'"
    assert local("eval", "#!l\"u\"a f'la'gs=\"no-\"writes\nreturn 1", 0) == 1
    assert local("eval", "#!lua \"fl\nreturn 1", 0) == "ERR Invalid engine in script shebang"
    assert local("eval", "#!\nreturn 1", 0) == "ERR Could not find scripting engine ''"
    assert local("eval", "#!python name=x\nreturn 1", 0) == "ERR Unknown lua shebang option: name=x"


def test_a_read_only_script_may_not_write(local: Local) -> None:
    assert "Write commands are not allowed" in local("eval_ro", "return redis.call('set', 'x', 1)", 0)
    assert "Write commands are not allowed" in local("eval_ro", "return redis.call('publish', 'x', 1)", 0)
    assert local("eval_ro", "return redis.call('dbsize')", 0) == 0


def test_numbers_of_keys(local: Local) -> None:
    assert local("eval", "return 1", 2, "a") == "ERR Number of keys can't be greater than number of args"
    assert local("eval", "return 1", -1) == "ERR Number of keys can't be negative"
    assert local("eval", "return 1", "x") == "ERR value is not an integer or out of range"
    many = [str(number) for number in range(10_000)]
    assert local("eval", "return {#KEYS, #ARGV, KEYS[5000], ARGV[5000]}", 5000, *many) == [
        5000, 5000, b"4999", b"9999"]  # fmt: skip
    assert local("command", "getkeys", "eval", "x", 2, "a", "b", "c") == [b"a", b"b"]


@pytest.mark.slow
def test_memory_is_limited_and_freed() -> None:
    local = Local(Engine(Settings(compat="7.0", lua_memory_limit="4mb")))
    fill = "local t = {} while true do t[#t + 1] = string.rep('x', 20000) .. #t end"
    assert "not enough memory" in local("eval", fill, 0)
    assert local("eval", "return 5", 0) == 5
    caught = "local t = {} while pcall(function() t[#t + 1] = string.rep('x', 20000) .. #t end) do end "
    assert "not enough memory" in local("eval", caught + "redis.call('ping') return 1", 0)
    assert "not enough memory" in local("eval", caught + "return redis.pcall({}, t)", 0)
    assert "not enough memory" in local("eval", "return string.rep('x', 100 * 1024 * 1024)", 0)
    assert "not enough memory" in local("eval", "return #ARGV", 0, "x" * 15_000_000)
    assert local("set", "big", "x" * 3_000_000) == b"OK"
    assert "not enough memory" in local("eval", "local a, b = redis.call('get', 'big'), redis.call('get', 'big') "
                                        "return a .. b .. redis.call('get', 'big')", 0)  # fmt: skip
    assert local("eval", "return 5", 0) == 5


@pytest.mark.slow
@pytest.mark.parametrize("script", [
    "local function f() return f() + 1 end return f()",
    "return string.rep('(', 3000):find(string.rep('(', 3000))",
    "return ('a'):rep(300000):find(('a?'):rep(300000))",
    "local t = {} for i = 1, 1e5 do t = {t} end return t",
    "local t = setmetatable({}, {__index = function(t, k) return t[k] end}) return t.x",
    "local t = {} t[1] = t return t",
    "local function f(...) return pcall(f, ...) end return f(f)",
    "return tostring(setmetatable({}, {__tostring = function(t) return tostring(t) end}))",
    "table.sort({3, 2, 1, 5, 4}, function(a, b) error('x') end)",
    "string.gsub('abc', '.', function() error({err = 'X y'}) end)",
    "return coroutine.wrap(function() return coroutine.wrap(function() error('x') end)() end)()",
    "error(setmetatable({}, {__index = function() error('again') end}))",
    "error(setmetatable({}, {__newindex = function() error('again') end}))",
    "error(setmetatable({err = 1}, {__tostring = function() error('again') end}))",
    "return setmetatable({}, {__index = function() error('x') end, __len = error, __call = error})",
    "return redis.call(unpack({'echo', redis.call}))",
    "return redis.pcall(redis.pcall)",
    "return redis.call('set', 'x', string.rep('y', 100), nil)",
    "string.format('%s', setmetatable({}, {__tostring = function() return 5 end}))",
    "return loadstring('\\27Lua')",
    "return {load(coroutine.wrap(function() while true do coroutine.yield('x=1 ') error('stop') end end))}",
    "coroutine.wrap(function() redis.call('nothing') end)()",
    "coroutine.yield(redis.pcall('nothing'))",
    "return select(-1, redis.pcall())",
])  # fmt: skip
def test_a_hostile_script_gets_an_answer_and_leaves_the_interpreter_whole(local: Local, script: str) -> None:
    assert local.run([b"eval", script.encode(), b"0"])
    assert local("eval", "return {redis.call('ping').ok, type(string.find), type(_G.redis), 1 + 1}", 0) == [
        b"PONG", b"function", b"table", 2,
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("script", [*CRASHES[:-1], *long(CRASHES[-1])])
def test_scripts_that_end_a_real_server_get_an_answer(local: Local, script: str) -> None:
    assert local.run([b"eval", script.encode(), b"0"])
    assert local("eval", "return 5", 0) == 5


def test_no_value_of_lupa_is_visible() -> None:
    local = Local(Engine(Settings(compat="7.0", lua_enable_deprecated_api="yes")))
    script = """
        local seen, found = {}, {}
        local function walk(value, path)
            if seen[value] then return end
            if type(value) == 'userdata' then found[#found + 1] = path end
            if type(value) ~= 'table' and type(value) ~= 'function' then return end
            seen[value] = true
            if type(value) == 'function' then walk(getfenv(value), path .. ' env') return end
            for key, one in pairs(value) do walk(key, path .. ' key') walk(one, path .. '.' .. tostring(key)) end
            local meta = getmetatable(value)
            if meta then walk(meta, path .. ' meta') end
        end
        walk(_G, '_G')
        for _, f in ipairs({redis.call, redis.pcall, redis.sha1hex, redis.log, redis.set_repl, redis.setresp}) do
            local _, problem = pcall(f, {}, {}, {})
            walk(problem, 'error')
            walk(select(2, coroutine.resume(coroutine.create(function() f(f) end))), 'error of a coroutine')
            xpcall(function() f({}, {}) end, function(e) walk(e, 'error of xpcall') end)
        end
        return found
    """
    assert local("eval", script, 0) == [b"_G.cjson.null"]  # a userdata of Lua's own, without a metatable
    assert local("eval", "return {type(cjson.null), tostring(getmetatable(cjson.null))}", 0)[0] == b"userdata"


def test_nothing_stays_from_one_script_to_the_next(local: Local) -> None:
    local("eval", "KEYS.x = 1 ARGV.y = 2 pcall(rawset, _G, 'z', 3) pcall(table.insert, redis, 4) "
          "collectgarbage('stop') return 1", 1, "k")  # fmt: skip
    assert local("eval", "return {tostring(KEYS.x), tostring(ARGV.y), tostring(rawget(_G, 'z')), #redis}", 0) == [
        b"nil", b"nil", b"nil", 0,
    ]  # fmt: skip


def test_an_interrupt_leaves_the_script_even_through_pcall(local: Local) -> None:
    def interrupted(_text: str, _level: str = "") -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(local.engine.services, "log_line", interrupted)
        with pytest.raises(KeyboardInterrupt):
            local("eval", "while true do pcall(redis.log, 3, 'x') end", 0)
    local.session.out.truncate(0)
    assert local("eval", "return 7", 0) == 7


def test_a_store_has_scripts_as_functions(store: Store) -> None:
    take = store.script("""
        local left = tonumber(redis.call('GET', KEYS[1]) or '0') - tonumber(ARGV[1])
        if left < 0 then return nil end
        redis.call('SET', KEYS[1], left)
        return left
    """)
    store.execute("SET", "stock", 5)
    assert take(keys=["stock"], args=[3]) == 2
    assert take(keys=["stock"], args=[3]) is None
    store.execute("SCRIPT", "FLUSH")
    assert take(keys=["stock"], args=[1]) == 1
    with pytest.raises(CommandError, match="boom"):
        store.script("error('boom')")()


async def _asynchronously(store: Store) -> object:
    return await store.aio().script("return redis.call('INCRBY', KEYS[1], ARGV[1])")(keys=["n"], args=[5])


def test_an_asyncio_store_has_scripts_as_functions(store: Store) -> None:
    import asyncio

    assert asyncio.run(_asynchronously(store)) == 5


def test_redis_py_registers_scripts_and_locks(store: Store) -> None:
    client = store.redis()
    double = client.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1]) * 2")
    assert double(keys=["m"], args=[4]) == 8
    with client.lock("a lock", timeout=10) as lock:
        assert lock.owned()
        assert not client.lock("a lock", timeout=10, blocking=False).acquire()
    assert client.get("a lock") is None


@long_interpreted
def test_without_lupa_the_error_names_the_package() -> None:
    code = """
import sys
sys.modules['lupa'] = None
sys.modules['lupa.lua51'] = None
import rillet
with rillet.open() as store:
    try:
        store.execute('EVAL', 'return 1', 0)
    except rillet.CommandError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "ERR Lua scripts need the package lupa: pip install lupa"


def test_a_script_counts_as_its_client() -> None:
    """TOUCH in a script records an access despite NO-TOUCH, and its commands are the client's (server.c: call)."""
    local = Local(Engine(Settings(compat="newest"), clock := ManualClock(1_700_000_000_000)))
    local("SET", "k", "v")
    local("CLIENT", "NO-TOUCH", "ON")

    def idle() -> object:
        return local("OBJECT", "IDLETIME", "k")

    clock.advance(90_000)
    local("EVAL", "return redis.call('get', 'k')", "0")
    assert idle() == 90
    local("EVAL", "return redis.call('touch', 'k')", "0")
    assert idle() == 0
    before = _figures(local)
    local("EVAL", "redis.call('ping') redis.call('ping')", "0")
    after = _figures(local)
    assert after["tot-cmds"] - before["tot-cmds"] == 4
    assert after["avg-pipeline-len-sum"] - before["avg-pipeline-len-sum"] == 2


def _figures(local: Local) -> dict[str, int]:
    fields = (field.partition("=") for field in local("CLIENT", "INFO").decode().split())
    return {name: int(value) for name, _, value in fields if name in ("tot-cmds", "avg-pipeline-len-sum")}


def test_the_memory_of_scripts_is_without_the_sandbox_and_garbage() -> None:
    local = Local(Engine())
    for number in range(2000):
        local("EVAL", "return redis.call('incr', KEYS[1])", "1", "n")
        if number % 500 == 499:
            memory = dict(line.split(":") for line in local("INFO", "memory").decode().split() if ":" in line)
            assert int(memory["used_memory_lua"]) < 100 * 1024
    local("SCRIPT", "FLUSH")


def test_an_error_that_a_script_returns_is_a_failed_call(local: Local) -> None:
    local("EVAL", "return redis.pcall('lpush', KEYS[1])", "1", "k")
    local("EVAL", "return {err = 'X y'}", "0")
    local("EVAL", "return 1", "0")
    statistics = local("INFO", "commandstats").decode()
    assert "cmdstat_eval:calls=3" in statistics
    assert "failed_calls=2" in statistics.split("cmdstat_eval")[1].split("cmdstat")[0]


def test_a_constant_by_sorts_a_set_in_a_script(local: Local) -> None:
    local("SADD", "s", *"qwertyuiopasdfghjkl")
    assert local("EVAL", "return redis.call('sort', KEYS[1], 'by', '_')", "1", "s") == [
        letter.encode() for letter in sorted("qwertyuiopasdfghjkl")
    ]
