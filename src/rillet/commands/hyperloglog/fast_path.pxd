cimport cython

from rillet.commands.string.value_path cimport StringPath
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.hyperloglog cimport Cursor, add, cache_count, cached_count, forget_count, is_valid
from rillet.structs.hyperloglog_union cimport Union, count_string
from rillet.types.string cimport String

cdef class LogFastPath(StringPath):
    cdef String log(self, Database db, ArgumentSpans words)

@cython.final
cdef class PfaddFastPath(LogFastPath):
    cdef Cursor _cursor

@cython.final
cdef class PfcountFastPath(LogFastPath):
    pass

@cython.final
cdef class PfmergeFastPath(LogFastPath):
    cdef ArgumentSpans _key
    cdef Union _union
    cdef Py_ssize_t _find(self, Database db, ArgumentSpans words, Py_ssize_t index) except -3
    cdef bint _merge_sources(self, Database db, ArgumentSpans words) except -1
