cimport cython

@cython.final
cdef class LatencyHistogram:
    cdef readonly long long total
    cdef long long _counts[3072]
    cpdef bint record(self, long long nanoseconds, long long times)
