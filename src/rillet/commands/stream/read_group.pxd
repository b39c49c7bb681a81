cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport integer, option, read_stream
from rillet.commands.stream.propagation cimport log_claim, log_consumer, log_group_id, meet_consumer, signed_count
from rillet.commands.stream.range cimport EntryWriter
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.types.stream.group cimport Consumer, Group
from rillet.types.stream.pending cimport PendingTable, PendingIterator
from rillet.types.stream.value cimport Stream
from rillet.types.stream.entry_lookup cimport EntryLookup
from rillet.types.stream.id cimport IDReader, format_id, less
from rillet.types.stream.iterator cimport StreamIterator


@cython.final
cdef class ReadRequest:
    cdef int level
    cdef bint valkey
    cdef public long long timeout
    cdef public long long count
    cdef public long long max_count
    cdef public long long max_size
    cdef public long long min_idle
    cdef public bytes group
    cdef public bytes consumer
    cdef public bint noack
    cdef public Py_ssize_t ids_at
    cdef public list keys
    cdef public list starts
    cdef public list last_of
    cdef Py_ssize_t base
    cdef long long written
    cdef long long claiming
    cdef long long oldest
    cdef long long logged
    cdef long long now
    cdef bint read(self, Session session, list[bytes] argv, bint grouped) except -1
    cdef bint _read_newer(self, bytes word, bytes value, bint grouped) except -1
    cdef bint _take_keys(self, list[bytes] argv, Py_ssize_t start, bint grouped) except -1
    cdef list resolve(self, Session session, list[bytes] argv)
    cdef Stream _find(self, Session session, bytes key)
    cdef bint _pin(self, Stream stream) except -1
    cdef bint _ask_for_last(self, Stream stream, Py_ssize_t index) except -1
    cdef bint answer(self, Session session, list streams) except -1
    cdef bint _begin(self, Session session) except -1
    cdef bint is_full(self, ReplyWriter out) except -1
    cdef long long _limit(self, long long count) noexcept
    cdef bint _answer_one(self, Session session, Stream stream, Py_ssize_t index) except -1
    cdef Py_ssize_t _begin_pair(self, ReplyWriter out, bytes key)
    cdef long long _write_after(self, ReplyWriter out, Stream stream, unsigned long long ms, unsigned long long seq,
                                long long count) except -1
    cdef bint _answer_group(self, Session session, Stream stream, bytes key, unsigned long long ms,
                            unsigned long long seq) except -1
    cdef bint _write_for_group(self, Session session, Stream stream, bytes key, Group group, Consumer consumer,
                               bint history, bint fresh, unsigned long long ms, unsigned long long seq) except -1
    cdef bint _has_claimable(self, Stream stream, Group group) except -1
    cdef long long _write_claimed(self, Session session, Stream stream, bytes key, Group group, Consumer consumer,
                                  long long count) except -1
    cdef long long _write_new(self, Session session, Stream stream, bytes key, Group group, Consumer consumer,
                              long long count) except -1
    cdef long long _write_history(self, ReplyWriter out, Stream stream, Group group, Consumer consumer,
                                  unsigned long long ms, unsigned long long seq, long long count) except -1
    cdef bint _serve_again(self, Session session) except -1
    cdef bint _serve_key(self, Session session, bytes key, object value) except -1
    cdef bint _write_only_pair(self, Session session, Stream stream, bytes key, unsigned long long ms,
                               unsigned long long seq) except -1
