cimport cython
from rillet.structs.memory cimport copy_out, copy_part
from rillet.structs.rax cimport Rax, RaxNode, first_not_below


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

    cpdef bint seek(self, object op, bytes key=*)
    cpdef bint next(self)
    cpdef bint prev(self)
    cdef bint _step(self, bint forward) except -1
    cpdef bint random_walk(self, Py_ssize_t steps=*)
    cpdef bint compare(self, object op, bytes key)
    cpdef bint set_data(self, object value)
    cpdef bint stop(self)
    cpdef bint eof(self)
    cdef bint _seek_near(self, RaxNode h, bytes key, bint forward)
    cdef bint _forward(self, RaxNode h, bint noup)
    cdef bint _backward(self, RaxNode h, bint noup)
    cdef bint _again(self, bint forward)
    cdef RaxNode _greatest(self, RaxNode h)
    cdef RaxNode _enter(self, RaxNode h, Py_ssize_t j)
    cdef RaxNode _up(self)
    cdef RaxNode _visited(self, RaxNode child, Py_ssize_t j)
    cdef bint _arrive(self, RaxNode h)
    cdef bint _end(self, Py_ssize_t depth, Py_ssize_t key_len)
    cdef bint _add(self, bytes chars, Py_ssize_t start, Py_ssize_t n)
