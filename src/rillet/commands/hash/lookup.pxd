cimport cython
from rillet.keyspace.database cimport Database
from rillet.keyspace.rest_buffer cimport RestBuffer
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.listpack cimport Listpack
from rillet.types.hash cimport Hash

cdef bint has_expired(Database db, Hash value)
cdef Hash find_to_read(Database db, ArgumentSpans words)
cdef Hash find_to_change(Database db, ArgumentSpans words)
cdef Hash _hash_of(Database db, ArgumentSpans words, Py_ssize_t n)
cdef Hash hash_to_fill(Database db, ArgumentSpans words, Hash value, Py_ssize_t first)
cdef Hash fillable(Database db, ArgumentSpans words, Hash value, Py_ssize_t pairs, Py_ssize_t widest, Py_ssize_t total)
cdef Hash unpacked(Database db, ArgumentSpans words, Hash value)
cdef bint keep_hash(Database db, ArgumentSpans words, Hash value)
cdef Py_ssize_t locate_unexpired(Session session, ArgumentSpans words, Hash value, Py_ssize_t i) except -3
