cimport cython
from rillet.protocol.intake cimport Intake
from rillet.protocol.parser cimport plain_line

@cython.final
cdef class Frame:
    cdef int kind
    cdef Py_ssize_t filled
    cdef Py_ssize_t total
    cdef list values

    cdef bint add(self, object value)
    cdef object finish(self)

@cython.final
cdef class ReplyParser(Intake):
    cdef list stack
    cdef object top

    cpdef object next(self)
    cdef object _parse(self)
    cdef bint _add(self, object value)
    cdef object _close(self)
    cdef object _element(self, int kind)
    cdef object _bulk(self, int kind, Py_ssize_t end)
    cdef object _open(self, int kind, Py_ssize_t end)
    cdef Py_ssize_t _count(self, Py_ssize_t end)
    cdef object _number(self, bytes text)
    cdef object _double(self, bytes text)
    cdef bint _refuse(self, str reason)
