cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.delivery cimport Delivery, is_idle
from rillet.commands.stream.lookup cimport find_or_create_consumer
from rillet.commands.stream.propagation cimport log_consumer
from rillet.commands.stream.read_arguments cimport ReadArguments
from rillet.commands.stream.read_blocking cimport block_or_reply_null
from rillet.commands.stream.read_reply cimport ReadReply, has_entries_after
from rillet.types.stream.group cimport Consumer, Group
from rillet.types.stream.pending cimport PendingTable
from rillet.types.stream.value cimport Stream


@cython.final
cdef class XreadGroupReply(ReadReply):
    cdef long long min_idle
    cdef long long oldest
    cdef bint _has_claimable(self, Stream stream, Group group) except -1
    cdef bint _read(self, Session session, Stream stream, Group group, Py_ssize_t index, bint history, bint claims,
                    bint new, long long count) except -1
    cdef long long _write_selected(self, Session session, Stream stream, Group group, Consumer consumer,
                                   Py_ssize_t index, bint history, bint new, long long count) except -1
