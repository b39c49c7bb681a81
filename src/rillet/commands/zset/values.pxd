from rillet.keyspace.database cimport Database
from rillet.keyspace.rest_buffer cimport RestBuffer
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.zset cimport Zset

cdef Zset zset_at(Database db, Py_ssize_t n)
cdef Zset new_zset(Database db)
cdef bint keep(Session session, ArgumentSpans words, Py_ssize_t n, Zset value)
