"""cjson, cmsgpack, bit and struct, compared with the libraries of real servers; and hostile input."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.wire import Local, Redis
from tests.judge import PEERS, Judge
from tests.scripting.library_cases import DRIVER, Cases, lua_string
from tests.variants import by_speed, seeds

lupa = pytest.importorskip("lupa.lua51")

from rillet.scripting.lua_libraries import install  # noqa: E402

BATCH = 500
BATCHES_OF_A_LONG_RUN = 20


class Interpreter:
    """A plain interpreter with the libraries as globals."""

    def __init__(self, compat: str = "7.0") -> None:
        """Load the libraries as a server of this compat has them."""
        self.lua = lupa.LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False)
        libraries = install(self.lua.execute, array_metatables=compat in {"8.6", "newest"}, valkey=compat == "valkey")
        for name, library in libraries.items():
            self.lua.globals()[name] = library
        self._run = self.lua.eval(
            b"function(source) return function(keys, argv) KEYS, ARGV = keys, argv"
            b" return loadstring(source, '@user_script')() end end"
        )(DRIVER)

    def results(self, cases: list[bytes], keys: list[bytes]) -> list[bytes]:
        """Return what the driver shows for each case."""
        return list(self._run(self.lua.table_from(keys), self.lua.table_from(cases)).values())

    def show(self, case: bytes) -> bytes:
        """Return what the driver shows for one case."""
        return self.results([case], [])[0]


@pytest.fixture(scope="module")
def interpreter() -> Interpreter:
    """Return an interpreter for tests without a server."""
    return Interpreter()


@pytest.mark.parametrize("compat", list(PEERS))
@pytest.mark.parametrize("seed", seeds(1, 11))
def test_random_calls_give_the_results_of_the_server(compat: str, seed: int, peer_of: Callable[[str], Judge]) -> None:
    """500 calls, and 10,000 for each of ten further seeds in a long run: the same values and error texts.

    Valkey 9 hashes strings in its own way, so the order of keys in a table differs: there, the cases have one key.
    """
    client = peer_of(compat).client()
    ours = Interpreter(compat)
    one_key = compat == "valkey"
    keys = [b"sorted"] if one_key else []
    cases = Cases(seed, one_key=one_key)
    for _ in range(1 if seed == 0 else BATCHES_OF_A_LONG_RUN):
        batch = [cases.case() for _ in range(BATCH)]
        expected = client.execute_command("EVAL", DRIVER, len(keys), *keys, *batch)
        for case, theirs, found in zip(batch, expected, ours.results(batch, keys), strict=True):
            assert found == theirs, case


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (b"return show(cjson.encode({1, 2, {a = cjson.null}}))", rb'returns "[1,2,{\"a\":null}]"'),
        (b"return show(cjson.encode({}))", b'returns "{}"'),
        (b"return show(cjson.encode({[1]=1, [3]=3}))", b'returns "[1,null,3]"'),
        (b"return show(cjson.encode({[1]=1, [50]=3}))",
         b"raises case:1: Cannot serialise table: excessively sparse array"),
        (b"return show(cjson.encode(0/0))", b"raises case:1: Cannot serialise number: must not be NaN or Inf"),
        (b"return show(cjson.encode(9007199254740993))", b'returns "9.007199254741e+15"'),
        (rb"return show(cjson.encode('/\0\127\255'))", rb'returns ""\\/\\u0000\\u007f\255""'.replace(rb"\\", b"\\")),
        (b"return show(cjson.encode())", b"raises case:1: bad argument #1 to 'encode' (expected 1 argument)"),
        (b"return show(pcall(cjson.encode, tostring))",
         b'returns false "Cannot serialise function: type not supported"'),
        (b"return show(cjson:encode(1))", b"raises case:1: calling 'encode' on bad self (expected 1 argument)"),
        (b"return show(cjson.decode('[1,'))",
         b"raises case:1: Expected value but found T_END at character 4"),
        (b"return show(cjson.decode('{\"a\" 1}'))",
         b"raises case:1: Expected colon but found T_NUMBER at character 6"),
        (b"return show(cjson.decode('[null]')[1] == cjson.null, type(cjson.null), tostring(cjson.null))",
         b'returns true "userdata" "userdata: (nil)"'),
        (b"return show(cjson.decode(('['):rep(1001)))",
         b"raises case:1: Found too many nested data structures (1001) at character 1001"),
        (b"return show(cjson.decode_array_with_array_mt)", b"returns nil"),
        (b"return show(cmsgpack.pack({1, 2.5, 'x', {a = true}}))",
         rb'returns "\148\001\202@ \000\000\161x\129\161a\195"'),
        (b"return show(cmsgpack.unpack('\\145\\1\\192\\255'))", b"returns {[1]=1} nil -1"),
        (b"return show(cmsgpack.unpack_limit('\\1\\2\\3', 1, 1))", b"returns 2 2"),
        (b"return show(cmsgpack.pack())",
         b"raises case:1: bad argument #0 to 'pack' (MessagePack pack needs input.)"),
        (b"return show(cmsgpack.unpack('\\193'))", b"raises case:1: Bad data format in input."),
        (b"return show(bit.bnot(0), bit.bswap(1), bit.rol(0x12345678, 12), bit.arshift(-256, 4))",
         b"returns -1 16777216 1164411171 -16"),
        (b"return show(bit.tohex(255, -4), bit.tohex(65535, -2147483648))", b'returns "00FF" "0000FFFF"'),
        (b"return show(bit.band(1, {}))",
         b"raises case:1: bad argument #2 to 'band' (number expected, got table)"),
        (b"return show(struct.pack('>I2i4s', 258, -2, 'ab'))", rb'returns "\001\002\255\255\255\254ab\000"'),
        (b"return show(struct.unpack('<Hc0', '\\2\\0abc'))", b'returns "ab" 5'),
        (b"return show(struct.size('!8bd'))", b"returns 16"),
        (b"return show(struct.pack('i'))", b"raises case:1: bad argument #2 to 'pack' (number expected, got nil)"),
        (b"return show(struct.unpack('i', 'ab'))",
         b"raises case:1: bad argument #2 to 'unpack' (data string too short)"),
    ],
)  # fmt: skip
def test_results_and_errors(interpreter: Interpreter, case: bytes, expected: bytes) -> None:
    """Known results: those of Redis 7.0.15, except for tohex of the smallest integer, which overflows there."""
    assert interpreter.show(case) == expected.replace(b'\\"', b'"')


def test_arrays_keep_their_kind_from_version_8_6() -> None:
    """With decode_array_with_array_mt, an empty array is encoded as an array."""
    shown = Interpreter("8.6").show(
        b"local j = cjson.new() j.decode_array_with_array_mt(true) return show(j.encode(j.decode('{\"a\":[]}')))"
    )
    assert shown == b'returns "{"a":[]}"'


def test_libraries_keep_what_they_need(interpreter: Interpreter) -> None:
    """A script that replaces string functions and metatables, or asks for environments, changes and finds nothing."""
    shown = interpreter.show(
        b"local kept = {string.byte, string.find, string.format} "
        b"local one = setmetatable({}, {__index = function() error('called') end, __len = error, __pairs = error}) "
        b"string.byte, string.find, string.format = nil, nil, nil "
        b"local results = {pcall(function() return cjson.encode({one, 'a', 1.5}), cmsgpack.pack(one, 1.5), "
        b"cjson.decode('[\"x\"]')[1], bit.tohex(1) end)} "
        b"string.byte, string.find, string.format = unpack(kept) "
        b"return show(#results, results[2], results[3], results[4], results[5], next(getfenv(cjson.encode)))"
    )
    assert shown == rb'returns 5 "[{},"a",1.5]" "\144\202?\192\000\000" "x" "00000001" nil'


def test_hostile_strings_end_in_errors(interpreter: Interpreter) -> None:
    """Random, truncated and deeply nested input returns or raises an error of Lua."""
    chosen = random.Random(11)
    openings = (b"[", b'{"a":', b"\x91", b"\x81\x01", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff\x01")
    formats = (b"i", b"c0", b"c99999999", b"s", b"!2147483647i32", b"i2147483647", b"c2147483648", b"d" * 9000)
    functions = (b"cjson.decode(%b)", b"cmsgpack.unpack(%b)", b"cmsgpack.unpack_one(%b, 1)", b"struct.unpack('s', %b)")
    calls = []
    for _ in range(by_speed(200, 50)):
        short = chosen.randbytes(chosen.randint(0, 60))
        data = lua_string(chosen.choice((short, chosen.choice(openings) * chosen.randint(1, 9000))))
        calls.append(chosen.choice(functions) % data)
        calls.append(b"struct.unpack('%b', %b)" % (chosen.choice(formats), data))
    results = interpreter.results([b"return show(%b)" % call for call in calls], [])
    assert {result.split(b" ")[0] for result in results} <= {b"returns", b"raises"}


def test_limits_of_the_stack(interpreter: Interpreter) -> None:
    """Where C runs out of Lua's stack, a deep value is an error with the same text."""
    cases: dict[bytes, bytes] = {
        b"local j = cjson.new() j.decode_max_depth(100000) return show(j.decode(('['):rep(9000)))":
            b"raises case:1: Found too many nested data structures (7999) at character 7999",
        b"local j, t = cjson.new(), {} j.encode_max_depth(99999) for _ = 1, 9000 do t = {t} end "
        b"return show(j.encode(t))":
            b"raises case:1: Cannot serialise, excessive nesting (7998)",
        b"return show(cmsgpack.unpack(('\\145'):rep(9000)))":
            b"raises case:1: stack overflow (in function mp_decode_to_lua_array)",
        b"return show(cmsgpack.unpack(('\\129'):rep(9000)))":
            b"raises case:1: stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)",
    }  # fmt: skip
    results: list[Any] = interpreter.results(list(cases), [])
    assert results == list(cases.values())


def test_an_error_of_a_returned_call_names_its_line(judge: Judge) -> None:
    """`return cjson.decode(x)` is a tail call, which would lose the caller's frame."""
    one = Local(Engine(Settings(compat="7.0")), 2)
    with Redis(judge.port) as theirs:
        for script in (
            "return cjson.decode('[')", "return cjson.encode(redis.call)", "\n\nreturn bit.band({})",
            "return cjson.decode('[1]')",
            "local function f(x) return cmsgpack.unpack(x) end\nreturn f('\\193')", "return struct.unpack('i', 'a')",
            "local function f(n) if n == 0 then return cjson.encode({}) end return f(n - 1) end return f(100000)",
            "local t = {} for i = 1, 3 do t[i] = function(...) return struct.unpack('b', ...) end end return t[2]('')",
            "local t = {1, nil, true} if #t > 9 then return bit.bnot(1) elseif t[3] then return cjson.decode(1, 2) end",
        ):  # fmt: skip
            argv = [b"eval", script.encode(), b"0"]
            assert one.run(argv) == theirs.run(argv)[0], script
