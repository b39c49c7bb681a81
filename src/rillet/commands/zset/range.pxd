cimport cython
from rillet.commands.table_replies cimport write_range
from rillet.commands.zset.values cimport zset_at
from rillet.keyspace.database cimport Database
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.listpack cimport parse_digits
from rillet.types.zset cimport Zset

@cython.final
cdef class Zrange(Implementation):
    cdef long long _rank(self, ArgumentSpans words, Py_ssize_t at) except? -1
