cimport cython
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport integer, option, read_id, read_id_at
from rillet.commands.stream.lookup cimport logged_now, lookup_write, stream_at
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.stream.group cimport Group
from rillet.types.stream.stream cimport Stream
from rillet.types.stream.id cimport IDReader

@cython.final
cdef class Xack(Implementation):
    pass
