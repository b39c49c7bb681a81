"""Lua values for Python without an object of lupa for each: the C API of lupa's Lua.

    redis.call(...)   Lua -> call_from_lua -> LuaStack.enter -> LuaCaller.called -> LuaStack.put_reply -> Lua
    EVALSHA           Scripts.run -> LuaStack.run -> lua_pcall -> the script -> its value in session.out

A call from Lua to Python through lupa costs 650 ns, and 100 to 200 ns more for each argument and each table: it creates
a tuple, wraps each table, takes locks, releases and acquires the GIL. lupa's extension module exports the functions of
Lua, as extension modules of Lua require. `connect` finds them by their names, and compiled code calls them.

Two forms. `native` is true in the compiled build if the functions are found. Otherwise values are built in a list and
become Lua's through lupa. The reader of replies is one source for both; it uses these steps:

    put_bytes, put_integer ...   push a value
    begin_table                  push a table
    set_item(i)  set_pair        pop a value, or a key and a value, into the table below
    end_table                    the table is complete

**Errors of Lua are long jumps.** A jump out of a function of Python would lose references, so no function here raises
an error of Lua: `enter` pushes an error value and returns -1, and the C function outside raises it. Lua itself raises
"not enough memory" when it allocates: callers have checked that enough is left (interpreter.py).

**The GIL** is held while a script runs; the count hook lets other threads run. lupa releases it around each call of
Lua, and acquires it in each call of Python.

**The state of Lua.** Lua prints the address of a thread, and any thread can register C functions. The first of them is
called through lupa, and so receives the main state.

Rejected alternatives: all arguments packed in one string (lupa's call alone costs more than a whole redis.call of
Redis), a copy of Lua that rillet builds (lupa maintains one).
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, public, readonly
from rillet.protocol.reply_writer import ReplyWriter, put_digits
from rillet.scripting.lua_api import find_functions, lua
from rillet.scripting.lua_value import write_plain
from rillet.structs.argument_spans import ArgumentSpans

if cython.compiled:
    from cython.cimports.libc.math import signbit  # type: ignore[import-not-found, unused-ignore]

CALL = 0
PCALL = 1
RESP = 2
"""The C functions of a sandbox: redis.call, redis.pcall, and one that returns the protocol of replies."""
_CALL = cython.declare(cython.int, CALL)
_PCALL = cython.declare(cython.int, PCALL)
_RESP = cython.declare(cython.int, RESP)
# lua.h of Lua 5.1
_REGISTRY = cython.declare(cython.int, -10000)
_GLOBALS = cython.declare(cython.int, -10002)
_UPVALUE = cython.declare(cython.int, -10003)
_NIL = cython.declare(cython.int, 0)
_BOOLEAN = cython.declare(cython.int, 1)
_LIGHT_USERDATA = cython.declare(cython.int, 2)
_NUMBER = cython.declare(cython.int, 3)
_STRING = cython.declare(cython.int, 4)
_USERDATA = cython.declare(cython.int, 7)
_GC_COUNT = cython.declare(cython.int, 3)
_ALL_RESULTS = cython.declare(cython.int, -1)
# Numbers of a command that `take_words` writes as digits: the largest, the room for one, and how many arguments.
_LARGEST = cython.declare(cython.double, 1e16)
_ROOM = cython.declare(cython.int, 24)
_MOST_WORDS = cython.declare(cython.int, 64)
_TABLE_SLOTS = cython.declare(cython.int, 8)


@cython.cclass
class LuaCaller:
    """The functions that Lua calls. `killed` is true if the running script must end."""

    __slots__ = ("killed",)
    killed: public[cython.bint]

    def __init__(self) -> None:
        self.killed = False

    @cython.ccall
    def resp(self) -> cython.int:
        """Return the protocol that the script has selected."""
        raise NotImplementedError

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def called(self, function: cython.int, stack: LuaStack) -> cython.int:
        """Run a function that Lua called; push its value and return 1, or push an error and return -1."""
        raise NotImplementedError

    @cython.ccall
    def number_text(self, value: Any) -> bytes:
        """Return a number as a word of a command."""
        raise NotImplementedError


# -- C functions, which Lua calls ----------------------------------------------------------------------------


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def call_from_lua(state: cython.p_void) -> cython.int:
    """redis.call: a C function, which may raise an error of Lua because it holds no reference."""
    results: cython.int = enter_python(state, _CALL)
    return lua.error(state) if results < 0 else results


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def pcall_from_lua(state: cython.p_void) -> cython.int:
    """redis.pcall."""
    results: cython.int = enter_python(state, _PCALL)
    return lua.error(state) if results < 0 else results


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def resp_from_lua(state: cython.p_void) -> cython.int:
    """The protocol that the script has selected."""
    results: cython.int = enter_python(state, _RESP)
    return lua.error(state) if results < 0 else results


@cython.cfunc
@cython.with_gil
@cython.exceptval(check=False)
def enter_python(state: cython.p_void, function: cython.int) -> cython.int:
    """Call the stack to which a C function belongs."""
    stack: LuaStack = cython.cast(LuaStack, lua.touserdata(state, _UPVALUE))
    return stack.enter(state, function)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def set_up_from_lua(state: cython.p_void) -> cython.int:
    """Connect a LuaStack with its state."""
    return set_up_with_gil(state)


@cython.cfunc
@cython.with_gil
@cython.exceptval(check=False)
def set_up_with_gil(state: cython.p_void) -> cython.int:
    """Call `set_up` of the stack."""
    stack: LuaStack = cython.cast(LuaStack, lua.touserdata(state, _UPVALUE))
    return stack.set_up(state)


@cython.final
@cython.cclass
class LuaStack:
    """The values that pass between one Lua state and Python.

    native: whether the C API is used; words: the arguments that `take_words` has found; most_kilobytes: the size of
    Lua's values above which no function of Python starts; failure: the exception for an error outside of the sandbox.
    """

    __slots__ = (
        "native", "runtime", "words", "_caller", "_exception", "_values", "_state", "_main", "_held",
        "_handler", "_end", "_globals", "_digits", "failure", "rethrow", "most_kilobytes",
    )  # fmt: skip
    native: readonly[cython.bint]
    runtime: readonly[Any]
    failure: public[type[Exception]]
    rethrow: public[Any]
    most_kilobytes: public[cython.long]
    words: readonly[ArgumentSpans]
    _caller: LuaCaller
    _exception: BaseException | None
    _values: list[Any]
    _state: cython.p_void
    _main: cython.p_void
    _held: cython.int
    _handler: cython.int
    _end: cython.int
    _globals: cython.int
    _digits: bytearray

    def __init__(self, runtime: Any, caller: LuaCaller, failure: type[Exception]) -> None:
        self.native = False
        self.failure = failure
        # The sandbox's function that raises the global `raised` again.
        self.rethrow = None
        self.most_kilobytes = 0
        self.runtime = runtime
        self.words = ArgumentSpans()
        self._caller = caller
        self._exception = None
        self._values = []
        self._held = self._handler = self._end = self._globals = 0
        self._digits = bytearray(_ROOM * _MOST_WORDS)
        if cython.compiled:
            self._state = self._main = cython.NULL

    # -- the state -----------------------------------------------------------------------------------------

    def connect(self, path: str) -> Any:
        """Find the functions of an extension module; return a function of Lua that calls `set_up`, or None."""
        if not cython.compiled:
            return None
        try:
            find_functions(path)
        except (OSError, AttributeError):
            return None
        # The sandbox removes both globals.
        kind, text = self.runtime.execute(
            b"thread = coroutine.create(function() end) return tostring(thread)"
        ).split(b": ")
        assert kind == b"thread"
        address: cython.size_t = int(text, 16)
        state: cython.p_void = cython.cast(cython.p_void, address)
        lua.pushlightuserdata(state, cython.cast(cython.p_void, self))
        lua.pushcclosure(state, set_up_from_lua, 1)
        lua.setfield(state, _GLOBALS, b"set_up")
        return self.runtime.globals()[b"set_up"]

    @cython.cfunc
    @cython.exceptval(check=False)
    def set_up(self, state: cython.p_void) -> cython.int:
        """Put C functions into a table; or keep values of the sandbox: `held`, `handler`, `end_of_run`, the globals."""
        self._main = self._state = state
        if lua.gettop(state) == 1:
            self.native = True
            me: cython.p_void = cython.cast(cython.p_void, self)
            lua.pushlightuserdata(state, me)
            lua.pushcclosure(state, call_from_lua, 1)
            lua.setfield(state, 1, b"call")
            lua.pushlightuserdata(state, me)
            lua.pushcclosure(state, pcall_from_lua, 1)
            lua.setfield(state, 1, b"pcall")
            lua.pushlightuserdata(state, me)
            lua.pushcclosure(state, resp_from_lua, 1)
            lua.setfield(state, 1, b"resp")
        else:
            self._globals = lua.ref(state, _REGISTRY)
            self._end = lua.ref(state, _REGISTRY)
            self._handler = lua.ref(state, _REGISTRY)
            self._held = lua.ref(state, _REGISTRY)
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def kilobytes(self) -> cython.long:
        """Return the size of all values of Lua."""
        count: cython.int = lua.gc(self._main, _GC_COUNT, 0)
        return count

    # -- calls from Lua --------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(check=False)
    def enter(self, state: cython.p_void, function: cython.int) -> cython.int:
        """Run a function for Lua in any of its threads; no exception leaves this function."""
        outer: cython.p_void = self._state
        self._state = state
        results: cython.int = -1
        try:
            results = self._caller.called(function, self)
        except BaseException as error:  # it leaves the script as this opaque value, and is raised again by `run`
            self._exception = error
            lua.pushlightuserdata(state, cython.cast(cython.p_void, self))
        self._state = outer
        return results

    @cython.cfunc
    def take_words(self) -> cython.bint:
        """Set `words` to the arguments where Lua stores them; return False for unusual arguments."""
        count: cython.int = lua.gettop(self._state)
        words: ArgumentSpans = self.words
        place: cython.p_uchar = self._digits
        i: cython.int
        kind: cython.int
        size: cython.size_t = 0
        if count > _MOST_WORDS or count == 0:
            return False
        words.begin(False)
        for i in range(count):
            kind = lua.type(self._state, i + 1)
            if kind == _STRING:
                words.at[i] = lua.tolstring(self._state, i + 1, cython.address(size))
                words.size[i] = size
                continue
            if kind != _NUMBER:
                return False
            number: cython.double = lua.tonumber(self._state, i + 1)
            if not -_LARGEST < number < _LARGEST:
                return False
            whole: cython.longlong = cython.cast(cython.longlong, number)
            if whole != number or (whole == 0 and signbit(number)):
                return False
            words.at[i] = place
            words.size[i] = 0
            if whole < 0:
                place[0] = 45
                words.size[i] = 1
                whole = -whole
            words.size[i] = put_digits(place, words.size[i], whole)
            place += _ROOM
        words.count = count
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def is_empty(self) -> cython.bint:
        """Return whether Lua called without arguments."""
        count: cython.int = lua.gettop(self._state)
        return count == 0

    @cython.cfunc
    def take_arguments(self) -> Any:
        """Return the arguments as words of a command, None if one is neither a string nor a number."""
        count: cython.int = lua.gettop(self._state)
        argv: list[bytes] = []
        i: cython.int
        for i in range(1, count + 1):
            value: object = self._value(i)
            if type(value) is int or type(value) is float:
                value = self._caller.number_text(value)
            if type(value) is not bytes:
                return None
            argv.append(value)
        return argv or None

    @cython.cfunc
    def _value(self, index: cython.int) -> Any:
        """Return a string as bytes, a number as an integer or a float, a boolean; None for any other value."""
        kind: cython.int = lua.type(self._state, index)
        size: cython.size_t = 0
        if kind == _STRING:
            text: cython.p_const_uchar = lua.tolstring(self._state, index, cython.address(size))
            return text[:size]
        if kind == _NUMBER:
            number: cython.double = lua.tonumber(self._state, index)
            whole: cython.longlong = cython.cast(cython.longlong, number) if -_LARGEST < number < _LARGEST else 0
            return whole if whole == number and not (whole == 0 and signbit(number)) else number
        if kind == _BOOLEAN:
            return lua.toboolean(self._state, index) != 0
        return None

    # -- values for Lua --------------------------------------------------------------------------------------

    @cython.cfunc
    def put_bytes(self, text: bytes) -> cython.bint:
        """Push a string."""
        if cython.compiled:
            if self.native:
                data: cython.p_const_uchar = text
                lua.pushlstring(self._state, data, len(text))
                return True
        self._values.append(text)
        return True

    @cython.cfunc
    def put_part(self, buf: bytearray, start: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Push a part of a buffer as a string."""
        assert start >= 0 and 0 <= size <= len(buf) - start
        if cython.compiled:
            if self.native:
                data: cython.p_uchar = buf
                lua.pushlstring(self._state, data + start, size)
                return True
        self._values.append(bytes(buf[start : start + size]))
        return True

    @cython.cfunc
    def put_integer(self, value: cython.longlong) -> cython.bint:
        """Push an integer, which becomes a double."""
        if cython.compiled:
            if self.native:
                lua.pushnumber(self._state, cython.cast(cython.double, value))
                return True
        self._values.append(value)
        return True

    @cython.cfunc
    def put_double(self, value: cython.double) -> cython.bint:
        """Push a number."""
        if cython.compiled:
            if self.native:
                lua.pushnumber(self._state, value)
                return True
        self._values.append(value)
        return True

    @cython.cfunc
    def put_boolean(self, value: cython.bint) -> cython.bint:
        """Push a boolean."""
        if cython.compiled:
            if self.native:
                lua.pushboolean(self._state, value)
                return True
        self._values.append(bool(value))
        return True

    @cython.cfunc
    def put_nil(self) -> cython.bint:
        """Push nil."""
        if cython.compiled:
            if self.native:
                lua.pushnil(self._state)
                return True
        self._values.append(None)
        return True

    @cython.cfunc
    def begin_table(self, items: cython.Py_ssize_t) -> cython.bint:
        """Push an empty table with room for a list of so many items; for 0, for a field."""
        if cython.compiled:
            if self.native:
                lua.checkstack(self._state, _TABLE_SLOTS)
                lua.createtable(self._state, items, items == 0)
                return True
        self._values.append({})
        return True

    @cython.cfunc
    def set_item(self, index: cython.Py_ssize_t) -> cython.bint:
        """Pop a value and set the item of the table below."""
        if cython.compiled:
            if self.native:
                lua.rawseti(self._state, -2, index)
                return True
        value = self._values.pop()
        table: dict[Any, Any] = self._values[len(self._values) - 1]
        table[index] = value
        return True

    @cython.cfunc
    def set_pair(self) -> cython.bint:
        """Pop a value and a key and set the entry of the table below; nil is no key."""
        if cython.compiled:
            if self.native:
                if lua.type(self._state, -2) == _NIL:
                    lua.settop(self._state, -3)
                else:
                    lua.rawset(self._state, -3)
                return True
        value = self._values.pop()
        key = self._values.pop()
        if key is not None:
            table: dict[Any, Any] = self._values[len(self._values) - 1]
            table[key] = value
        return True

    @cython.cfunc
    def end_table(self) -> cython.bint:
        """Complete the table on top."""
        if not self.native:
            self._values.append(self.runtime.table_from(self._values.pop()))
        return True

    @cython.cfunc
    def pop_value(self) -> Any:
        """Return the value on top, for lupa."""
        return self._values.pop()

    @cython.cfunc
    def put_error(self, message: bytes, counted: cython.bint) -> cython.bint:
        """Push the table of an error."""
        self.begin_table(0)
        self.put_bytes(b"err")
        self.put_bytes(message)
        self.set_pair()
        if counted:
            self.put_bytes(b"ignore_error_stats_update")
            self.put_boolean(True)
            self.set_pair()
        return self.end_table()

    @cython.cfunc
    def drop(self) -> cython.bint:
        """Pop the value on top."""
        if cython.compiled:
            if self.native:
                lua.settop(self._state, -2)
                return True
        self._values.pop()
        return True

    # -- scripts -------------------------------------------------------------------------------------------------

    @cython.cfunc
    def run(
        self, function: cython.int, of_library: cython.bint, out: ReplyWriter, words: list[bytes],
        first: cython.Py_ssize_t, keys: cython.Py_ssize_t,
    ) -> Any:  # fmt: skip
        """Run a held function with the words from `first`, of which `keys` are keys, and write its value as a reply.

        Return None, or what the sandbox returns for an error. An exception of Python that left the script is raised
        again; `failure` is raised for an error outside of the sandbox.
        """
        state: cython.p_void = self._state
        top: cython.int = lua.gettop(state)
        status: cython.int
        self._exception = None
        try:
            lua.rawgeti(state, _REGISTRY, self._handler)
            lua.rawgeti(state, _REGISTRY, self._held)
            lua.rawgeti(state, -1, function)
            lua.remove(state, -2)
            if of_library:
                self._put_words(words, first, first + keys)
                self._put_words(words, first + keys, len(words))
                status = lua.pcall(state, 2, 1, top + 1)
            else:
                lua.rawgeti(state, _REGISTRY, self._globals)
                self.put_bytes(b"KEYS")
                self._put_words(words, first, first + keys)
                lua.rawset(state, -3)
                self.put_bytes(b"ARGV")
                self._put_words(words, first + keys, len(words))
                lua.rawset(state, -3)
                lua.settop(state, -2)
                status = lua.pcall(state, 0, 1, top + 1)
            if status == 0 and not self._caller.killed:
                if write_plain(state, top + 2, out, self._caller.resp(), 0):
                    return None
            return self._finish(status, top + 2, out)
        finally:
            lua.settop(state, top)

    @cython.cfunc
    def _put_words(self, words: list[bytes], start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        """Push a list of words."""
        i: cython.Py_ssize_t
        lua.createtable(self._state, stop - start, 0)
        for i in range(start, stop):
            self.put_bytes(words[i])
            lua.rawseti(self._state, -2, i - start + 1)
        return True

    @cython.cfunc
    def _finish(self, status: cython.int, place: cython.int, out: ReplyWriter) -> Any:
        """Let the sandbox make a reply of the value or the error at a place of the stack; return an error."""
        state: cython.p_void = self._state
        size: cython.size_t = 0
        lua.rawgeti(state, _REGISTRY, self._end)
        lua.pushnumber(state, out.resp)
        lua.pushboolean(state, status == 0)
        lua.pushvalue(state, place)
        status = lua.pcall(state, 3, _ALL_RESULTS, 0)
        kind: cython.int = lua.type(state, place + 1)
        if status != 0:
            self._raise_again(kind, place)
        count: cython.int = lua.gettop(state) - place
        if count == 5:
            return tuple([self._value(place + i) for i in range(1, 6)])
        if count == 2:
            text: cython.p_const_uchar = lua.tolstring(state, place + 1, cython.address(size))
            out.append_span(text, size)
        else:
            write_plain(state, place + 1, out, 2, 0)
        return None

    @cython.cfunc
    def _raise_again(self, kind: cython.int, place: cython.int) -> Any:
        """Raise what left the script: an exception of Python, or an error of Lua outside of the sandbox."""
        error: Any = self._exception
        self._exception = None
        if kind == _LIGHT_USERDATA and error is not None:
            raise error
        if kind == _USERDATA:
            lua.setfield(self._state, _GLOBALS, b"raised")
            self.rethrow()
        text = self._value(place + 1)
        raise self.failure(text.decode("utf-8", "surrogateescape") if type(text) is bytes else "")
