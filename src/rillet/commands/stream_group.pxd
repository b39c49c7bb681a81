cimport cython
from rillet.commands.session cimport Session
from rillet.commands.stream_args cimport Interval, find_stream, integer, option, read_id, read_stream
from rillet.commands.stream_log cimport signed_count
from rillet.protocol.writer cimport Replies
from rillet.types.group cimport Consumer, Group
from rillet.types.pending cimport Pending, PendingIndex, PendingIterator
from rillet.types.stream cimport Stream
from rillet.types.stream_id cimport IDReader, less

cdef bint _list_pending(Session session, Group group, PendingIndex index, Interval interval, long long count,
                        long long min_idle) except -1
