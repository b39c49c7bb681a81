cimport cython


@cython.final
@cython.no_gc
cdef class RaxNode:
    cdef readonly bytes chars
    cdef readonly object link
    cdef readonly object data
    cdef readonly bint iskey
    cdef readonly bint iscompr


@cython.final
@cython.no_gc
cdef class Rax:
    cdef readonly RaxNode head
    cdef readonly Py_ssize_t numele
    cdef readonly Py_ssize_t numnodes
    cdef readonly Py_ssize_t node_max_size
    cdef readonly Py_ssize_t version
    cdef readonly bint unmerged
    cdef Py_ssize_t walked
    cdef Py_ssize_t split
    cdef Py_ssize_t depth
    cdef bytes tail

    cpdef bint insert(self, bytes key, object value) except -1
    cpdef bint try_insert(self, bytes key, object value) except -1
    cpdef object find(self, bytes key)
    cpdef bint remove(self, bytes key) except -1
    cpdef bint clear(self) except -1
    cdef RaxNode walk(self, bytes key, list stack)
    cdef bint _insert(self, bytes key, object value, bint overwrite) except -1
    cdef RaxNode _split_at_edge(self, RaxNode h, Py_ssize_t j)
    cdef bint _split_at_key(self, RaxNode h, Py_ssize_t j, object value) except -1
    cdef RaxNode _extend(self, RaxNode h, bytes key, Py_ssize_t i)
    cdef RaxNode _prune(self, RaxNode h, list stack)
    cdef bint _merge(self, RaxNode h, list stack) except -1
    cdef bytes _shared(self, bytes chars)


@cython.final
cdef class RaxIterator:
    cdef readonly Rax rax
    cdef readonly bytes key
    cdef readonly object data
    cdef public int flags
    cdef public object node_cb
    cdef RaxNode node
    cdef list stack
    cdef Py_ssize_t depth
    cdef bytearray buf
    cdef Py_ssize_t key_len
    cdef Py_ssize_t version

    cpdef bint seek(self, object op, bytes key=*) except -1
    cpdef bint next(self) except -1
    cpdef bint prev(self) except -1
    cpdef bint random_walk(self, Py_ssize_t steps=*) except -1
    cpdef bint compare(self, object op, bytes key) except -1
    cpdef bint set_data(self, object value) except -1
    cpdef bint stop(self) except -1
    cpdef bint eof(self) except -1
    cdef bint _seek_near(self, RaxNode h, bytes key, bint forward) except -1
    cdef bint _forward(self, RaxNode h, bint noup) except -1
    cdef bint _backward(self, RaxNode h, bint noup) except -1
    cdef bint _again(self, bint forward) except -1
    cdef RaxNode _greatest(self, RaxNode h)
    cdef RaxNode _enter(self, RaxNode h, Py_ssize_t j)
    cdef RaxNode _up(self)
    cdef RaxNode _visited(self, RaxNode child, Py_ssize_t j)
    cdef bint _arrive(self, RaxNode h) except -1
    cdef bint _end(self, Py_ssize_t depth, Py_ssize_t key_len) except -1
    cdef bint _add(self, bytes chars, Py_ssize_t start, Py_ssize_t n) except -1
