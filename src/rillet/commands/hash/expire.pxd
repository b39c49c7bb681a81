cimport cython
from rillet.commands.hash.lookup cimport find_to_change, find_to_read, has_expired, keep_hash
from rillet.commands.hash.times cimport FieldTimes
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.hash cimport Hash

cdef class _InUnits(FieldTimes):
    cdef int _unit
    cdef bint _relative

@cython.final
cdef class Hexpire(_InUnits):
    cdef int _condition
    cdef bint _read_any_order(self, ArgumentSpans words)
    cdef bint _log(self, Session session, ArgumentSpans words, list[bytes] updated)

@cython.final
cdef class Httl(_InUnits):
    pass

@cython.final
cdef class Hpersist(FieldTimes):
    pass
