cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport Interval, find_stream, integer, option, read_id, read_stream
from rillet.commands.stream.propagation cimport signed_count
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.types.stream.group cimport Consumer, Group
from rillet.types.stream.pending cimport PendingTable, PendingIndex, PendingIterator
from rillet.types.stream.value cimport Stream
from rillet.types.stream.id cimport IDReader, less

cdef bint _list_pending(Session session, Group group, PendingIndex index, Interval interval, long long count,
                        long long min_idle) except -1
