cimport cython

cdef Py_ssize_t first_not_below(bytes chars, int c) noexcept
cpdef bint release_some(list pending, Py_ssize_t limit)


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
    cdef readonly Py_ssize_t fixed_len
    cdef readonly set cuts
    cdef readonly Py_ssize_t node_max_size
    cdef readonly Py_ssize_t version
    cdef readonly bint unmerged
    cdef Py_ssize_t walked
    cdef Py_ssize_t split
    cdef Py_ssize_t depth
    cdef bytes tail

    cpdef bint insert(self, bytes key, object value)
    cpdef bint try_insert(self, bytes key, object value)
    cpdef object find(self, bytes key)
    cpdef bint remove(self, bytes key)
    cpdef bint clear(self)
    cdef RaxNode walk(self, bytes key, list stack)
    cdef bint _insert(self, bytes key, object value, bint overwrite)
    cdef RaxNode _split_at_edge(self, RaxNode h, Py_ssize_t j)
    cdef bint _split_at_key(self, RaxNode h, Py_ssize_t j, object value)
    cdef RaxNode _extend(self, RaxNode h, bytes key, Py_ssize_t i)
    cdef RaxNode _prune(self, RaxNode h, list stack)
    cdef bint _cut(self, RaxNode h, list stack, bytes key)
    cdef bint _cut_below(self, bytes path, RaxNode below)
    cdef bint _merge(self, RaxNode h, list stack)
    cdef bytes _shared(self, bytes chars)
