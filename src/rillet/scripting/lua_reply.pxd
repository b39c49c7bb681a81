cimport cython
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.scripting.lua_stack cimport LuaStack

@cython.final
cdef class ReplyReader:
    cdef LuaStack _stack
    cdef Py_ssize_t _at
    cdef bint put(self, LuaStack stack, ReplyWriter out) except -1
    cdef bint _put_field(self, bytes name, bytearray buf, Py_ssize_t start, Py_ssize_t stop) except -1
    cdef bint _next(self, bytearray buf) except -1
    cdef bint _string(self, bytearray buf, Py_ssize_t size, int kind) except -1
    cdef bint _array(self, bytearray buf, Py_ssize_t size) except -1
    cdef bint _map(self, bytearray buf, Py_ssize_t size) except -1
    cdef bint _set(self, bytearray buf, Py_ssize_t size) except -1
