cimport cython
from rillet.protocol.reply_writer cimport ReplyWriter, put_digits
from rillet.scripting.lua_api cimport lua
from rillet.scripting.lua_value cimport write_plain
from rillet.structs.argument_spans cimport ArgumentSpans

cdef class LuaCaller:
    cdef public bint killed
    cpdef int resp(self)
    cpdef int called(self, int function, LuaStack stack) except -2
    cpdef bytes number_text(self, object value)

@cython.final
cdef class LuaStack:
    cdef readonly bint native
    cdef readonly object runtime
    cdef public object failure
    cdef public object rethrow
    cdef public long most_kilobytes
    cdef readonly ArgumentSpans words
    cdef LuaCaller _caller
    cdef object _exception
    cdef list _values
    cdef void *_state
    cdef void *_main
    cdef int _held
    cdef int _handler
    cdef int _end
    cdef int _globals
    cdef bytearray _digits
    cdef int enter(self, void *state, int function) noexcept
    cdef int set_up(self, void *state) noexcept
    cdef bint take_words(self)
    cdef bint is_empty(self) noexcept
    cdef object take_arguments(self)
    cdef long kilobytes(self) noexcept
    cdef bint put_bytes(self, bytes text)
    cdef bint put_part(self, bytearray buf, Py_ssize_t start, Py_ssize_t size)
    cdef bint put_integer(self, long long value)
    cdef bint put_double(self, double value)
    cdef bint put_boolean(self, bint value)
    cdef bint put_nil(self)
    cdef bint begin_table(self, Py_ssize_t items)
    cdef bint set_item(self, Py_ssize_t index)
    cdef bint set_pair(self)
    cdef bint end_table(self)
    cdef object pop_value(self)
    cdef bint put_error(self, bytes message, bint counted)
    cdef bint drop(self)
    cdef object run(self, int function, bint of_library, ReplyWriter out, list[bytes] words, Py_ssize_t first, Py_ssize_t keys)
    cdef bint _put_words(self, list[bytes] words, Py_ssize_t start, Py_ssize_t stop)
    cdef object _finish(self, int status, int place, ReplyWriter out)
    cdef object _raise_again(self, int kind, int place)
    cdef object _value(self, int index)

cdef int call_from_lua(void *state) noexcept nogil
cdef int pcall_from_lua(void *state) noexcept nogil
cdef int resp_from_lua(void *state) noexcept nogil
cdef int set_up_from_lua(void *state) noexcept nogil
cdef int enter_python(void *state, int function) noexcept with gil
cdef int set_up_with_gil(void *state) noexcept with gil
