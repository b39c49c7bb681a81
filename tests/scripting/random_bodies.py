"""Random Lua against a real server: the language, its libraries, and errors at every place.

    python -m tests.scripting.random_bodies --compat 7.0 --count 10000 --seed 1

A body is a random sequence of statements: calls of library functions with random arguments, operators on random values,
loops, closures, metatables, coroutines, `pcall` and `xpcall`, `load`, and errors that are caught or not. A body returns
what it saw, as a text with types; an error that leaves it is compared with its line and position. (random_scripts has
the calls of commands and the conversions of values.)
"""

from __future__ import annotations

import argparse
import random

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.wire import Local, Redis
from tests.judge import PEERS, required_binary, running_redis
from tests.scripting.random_scripts import comparable

# A function that shows values with their types.
PRELUDE = """local function show(...)
  local out = {}
  for i = 1, select('#', ...) do
    local v = select(i, ...)
    -- The sign of a NaN depends on the C library.
    local text = v ~= v and 'nan' or type(v) == 'number' and string.format('%.14g', v) or tostring(v)
    if type(v) == 'table' and getmetatable(v) == nil then
      text = 'table #' .. #v
      for _, k in ipairs({'err', 'ok', 'n', 1, 2}) do
        text = text .. ' ' .. tostring(k) .. '=' .. tostring(rawget(v, k))
      end
    end
    out[#out + 1] = type(v) .. ':' .. tostring(text)
  end
  return table.concat(out, ', ')
end
local function id(...) return ... end
"""
NUMBERS = (
    "0", "1", "-1", "2", "3", "5", "1.5", "-0.5", "7", "100", "1e15", "2^31", "-2^31", "2^32", "2^53", "1/0", "-1/0",
    "0/0", "8000", "-8000", "255", "256", "1e308", "0.1",
)  # fmt: skip
STRINGS = (
    "''", "'a'", "'abc'", "'10'", "'0x10'", "' 5 '", "'1e2'", "'%d'", "'%s'", "'%'", "'a,b,c'", "'(a)(b)'", "'.-'",
    "'[a'", "'%b'", "'%f[a]'", "'\\0'", "'x\\0y'", "'a\\nb'", "'return 1'", "'return'", "'x ='", "'#'", "'err'",
    "('ab'):rep(50)",
)  # fmt: skip
OTHERS = (
    "nil", "true", "false", "{}", "{1, 2, 3}", "{'c', 'a', 'b'}", "{a = 1}", "{1, nil, 3}", "{err = 'E x'}",
    "{ok = 'fine'}", "{{1}, {2}}", "id", "show", "tostring", "redis.call", "redis.sha1hex", "function() end",
    "function(...) return ... end", "function(a, b) return a < b end", "function() error('inner') end",
    "function() error({err = 'T e'}) end", "function(x) return x .. '!' end", "coroutine.create(id)", "KEYS", "ARGV",
    "cjson.null", "setmetatable({}, {__index = function(t, k) return k end})",
    "setmetatable({}, {__call = function(self, x) return x end})",
    "setmetatable({}, {__tostring = function() return 'T' end})",
    "setmetatable({}, {__tostring = function() return 1 end})", "setmetatable({}, {__metatable = 'locked'})",
    "setmetatable({}, {__add = function(a, b) return 'sum' end, __concat = function() return 'joined' end})",
    "setmetatable({}, {__eq = function() return true end, __lt = function() return true end, __le = error})",
    "setmetatable({}, {__unm = function() return 'neg' end, __newindex = function() error('no', 0) end})",
    "setmetatable({}, {__index = {x = 1}})",
)  # fmt: skip
NAMES = (
    "assert", "error", "getmetatable", "ipairs", "next", "pairs", "pcall", "xpcall", "rawequal", "rawget", "rawset",
    "select", "setmetatable", "tonumber", "tostring", "type", "unpack", "load", "loadstring", "collectgarbage",
    "string.byte", "string.char", "string.find", "string.format", "string.gmatch", "string.gsub", "string.len",
    "string.lower", "string.match", "string.rep", "string.reverse", "string.sub", "string.upper", "table.concat",
    "table.insert", "table.maxn", "table.remove", "table.sort", "table.foreach", "table.foreachi", "table.getn",
    "table.setn", "math.abs", "math.ceil", "math.floor", "math.fmod", "math.frexp", "math.ldexp", "math.max",
    "math.min", "math.modf", "math.pow", "math.random", "math.sqrt", "math.log", "math.huge", "coroutine.create",
    "coroutine.resume", "coroutine.running", "coroutine.status", "coroutine.wrap", "coroutine.yield", "redis.sha1hex",
    "redis.error_reply", "redis.status_reply", "redis.call", "redis.pcall", "redis.log", "redis.setresp",
    "redis.set_repl", "redis.replicate_commands", "cjson.encode", "cjson.decode", "cmsgpack.pack", "cmsgpack.unpack",
    "bit.band", "bit.tohex", "struct.pack", "struct.unpack", "undefined", "string.undefined", "gcinfo",
)  # fmt: skip
COMMON = ("unpack", "pcall", "xpcall", "error", "select", "coroutine.wrap", "coroutine.resume", "load", "tostring")
# Results that depend on the machine, the memory or the seed of hashes.
UNSTABLE = ("collectgarbage", "gcinfo", "math.random")
BINARY = ("+", "-", "*", "/", "%", "^", "..", "==", "~=", "<", "<=", ">", ">=", "and", "or")


