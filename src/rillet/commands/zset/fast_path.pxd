cimport cython
from rillet.commands.small_values cimport HEADER, MISSING, MOST_WORDS, UNUSUAL, LengthFastPath, SmallValuePath
from rillet.commands.table_replies cimport write_score
from rillet.keyspace.database cimport Database
from rillet.keyspace.rest_buffer cimport RestBuffer
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.float_text cimport parse_plain
from rillet.structs.dict cimport Dict
from rillet.structs.listpack cimport Listpack
from rillet.structs.skiplist cimport Skiplist
from rillet.types.packed_zset cimport score_at

cdef class ZaddFastPath(SmallValuePath):
    cdef bint _add_awake(self, Session session, Database db, ArgumentSpans words, Py_ssize_t n, object value) except -1

@cython.final
cdef class ZincrbyFastPath(SmallValuePath):
    pass


@cython.final
cdef class ZremFastPath(SmallValuePath):
    pass


@cython.final
cdef class ZscoreFastPath(SmallValuePath):
    pass


@cython.final
cdef class ZrangeFastPath(SmallValuePath):
    pass
