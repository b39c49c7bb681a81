cimport cython
from libc.string cimport memcpy
from rillet.structs.dict cimport Dict
from rillet.structs.intset cimport Intset
from rillet.structs.listpack cimport Listpack
from rillet.structs.memory cimport copy_slice
from rillet.structs.quicklist cimport Quicklist, QuicklistNode
from rillet.types.hash cimport FieldExpiry, Hash
from rillet.types.list cimport List, ListLimits
from rillet.types.set cimport Set, SetLimits
from rillet.types.zset cimport Zset

@cython.final
cdef class RestBuffer:
    cdef readonly Listpack packed
    cdef readonly bytearray rest
    cdef readonly Hash small_hash
    cdef readonly Hash expiring_hash
    cdef readonly Py_ssize_t head
    cdef public unsigned int hash
    cdef public Py_ssize_t entry
    cdef readonly Intset intset
    cdef readonly Set set
    cdef readonly SetLimits set_limits
    cdef readonly bint compact
    cdef readonly Zset zset
    cdef readonly bint valkey
    cdef readonly bint zset_classic
    cdef readonly long long hash_entries
    cdef readonly long long hash_value
    cdef readonly long long zset_entries
    cdef readonly long long zset_value
    cdef readonly List list
    cdef readonly ListLimits list_limits
    cdef QuicklistNode _node
    cdef readonly long long stream_bytes
    cdef readonly long long stream_entries
    cdef int load(self, Dict keys, Py_ssize_t n)
    cdef bint start(self, int tag)
    cdef Hash load_hash(self, Dict keys, Py_ssize_t n)
    cdef Hash start_hash(self)
    cdef Py_ssize_t compose_hash(self, Hash value)
    cdef bint outgrown(self, int tag)
    cdef Py_ssize_t compose(self)
    cdef Set unpack_set(self, Dict keys, Py_ssize_t n)
    cdef Set new_set(self)
    cdef Py_ssize_t pack_set(self) except -2
    cdef Set take_set(self)
    cdef List unpack_list(self, Dict keys, Py_ssize_t n)
    cdef List new_list(self)
    cdef Py_ssize_t pack_list(self) except -2
    cdef List take_list(self)
    cdef Py_ssize_t _write(self, int tag, Py_ssize_t head, bytearray payload, Py_ssize_t size)
