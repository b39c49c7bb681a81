cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport to_signed
from rillet.commands.stream.propagation cimport log_claims, log_group_id
from rillet.commands.stream.read_reply cimport ReadReply
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.types.stream.entry_lookup cimport EntryLookup
from rillet.types.stream.group cimport Consumer, Group
from rillet.types.stream.id cimport format_id
from rillet.types.stream.iterator cimport NodePlace, StreamIterator
from rillet.types.stream.pending cimport PendingIterator, PendingTable
from rillet.types.stream.stream cimport Stream


cdef class Delivery(ReadReply):
    cdef bytes key
    cdef long long changes
    cdef list slots
    cdef long long claim_idle(self, Session session, Stream stream, Group group, Consumer consumer, long long min_idle,
                              long long count) except -1
    cdef long long deliver_new(self, Session session, Stream stream, Group group, Consumer consumer, bint found,
                               long long count) except -1
    cdef long long write_history(self, Session session, Stream stream, Group group, Consumer consumer,
                                 long long count) except -1
    cdef bint _note_change(self, Consumer consumer, Py_ssize_t slot) except -1
    cdef bint _log(self, Session session, Group group, bytes last)

cdef bint is_idle(long long idle, long long min_idle) noexcept
