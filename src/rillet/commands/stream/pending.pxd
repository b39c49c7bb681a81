cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport Interval, integer, option, to_signed
from rillet.commands.stream.lookup cimport lookup_read
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.types.stream.group cimport Consumer, Group
from rillet.types.stream.pending cimport PendingTable, PendingIndex, PendingIterator
from rillet.types.stream.id cimport less

cdef bint _write_entries(Session session, Group group, PendingIndex index, Interval interval, long long count,
                         long long min_idle)
