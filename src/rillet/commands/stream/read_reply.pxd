cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.lookup cimport stream_at
from rillet.commands.stream.range cimport EntryWriter
from rillet.commands.stream.read_arguments cimport ReadArguments
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.stream.id cimport less
from rillet.types.stream.iterator cimport NodePlace, StreamIterator
from rillet.types.stream.stream cimport Stream


cdef class ReadReply(ReadArguments):
    cdef StreamIterator entries
    cdef EntryWriter writer
    cdef Py_ssize_t start
    cdef long long written
    cdef long long now
    cdef bint begin(self, Session session)
    cdef bint write(self, Session session, ArgumentSpans words)
    cdef bint write_stream(self, Session session, ArgumentSpans words, Stream stream, Py_ssize_t at,
                           bint ready)
    cdef Py_ssize_t write_key(self, ReplyWriter out, ArgumentSpans words, Py_ssize_t at)
    cdef bint is_full(self, ReplyWriter out)
    cdef long long stream_limit(self, bint ready) noexcept
    cdef bint find_next(self, Stream stream, NodePlace place, unsigned long long ms, unsigned long long seq)
