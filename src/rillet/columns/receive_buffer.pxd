cimport cython


cdef class ReceiveBuffer:
    cdef public bytearray buf
    cdef public Py_ssize_t pos
    cdef public Py_ssize_t end
