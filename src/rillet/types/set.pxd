cimport cython
from rillet.structs.dict cimport Dict
from rillet.structs.intset cimport Intset
from rillet.structs.listpack cimport Listpack, is_lowest, parse_digits
from rillet.types.sized cimport SizedValue

@cython.final
cdef class SetLimits:
    cdef readonly bint compact
    cdef readonly long long integers
    cdef readonly long long entries
    cdef readonly long long length

@cython.final
cdef class Set(SizedValue):
    cdef public bint hashed
    cdef public Intset intset
    cdef public Listpack listpack
    cdef public Listpack spare
    cdef public Dict table
    cpdef str encoding(self)
    cpdef Py_ssize_t count(self)
    cdef bint has(self, const unsigned char *at, Py_ssize_t size)
    cdef bint start(self, const unsigned char *at, Py_ssize_t size, Py_ssize_t expected, SetLimits limits)
    cpdef bint prepare(self, Py_ssize_t expected, SetLimits limits)
    cdef bint put(self, const unsigned char *at, Py_ssize_t size, SetLimits limits)
    cdef bint _put_number(self, long long number, SetLimits limits)
    cdef bint _convert_for(self, Py_ssize_t size, SetLimits limits)
    cpdef bint remove(self, bytes member)
    cdef bint remove_span(self, const unsigned char *at, Py_ssize_t size)
    cpdef bint to_hashtable(self, Py_ssize_t expected=*)
    cpdef bint to_listpack(self)
