cimport cython
from rillet.structs.dict cimport Dict
from rillet.structs.listpack cimport Listpack
from rillet.structs.skiplist cimport Skiplist
from rillet.types.sized cimport SizedValue
from rillet.types.packed_zset cimport put_span, score_at

cdef int NX
cdef int XX
cdef int GT
cdef int LT
cdef int ADDED
cdef int UPDATED
cdef int SKIPPED

@cython.final
cdef class Zset(SizedValue):
    cdef public Listpack listpack
    cdef public Skiplist skiplist
    cdef public Dict table
    cdef Py_ssize_t count(self)
    cdef double find_score(self, const unsigned char *at, Py_ssize_t size) except? -1
    cdef int put(self, const unsigned char *at, Py_ssize_t size, double score, int options, long long entries, long long longest, bint classic)
    cdef bint remove_span(self, const unsigned char *at, Py_ssize_t size)
    cdef Zset hold(self, Listpack packed)
    cdef Zset detach(self)
