cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport Interval, integer, option, read_id
from rillet.commands.stream.propagation cimport log_ack, log_claim, log_consumer, log_group_id
from rillet.commands.stream.lookup cimport find_or_create_consumer, lookup_read
from rillet.commands.stream.range cimport EntryWriter
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.types.stream.group cimport Consumer, Group
from rillet.types.stream.pending cimport PendingIterator
from rillet.types.stream.stream cimport Stream
from rillet.types.stream.entry_lookup cimport EntryLookup
from rillet.types.stream.id cimport IDReader, format_id, less


@cython.final
cdef class ClaimRequest:
    cdef Session session
    cdef bytes key
    cdef Stream stream
    cdef Group group
    cdef bytes name
    cdef Consumer consumer
    cdef bint created
    cdef ReplyWriter out
    cdef EntryLookup finder
    cdef EntryWriter writer
    cdef long long min_idle
    cdef long long now
    cdef long long time
    cdef long long retrycount
    cdef bint force
    cdef bint justid
    cdef long long written
    cdef bint claimed
    cdef bint saturates
    cdef bint by_asking
    cdef bint find_consumer(self)
    cdef bint finish(self)
    cdef bint is_recent(self, Py_ssize_t slot)
    cdef bint forget(self, bytes ident, Py_ssize_t slot)
    cdef bint claim_entry(self, bytes ident, unsigned long long ms, unsigned long long seq, Py_ssize_t slot)
    cdef bint take_named(self, bytes ident, unsigned long long ms, unsigned long long seq)
    cdef list take_from(self, PendingIterator pending, long long count)
