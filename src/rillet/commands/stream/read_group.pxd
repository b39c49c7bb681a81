cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.delivery cimport Delivery, is_idle
from rillet.commands.stream.lookup cimport find_or_create_consumer
from rillet.commands.stream.propagation cimport log_consumer
from rillet.commands.stream.read_blocking cimport ReadCommand
from rillet.commands.stream.read_reply cimport ReadReply
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.stream.group cimport Consumer, Group
from rillet.types.stream.pending cimport PendingTable
from rillet.types.stream.stream cimport Stream


@cython.final
cdef class XreadGroupReply(Delivery):
    cdef long long claim_after
    cdef long long oldest
    cdef bint _has_claimable(self, Stream stream, Group group)
    cdef bint _read(self, Session session, ArgumentSpans words, Stream stream, Group group, Py_ssize_t at, bint selected,
                    bint history, bint found, long long count)
    cdef bint _write_selected(self, Session session, ArgumentSpans words, Stream stream, Group group, Consumer consumer,
                              Py_ssize_t at, bint history, bint found, long long count)
