cimport cython

from rillet.commands.small_values cimport SmallValuePath
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.hyperloglog cimport Cursor, add, cache_count, cached_count, count, forget_count, is_valid
from rillet.types.string cimport String

cdef class LogFastPath(SmallValuePath):
    cdef Py_ssize_t _n
    cdef String _string(self, Database db, ArgumentSpans words)

@cython.final
cdef class PfaddFastPath(LogFastPath):
    cdef Cursor _cursor

@cython.final
cdef class PfcountFastPath(LogFastPath):
    pass
