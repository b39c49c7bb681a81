"""Scripts through Lua's C API and through lupa's objects (rillet.scripting.lua_stack): both give the same replies."""

from __future__ import annotations

import re

import pytest

import rillet
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.scripting import interpreter
from tests.differential.wire import Local
from tests.scripting.cases import CONVERSIONS, ERRORS, SANDBOX, lines

compiled_only = pytest.mark.skipif(not rillet.compiled(), reason="the C API needs the compiled build")
DATA = (
    ("set", "k", "v"), ("set", "n", "10"), ("hset", "h", "a", "1"), ("sadd", "s1", "one"),
    ("rpush", "l", "x", "y", "z"), ("zadd", "z", "1.5", "a", "2", "b"),
)  # fmt: skip
# Values that the C API passes in a form of its own: numbers as words, lists, and what looks like a list.
VALUES = (
    "redis.call('set', 'a', 0) return redis.call('get', 'a')",
    "redis.call('set', 'a', -12345678901234) return redis.call('get', 'a')",
    "redis.call('set', 'a', 9007199254740993) return redis.call('get', 'a')",
    "redis.call('set', 'a', 1e16) return redis.call('get', 'a')",
    "redis.call('set', 'a', 0.1) return redis.call('get', 'a')",
    "redis.call('set', 'a', 2^63) return redis.call('get', 'a')",
    "return redis.call('lrange', 'l', 0, -1)",
    "return redis.call('zrange', 'z', 0, -1, 'withscores')",
    "return redis.call('hgetall', 'h')",
    "return {1, 'a', {true, false, {}}, 2.9}",
    "return {1, nil, 3}",
    "return {1, 2, name = 3}",
    "return {1, 2, err = 'X y'}",
    "local t = {} for i = 3, 1, -1 do t[i] = i end return t",
    "local t = {} for i = 1, 20 do t = {t} end return t",
    "return {ok = 'a'}",
    "return {ok = 'a', more = 1}",
    "return {ok = 'a\\r\\nb'}",
    "return {ok = 1}",
    "return {{ok = 'a'}, {err = 'X'}, {double = 1.5}}",
    "return {redis.call('ping'), redis.pcall('nothing'), redis.call('get', 'missing')}",
    "redis.setresp(3) return {true, false, redis.call('get', 'missing'), redis.call('hgetall', 'h')}",
    "return {KEYS, ARGV}",
    "return coroutine.wrap(function() return redis.call('get', 'k') end)()",
    "return select('#', redis.call('get', 'k'), redis.pcall('get'))",
)
_ADDRESS = re.compile(rb"0x[0-9a-f]+")


def lupa_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the following interpreters find no C API."""
    monkeypatch.setattr(interpreter, "EXTENSION", "/there/is/no/such/module.so")


def server(compat: str, resp: int = 2) -> Local:
    local = Local(Engine(Settings(compat=compat)), resp)
    for command in DATA:
        local(*command)
    return local


@compiled_only
@pytest.mark.parametrize(("compat", "resp"), [("7.0", 2), ("newest", 3), ("valkey", 2)])
def test_both_forms_give_the_same_replies(compat: str, resp: int, monkeypatch: pytest.MonkeyPatch) -> None:
    natively = server(compat, resp)
    natively("eval", "return 1", 0)
    assert natively.engine.scripts.interpreter.stack.native
    lupa_only(monkeypatch)
    by_lupa = server(compat, resp)
    by_lupa("eval", "return 1", 0)
    assert not by_lupa.engine.scripts.interpreter.stack.native
    different = []
    for script in (*VALUES, *lines(CONVERSIONS), *lines(ERRORS), *lines(SANDBOX)):
        argv = [b"eval", script.encode("latin-1"), b"2", b"k", b"n", b"an argument"]
        one, other = natively.run(argv), by_lupa.run(argv)
        if _ADDRESS.sub(b"0x", one) != _ADDRESS.sub(b"0x", other):
            different.append(f"{script}\n   C API  {one!r}\n   lupa   {other!r}")
    assert not different, "\n".join(different)


def interrupted(local: Local) -> None:
    """Assert that KeyboardInterrupt in a command leaves its script, and that the next script works."""
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    local.engine.notify_events = True
    local.engine.on_keyspace_event = interrupt
    for script in (
        "redis.call('set', 'a', 1)", "pcall(redis.call, 'set', 'a', 1)", "return redis.pcall('set', 'a', 1)",
        "coroutine.wrap(function() redis.call('set', 'a', 1) end)()",
        "xpcall(function() redis.call('set', 'a', 1) end, error)",
    ):  # fmt: skip
        with pytest.raises(KeyboardInterrupt):
            local("eval", f"do {script} end return 'not reached'", 0)
        local.session.out.truncate(0)
        local.engine.on_keyspace_event = None
        assert local("eval", "return redis.call('get', 'k')", 0) == b"v"
        local.engine.on_keyspace_event = interrupt


def test_an_exception_of_python_leaves_the_script() -> None:
    interrupted(server("7.0"))


def test_an_exception_of_python_leaves_the_script_through_lupa(monkeypatch: pytest.MonkeyPatch) -> None:
    lupa_only(monkeypatch)
    interrupted(server("7.0"))


@compiled_only
def test_a_script_of_many_words_and_a_function_of_a_library() -> None:
    local = server("newest")
    words = [str(number) for number in range(20_000)]
    found = local("eval", "return {#KEYS, #ARGV, KEYS[1], ARGV[#ARGV]}", 5_000, *words)
    assert found == [5_000, 15_000, b"0", b"19999"]
    function = "function(keys, args) return {keys, args, redis.call('get', keys[1])} end"
    local("function", "load", f"#!lua name=l\nredis.register_function('f', {function})")
    assert local("fcall", "f", 1, "k", "x", "y") == [[b"k"], [b"x", b"y"], b"v"]


def test_a_command_of_a_script_is_counted_and_logged_as_any_other() -> None:
    local = server("7.0")
    before = local.engine.dirty
    local("eval", "for i = 1, 10 do redis.call('set', KEYS[1], i) redis.call('get', KEYS[1]) end", 1, "k")
    assert local.engine.dirty - before == 10
    text = local("info", "commandstats")
    assert b"cmdstat_set:calls=12," in text  # two of DATA
    assert b"cmdstat_get:calls=10," in text
    local("config", "set", "slowlog-log-slower-than", "0")
    local("eval", "return redis.call('get', KEYS[1])", 1, "k")
    names = [entry[3][0] for entry in local("slowlog", "get", "10")]
    assert names[:2] == [b"eval", b"get"]
