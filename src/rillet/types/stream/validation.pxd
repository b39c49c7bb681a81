cimport cython
from rillet.structs.listpack cimport Listpack
from rillet.types.stream.id cimport key_ms, key_seq, less, undelta
from rillet.types.stream.node cimport first_entry, int_at, master_fields, size_at, validate_node

@cython.final
cdef class LivingEntries:
    cdef readonly long long count
    cdef readonly unsigned long long first_ms
    cdef readonly unsigned long long first_seq
    cdef readonly unsigned long long last_ms
    cdef readonly unsigned long long last_seq
    cdef readonly bint rises
    cdef readonly bint set_back
    cpdef bint take_node(self, bytes key, Listpack lp)
    cpdef bint join(self, LivingEntries later)
    cdef bint walk(self, unsigned long long master_ms, unsigned long long master_seq, const unsigned char *p,
                   Py_ssize_t used) noexcept nogil
    cpdef bint add_node(self, bytes key, Listpack lp)