class Writer:
    """Writes random Lua; `names` are the local variables that exist."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.names = ["id", "show"]

    def value(self) -> str:
        """Return a simple expression."""
        kind = self.chance.randrange(10)
        if kind < 3:
            return self.chance.choice(NUMBERS)
        if kind < 6:
            return self.chance.choice(STRINGS)
        if kind == 6 and len(self.names) > 2:
            return self.chance.choice(self.names[2:])
        return self.chance.choice(OTHERS)

    def function(self) -> str:
        """Return the name of a function, or another expression that is called."""
        if self.chance.random() < 0.25:
            return self.chance.choice(COMMON)
        return self.chance.choice(NAMES) if self.chance.random() < 0.95 else f"({self.value()})"

    def arguments(self, depth: int) -> str:
        """Return the arguments of a call."""
        return ", ".join(self.expression(depth - 1) for _ in range(self.chance.choice((0, 1, 1, 2, 2, 2, 3, 4))))

    def call(self, depth: int) -> str:
        """Return a call; a common function gets arguments that it can use."""
        chance, some = self.chance, self.expression
        match chance.randrange(16):
            case 0:
                count = chance.choice(("7990", "7999", "8000", "8001", "100000", "2^31", "1e15", "3", "-5"))
                ends = chance.choice((f"1, {count}", f"{count}, {count}", f"0, {count}", f"-{count}, 1", f"{count}"))
                return f"select('#', unpack({chance.choice(('{}', '{1, 2}', 'KEYS', some(1)))}, {ends}))"
            case 1:
                return f"pcall({self.function()}, {self.arguments(depth)})".replace(", )", ")")
            case 2:
                handlers = ("nil", "id", "tostring", "error", "function(e) return e end", some(1),
                            "function(e) error('h') end", "function(e) return type(e), 2 end")  # fmt: skip
                handler = chance.choice(handlers)
                return f"xpcall({self.body(depth - 1)}, {handler})"
            case 3:
                return f"xpcall({chance.choice((self.body(depth - 1), self.function()))})"
            case 4:
                return f"pcall({self.body(depth - 1)})"
            case 5:
                return f"error({some(depth - 1)}, {chance.choice(('0', '1', '2', 'nil'))})"
            case 6:
                return f"coroutine.wrap({self.body(depth - 1)})({self.arguments(depth)})"
            case 7:
                return f"coroutine.resume(coroutine.create({self.body(depth - 1)}), {some(1)})"
            case 8:
                method = chance.choice(("rep", "sub", "byte", "find", "gsub", "format", "upper", "nothing", "len"))
                return f"({some(1)}):{method}({self.arguments(depth)})"
            case 9:
                source = chance.choice(("'return ...'", "'return 1 +'", "'error(1)'", "'x = 1'", "'return y'",
                                        "'for'", "'return \"a'", "'\\27Lua'", some(1)))  # fmt: skip
                name = chance.choice(("", ", 'chunk'", ", '=name'", ", '@file'"))
                return f"{chance.choice(('loadstring', 'assert(loadstring', 'pcall(loadstring'))}({source}{name})"
            case 10:
                template = "".join(chance.choice(("%d", "%5.2f", "%s", "%q", "%x", "%c", "%g", "%i", "%%", "%5s", "%y",
                                                  "%", "%123d", "%-5d|", "a", "%u"))
                                   for _ in range(chance.randint(1, 3)))  # fmt: skip
                return f"string.format('{template}', {self.arguments(depth) or 'nil'})"
            case 11:
                pattern = chance.choice(("'%w+'", "'(%a)'", "'()'", "'^a'", "'%'", "'[a'", "'%1'", "'(a'", "'a)'",
                                         "'.-b'", "'%bab'", "'%f[%w]'", "'%fa'", "''", some(1)))  # fmt: skip
                name = chance.choice(("find", "match", "gsub", "gmatch"))
                others = ("", ", 1", ", 'x'", ", '%1'", ", '%2'", ", '%'", f", {some(1)}", ", id, 1", ", {}")
                more = chance.choice(others)
                return f"string.{name}({chance.choice(('ARGV[1]', some(1)))}, {pattern}{more})"
        return f"{self.function()}({self.arguments(depth)})"

    def body(self, depth: int) -> str:
        """Return a function of random statements."""
        if depth <= 0:
            return self.chance.choice(
                ("id", "tostring", "function() error('deep') end", "function(...) return ... end")
            )
        kept = list(self.names)
        lines = " ".join(self.statement(depth - 1) for _ in range(self.chance.randrange(3)))
        ends = (f"return {self.expression(depth - 1)}", f"return {self.call(depth - 1)}",
                f"return ({self.call(depth - 1)})", f"coroutine.yield({self.value()})", "")  # fmt: skip
        last = self.chance.choice(ends)
        self.names = kept
        return f"function({self.chance.choice(('', '...', 'a', 'a, ...'))}) {lines} {last} end"

    def expression(self, depth: int) -> str:
        """Return an expression."""
        if depth <= 0:
            return self.value()
        match self.chance.randrange(12):
            case 0 | 1 | 2:
                return self.call(depth)
            case 3:
                return f"({self.expression(depth - 1)} {self.chance.choice(BINARY)} {self.expression(depth - 1)})"
            case 4:
                return f"({self.chance.choice(('-', '#', 'not '))}{self.expression(depth - 1)})"
            case 5:
                return f"({self.expression(depth - 1)})[{self.expression(depth - 1)}]"
            case 6:
                return f"({self.expression(depth - 1)}).{self.chance.choice(('x', 'a', 'err', 'len'))}"
            case 7:
                return "{" + f"{self.expression(depth - 1)}, {self.expression(depth - 1)}" + "}"
        return self.value()

    def statement(self, depth: int) -> str:
        """Return a statement."""
        chance = self.chance
        match chance.randrange(13):
            case 0 | 1 | 2:
                name = f"v{len(self.names)}"
                line = f"local {name} = {self.expression(depth)}"
                self.names.append(name)
                return line
            case 3:
                kept = list(self.names)
                line = f"for i = {self.value()}, {self.value()}, {chance.choice(('1', '-1', '2', self.value()))} do " \
                       f"if i > 3 or i < -3 or i ~= i then break end {self.statement(depth - 1)} end"  # fmt: skip
                self.names = kept
                return line
            case 4:
                iterator = chance.choice(("ipairs", "pairs", "", "next,", "string.gmatch"))
                source = self.expression(1)
                return f"for k, w in {iterator}{f' {source}' if iterator.endswith(',') else f'({source})'} do " \
                       "if k then break end end"  # fmt: skip
            case 5:
                return f"if {self.expression(depth)} then {self.statement(depth - 1) if depth > 0 else ''} end"
            case 6 if len(self.names) > 2:
                target = chance.choice(self.names[2:])
                return f"{target}{chance.choice(('.x', '[1]', '', '[nil]', '[0/0]'))} = {self.expression(depth)}"
            case 7:
                return f"{chance.choice(('x', 'KEYS', 'string', 'undefined.x', 'redis.x'))} = {self.value()}"
            case 8:
                return (
                    f"local function f(n) if n == 0 then return {self.expression(depth - 1)} end "
                    f"return {chance.choice(('', '1 + ', 'id'))}(f(n - 1)) end local r = f({chance.choice('0123')})"
                )
            case 9:
                return f"do local t = {{}} t[1] = show({self.call(depth)}) end"
        call = self.call(depth)
        return f"do local c = {call} end" if not call[0].isalpha() or call.startswith("function") else f"id({call})"

    def caught(self) -> str:
        """Return statements whose errors are caught, each alone, by all means of Lua."""
        lines = []
        for _ in range(self.chance.randint(2, 6)):
            kept = list(self.names)
            body = f"function() {self.statement(2) if self.chance.random() < 0.4 else ''} return {self.call(3)} end"
            catch = self.chance.choice((f"pcall({body})", f"pcall({body})", f"xpcall({body}, id)",
                                        f"coroutine.resume(coroutine.create({body}))"))  # fmt: skip
            self.names = kept
            lines.append(f"seen[#seen + 1] = show({catch})\n")
        return "".join(lines)

    def script(self) -> str:
        """Return a whole script."""
        if self.chance.random() < 0.7:
            return PRELUDE + "local seen = {}\n" + self.caught() + "return table.concat(seen, '\\n')"
        lines = [self.statement(3) for _ in range(self.chance.randint(0, 4))]
        result = self.expression(3) if self.chance.random() < 0.3 else self.call(3)
        last = self.chance.choice((f"return show({result})", f"return show({result})", f"return {result}"))
        return PRELUDE + "\n".join([*lines, last])


def run(compat: str, count: int, seed: int, most: int = 20) -> list[str]:
    """Run scripts on rillet and on the server of that version; return the differences.

    A script that ends or blocks the server (Lua 5.1 has such faults) must get a reply of rillet; the server is started
    again.
    """
    chance = random.Random(seed)
    different: list[str] = []
    ours = Local(Engine(Settings(compat=compat)))
    number = 0
    while number < count and len(different) < most:
        with running_redis(binary=required_binary(compat)) as server, Redis(server.port) as theirs:
            theirs.socket.settimeout(20)
            while number < count and len(different) < most:
                number += 1
                source = Writer(chance).script()
                if any(name in source for name in UNSTABLE):
                    continue
                argv = [b"eval", source.encode("latin-1"), b"1", b"k", b"an argument"]
                mine = ours.run(argv)
                assert mine, source
                try:
                    real = theirs.run(argv)[0]
                except (AssertionError, OSError) as failure:  # it has ended, or does not end
                    print(f"{seed}/{number}: {failure!r} for {source.removeprefix(PRELUDE)}")
                    server.process.kill()
                    break
                if comparable(mine) != comparable(real):
                    body = source.removeprefix(PRELUDE)
                    different.append(f"{seed}/{number}: {body}\n   ours   {mine!r}\n   theirs {real!r}")
    return different


def main() -> None:
    """Run as many scripts as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compat", choices=tuple(PEERS), default="7.0")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=20)
    options = parser.parse_args()
    different = run(options.compat, options.count, options.seed, options.most)
    print("\n".join(different) or f"{options.count} scripts: no difference")


if __name__ == "__main__":
    main()
