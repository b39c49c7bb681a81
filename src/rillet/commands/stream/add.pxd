cimport cython
from rillet.runtime.session cimport Session
from rillet.runtime.fast_path cimport FastPath
from rillet.commands.stream.arguments cimport TrimArguments, default_limit, integer, option, read_id
from rillet.commands.stream.lookup cimport lookup_write
from rillet.protocol.propagation_buffer cimport PropagationBuffer
from rillet.protocol.command_parser cimport CommandParser
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.types.stream.value cimport Stream
from rillet.types.stream.id cimport IDReader, format_id, less

@cython.final
cdef class XaddFastPath(FastPath):
    cdef bytes key
    cdef Stream stream
    cdef bint trims
    cdef bint approx
    cdef long long maxlen
    cdef unsigned long long ms
    cdef unsigned long long seq
    cdef bint made
    cdef bint _add(self, Session session, ArgumentSpans words, PropagationBuffer feed, unsigned long long now, long long max_bytes,
                   long long max_entries) except -1
    cdef Py_ssize_t _read_options(self, ArgumentSpans words) except -1
    cdef bint _log(self, PropagationBuffer feed, ArgumentSpans words, Py_ssize_t at, unsigned long long length) except -1
    cdef bint _read_id(self, ArgumentSpans words, Py_ssize_t at) except -1
    cdef bint _make_id(self, Stream stream, ArgumentSpans words, Py_ssize_t at, unsigned long long now) except -1
