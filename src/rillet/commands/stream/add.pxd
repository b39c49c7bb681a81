cimport cython
from rillet.commands.stream.arguments cimport TrimArguments, integer, option, read_id
from rillet.commands.stream.lookup cimport lookup_write
from rillet.keyspace.database cimport Database
from rillet.keyspace.rest_buffer cimport RestBuffer
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.stream.stream cimport Stream
from rillet.types.stream.id cimport IDReader, format_id, less

@cython.final
cdef class Xadd(Implementation):
    cdef TrimArguments _arguments
    cdef bytes _key
    cdef bint _is_alone(self, Database db)
    cdef bint _append(self, Session session, Stream stream, TrimArguments arguments, ArgumentSpans words, Py_ssize_t at)
    cdef bint _end(self, Session session, Stream stream, TrimArguments arguments, ArgumentSpans words, bytes key)

@cython.final
cdef class Xtrim(Implementation):
    pass
