cimport cython

cdef class Charged:
    cdef public Py_ssize_t charge
