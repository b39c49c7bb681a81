cimport cython
from rillet.commands.hash.lookup cimport find_to_read, has_expired, locate_unexpired
from rillet.commands.table_replies cimport write_entries, write_entry
from rillet.commands.table_replies cimport write_table
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.listpack cimport Listpack
from rillet.types.hash cimport Hash

cdef bint write_value(ReplyWriter out, Hash value, Py_ssize_t place)
cdef bint write_field(Session session, ArgumentSpans words)

@cython.final
cdef class Hget(Implementation):
    pass

@cython.final
cdef class Hmget(Implementation):
    pass

@cython.final
cdef class Hlen(Implementation):
    pass

@cython.final
cdef class Hstrlen(Implementation):
    cdef bint _length

@cython.final
cdef class Hgetall(Implementation):
    cdef bint _fields
    cdef bint _values
    cdef bint _begin(self, ReplyWriter out, Py_ssize_t count)
