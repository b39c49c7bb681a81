cimport cython
from rillet.protocol.command_parser cimport CommandParser
from rillet.runtime.command_queue cimport CommandQueue
from rillet.runtime.effects cimport Effects, follows
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans

cdef class Transactions(Effects):
    cdef public object acl
    cdef bint _queue(self, Session session, Command entry, ArgumentSpans words, CommandParser parser, Py_ssize_t limit)
    cpdef bint run_queue(self, Session session, CommandQueue queue)
