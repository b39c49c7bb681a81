cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport Interval, integer, option
from rillet.commands.stream.lookup cimport lookup_read
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.structs.listpack cimport Listpack
from rillet.types.stream.value cimport Stream
from rillet.types.stream.iterator cimport StreamIterator

@cython.final
cdef class EntryWriter:
    cdef ReplyWriter out
    cdef Listpack lp
    cdef list names
    cdef public int parts
    cpdef bint write(self, StreamIterator entries)
    cdef bint _write_values(self, Listpack lp, StreamIterator entries)

cpdef long long write_entries(ReplyWriter out, Stream stream, unsigned long long start_ms, unsigned long long start_seq, unsigned long long end_ms, unsigned long long end_seq, long long count=*, bint reverse=*)
