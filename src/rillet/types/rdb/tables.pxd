from rillet.structs.dict cimport Dict
from rillet.structs.dict_table cimport u64
from rillet.structs.skiplist cimport Skiplist
from rillet.types.rdb.primitives cimport RdbReader, RdbWriter

cdef bint write_key(RdbWriter out, Dict table, Py_ssize_t n) except -1
cdef bint write_value(RdbWriter out, Dict table, Py_ssize_t n) except -1
cpdef bint save_table(RdbWriter out, Dict table) except -1
cpdef bint save_ranked(RdbWriter out, Dict table, Skiplist skiplist) except -1
cpdef bint load_ranked(RdbReader reader, Dict table, Skiplist skiplist, unsigned long long count) except -1
