"""Random hostile scripts: no crash, no escape, and the next script works.

    python -m tests.scripting.hostile --count 100000 --seed 1

A script is a random combination of the functions that it can reach with values that their authors did not expect:
protected tables, functions, threads, errors of Python, very long strings. After each script the interpreter is checked:
the protected names are as before, no value of lupa and no name of the process is reachable, a command still works.
"""

from __future__ import annotations

import argparse
import random

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings

VALUES = (
    "nil", "true", "1", "-1", "0/0", "1e308", "2^53", "''", "'x'", "'%'", "'(.-)%1'", "('a?'):rep(3000)",
    "('x'):rep(1e5)",
    "_G", "redis", "string", "math", "table", "coroutine", "KEYS", "ARGV", "{}", "{{}}", "{1, 2, 3}", "{err = 'X y'}",
    "{ok = 1}", "setmetatable({}, {__index = error, __newindex = error, __call = error})", "getmetatable(_G)",
    "getmetatable('')", "function(...) return ... end", "function() error('x') end", "function() error({}) end",
    "function() return redis.call('nothing') end", "coroutine.create(function() coroutine.yield(redis.pcall()) end)",
    "redis.call", "redis.pcall", "pcall", "error", "tostring", "string.rep", "next", "select(2, pcall(redis.call))",
    "select(2, pcall(redis.call, {}))", "coroutine.wrap(function() error('w') end)", "'get'", "'set'", "'\\0'",
    "'\\27Lua'",
)  # fmt: skip
FUNCTIONS = (
    "redis.call", "redis.pcall", "redis.error_reply", "redis.status_reply", "redis.sha1hex", "redis.log",
    "redis.setresp", "redis.set_repl", "redis.acl_check_cmd", "redis.replicate_commands", "pcall", "xpcall",
    "error", "assert", "select",
    "unpack", "next", "pairs", "ipairs", "rawget", "rawset", "rawequal", "setmetatable", "getmetatable", "tostring",
    "tonumber", "type", "load", "loadstring", "collectgarbage", "getfenv", "setfenv", "string.find", "string.match",
    "string.gsub", "string.gmatch", "string.format", "string.rep", "string.byte", "string.char", "string.dump",
    "table.insert", "table.remove", "table.sort", "table.concat", "table.maxn", "table.foreach", "math.random",
    "math.randomseed", "math.floor", "coroutine.create", "coroutine.wrap", "coroutine.resume", "coroutine.status",
    "coroutine.yield", "coroutine.running",
)  # fmt: skip
CHECK = """
local found = {}
for _, name in ipairs({'debug', 'io', 'os', 'package', 'require', 'python', 'module', 'dofile', 'loadfile', 'print'}) do
    if rawget(_G, name) ~= nil then found[#found + 1] = name end
end
for name, value in pairs(redis) do if type(value) == 'userdata' then found[#found + 1] = name end end
if rawget(_G, 'redis') ~= redis or type(redis.call) ~= 'function' or #redis ~= 0 or #_G ~= 0 then
    found[#found + 1] = 'changed'
end
if getfenv(1) ~= _G or getfenv(0) ~= _G or getfenv(pcall) ~= _G then found[#found + 1] = 'environment' end
if ('x'):upper() ~= 'X' or string.upper('x') ~= 'X' then found[#found + 1] = 'string' end
if redis.call('ping').ok ~= 'PONG' then found[#found + 1] = 'ping' end
return table.concat(found, ' ')
"""


def expression(chance: random.Random, depth: int) -> str:
    """Return a random expression."""
    if depth == 0 or chance.random() < 0.4:
        return chance.choice(VALUES)
    arguments = ", ".join(expression(chance, depth - 1) for _ in range(chance.randrange(4)))
    return f"(function() return {chance.choice(FUNCTIONS)}({arguments}) end)()"


def statement(chance: random.Random) -> str:
    """Return a random statement; most errors are caught, so that the script goes on."""
    one = expression(chance, 3)
    match chance.randrange(6):
        case 0:
            return f"pcall(function() local t = {one} t[{expression(chance, 1)}] = {expression(chance, 1)} end)"
        case 1:
            seen = f"seen = select(2, pcall(function() return {one} end))"
            return seen + " if type(seen) == 'userdata' then escaped = 1 end"
        case 2:
            return f"pcall({chance.choice(FUNCTIONS)}, {one})"
        case 3:
            return f"xpcall(function() return {one} end, {chance.choice(VALUES)})"
        case 4:
            return f"coroutine.resume(coroutine.create(function() return {one} end))"
    return f"pcall(function() for k, v in pairs({one}) do v(k) end end)"


def script(chance: random.Random) -> str:
    """Return a random script, which returns 'escaped' if it saw a value of lupa."""
    body = " ".join(statement(chance) for _ in range(chance.randrange(1, 6)))
    last = expression(chance, 2)
    return f"local seen, escaped {body} if escaped then return 'escaped' end return {last}"


def run(count: int, seed: int) -> int:
    """Run scripts and return the number of those that gave a value or an error of their own; AssertionError if not."""
    chance = random.Random(seed)
    engine = Engine(Settings(compat="7.0", lua_memory_limit="32mb", lua_enable_deprecated_api="yes"))
    session = engine.session()

    def reply(source: str) -> bytes:
        engine.execute(session, [b"eval", source.encode("latin-1"), b"1", b"k", b"v"])
        return session.out.take_bytes()

    for number in range(count):
        source = script(chance)
        answer = reply(source)
        assert answer, f"seed {seed}, script {number}: no reply: {source}"
        assert answer != b"$7\r\nescaped\r\n", f"seed {seed}, script {number}: {source}"
        found = reply(CHECK)
        assert found == b"$0\r\n\r\n", f"seed {seed}, script {number}: {found!r}: {source}"
        if number % 100 == 99:
            engine.execute(session, [b"script", b"flush"])
            session.out.take_bytes()
    return count


def main() -> None:
    """Run as many scripts as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(run(options.count, options.seed), "scripts: no crash, no escape")


if __name__ == "__main__":
    main()
