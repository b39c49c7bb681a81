cimport cython

from rillet.keyspace.database cimport Database
from rillet.protocol.command_parser cimport CommandParser
from rillet.protocol.propagation_buffer cimport PropagationBuffer
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.fast_path cimport FastPath
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.dict_table cimport hash_bytes
from rillet.structs.hyperloglog cimport Cursor, add, cache_count, cached_count, count, forget_count, is_valid
from rillet.types.string cimport String

cdef class LogFastPath(FastPath):
    cdef Py_ssize_t _n
    cdef bint _works(self, Database db) except -1
    cdef String _find(self, Database db, ArgumentSpans words)
    cdef bint _touch(self, Database db) except -1
    cdef bint _log(self, Session session, ArgumentSpans words, PropagationBuffer feed) except -1

@cython.final
cdef class PfaddFastPath(LogFastPath):
    cdef Cursor _cursor
    cdef bint _add(self, Session session, ArgumentSpans words, PropagationBuffer feed, Py_ssize_t limit) except -1

@cython.final
cdef class PfcountFastPath(LogFastPath):
    cdef bint _count(self, Session session, ArgumentSpans words, PropagationBuffer feed) except -1
