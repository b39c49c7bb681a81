cimport cython
from rillet.protocol.read_buffer cimport ReadBuffer
from rillet.protocol.command_parser cimport plain_line

@cython.final
cdef class Frame:
    cdef int kind
    cdef Py_ssize_t filled
    cdef Py_ssize_t total
    cdef list values
    cdef Frame parent

    cdef object finish(self)

@cython.final
cdef class ReplyParser(ReadBuffer):
    cdef Frame top
    cdef Py_ssize_t depth

    cpdef object next(self)
    cdef object _parse(self)
    cdef Frame _push(self, int kind, Py_ssize_t total)
    cdef object _element(self, int kind)
    cdef object _bulk(self, int kind, Py_ssize_t end)
    cdef object _open(self, int kind, Py_ssize_t end)
    cdef Py_ssize_t _count(self, Py_ssize_t end)
    cdef object _number(self, bytes text)
    cdef object _double(self, bytes text)
    cdef bint _refuse(self, str reason)
