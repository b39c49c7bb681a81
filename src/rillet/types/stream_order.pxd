cimport cython
from rillet.structs.listpack cimport Listpack
from rillet.types.stream_id cimport key_ms, key_seq, less, undelta
from rillet.types.stream_node cimport first_entry, int_at, master_fields, size_at

@cython.final
cdef class LivingEntries:
    cdef readonly long long count
    cdef readonly unsigned long long first_ms
    cdef readonly unsigned long long first_seq
    cdef readonly unsigned long long last_ms
    cdef readonly unsigned long long last_seq
    cdef readonly bint rises
    cdef readonly bint set_back
    cpdef bint add_node(self, bytes key, Listpack lp) except -1
