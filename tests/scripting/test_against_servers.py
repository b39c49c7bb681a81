"""Scripts against the real servers: each reply must be equal byte for byte, errors too, in RESP2 and RESP3."""

from __future__ import annotations

import re

import pytest

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.wire import Local, Redis
from tests.judge import PEERS, required_binary, running_redis
from tests.scripting.cases import CONVERSIONS, ERRORS, SANDBOX, lines

DATA = [
    ["flushall"], ["set", "k", "v"], ["set", "n", "10"], ["hset", "h", "a", "1"], ["sadd", "s1", "one"],
    ["zadd", "z", "1.5", "a", "2", "b"], ["rpush", "l", "x", "y", "z"], ["select", "0"],
]  # fmt: skip
# Debian builds Redis 7.0 with the system's Lua 5.1: without tables that C code may not change.
_DEBIAN = re.compile(r"rawset\(redis|table\.(remove|sort)\(redis\)|pairs\((redis|_G)\)")
# A server that is built with the Lua that Redis bundles has a debugger.
_DEBUGGER = re.compile(rb"\$\d+\r\n(breakpoint|debug) function\r\n|\*\d+\r\n")
# Texts that contain an address of memory.
_ADDRESS = re.compile(rb"0x[0-9a-f]+")


def words(*parts: str | bytes) -> list[bytes]:
    return [part if isinstance(part, bytes) else part.encode() for part in parts]


@pytest.mark.parametrize("compat", PEERS)
@pytest.mark.parametrize("resp", [2, 3])
def test_every_reply_is_the_servers(compat: str, resp: int) -> None:
    binary = required_binary(compat)
    different = []
    with running_redis(binary=binary) as server, Redis(server.port) as theirs:
        ours = Local(Engine(Settings(compat=compat)), resp)
        theirs.run(words("hello", str(resp)))
        for command in DATA:
            ours.run(words(*command))
            theirs.run(words(*command))
        for script in (*lines(CONVERSIONS), *lines(ERRORS), *lines(SANDBOX)):
            if compat == "7.0" and _DEBIAN.search(script):
                continue
            argv = words("eval", script, "1", "k", "an argument")
            mine, real = ours.run(argv), theirs.run(argv)[0]
            if "pairs(redis)" in script:
                mine, real = _DEBUGGER.sub(b"", mine), _DEBUGGER.sub(b"", real)
            if _ADDRESS.sub(b"0x", mine) != _ADDRESS.sub(b"0x", real):
                different.append(f"{script}\n   ours   {mine!r}\n   theirs {real!r}")
    assert not different, f"{len(different)} of them:\n" + "\n".join(different)


@pytest.mark.parametrize("compat", ["7.0", "8.6", "newest"])
def test_a_setting_allows_getfenv_and_setfenv(compat: str) -> None:
    allow = ("--lua-enable-deprecated-api", "yes")
    with running_redis(*allow, binary=required_binary(compat)) as server, Redis(server.port) as theirs:
        ours = Local(Engine(Settings(compat=compat, lua_enable_deprecated_api="yes")))
        scripts = [script for script in lines(SANDBOX) if re.search("[gs]etfenv", script)]
        assert len(scripts) > 10
        different = []
        for script in scripts:
            argv = words("eval", script, "1", "k", "an argument")
            mine, real = ours.run(argv), theirs.run(argv)[0]
            if mine != real:
                different.append(f"{script}\n   ours   {mine!r}\n   theirs {real!r}")
        name = words("config", "get", "lua-enable-deprecated-api")
        assert ours.run(name) == theirs.run(name)[0]
    assert not different, "\n".join(different)


# Newest copies a line break of a raised error into its reply and into INFO.
ERRORS_OF_SCRIPTS = (
    "error(redis.error_reply('-ERR\\r\\n-ERR FAKE'))", "error('-ERR\\r\\n-ERR FAKE')", "error({err = 'AERR\\r\\nb'})",
    "error('-ABC DEF')", "error(redis.error_reply('-CERR x'))", "error(redis.error_reply('DERR x'))",
    "error({err = 'NOBLANK'})", "return redis.error_reply('-EERR b c')", "return redis.error_reply('-FERR')",
    "return redis.error_reply('GERR x')", "return {err = 'HERR x'}", "return {err = '-IERR x'}",
    "return {err = 'J:#R x'}", "return redis.call('nothing')", "return redis.pcall('get')",
    "return {err = 'K' .. ('x'):rep(29) .. ' x'}", "return {err = 'L' .. ('x'):rep(30) .. ' x'}",
    "#!other\nreturn 1", "#!LUA\nreturn 1", "#!lua 'x\nreturn 1", "#!\nreturn 1", "#!other x=1\nreturn 1",
    "#!lua flags=\nreturn 1", "#!lua flags=no-writes,,\nreturn 1", '#!lua "flags=no-writes"\nreturn 1',
)  # fmt: skip


@pytest.mark.parametrize("compat", PEERS)
def test_errors_of_scripts_are_counted_as_the_servers_count_them(compat: str) -> None:
    with running_redis(binary=required_binary(compat)) as server, Redis(server.port) as theirs:
        ours = Local(Engine(Settings(compat=compat)))
        for script in ERRORS_OF_SCRIPTS:
            if compat == "newest" and "\\r" in script:
                continue
            for argv in (words("eval", script, "0"), words("script", "load", script)):
                assert ours.run(argv) == theirs.run(argv)[0], script
        assert ours.run(words("info", "errorstats")) == theirs.run(words("info", "errorstats"))[0]


# The beginning of scripts that pass more arguments to redis.call than lupa passes to a Python function.
_MANY = "local a = {} for i = 1, 7999 do a[i] = 1 end "
MANY_ARGUMENTS = (
    "return redis.call('rpush', 'many', unpack(a))",
    "local function push() return redis.pcall('rpush', 'many', 'x', unpack(a)) end return push()",
    "return redis.call('rpush', 'many', ('x'):rep(7990):byte(1, -1))",
    "\n\nreturn redis.call('unknown', unpack(a))",
    "a[5] = {}\nreturn redis.call('rpush', 'many', unpack(a))",
    "a[5] = {}\nreturn redis.pcall('rpush', 'many', unpack(a))",
    "a[5] = {}\nlocal n = redis.call('rpush', 'many', unpack(a, 1, 10))\nreturn n",
    "return {pcall(redis.call, 'unknown', unpack(a, 1, 10))}",
    "return redis.call('llen', 'many')",
)


@pytest.mark.parametrize("compat", PEERS)
def test_scripts_pass_many_arguments(compat: str) -> None:
    with running_redis(binary=required_binary(compat)) as server, Redis(server.port) as theirs:
        ours = Local(Engine(Settings(compat=compat)))
        for script in MANY_ARGUMENTS:
            argv = words("eval", _MANY + script, "0")
            assert ours.run(argv) == theirs.run(argv)[0], script


@pytest.mark.parametrize("compat", PEERS)
def test_debug_allows_commands_that_scripts_may_not_call(compat: str) -> None:
    binary = required_binary(compat)
    with running_redis("--enable-debug-command", "yes", binary=binary) as server, Redis(server.port) as theirs:
        ours = Local(Engine(Settings(compat=compat, enable_debug_command="yes")))
        for value in "010":
            for argv in (words("debug", "set-disable-deny-scripts", value),
                         words("eval", "return redis.call('debug', 'protocol', 'string')", "0")):  # fmt: skip
                assert ours.run(argv) == theirs.run(argv)[0], (value, argv)
