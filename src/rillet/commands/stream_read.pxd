cimport cython
from rillet.commands.session cimport Session
from rillet.commands.stream_args cimport Interval, read_stream, integer, option
from rillet.protocol.writer cimport Replies
from rillet.structs.listpack cimport Listpack
from rillet.types.stream cimport Stream
from rillet.types.stream_iterator cimport StreamIterator

@cython.final
cdef class EntryWriter:
    cdef Replies out
    cdef Listpack lp
    cdef list names
    cdef public int parts
    cpdef bint write(self, StreamIterator entries)
    cdef bint _write_values(self, Listpack lp, StreamIterator entries)

cpdef long long write_entries(Replies out, Stream stream, unsigned long long start_ms, unsigned long long start_seq, unsigned long long end_ms, unsigned long long end_seq, long long count=*, bint reverse=*)
