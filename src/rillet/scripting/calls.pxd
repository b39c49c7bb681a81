cimport cython
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.engine cimport Engine
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session
from rillet.scripting.lua_reply cimport ReplyReader
from rillet.scripting.lua_stack cimport LuaCaller, LuaStack
from rillet.scripting.script_clock cimport ScriptClock
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class CachedScript:
    cdef readonly bytes sha
    cdef readonly bytes body
    cdef readonly int flags
    cdef readonly Py_ssize_t skipped
    cdef public object function
    cdef public int number
    cdef public bint evictable

@cython.final
cdef class ScriptCalls(LuaCaller):
    cdef public Engine engine
    cdef public Session session
    cdef public Session caller
    cdef public bytes name
    cdef public bint running
    cdef public bint wrote
    cdef public bint read_only
    cdef public bint busy
    cdef public bint function
    cdef public long long started_ms
    cdef readonly ScriptClock clock
    cdef readonly dict cache
    cdef readonly object evictable
    cdef public bint settled
    cdef object _interpreter
    cdef LuaStack _stack
    cdef ReplyReader _reader
    cdef int _repl
    cdef bint _allow_oom
    cdef bint _announced
    cdef int _flags
    cpdef bint start(self, Session caller, bytes name, int flags, bint read_only)
    cpdef bint end(self)
    cpdef bint run(self, Session caller, bytes name, int flags, bint read_only, int function, bint of_library,
                   list[bytes] argv, Py_ssize_t keys)
    cpdef bint run_cached(self, Session caller, list[bytes] argv, bint read_only)
    cdef int _call_natively(self, LuaStack stack, bint raises) except -2
    cdef object _run_for_lupa(self, list[bytes] argv, bytes malformed, bint raises)
    cdef int _run_list(self, LuaStack stack, list[bytes] argv, bytes malformed, bint raises) except -2
    cdef int _run(self, LuaStack stack, ArgumentSpans words, bint raises) except -2
    cdef bint _call_unlogged(self, Session session, Command entry, ArgumentSpans words)
    cdef bint _empty(self, ReplyWriter out)
    cdef int _put_reply(self, LuaStack stack, ReplyWriter out, bint raises) except -2
    cdef object _arguments(self, tuple args)
    cdef bytes _number(self, object value)
    cdef bytes _bad_arguments(self, bint missing)
    cdef int _failed(self, LuaStack stack, bytes message, bint raises, int kind) except -2
    cdef object _refusal(self, Command entry, ArgumentSpans words)
