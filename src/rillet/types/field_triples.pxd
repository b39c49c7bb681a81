cimport cython
from rillet.structs.listpack cimport Listpack

cpdef Py_ssize_t find(Listpack packed, bytes field) except? -2
cpdef long long time_at(Listpack packed, Py_ssize_t pos) except? -77777777777
cpdef bint insert(Listpack packed, bytes field, bytes value, long long when)
cdef bint insert_span(Listpack packed, const unsigned char *field, Py_ssize_t size, const unsigned char *value, Py_ssize_t value_size, long long when)
cpdef bint remove(Listpack packed, Py_ssize_t pos)
cpdef bint set_time(Listpack packed, Py_ssize_t pos, long long when)
