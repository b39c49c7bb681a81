cimport cython


cdef class Inbox:
    cdef public bytearray buf
    cdef public Py_ssize_t pos
    cdef public Py_ssize_t end
