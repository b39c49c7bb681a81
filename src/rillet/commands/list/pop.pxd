cimport cython
from rillet.commands.list.elements cimport keep, list_at
from rillet.commands.list.reply cimport write_end, write_range
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.list cimport List

cdef Py_ssize_t _take(ReplyWriter out, List value, bint head, long long most)

@cython.final
cdef class _Pop(Implementation):
    cdef bytes _event
    cdef bint _head
