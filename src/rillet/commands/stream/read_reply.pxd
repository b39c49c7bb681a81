cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.read_arguments cimport ReadArguments
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.types.stream.id cimport less
from rillet.types.stream.iterator cimport StreamIterator
from rillet.types.stream.value cimport Stream


cdef class ReadReply:
    cdef ReadArguments arguments
    cdef Py_ssize_t start
    cdef long long written
    cdef long long now
    cdef bint begin(self, Session session) except -1
    cdef bint write(self, Session session, list streams) except -1
    cdef bint write_stream(self, Session session, Stream stream, Py_ssize_t index) except -1
    cdef bint write_ready_stream(self, Session session, Stream stream, Py_ssize_t index) except -1
    cdef Py_ssize_t write_key(self, ReplyWriter out, bytes key)
    cdef bint is_full(self, ReplyWriter out) except -1
    cdef long long stream_limit(self) noexcept

cdef bint has_entries_after(Stream stream, unsigned long long ms, unsigned long long seq) except -1
cdef StreamIterator entries_after(Stream stream, unsigned long long ms, unsigned long long seq)
