cimport cython
from rillet.types.stream cimport Stream
from rillet.types.stream_id cimport less
from rillet.types.stream_iterator cimport StreamIterator


@cython.final
cdef class StreamFinder:
    cdef readonly Stream stream
    cdef readonly StreamIterator entries
    cdef readonly bint ahead
    cdef readonly bint given
    cpdef bint find(self, unsigned long long ms, unsigned long long seq) except -1
    cdef bint _search(self, unsigned long long ms, unsigned long long seq) except -1
