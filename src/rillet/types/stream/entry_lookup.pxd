cimport cython
from rillet.types.stream.stream cimport Stream
from rillet.types.stream.id cimport less
from rillet.types.stream.iterator cimport StreamIterator


@cython.final
cdef class EntryLookup:
    cdef readonly Stream stream
    cdef readonly StreamIterator entries
    cdef readonly bint ahead
    cdef readonly bint given
    cpdef bint find(self, unsigned long long ms, unsigned long long seq)
    cdef bint _search(self, unsigned long long ms, unsigned long long seq)
