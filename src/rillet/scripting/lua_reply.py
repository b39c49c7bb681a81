"""The reader of replies: the bytes in session.out become a Lua value (script_lua.c: redisProtocolToLuaType).

    reply            RESP2                       RESP3 (after redis.setresp(3))
    +OK              {ok = "OK"}
    -ERR text        {err = "ERR text", ignore_error_stats_update = true}
    :1               1
    $3 abc           "abc"
    $-1  *-1  _      false                       nil
    *2 ...           a table
    %1 ...                                       {map = {key = value}}
    ~1 ...                                       {set = {member = true}}
    ,1.5                                         {double = 1.5}
    #t                                           true
    (123                                         {big_number = "123"}
    =7 txt:abc                                   {verbatim_string = {format = "txt", string = "abc"}}
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.protocol.reply_writer import ReplyWriter
from rillet.scripting.lua_stack import LuaStack


@cython.final
@cython.cclass
class ReplyReader:
    """Pushes replies as values of Lua."""

    __slots__ = ("_at", "_stack")
    _stack: LuaStack
    _at: cython.Py_ssize_t

    def __init__(self, stack: LuaStack) -> None:
        self._stack = stack
        self._at = 0

    @cython.cfunc
    def put(self, stack: LuaStack, out: ReplyWriter) -> cython.bint:
        """Push the first reply of a writer."""
        self._at = 0
        self._stack = stack
        return self._next(out.buf)

    @cython.cfunc
    def _put_field(
        self, name: bytes, buf: bytearray, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.bint:
        """Set a field of the table on top to a part of a buffer."""
        self._stack.put_bytes(name)
        self._stack.put_part(buf, start, stop - start)
        return self._stack.set_pair()

    @cython.cfunc
    def _next(self, buf: bytearray) -> cython.bint:
        """Push the reply at position `_at`."""
        kind: cython.int = buf[self._at]
        start: cython.Py_ssize_t = self._at + 1
        stop: cython.Py_ssize_t = start
        while buf[stop] != 13:
            stop += 1
        self._at = stop + 2
        if kind == 36 or kind == 61:  # "$" "="
            return self._string(buf, _number(buf, start, stop), kind)
        if kind == 58:  # ":"
            return self._stack.put_integer(_number(buf, start, stop))
        if kind == 42 or kind == 62:  # "*" ">"
            return self._array(buf, _number(buf, start, stop))
        if kind == 95:  # "_"
            return self._stack.put_nil()
        if kind == 35:  # "#"
            return self._stack.put_boolean(buf[start] == 116)
        if kind == 124:  # "|": attributes, which scripts do not see
            self._map(buf, _number(buf, start, stop))
            self._stack.drop()
            return self._next(buf)
        if kind == 45:  # "-"
            return self._stack.put_error(bytes(buf[start:stop]), True)
        self._stack.begin_table(0)
        if kind == 43:  # "+"
            self._put_field(b"ok", buf, start, stop)
        elif kind == 44:  # ","
            self._stack.put_bytes(b"double")
            self._stack.put_double(float(buf[start:stop]))
            self._stack.set_pair()
        elif kind == 40:  # "("
            self._put_field(b"big_number", buf, start, stop)
        elif kind == 37:  # "%"
            self._stack.put_bytes(b"map")
            self._map(buf, _number(buf, start, stop))
            self._stack.set_pair()
        else:
            assert kind == 126  # "~"
            self._stack.put_bytes(b"set")
            self._set(buf, _number(buf, start, stop))
            self._stack.set_pair()
        return self._stack.end_table()

    @cython.cfunc
    def _string(self, buf: bytearray, size: cython.Py_ssize_t, kind: cython.int) -> cython.bint:
        if size < 0:
            return self._stack.put_boolean(False)
        start: cython.Py_ssize_t = self._at
        self._at = start + size + 2
        if kind == 36:
            return self._stack.put_part(buf, start, size)
        self._stack.begin_table(0)
        self._stack.put_bytes(b"verbatim_string")
        self._stack.begin_table(0)
        self._put_field(b"format", buf, start, start + 3)
        self._put_field(b"string", buf, start + 4, start + size)
        self._stack.end_table()
        self._stack.set_pair()
        return self._stack.end_table()

    @cython.cfunc
    def _array(self, buf: bytearray, size: cython.Py_ssize_t) -> cython.bint:
        i: cython.Py_ssize_t
        if size < 0:
            return self._stack.put_boolean(False)
        self._stack.begin_table(size)
        for i in range(1, size + 1):
            self._next(buf)
            self._stack.set_item(i)
        return self._stack.end_table()

    @cython.cfunc
    def _map(self, buf: bytearray, size: cython.Py_ssize_t) -> cython.bint:
        _i: cython.Py_ssize_t
        self._stack.begin_table(0)
        for _i in range(size):
            self._next(buf)
            self._next(buf)
            self._stack.set_pair()
        return self._stack.end_table()

    @cython.cfunc
    def _set(self, buf: bytearray, size: cython.Py_ssize_t) -> cython.bint:
        _i: cython.Py_ssize_t
        self._stack.begin_table(0)
        for _i in range(size):
            self._next(buf)
            self._stack.put_boolean(True)
            self._stack.set_pair()
        return self._stack.end_table()


@cython.cfunc
def _number(buf: bytearray, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.longlong:
    """Return the integer in a part of a reply."""
    value: cython.ulonglong = 0
    at: cython.Py_ssize_t = start
    if not cython.compiled:
        return int(buf[start:stop])
    if buf[at] == 45:
        at += 1
    while at < stop:
        value = value * 10 + (buf[at] - 48)
        at += 1
    return cython.cast(cython.longlong, 0 - value if buf[start] == 45 else value)
