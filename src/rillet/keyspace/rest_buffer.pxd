cimport cython
from libc.string cimport memcpy
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.dict_table cimport put_u32, u32
from rillet.structs.listpack cimport Listpack
from rillet.types.hash cimport FieldExpiry, Hash
from rillet.types.zset cimport Zset

@cython.final
cdef class RestBuffer:
    cdef readonly Listpack packed
    cdef readonly bytearray rest
    cdef readonly ArgumentSpans words
    cdef readonly Hash small_hash
    cdef readonly Hash expiring_hash
    cdef readonly Py_ssize_t head
    cdef readonly bint full
    cdef public unsigned int hash
    cdef public Py_ssize_t entry
    cdef public long long first
    cdef public long long last
    cdef readonly Py_ssize_t numbers
    cdef long long _numbers[513]
    cdef int _width
    cdef readonly bint compact
    cdef readonly Zset zset
    cdef readonly bint valkey
    cdef readonly bint zset_classic
    cdef readonly long long hash_entries
    cdef readonly long long hash_value
    cdef readonly long long set_entries
    cdef readonly long long set_value
    cdef readonly long long intset_entries
    cdef readonly long long zset_entries
    cdef readonly long long zset_value
    cdef readonly int list_size
    cdef readonly int list_depth
    cdef readonly long long list_threshold
    cdef readonly long long stream_bytes
    cdef readonly long long stream_entries
    cdef int load(self, Dict keys, Py_ssize_t n) except -1
    cdef bint start(self, int tag) except -1
    cdef bint start_list(self) except -1
    cdef Hash load_hash(self, Dict keys, Py_ssize_t n)
    cdef Hash start_hash(self)
    cdef Py_ssize_t compose_hash(self, Hash value) except -1
    cdef bint _takes(self, Py_ssize_t size) except -1
    cdef bint append(self, const unsigned char *at, Py_ssize_t size) except -1
    cdef bint prepend(self, const unsigned char *at, Py_ssize_t size) except -1
    cdef bint replace(self, Py_ssize_t pos, const unsigned char *at, Py_ssize_t size) except -1
    cdef bint outgrown(self, int tag) except -1
    cdef Py_ssize_t compose(self) except -1
    cdef bint _list_keeps_its_form(self) except -1
    cdef bint start_numbers(self) except -1
    cdef bint _load_numbers(self, const unsigned char *at) except -1
    cdef Py_ssize_t _index(self, long long value) except -1
    cdef bint has_number(self, long long value) except -1
    cdef bint add_number(self, long long value) except -1
    cdef bint remove_number(self, long long value) except -1
    cdef long long number_at(self, Py_ssize_t index) noexcept
    cdef bint numbers_fit(self) noexcept
    cdef Py_ssize_t compose_numbers(self) except -1
