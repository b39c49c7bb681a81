cimport cython
from rillet.structs.listpack cimport Listpack
from rillet.structs.memory cimport copy_out

cpdef double score_at(Listpack packed, Py_ssize_t pos) except? -1
cdef bint put_span(Listpack packed, const unsigned char *member, Py_ssize_t size, double score, bint classic)
