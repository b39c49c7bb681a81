cimport cython
from rillet.commands.table_replies cimport write_entries
from rillet.commands.table_replies cimport write_table
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.intset cimport Intset
from rillet.structs.listpack cimport Listpack
from rillet.types.set cimport Set, SetLimits

cdef Set set_at(Database db, Py_ssize_t n)
cdef bint keep(Database db, ArgumentSpans words, Py_ssize_t n, Set value)

@cython.final
cdef class Sadd(Implementation):
    pass

@cython.final
cdef class Srem(Implementation):
    pass

@cython.final
cdef class Scard(Implementation):
    pass

@cython.final
cdef class Sismember(Implementation):
    pass

@cython.final
cdef class Smembers(Implementation):
    pass
