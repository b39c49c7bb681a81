cimport cython
from rillet.structs.listpack cimport Listpack

cpdef Py_ssize_t size_limit(Py_ssize_t fill) except -1
cpdef bint exceeds(Py_ssize_t fill, Py_ssize_t nbytes, Py_ssize_t count) except -1


@cython.final
cdef class Node:
    cdef readonly bytes block
    cdef readonly Py_ssize_t count
    cdef readonly Node next
    cdef readonly Listpack packed
    cdef readonly bytes plain
    cdef readonly Node previous
    cdef Py_ssize_t _size
    cpdef bint is_plain(self) except -1
    cpdef Py_ssize_t nbytes(self) except -1
    cpdef bint open(self) except -1
    cpdef bint close(self) except -1
    cpdef Listpack listpack(self)


cdef Node _packed_node(bytes value)


@cython.final
cdef class Quicklist:
    cdef readonly Node head
    cdef readonly Node tail
    cdef readonly Py_ssize_t nodes
    cdef readonly Py_ssize_t count
    cdef public bint classic
    cdef public bint single
    cdef public Py_ssize_t threshold
    cdef readonly Py_ssize_t fill
    cdef readonly Py_ssize_t depth
    cdef list _opened
    cpdef bint is_large(self, bytes value) except -1
    cdef bint _takes(self, Node node, bytes value) except -1
    cdef bint _may_join(self, Node one, Node other) except -1
    cdef Node _link(self, Node new, Node beside, bint after)
    cdef bint _unlink(self, Node node) except -1
    cdef Listpack _use(self, Node node)
    cdef bint _settle(self) except -1
    cpdef bint push(self, bytes value, bint head) except -1
    cpdef bytes pop(self, bint head)
    cpdef bint insert(self, Node node, Py_ssize_t rank, bytes value, bint after) except -1
    cdef bint _add(self, Node node, bytes value, bint first) except -1
    cdef Node _insert_plain(self, Node node, Py_ssize_t rank, bytes value, bint after, bint at_edge)
    cdef Node _split(self, Node node, Py_ssize_t rank, bint after)
    cdef Node _join(self, Node one, Node other)
    cdef bint _join_around(self, Node center) except -1
    cdef bint _replace_by_plain(self, Node node, Py_ssize_t rank, bytes value) except -1
    cdef bint _delete(self, Node node, Py_ssize_t pos) except -1
    cdef Py_ssize_t _remove_packed(
        self, Node node, Listpack packed, bytes value, Py_ssize_t most, bint backwards
    ) except -1


cpdef bytes element(Node node, Py_ssize_t pos)
