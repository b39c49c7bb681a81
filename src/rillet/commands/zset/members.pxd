cimport cython
from rillet.commands.table_replies cimport write_score
from rillet.commands.zset.values cimport keep, new_zset, zset_at
from rillet.keyspace.database cimport Database
from rillet.keyspace.rest_buffer cimport RestBuffer
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.float_text cimport parse_plain
from rillet.types.zset cimport ADDED, GT, LT, NX, SKIPPED, UPDATED, XX, Zset

cdef double score_of(Session session, ArgumentSpans words, Py_ssize_t at, str message=*) except? -1
cdef bint add_members(Session session, ArgumentSpans words, int options)
cdef bint _add(Session session, ArgumentSpans words, Py_ssize_t at, int options)
cdef int _option(ArgumentSpans words, Py_ssize_t at)

@cython.final
cdef class Zadd(Implementation):
    pass

@cython.final
cdef class Zincrby(Implementation):
    pass

@cython.final
cdef class Zrem(Implementation):
    pass

@cython.final
cdef class Zcard(Implementation):
    pass

@cython.final
cdef class Zscore(Implementation):
    pass
