cimport cython


@cython.final
@cython.no_gc
cdef class SkiplistNode:
    cdef readonly double score
    cdef readonly bytes member
    cdef public Py_ssize_t slot
    cdef readonly SkiplistNode next
    cdef readonly SkiplistNode backward
    cdef list tower


@cython.final
cdef class Skiplist:
    cdef readonly SkiplistNode head
    cdef readonly SkiplistNode tail
    cdef readonly Py_ssize_t length
    cdef readonly Py_ssize_t level
    cdef readonly Py_ssize_t hops
    cdef list _path(self, double score, bytes member, list ranks)
    cpdef Py_ssize_t rank(self, SkiplistNode node) except -1
    cpdef Py_ssize_t below(self, double score, bint inclusive) except -1
    cpdef Py_ssize_t below_member(self, bytes member, bint inclusive) except -1
    cdef Py_ssize_t _below(self, double score, bytes member, int kind) except -1
    cpdef SkiplistNode at(self, Py_ssize_t rank)
    cpdef SkiplistNode insert(self, double score, bytes member)
    cdef bint _link(self, SkiplistNode node) except -1
    cpdef bint remove(self, SkiplistNode node) except -1
    cdef bint _unlink(self, SkiplistNode node, list path) except -1
    cpdef bint move(self, SkiplistNode node, double score) except -1
    cpdef list delete_range(self, Py_ssize_t start, Py_ssize_t count)
