cimport cython
from rillet.commands.session cimport Session
from rillet.commands.shortcut cimport Shortcut
from rillet.commands.stream_args cimport TrimArguments, default_limit, find_stream, integer, option, read_id
from rillet.protocol.feed cimport Feed
from rillet.protocol.parser cimport CommandParser
from rillet.structs.words cimport Words
from rillet.types.stream cimport Stream
from rillet.types.stream_id cimport IDReader, format_id, less

@cython.final
cdef class PlainAdds(Shortcut):
    cdef bytes key
    cdef bint trims
    cdef bint approx
    cdef long long maxlen
    cdef unsigned long long ms
    cdef unsigned long long seq
    cdef bint made
    cdef bint _add(self, Session session, Words words, Feed feed, unsigned long long now, long long max_bytes,
                   long long max_entries) except -1
    cdef Py_ssize_t _read_options(self, Words words) except -1
    cdef bint _log(self, Feed feed, Words words, Py_ssize_t at, unsigned long long length) except -1
    cdef bint _read_id(self, Words words, Py_ssize_t at) except -1
    cdef bint _make_id(self, Stream stream, Words words, Py_ssize_t at, unsigned long long now) except -1
