"""The value of a script as a reply, for the values of nearly all scripts (script_lua.c: luaReplyToRedisReply).

    "abc"  12  true  nil         a bulk string, an integer, 1, a null
    {1, "a", {2}}                an array of such values
    {ok = "OK"}                  a simple string

`write_plain` leaves every other value (an error, a map, a list with holes, a deep nesting) to the sandbox, whose Lua
code knows all of them. It reads a table once, in its own order: a list has the keys 1, 2, 3 ... and no other.
Compiled only.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.protocol.reply_writer import ReplyWriter
from rillet.scripting.lua_api import lua

_NIL = cython.declare(cython.int, 0)
_BOOLEAN = cython.declare(cython.int, 1)
_NUMBER = cython.declare(cython.int, 3)
_STRING = cython.declare(cython.int, 4)
_TABLE = cython.declare(cython.int, 5)
_DEEPEST = cython.declare(cython.int, 8)
# The range of a 64-bit integer; C converts every number outside of it to the smallest.
_END = cython.declare(cython.double, 2.0**63)
_SMALLEST = cython.declare(cython.longlong, -(2**63))


@cython.cfunc
def write_plain(
    state: cython.p_void, index: cython.int, out: ReplyWriter, resp: cython.int, depth: cython.int
) -> cython.bint:
    """Write the value at a place of Lua's stack; return False, with nothing written, if it is not plain.

    `resp` is the protocol that the script has selected; `depth` is 0 for the value of the script.
    """
    kind: cython.int = lua.type(state, index)
    size: cython.size_t = 0
    if kind == _STRING:
        text: cython.p_const_uchar = lua.tolstring(state, index, cython.address(size))
        return out.bulk_span(text, size)
    if kind == _NUMBER:
        number: cython.double = lua.tonumber(state, index)
        return out.integer(cython.cast(cython.longlong, number) if -_END <= number < _END else _SMALLEST)
    if kind == _BOOLEAN:
        value: cython.bint = lua.toboolean(state, index) != 0
        if resp == 3:
            return out.boolean(value)
        return out.integer(1) if value else out.null()
    if kind == _TABLE and depth < _DEEPEST:
        top: cython.int = lua.gettop(state)
        mark: cython.Py_ssize_t = out.mark()
        lua.checkstack(state, 4)
        if _write_list(state, index, out, resp, depth) or _write_status(state, index, out):
            return True
        lua.settop(state, top)
        out.truncate(mark)
        return False
    return kind == _NIL and out.null()


@cython.cfunc
def _write_list(
    state: cython.p_void, index: cython.int, out: ReplyWriter, resp: cython.int, depth: cython.int
) -> cython.bint:
    """Write a table whose keys are 1 to its length, in this order; return False, with some of it written, if not."""
    size: cython.Py_ssize_t = lua.objlen(state, index)
    count: cython.Py_ssize_t = 0
    value: cython.int = lua.gettop(state) + 2
    out.array(size)
    lua.pushnil(state)
    while lua.next(state, index):
        count += 1
        if count > size or lua.type(state, value - 1) != _NUMBER or lua.tonumber(state, value - 1) != count:
            return False
        if not write_plain(state, value, out, resp, depth + 1):
            return False
        lua.settop(state, value - 1)
    return count == size


@cython.cfunc
def _write_status(state: cython.p_void, index: cython.int, out: ReplyWriter) -> cython.bint:
    """Write a table whose only field is `ok`, a line of text; the table's first pair is on top of the stack."""
    top: cython.int = lua.gettop(state)
    size: cython.size_t = 0
    i: cython.size_t
    if lua.type(state, top - 1) != _STRING or lua.type(state, top) != _STRING:
        return False
    text: cython.p_const_uchar = lua.tolstring(state, top - 1, cython.address(size))
    if size != 2 or text[0] != 111 or text[1] != 107:
        return False
    text = lua.tolstring(state, top, cython.address(size))
    for i in range(size):
        if text[i] == 13 or text[i] == 10 or text[i] == 0:
            return False
    status: bytes = text[:size]
    lua.settop(state, top - 1)
    if lua.next(state, index):
        return False
    out.truncate(out.mark() - 4)  # the header of an empty list
    return out.simple(status)
