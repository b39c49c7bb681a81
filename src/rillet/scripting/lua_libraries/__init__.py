"""The libraries of Redis's scripts: `cjson`, `cmsgpack`, `bit` and `struct`.

Each module is the essay and the Lua source of one library; `support` and `numbers` are their base. `install` runs the
sources in an interpreter before its globals are reduced to those of scripts: the chunks take what they need from
`debug`, `string`, `math` and `table`, and keep it. Nothing of Python is visible to them.

The alternative, functions in Python behind the same tables, was measured: a call from Lua to Python takes 650 ns before
it does anything. In Lua, `bit.band` takes 220 ns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet.scripting.lua_libraries import bit, cjson, cmsgpack, numbers, struct, support, tail_calls

if TYPE_CHECKING:
    from collections.abc import Callable

# Loads a chunk with an environment that contains nothing, and returns a function that runs it with the globals of now.
_LOADER = rb"""
local name = ...
local globals = {}
for key, value in pairs(_G) do globals[key] = value end
return function(source, ...)
    local chunk = globals.assert(globals.loadstring(source, name))
    globals.setfenv(chunk, {})
    return chunk(globals, ...)
end
"""

# A userdata that prints as a null pointer, as cjson.null does in Redis.
_NULL = rb"""
local null = newproxy(true)
local metatable = getmetatable(null)
metatable.__tostring = function() return 'userdata: (nil)' end
metatable.__metatable = false
return null
"""

CHUNK_NAME = b"=[rillet]"
"""The name of the chunks: the sandbox takes the functions of this name for functions in C."""


def install(run: Callable[..., Any], *, array_metatables: bool, valkey: bool, protect: Any = None) -> dict[bytes, Any]:
    """Load the libraries through `run` (`LuaRuntime.execute` of a runtime without an encoding); return their tables.

    `array_metatables` adds `cjson.decode_array_with_array_mt` (Redis 8.6). `protect` is a Lua table: its function
    `protect`, if it has one when it is needed first, returns the read-only form of a table.
    """
    load = run(_LOADER, CHUNK_NAME)
    base = load(support.SOURCE)
    ieee = load(numbers.SOURCE)
    copyright_notice = b"Copyright (C) 2012, " + (b"Redis Ltd." if valkey else b"Salvatore Sanfilippo")
    return {
        b"cjson": load(cjson.SOURCE, base, run(_NULL), array_metatables, protect),
        b"cmsgpack": load(cmsgpack.SOURCE, base, ieee, copyright_notice),
        b"bit": load(bit.SOURCE, base),
        b"struct": load(struct.SOURCE, base, ieee),
    }


def argument_checks(run: Callable[..., Any]) -> Any:
    """Return the Lua functions that check arguments and raise errors as functions in C do: see `support`."""
    return run(_LOADER, CHUNK_NAME)(support.SOURCE)


def keeper(run: Callable[..., Any]) -> Any:
    """Return the Lua function that changes the tail calls of a chunk: see `tail_calls`."""
    return run(_LOADER, CHUNK_NAME)(tail_calls.SOURCE)
