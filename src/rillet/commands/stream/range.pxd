cimport cython
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport Interval, integer_at, is_named
from rillet.commands.stream.lookup cimport lookup_read, stream_at
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.listpack cimport Listpack
from rillet.types.stream.stream cimport Stream
from rillet.types.stream.iterator cimport StreamIterator

@cython.final
cdef class EntryWriter:
    cdef Listpack lp
    cdef list names
    cdef public int parts
    cpdef long long write_all(self, ReplyWriter out, StreamIterator entries, long long count) except -1
    cpdef bint write(self, ReplyWriter out, StreamIterator entries)
    cdef bint _write_values(self, ReplyWriter out, Listpack lp, StreamIterator entries)

@cython.final
cdef class Xrange(Implementation):
    cdef StreamIterator _entries
    cdef Interval _interval
    cdef Py_ssize_t _low
    cdef EntryWriter _writer
