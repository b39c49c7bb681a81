cimport cython
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.scripting.lua_stack cimport LuaStack

@cython.final
cdef class ReplyReader:
    cdef LuaStack _stack
    cdef Py_ssize_t _at
    cdef bint put(self, LuaStack stack, ReplyWriter out)
    cdef bint _put_field(self, bytes name, bytearray buf, Py_ssize_t start, Py_ssize_t stop)
    cdef bint _next(self, bytearray buf)
    cdef bint _string(self, bytearray buf, Py_ssize_t size, int kind)
    cdef bint _array(self, bytearray buf, Py_ssize_t size)
    cdef bint _map(self, bytearray buf, Py_ssize_t size)
    cdef bint _set(self, bytearray buf, Py_ssize_t size)
