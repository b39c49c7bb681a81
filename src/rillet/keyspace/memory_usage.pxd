cimport cython
from rillet.structs.dict cimport Dict
from rillet.structs.listpack cimport Listpack
from rillet.structs.quicklist cimport Quicklist
from rillet.structs.rax cimport Rax
from rillet.structs.skiplist cimport Skiplist
from rillet.types.sized cimport SizedValue
from rillet.types.stream.pending cimport PendingTable
from rillet.types.stream.stream cimport Stream
from rillet.types.string cimport String

cdef Py_ssize_t allocated(Py_ssize_t size) noexcept
cpdef Py_ssize_t dict_bytes(Dict table)
cdef Py_ssize_t listpack_bytes(Listpack packed) noexcept
cdef Py_ssize_t string_bytes(String string) noexcept
cdef Py_ssize_t stream_bytes(Stream stream)
cpdef Py_ssize_t value_bytes(object value)

@cython.final
cdef class Ledger:
    cdef readonly Py_ssize_t total
    cdef readonly list waiting
    cpdef bint note(self, object value)
    cpdef bint leave(self, object value)
    cpdef bint settle(self)
    cdef bint _measure(self, object value)
