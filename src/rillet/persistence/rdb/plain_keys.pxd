cimport cython
from rillet.keyspace.database cimport Database
from rillet.structs.dict cimport Dict
from rillet.structs.dict_table cimport u64
from rillet.types.rdb.primitives cimport RdbReader, RdbWriter
from rillet.types.rdb.tables cimport write_key
from rillet.types.string cimport String

@cython.final
cdef class PlainKeys:
    cdef RdbWriter _out
    cdef Database _database
    cdef bint _packed
    cdef readonly Py_ssize_t at
    cdef readonly Py_ssize_t written
    cpdef int write(self, Py_ssize_t limit)
    cpdef bint skip(self)
    cdef bint _write_one(self, Dict keys, Py_ssize_t n)
    cdef bint _head(self, Dict keys, Py_ssize_t n, int kind)

cpdef list[object] versioned_values(Dict keys)
cpdef Py_ssize_t read_plain_keys(RdbReader reader, Database database, bint merge)
