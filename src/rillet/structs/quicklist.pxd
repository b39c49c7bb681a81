cimport cython
from rillet.structs.listpack cimport Listpack

cpdef Py_ssize_t size_limit(Py_ssize_t fill)
cpdef bint exceeds(Py_ssize_t fill, Py_ssize_t nbytes, Py_ssize_t count)


@cython.final
cdef class QuicklistNode:
    cdef readonly bytes block
    cdef readonly Py_ssize_t count
    cdef readonly QuicklistNode next
    cdef readonly Listpack packed
    cdef readonly bytes plain
    cdef readonly QuicklistNode previous
    cdef Py_ssize_t _size
    cdef bint _in_use
    cpdef Py_ssize_t stored_bytes(self)
    cpdef bint is_plain(self)
    cpdef Py_ssize_t nbytes(self)
    cpdef bint open(self)
    cpdef bint close(self)
    cpdef Listpack listpack(self)


@cython.final
cdef class Quicklist:
    cdef readonly QuicklistNode head
    cdef readonly QuicklistNode tail
    cdef public QuicklistNode bookmark
    cdef readonly QuicklistNode spare
    cdef readonly Py_ssize_t nodes
    cdef readonly Py_ssize_t count
    cdef public bint classic
    cdef public bint single
    cdef public Py_ssize_t threshold
    cdef readonly Py_ssize_t fill
    cdef readonly Py_ssize_t depth
    cdef readonly Py_ssize_t node_bytes
    cdef list _opened
    cdef list _used
    cdef bint _measure_later(self, QuicklistNode node)
    cpdef bint is_large(self, Py_ssize_t size)
    cdef bint _takes(self, QuicklistNode node, Py_ssize_t size)
    cdef bint _may_join(self, QuicklistNode one, QuicklistNode other)
    cdef QuicklistNode _link(self, QuicklistNode new, QuicklistNode beside, bint after)
    cdef bint _unlink(self, QuicklistNode node)
    cdef Listpack _use(self, QuicklistNode node)
    cdef bint _settle(self)
    cpdef bint push(self, bytes value, bint head)
    cdef bint push_span(self, const unsigned char *at, Py_ssize_t size, bint head)
    cdef QuicklistNode _new_node(self, const unsigned char *at, Py_ssize_t size)
    cpdef bytes pop(self, bint head)
    cdef bint drop(self, bint head)
    cdef bint hold(
        self, QuicklistNode node, Listpack packed, Py_ssize_t fill, Py_ssize_t depth, bint classic, bint single
    )
    cdef bint release(self, Listpack packed)
    cpdef bint insert(self, QuicklistNode node, Py_ssize_t rank, bytes value, bint after)
    cdef bint _add(self, QuicklistNode node, bytes value, bint first)
    cdef QuicklistNode _insert_plain(self, QuicklistNode node, Py_ssize_t rank, bytes value, bint after, bint at_edge)
    cdef QuicklistNode _split(self, QuicklistNode node, Py_ssize_t rank, bint after)
    cdef QuicklistNode _join(self, QuicklistNode one, QuicklistNode other)
    cdef bint _join_around(self, QuicklistNode center)
    cpdef bint can_join_next(self, QuicklistNode node)
    cpdef Py_ssize_t compact(self)
    cdef bint _replace_by_plain(self, QuicklistNode node, Py_ssize_t rank, bytes value)
    cdef bint _delete(self, QuicklistNode node, Py_ssize_t pos)
    cdef Py_ssize_t _remove_packed(
        self, QuicklistNode node, Listpack packed, bytes value, Py_ssize_t most, bint backwards
    )


cpdef bytes element(QuicklistNode node, Py_ssize_t pos)
