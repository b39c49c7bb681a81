cimport cython
from rillet.commands.hash.lookup cimport fillable, find_to_change, has_expired, hash_to_fill, keep_hash, locate_unexpired
from rillet.keyspace.database cimport Database
from rillet.keyspace.rest_buffer cimport RestBuffer
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.listpack cimport Listpack, parse_digits
from rillet.types.hash cimport Hash

@cython.final
cdef class Hset(Implementation):
    cdef bint _counts

@cython.final
cdef class Hsetnx(Implementation):
    pass

@cython.final
cdef class Hincrby(Implementation):
    pass

@cython.final
cdef class Hincrbyfloat(Implementation):
    pass

@cython.final
cdef class Hdel(Implementation):
    pass
