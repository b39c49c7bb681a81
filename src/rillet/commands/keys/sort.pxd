cimport cython
from rillet.commands.keys.named_keys cimport NamedKeys
from rillet.commands.string.values cimport write_string_of
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.dict cimport Dict
from rillet.structs.listpack cimport Listpack
from rillet.structs.quicklist cimport Quicklist, QuicklistNode
from rillet.structs.sorting cimport first_by_scores, integers_in, order_by_scores, partial_order, picked, scores_of, sort_integers
from rillet.types.list cimport List, ListLimits
from rillet.types.string cimport String

@cython.final
cdef class Pattern:
    cdef bytes prefix
    cdef bytes postfix
    cdef bytes field
    cdef readonly bint constant
    cdef readonly bint element
    cdef bytes value(self, Session session, bytes element)
    cdef object number(self, Session session, object element)
    cdef bint write(self, Session session, object element)

@cython.final
cdef class _Request:
    cdef Pattern by
    cdef list gets
    cdef bytes target
    cdef bint alpha
    cdef bint descending
    cdef bint unsorted
    cdef object offset
    cdef object count
