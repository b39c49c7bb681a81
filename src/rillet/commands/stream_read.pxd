cimport cython
from rillet.commands.session cimport Session
from rillet.commands.stream_args cimport Interval, read_stream, integer, option
from rillet.protocol.writer cimport Replies
from rillet.structs.listpack cimport Listpack
from rillet.types.group cimport Consumer, Group
from rillet.types.pending cimport PendingIterator
from rillet.types.stream cimport Stream
from rillet.types.stream_id cimport IDReader, format_id, less
from rillet.types.stream_iterator cimport StreamIterator

@cython.final
cdef class EntryWriter:
    cdef Replies out
    cdef Listpack lp
    cdef list names
    cpdef bint write(self, StreamIterator entries)
    cdef bint _write_values(self, Listpack lp, StreamIterator entries)

@cython.final
cdef class ReadRequest:
    cdef public long long timeout
    cdef public long long count
    cdef public bytes group
    cdef public bytes consumer
    cdef public bint noack
    cdef public Py_ssize_t ids_at
    cdef public list keys
    cdef public list starts
    cdef bint read(self, Session session, list[bytes] argv, bint grouped)
    cdef bint _take_keys(self, Session session, list[bytes] argv, Py_ssize_t start, bint grouped)
    cdef list resolve(self, Session session, list[bytes] argv)
    cdef Stream _find(self, Session session, bytes key)
    cdef bint _pin(self, Stream stream)
    cdef bint _serve_again(self, Session session, object value)
    cdef bint answer(self, Session session, list streams)
    cdef bint _answer_one(self, Session session, Stream stream, Py_ssize_t index)
    cdef bint _write_pair(self, Session session, Stream stream, bytes key, unsigned long long ms, unsigned long long seq, long long count, bint history)
    cdef long long _deliver(self, Session session, Stream stream, bytes key, unsigned long long ms, unsigned long long seq, long long count, bint history)

cpdef long long write_entries(Replies out, Stream stream, unsigned long long start_ms, unsigned long long start_seq, unsigned long long end_ms, unsigned long long end_seq, long long count=*, bint reverse=*)
