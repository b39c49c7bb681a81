cimport cython

from rillet.structs.block_list cimport BlockList

@cython.final
cdef class Arena:
    cdef readonly BlockList pages
    cdef readonly Py_ssize_t current
    cdef readonly Py_ssize_t live
    cdef readonly Py_ssize_t dead
    cdef readonly list vacant
    cdef long long allocate(self, Py_ssize_t size) except -1
    cdef bint resize_last(self, long long place, Py_ssize_t size, Py_ssize_t to)
    cdef bint leave_current(self)
    cdef bint free(self, long long place, Py_ssize_t size)
    cdef Py_ssize_t _new_page(self, Py_ssize_t size)
    cdef Py_ssize_t page_fill(self, Py_ssize_t page) noexcept
    cdef Py_ssize_t page_live(self, Py_ssize_t page) noexcept
    cdef bint _write(self, Py_ssize_t page, Py_ssize_t offset, Py_ssize_t value)
