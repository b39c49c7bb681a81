cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport to_signed
from rillet.commands.stream.propagation cimport log_claims, log_group_id
from rillet.commands.stream.range cimport EntryWriter
from rillet.commands.stream.read_reply cimport ReadReply, entries_after
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.types.stream.entry_lookup cimport EntryLookup
from rillet.types.stream.group cimport Consumer, Group
from rillet.types.stream.id cimport format_id
from rillet.types.stream.iterator cimport StreamIterator
from rillet.types.stream.pending cimport PendingIterator, PendingTable
from rillet.types.stream.value cimport Stream


@cython.final
cdef class Delivery:
    cdef ReadReply reply
    cdef Session session
    cdef ReplyWriter out
    cdef EntryWriter writer
    cdef bytes key
    cdef Stream stream
    cdef Group group
    cdef Consumer consumer
    cdef long long changes
    cdef list slots
    cdef long long claim_idle(self, long long min_idle, long long count) except -1
    cdef long long deliver_new(self, long long count, bint noack, bint claims) except -1
    cdef long long write_history(self, unsigned long long ms, unsigned long long seq, long long count) except -1
    cdef bint _note_change(self, Py_ssize_t slot) except -1
    cdef bint _log(self, bytes last) except -1

cdef bint is_idle(long long idle, long long min_idle) noexcept
