cimport cython
from rillet.structs.listpack cimport Listpack
from rillet.structs.lzf cimport refuse_block, unpack
from rillet.types.rdb.primitives cimport RdbReader
from rillet.types.stream.stream cimport Stream
from rillet.types.stream.id cimport key_ms, key_seq
from rillet.types.stream.validation cimport LivingEntries


@cython.final
cdef class NodeBatch:
    cdef readonly list keys
    cdef readonly list nodes
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t half
    cdef LivingEntries first
    cdef LivingEntries second
    cdef object window
    cdef long long base
    cdef const unsigned char *source[1024]
    cdef unsigned char *data[1024]
    cdef Py_ssize_t packed[1024]
    cdef Py_ssize_t size[1024]
    cdef Py_ssize_t begins[1024]
    cdef Py_ssize_t ends[1024]
    cdef unsigned long long ms[1024]
    cdef unsigned long long seq[1024]
    cdef int damage[1024]
    cdef bint walked[1024]
    cpdef Py_ssize_t gather(self, RdbReader reader, unsigned long long left)
    cpdef bint work(self, Py_ssize_t start, Py_ssize_t stop, LivingEntries living)
    cdef bint _work(self, Py_ssize_t start, Py_ssize_t stop, LivingEntries living) noexcept nogil
    cpdef bint settle(self, RdbReader reader, Stream stream, LivingEntries living, bytes before)
