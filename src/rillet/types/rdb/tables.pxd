from rillet.structs.dict cimport Dict
from rillet.structs.dict_table cimport u64
from rillet.structs.skiplist cimport Skiplist
from rillet.types.rdb.primitives cimport RdbReader, RdbWriter

cdef bint write_key(RdbWriter out, Dict table, Py_ssize_t n)
cdef bint write_value(RdbWriter out, Dict table, Py_ssize_t n)
cpdef bint save_table(RdbWriter out, Dict table)
cpdef bint save_ranked(RdbWriter out, Dict table, Skiplist skiplist)
cpdef bint load_ranked(RdbReader reader, Dict table, Skiplist skiplist, unsigned long long count)
