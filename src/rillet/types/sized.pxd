cimport cython

cdef class SizedValue:
    cdef public Py_ssize_t charge
