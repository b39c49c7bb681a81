cimport cython
from rillet.structs.dict cimport Dict
from rillet.structs.due_times cimport DueTimes
from rillet.structs.listpack cimport Listpack
from rillet.types.sized cimport SizedValue
from rillet.types.field_triples cimport insert_span as insert_triple
from rillet.types.field_triples cimport remove as remove_triple
from rillet.types.field_triples cimport set_time as set_triple_time
from rillet.types.field_triples cimport time_at as triple_time

@cython.final
cdef class FieldExpiry:
    cdef public long long due
    cdef public DueTimes times
    cdef public Listpack triples

@cython.final
cdef class Hash(SizedValue):
    cdef public Listpack listpack
    cdef public Dict table
    cdef public FieldExpiry expiry
    cdef public int tag
    cdef bint is_table(self) noexcept
    cdef Listpack packed(self)
    cdef Listpack _triples(self)
    cpdef bytes get(self, bytes field)
    cpdef FieldExpiry start_expiry(self, object limits=*)
    cpdef long long earliest(self) except -1
    cdef Py_ssize_t count(self)
    cdef Py_ssize_t locate(self, const unsigned char *at, Py_ssize_t size) except -2
    cdef bytes content_at(self, Py_ssize_t place)
    cdef long long time_at(self, Py_ssize_t place, const unsigned char *at, Py_ssize_t size) except -1
    cdef bint set_time_at(self, Py_ssize_t place, const unsigned char *at, Py_ssize_t size, long long when)
    cdef bint set_at(self, const unsigned char *at, Py_ssize_t size, const unsigned char *value, Py_ssize_t value_size, long long entries, long long longest, bint keep)
    cdef bint put_at(self, Py_ssize_t place, const unsigned char *at, Py_ssize_t size, const unsigned char *value, Py_ssize_t value_size, long long entries, long long longest, bint keep)
    cdef bint _put_packed(self, Listpack packed, Py_ssize_t place, const unsigned char *at, Py_ssize_t size, const unsigned char *value, Py_ssize_t value_size)
    cdef bint remove_at(self, Py_ssize_t place, const unsigned char *at, Py_ssize_t size)
